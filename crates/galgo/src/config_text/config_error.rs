//! Errors that name a place in the configuration, and the texts that the places are in.

use std::{
    borrow::Cow,
    cell::RefCell,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use galgo_spawn::trusted_path::others_part;
use toml::de::{DeTable, DeValue};

use crate::config_text::raw;

/// An error in a configuration: `galgo.toml:7:1: unknown key "lisen"; did you mean "listen"?`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: Option<PathBuf>,
    place: Option<(usize, usize)>,
    /// The place, counted in bytes over the texts of all files, one after the other.
    pub(crate) offset: usize,
    message: String,
    /// If another account's file or folder is to blame: the status that the route answers with. Such an error does not keep
    /// the server from starting.
    pub(crate) closes: Option<u16>,
    /// Further errors.
    more: Vec<ConfigError>,
}

/// Limit of the errors that are shown at once.
const SHOWN: usize = 20;

/// A checked value, or an error.
pub(crate) type Checked<X> = Result<X, ConfigError>;

impl ConfigError {
    /// Returns an error that is not about a place in a file.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            file: None,
            place: None,
            offset: 0,
            message: message.into(),
            closes: None,
            more: Vec::new(),
        }
    }

    /// Splits the error from the further errors that it carries.
    pub(crate) fn split_errors(mut self) -> impl Iterator<Item = Self> {
        let more = std::mem::take(&mut self.more);
        std::iter::once(self).chain(more)
    }

    /// Returns the first file beside `main` that has an error and that another account can change, with all errors of that
    /// file.
    pub(crate) fn others_file(&self, main: &Path) -> Option<(PathBuf, String)> {
        let all = || std::iter::once(self).chain(&self.more);
        let others = |file: &&PathBuf| *file != main && others_part(file).is_some();
        let file = all().filter_map(|error| error.file.as_ref()).find(others)?;
        let own = all().filter(|error| error.file.as_ref() == Some(file));
        let own = own.map(|error| {
            Self {
                more: Vec::new(),
                ..error.clone()
            }
            .to_string()
        });
        Some((file.clone(), own.collect::<Vec<_>>().join("; ")))
    }

    /// Joins errors in the order of the files; `None` if there are none.
    pub(crate) fn join_errors(errors: Vec<Self>) -> Option<Self> {
        let mut errors: Vec<_> = errors.into_iter().flat_map(Self::split_errors).collect();
        errors.sort_by_key(|error| error.offset);
        // A key at the top of a file holds for all its routes: report its error once.
        errors.dedup();
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        Some(Self {
            more: errors.collect(),
            ..first
        })
    }

    /// Returns the error and its fix, without the place.
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
        f.write_str(&self.message)?;
        for error in self.more.iter().take(SHOWN - 1) {
            write!(f, "\n{error}")?;
        }
        match self.more.len().saturating_sub(SHOWN - 1) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The texts of a configuration: the main file and the files that it includes. Knows the file, the line and the key of each
/// span.
pub(crate) struct ConfigText<'a> {
    main: SourceFile<'a>,
    included: Vec<SourceFile<'a>>,
    /// Files that are read with the texts ([`Config::read`](super::Config::read)).
    read: RefCell<Vec<PathBuf>>,
    /// Warnings for the operator about files and folders of other accounts.
    warnings: RefCell<Vec<String>>,
}

/// A file of the configuration. galgo reads all files as if their texts followed each other, so that a span identifies its file.
struct SourceFile<'a> {
    file: PathBuf,
    text: Cow<'a, str>,
    /// The absolute folder of the file: relative paths start there.
    folder: PathBuf,
    /// The place where the text begins in the joined texts.
    from: usize,
}

impl<'a> SourceFile<'a> {
    fn new(file: &Path, text: Cow<'a, str>, from: usize) -> Result<Self, ConfigError> {
        let absolute = std::path::absolute(file)
            .map_err(|e| ConfigError::new(format!("{}: {e}", file.display())))?;
        Ok(Self {
            file: file.to_owned(),
            text,
            folder: absolute.parent().unwrap_or(Path::new("/")).to_owned(),
            from,
        })
    }
}

