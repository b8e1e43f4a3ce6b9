//! Parses text into typed values. If a key is unknown or a value has the wrong type, galgo removes that entry and reads on, so
//! that other errors are reported too.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

use crate::config_text::config_error::{ConfigError, ConfigText};

/// Number of entries that galgo removes from one file before it gives up on the file.
const TAKEN_OUT: usize = 100;

/// The errors of files that were parsed.
#[derive(Default)]
pub(crate) struct Misread {
    pub(crate) errors: Vec<ConfigError>,
    /// Places of the outermost tables that lost an entry: if something is missing there now, that is not the user's mistake.
    torn: Vec<Range<usize>>,
}

impl Misread {
    /// Returns whether there are no errors: then nothing was removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Joins these errors with the errors of later checks. Drops later errors in tables that lost an entry.
    pub(crate) fn join_errors(self, checked: Vec<ConfigError>) -> Vec<ConfigError> {
        let whole = |error: &ConfigError| !self.torn.iter().any(|t| t.contains(&error.offset));
        let each = checked.into_iter().flat_map(ConfigError::split_errors);
        self.errors.into_iter().chain(each.filter(whole)).collect()
    }

    /// Reads the file whose spans begin at `from`; `None` if nothing of it can be used.
    pub(crate) fn parse_source<T: DeserializeOwned>(
        &mut self,
        text: &ConfigText<'_>,
        source: &str,
        from: usize,
    ) -> Option<T> {
        let shifted = |span: Range<usize>| span.start + from..span.end + from;
        let table = DeTable::parse(source).map_err(|e| {
            let span = e.span().map(shifted);
            self.errors.push(text.parse_error(&e, span));
        });
        let table = table.ok()?;
        let span = shifted(table.span());
        let mut table = table.into_inner();
        shift_entries(&mut table, from);
        for _ in 0..TAKEN_OUT {
            let whole = Spanned::new(span.clone(), table.clone());
            let error = match T::deserialize(Deserializer::from(whole)) {
                Ok(read) => return Some(read),
                Err(e) => e,
            };
            self.errors.push(text.parse_error(&error, error.span()));
            let at = error.span()?;
            self.torn.extend(outermost(&table, &at));
            if !take_out(&mut table, &at) {
                break;
            }
        }
        None
    }
}

/// Returns the span of a key with its value. The span of a table is only that of its header.
fn extent(key: &Range<usize>, value: &Spanned<DeValue<'_>>) -> Range<usize> {
    let all = inner_extent(value);
    key.start.min(all.start)..key.end.max(all.end)
}

fn inner_extent(value: &Spanned<DeValue<'_>>) -> Range<usize> {
    let own = value.span();
    let join = |a: Range<usize>, b: Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    match value.get_ref() {
        DeValue::Table(table) => table
            .iter()
            .map(|(key, value)| extent(&key.span(), value))
            .fold(own, join),
        DeValue::Array(items) => items.iter().map(inner_extent).fold(own, join),
        _ => own,
    }
}

/// Returns the span of the outermost table, below the table of the whole file, that holds `at`: a `[table]`, or one item of a
/// list of tables.
fn outermost(whole: &DeTable<'_>, at: &Range<usize>) -> Option<Range<usize>> {
    let holds = |extent: &Range<usize>| extent.start <= at.start && at.end <= extent.end;
    let tables = whole
        .values()
        .flat_map(|value| match value.get_ref() {
            DeValue::Array(items) => items.iter().collect(),
            _ => vec![value],
        })
        .filter(|value| value.get_ref().is_table());
    tables.map(inner_extent).find(holds)
}

/// Removes the innermost entry that holds `at`; returns whether there was one.
fn take_out(table: &mut DeTable<'_>, at: &Range<usize>) -> bool {
    let mut values = table.iter_mut().map(|(_, value)| value.get_mut());
    if values.any(|value| take_out_below(value, at)) {
        return true;
    }
    let holds = |extent: Range<usize>| extent.start <= at.start && at.end <= extent.end;
    let mut entries = table.iter();
    let entry = entries.find(|(key, value)| holds(extent(&key.span(), value)));
    let Some(key) = entry.map(|(key, _)| key.clone()) else {
        return false;
    };
    table.remove(&key).is_some()
}

fn take_out_below(value: &mut DeValue<'_>, at: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => take_out(table, at),
        DeValue::Array(items) => items
            .iter_mut()
            .any(|item| take_out_below(item.get_mut(), at)),
        _ => false,
    }
}

/// Moves all spans of a table's entries `by` bytes further.
fn shift_entries(table: &mut DeTable<'_>, by: usize) {
    let entries = std::mem::replace(table, DeTable::new());
    for (key, mut value) in entries {
        shift_spans(&mut value, by);
        let span = key.span();
        let key = Spanned::new(span.start + by..span.end + by, key.into_inner());
        table.insert(key, value);
    }
}

fn shift_spans(value: &mut Spanned<DeValue<'_>>, by: usize) {
    let span = value.span();
    let mut inner = std::mem::replace(value.get_mut(), DeValue::Boolean(false));
    match &mut inner {
        DeValue::Table(table) => shift_entries(table, by),
        DeValue::Array(items) => items.iter_mut().for_each(|item| shift_spans(item, by)),
        _ => {}
    }
    *value = Spanned::new(span.start + by..span.end + by, inner);
}
