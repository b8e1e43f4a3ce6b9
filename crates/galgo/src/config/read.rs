//! From text to what was typed. An unknown key, or a value of the wrong type, is taken out and reading goes on, so that what
//! else is wrong is said too.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue, Deserializer},
};

use super::error::{ConfigError, ConfigText};

/// Entries that are taken out of one file before galgo gives it up.
const TAKEN_OUT: usize = 100;

/// What is wrong with files as they are typed.
#[derive(Default)]
pub(super) struct Misread {
    pub(super) errors: Vec<ConfigError>,
    /// The outermost tables that something was taken out of: what is missing there now is not the user's mistake.
    torn: Vec<Range<usize>>,
}

impl Misread {
    /// Whether all is as it was typed.
    pub(super) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// What is wrong as it is typed, and what else is wrong with tables that nothing was taken out of.
    pub(super) fn with(self, checked: Vec<ConfigError>) -> Vec<ConfigError> {
        let whole = |error: &ConfigError| !self.torn.iter().any(|t| t.contains(&error.offset()));
        let each = checked.into_iter().flat_map(ConfigError::each);
        let others: Vec<_> = each.filter(whole).collect();
        self.errors.into_iter().chain(others).collect()
    }

    /// Reads the file whose spans begin at `from`; `None`: nothing of it can be used.
    pub(super) fn read<T: DeserializeOwned>(
        &mut self,
        text: &ConfigText<'_>,
        source: &str,
        from: usize,
    ) -> Option<T> {
        let shifted = |span: Range<usize>| span.start + from..span.end + from;
        let table = DeTable::parse(source).map_err(|e| {
            let span = e.span().map(shifted);
            self.errors.push(text.parse_error_at(&e, span));
        });
        let table = table.ok()?;
        let span = table.span();
        let mut whole = DeValue::Table(table.into_inner());
        shift_inner(&mut whole, from);
        for _ in 0..TAKEN_OUT {
            let DeValue::Table(table) = &whole else {
                break;
            };
            let table = Spanned::new(shifted(span.clone()), table.clone());
            let error = match T::deserialize(Deserializer::from(table)) {
                Ok(read) => return Some(read),
                Err(e) => e,
            };
            self.errors.push(text.parse_error(&error));
            let at = error.span()?;
            self.torn.extend(outermost(&whole, &at));
            if !take_out(&mut whole, &at) {
                break;
            }
        }
        None
    }
}

/// What a key with its value spans. A table's own span is that of its header alone.
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

/// The outermost table below the file's own that holds `at`: a `[table]`, or one of a list of them.
fn outermost(whole: &DeValue<'_>, at: &Range<usize>) -> Option<Range<usize>> {
    let holds = |extent: &Range<usize>| extent.start <= at.start && at.end <= extent.end;
    let tables = whole.as_table()?.iter().flat_map(|(_, value)| {
        let items = value.get_ref().as_array();
        let items = items.map(|items| items.iter().collect::<Vec<_>>());
        items.unwrap_or_else(|| vec![value])
    });
    let extents = tables.filter(|value| value.get_ref().is_table());
    extents.map(inner_extent).find(holds)
}

/// Takes the innermost entry that holds `at` out; whether there is one.
fn take_out(value: &mut DeValue<'_>, at: &Range<usize>) -> bool {
    match value {
        DeValue::Table(table) => {
            if table
                .iter_mut()
                .any(|(_, value)| take_out(value.get_mut(), at))
            {
                return true;
            }
            let holds = |span: Range<usize>| span.start <= at.start && at.end <= span.end;
            let entry = table
                .iter()
                .find(|(key, value)| holds(key.span()) || holds(extent(&key.span(), value)));
            let Some(key) = entry.map(|(key, _)| key.clone()) else {
                return false;
            };
            table.remove(&key).is_some()
        }
        DeValue::Array(items) => items.iter_mut().any(|item| take_out(item.get_mut(), at)),
        _ => false,
    }
}

/// Has all spans of a value begin `by` bytes later.
fn shift(value: &mut Spanned<DeValue<'_>>, by: usize) {
    let span = value.span();
    let mut inner = std::mem::replace(value.get_mut(), DeValue::Boolean(false));
    shift_inner(&mut inner, by);
    *value = Spanned::new(span.start + by..span.end + by, inner);
}

fn shift_inner(value: &mut DeValue<'_>, by: usize) {
    match value {
        DeValue::Table(table) => {
            let entries = std::mem::replace(table, DeTable::new());
            for (key, mut value) in entries {
                shift(&mut value, by);
                let span = key.span();
                let key = Spanned::new(span.start + by..span.end + by, key.into_inner());
                table.insert(key, value);
            }
        }
        DeValue::Array(items) => {
            let items: &mut DeArray<'_> = items;
            items.iter_mut().for_each(|item| shift(item, by));
        }
        _ => {}
    }
}