impl<'a> ConfigText<'a> {
    pub(crate) fn new(file: &Path, text: &'a str) -> Result<Self, ConfigError> {
        Ok(Self {
            main: SourceFile::new(file, text.into(), 0)?,
            included: Vec::new(),
            read: RefCell::new(vec![file.to_owned()]),
            warnings: RefCell::default(),
        })
    }

    /// Notes a file that is read with the texts.
    pub(crate) fn note_read_file(&self, file: PathBuf) {
        self.read.borrow_mut().push(file);
    }

    /// Takes the files that were noted.
    pub(crate) fn take_read_files(&self) -> Vec<PathBuf> {
        self.read.take()
    }

    /// Returns whether another account can change the file that `span` is in.
    pub(crate) fn is_in_others_file(&self, span: &Range<usize>) -> bool {
        others_part(&self.source_at(span.start).file).is_some()
    }

    /// Adds an error to the warnings, unless it is there already.
    pub(crate) fn add_warning(&self, error: &ConfigError) {
        let (words, mut warnings) = (error.to_string(), self.warnings.borrow_mut());
        if !warnings.contains(&words) {
            warnings.push(words);
        }
    }

    /// Warns of an error that keeps a route from being used.
    pub(crate) fn warn_of_closed(&self, error: &ConfigError, status: u16) {
        let why = error.message();
        let message =
            format!("{why}. The route answers {status} until you fix this and reload galgo");
        self.add_warning(&ConfigError {
            message,
            ..error.clone()
        });
    }

    /// Takes the warnings.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Marks an error about the file or folder at `path`. If that path is in another account's hands, the route answers
    /// `status`.
    pub(crate) fn mark_owner(&self, error: ConfigError, path: &Path, status: u16) -> ConfigError {
        let closes = others_part(path).map(|_| status);
        ConfigError { closes, ..error }
    }

    /// Turns an error into a warning and `None` if a file or folder of another account is to blame. Any other error stays an
    /// error.
    pub(crate) fn or_warn<T>(&self, checked: Checked<T>) -> Checked<Option<T>> {
        match checked {
            Err(e) if e.closes.is_some() => {
                self.add_warning(&e);
                Ok(None)
            }
            checked => checked.map(Some),
        }
    }

    /// Adds the text of an included file; returns the place where its spans begin.
    pub(crate) fn add_included(&mut self, file: &Path, text: String) -> Result<usize, ConfigError> {
        let last = self.included.last().unwrap_or(&self.main);
        let from = last.from + last.text.len() + 1;
        self.included
            .push(SourceFile::new(file, text.into(), from)?);
        Ok(from)
    }

