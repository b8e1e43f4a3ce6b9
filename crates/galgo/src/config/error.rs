//! Errors that name their place, and the text they are about.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use super::raw;

/// Why a configuration cannot be used: `galgo.toml:7:1: unknown key "lisen"; did you mean "listen"?`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    place: Option<(usize, usize)>,
    message: String,
}

/// What was checked, or what is wrong with it.
pub(super) type Checked<X> = Result<X, ConfigError>;

impl ConfigError {
    /// An error that is not about a place in a file.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            file: None,
            place: None,
            message: message.into(),
        }
    }

    /// Line and column in the file, counted from 1, in characters.
    pub fn place(&self) -> Option<(usize, usize)> {
        self.place
    }

    /// What is wrong and how to mend it, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some((line, column)) = self.place {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// The text of a configuration: knows the place and the key of each span of it.
pub(super) struct ConfigText<'a> {
    pub(super) file: &'a Path,
    pub(super) source: &'a str,
    /// The absolute folder of the file: relative paths start there.
    pub(super) folder: PathBuf,
}

impl<'a> ConfigText<'a> {
    pub(super) fn new(file: &'a Path, source: &'a str) -> Result<Self, ConfigError> {
        let absolute = std::path::absolute(file)
            .map_err(|e| ConfigError::new(format!("{}: {e}", file.display())))?;
        let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self {
            file,
            source,
            folder,
        })
    }

    /// An error about the value or key at `span`, which is named in front of the message.
    pub(super) fn error(&self, span: Range<usize>, message: impl fmt::Display) -> ConfigError {
        match self.key(&span) {
            Some(key) => self.bare(span, format!("{key}: {message}")),
            None => self.bare(span, message.to_string()),
        }
    }

    /// An error at `span` that does not name a key.
    pub(super) fn bare(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        let before = self.source.get(..span.start).unwrap_or(self.source);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        ConfigError {
            file: Some(self.file.to_owned()),
            place: Some((line, column)),
            message: message.into(),
        }
    }

    /// An error about the file as a whole.
    pub(super) fn whole(&self, message: impl Into<String>) -> ConfigError {
        ConfigError {
            file: Some(self.file.to_owned()),
            place: None,
            message: message.into(),
        }
    }

    /// What the TOML reader has to say, in our words.
    pub(super) fn parse_error(&self, error: &toml::de::Error) -> ConfigError {
        let Some(span) = error.span() else {
            return self.whole(error.message());
        };
        match unknown(error.message()) {
            Some((key, known)) => self.bare(span, suggestion(key, &known)),
            None => self.error(span, plain(error.message())),
        }
    }

    /// The innermost key whose value holds `span`.
    fn key(&self, span: &Range<usize>) -> Option<String> {
        let table = DeTable::parse(self.source).ok()?;
        key_in(table.get_ref(), span)
    }
}

fn key_in(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let inside = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    for (key, value) in table {
        let deeper = key_below(value.get_ref(), span);
        if deeper.is_some() {
            return deeper;
        }
        let leaf = !value.get_ref().is_table() && !of_tables(value.get_ref());
        if inside(key.span()) || ((leaf || value.span() == *span) && inside(value.span())) {
            return Some(key.get_ref().to_string());
        }
    }
    None
}

fn key_below(value: &DeValue<'_>, span: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => key_in(table, span),
        DeValue::Array(items) => items
            .iter()
            .find_map(|item| key_below(item.get_ref(), span)),
        _ => None,
    }
}

fn of_tables(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()))
}

/// Takes serde's "unknown field `a`, expected one of `b`, `c`" apart.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field ")?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// serde's words for a person who does not know its data model.
fn plain(message: &str) -> String {
    message
        .replace('\n', "; ")
        .replace("invalid type: ", "found ")
        .replace("expected a sequence", "expected a list: [ … ]")
        .replace("expected a map", "expected a table: { … }")
        .replace("found map", "found a table")
        .replace(
            "found a table, expected a list: [ … ]",
            "found a table, expected a list: [ … ], or [[…]] in front of each table",
        )
        .replace(
            "unexpected leading zero, expected nothing",
            "no number begins with 0: write it in quotes",
        )
}

/// Names where the key belongs, or the nearest right key, or the keys there are.
fn suggestion(key: &str, known: &[&str]) -> String {
    if raw::RawOptions::KEYS.contains(&key) {
        return format!("unknown key {key:?} here; it belongs under [defaults] or in a [[route]]");
    }
    if raw::RawConfig::KEYS.contains(&key) {
        return format!("unknown key {key:?} here; it belongs at the top of the file");
    }
    let distance = |name: &str| strsim::damerau_levenshtein(key, name);
    let near = known.iter().map(|name| (distance(name), *name)).min();
    let limit = (key.len() / 3).max(1);
    if let Some((_, name)) = near.filter(|(distance, _)| *distance <= limit) {
        return format!("unknown key {key:?}; did you mean {name:?}?");
    }
    format!("unknown key {key:?}; known here: {}", known.join(", "))
}