    fn source_at(&self, offset: usize) -> &SourceFile<'a> {
        let holds = |source: &&SourceFile<'_>| source.from <= offset;
        self.included.iter().rfind(holds).unwrap_or(&self.main)
    }

    /// Returns the folder that relative paths at `span` start at.
    pub(crate) fn source_folder(&self, span: &Range<usize>) -> &Path {
        &self.source_at(span.start).folder
    }

    /// Returns an error about the value or key at `span`; the message begins with the key.
    pub(crate) fn error_at(&self, span: Range<usize>, message: impl fmt::Display) -> ConfigError {
        match self.innermost_key(&span) {
            Some(key) => self.keyless_error(span, format!("{key}: {message}")),
            None => self.keyless_error(span, message.to_string()),
        }
    }

    /// Returns an error at `span` that does not name a key.
    pub(crate) fn keyless_error(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> ConfigError {
        let source = self.source_at(span.start);
        let before = source.text.get(..span.start - source.from);
        let before = before.unwrap_or(&source.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        ConfigError {
            file: Some(source.file.clone()),
            place: Some((line, column)),
            offset: span.start,
            ..ConfigError::new(message)
        }
    }

    /// Refuses a value, if there is one at `place`.
    pub(crate) fn refuse(
        &self,
        place: Option<Range<usize>>,
        message: impl fmt::Display,
    ) -> Checked<()> {
        place.map_or(Ok(()), |at| Err(self.error_at(at, message)))
    }

    /// Returns an error about the file as a whole.
    pub(crate) fn file_error(&self, message: impl Into<String>) -> ConfigError {
        ConfigError {
            file: Some(self.main.file.clone()),
            ..ConfigError::new(message)
        }
    }

    /// Puts an error of the TOML reader about `span` into galgo's words.
    pub(crate) fn parse_error(
        &self,
        error: &toml::de::Error,
        span: Option<Range<usize>>,
    ) -> ConfigError {
        let Some(span) = span else {
            return self.file_error(error.message());
        };
        let included = self.source_at(span.start).from > 0;
        match unknown(error.message()) {
            Some((key, _)) if included && raw::RawRoute::KEYS.contains(&key) => self.keyless_error(
                span,
                format!("unknown key {key:?} here; it belongs in a [[route]]"),
            ),
            Some((key, _)) if included && raw::RawConfig::KEYS.contains(&key) => {
                let main = self.main.file.display();
                let words = format!("{key} applies to the whole server: write it in {main}");
                self.keyless_error(span, words)
            }
            Some((key, known)) => self.keyless_error(span, suggestion(key, &known)),
            None => match self.innermost_key(&span).and_then(|key| written(&key)) {
                Some((key, as_in)) => {
                    self.keyless_error(span, format!("{key}: write it as in {key} = {as_in}"))
                }
                None => self.error_at(span, plain_message(error.message())),
            },
        }
    }

    /// Returns the innermost key whose value holds `span`.
    fn innermost_key(&self, span: &Range<usize>) -> Option<String> {
        let source = self.source_at(span.start);
        let table = DeTable::parse(&source.text).ok()?;
        let own = span.start - source.from..span.end.saturating_sub(source.from);
        key_in(table.get_ref(), &own)
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

/// Splits serde's "unknown field `a`, expected one of `b`, `c`" into the unknown field and the expected fields.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field ")?;
    let mut quoted = rest.split('`').skip(1).step_by(2);
    Some((quoted.next()?, quoted.collect()))
}

/// Keys whose values often have the wrong type, each with an example of a value.
const WRITTEN: [(&str, &str); 13] = [
    ("access", "{ allow = [\"10.0.0.0/8\"] }"),
    ("access_log", "\"access.log\""),
    ("compress", "true"),
    ("cors", "{ origins = [\"https://app.example.org\"] }"),
    ("errors", "{ 404 = \"/404.html\" }"),
    ("expires", "{ \"image/*\" = \"720h\" }"),
    ("headers", "{ X-Robots-Tag = \"noindex\" }"),
    ("include", "\"sites/*.toml\""),
    ("listen", "[\"0.0.0.0:80\"]"),
    ("passwords", "\"site.htpasswd\""),
    ("redirect", "{ to = \"/new{path}\", status = 308 }"),
    ("require", "[\"alice\", \"@staff\"]"),
    (
        "tls",
        "{ certificate = \"fullchain.pem\", key = \"privkey.pem\" }",
    ),
];

/// Returns an example of that key's value, for a value of the wrong type.
fn written(key: &str) -> Option<(&'static str, &'static str)> {
    WRITTEN.into_iter().find(|(known, _)| *known == key)
}

/// Rewrites a message of serde for readers without knowledge of its data model.
fn plain_message(message: &str) -> String {
    let escapes = ["missing escaped value", "too few unicode value digits"];
    if escapes.iter().any(|words| message.starts_with(words)) {
        return "a backslash in double quotes begins an escape: write the text in single quotes"
            .into();
    }
    // The name of a Rust type tells the author of the file nothing.
    let message = match message.split_once("expected struct Raw") {
        Some((before, _)) => &*format!("{before}expected a map"),
        None => message,
    };
    message
        .replace('\n', "; ")
        .replace("invalid type: ", "found ")
        .replace("found sequence", "found a list")
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

/// Returns advice for a key of another server. `key` is in lower case, without `_` and `-`.
fn instead(key: &str) -> Option<&'static str> {
    let instead = match key {
        "auth" | "authbasic" | "basicauth" | "htpasswd" | "password" => {
            "for passwords write passwords = \"site.htpasswd\" in a [[route]]; for an application that decides, authorizer"
        }
        "errorpage" | "errorpages" | "errordocument" => "write errors = { 404 = \"/404.html\" }",
        "server" | "http" | "main" | "global" => {
            "write the server's keys at the top of the file, outside of tables"
        }
        "serveruser" | "runas" | "suexec" => {
            "for the user of the server write `user` at the top of the file; for the user of programs, `user` in a [[route]] or under [defaults]"
        }
        "locations" | "routes" | "vhost" | "virtualhost" | "site" => {
            "write one [[route]] for each, with its `path`, and `host` if the route is for one host"
        }
        "servername" | "serveralias" | "hosts" | "domain" => {
            "write host = \"example.org\" in a [[route]]"
        }
        "ssl" | "https" | "sslcertificate" | "cert" => {
            "listen on \"https://0.0.0.0:443\", and write the certificate under [tls]"
        }
        "port" | "bind" | "address" => "write listen = [\"127.0.0.1:8080\"]",
        "gzip" | "compression" | "brotli" | "encode" => "write compress = true in a [[route]]",
        "location" | "scriptalias" => "write path = \"/…\" in a [[route]]",
        "addheader" | "header" | "setheader" => {
            "write headers = { Name = \"value\" } in a [[route]]"
        }
        "execcgi" | "addhandler" | "cgiextensions" => {
            "write cgi_names = [\"*.cgi\"] in a route of files"
        }
        "websocket" | "websockets" => "write upgrade = true in a route of programs",
        "useragent" | "referer" => "write headers = { User-Agent = \"…\" } in one of `env_rules`",
        "documentroot" | "docroot" | "static" | "alias" => {
            "write files = \"public\" in a [[route]]"
        }
        "proxy" | "proxypass" | "reverseproxy" => {
            "galgo passes requests on to FastCGI and SCGI applications only: fastcgi = \"unix:/run/app.sock\""
        }
        "redirects" | "return" => "write redirect = { to = \"/new{path}\" } in a [[route]]",
        "rewrites" | "rewriterule" => "write [[rewrite]] with `pattern` and `to`",
        "tryfiles" => "write try = [\"{path}\", \"/index.cgi\"] in a route of files",
        "allow" | "deny" | "order" | "methods" => {
            "write access = { allow = [\"10.0.0.0/8\"] } in a [[route]]"
        }
        _ => return None,
    };
    Some(instead)
}

/// Names the table that the key belongs in, or the nearest known key, or all known keys.
fn suggestion(key: &str, known: &[&str]) -> String {
    if raw::RawOptions::KEYS.contains(&key) {
        return format!("unknown key {key:?} here; it belongs under [defaults] or in a [[route]]");
    }
    if raw::RawConfig::KEYS.contains(&key) {
        return format!("unknown key {key:?} here; it belongs at the top of the file");
    }
    // Compare without `_` and case: `DocumentRoot` is then the same as `document_root`.
    let bare = key.replace(['_', '-'], "").to_ascii_lowercase();
    if let Some(instead) = instead(&bare) {
        return format!("unknown key {key:?}: {instead}");
    }
    let distance = |name: &str| strsim::damerau_levenshtein(key, name);
    let near = known.iter().map(|name| (distance(name), *name)).min();
    let limit = (key.len() / 3).max(1);
    if let Some((_, name)) = near.filter(|(distance, _)| *distance <= limit) {
        return format!("unknown key {key:?}; did you mean {name:?}?");
    }
    if raw::RawRoute::KEYS.contains(&key) {
        return format!("unknown key {key:?} here; it belongs in a [[route]]");
    }
    format!("unknown key {key:?}; known here: {}", known.join(", "))
}
