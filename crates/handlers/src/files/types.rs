//! Media types by the extension of a name.

use crate::files::file_settings::Files;
use std::borrow::Cow;

/// Types outside `text/` that are text nonetheless, or that shrink like text.
const COMPRESSIBLE: &[&str] = &[
    "application/javascript",
    "application/json",
    "application/manifest+json",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/xml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// Returns the media type of the file called `name`: the route's type for the extension, else that of the built-in table, else
/// the route's default. Text of the built-in table is declared to be UTF-8. The route's types are sent unchanged: its files may
/// be in another charset, and name that charset themselves.
pub(super) fn media_type<'a>(files: &'a Files, name: &[u8]) -> Cow<'a, str> {
    if let Some(typed) = overridden(files, name) {
        return typed.into();
    }
    match built_in(name) {
        Some(text) if is_text(text) && !text.contains(';') => {
            format!("{text}; charset=utf-8").into()
        }
        Some(found) => found.into(),
        None => files.default_type.as_str().into(),
    }
}

fn overridden<'a>(files: &'a Files, name: &[u8]) -> Option<&'a str> {
    let (_, found) = files.types.iter().find(|(ending, _)| {
        let Some(dot) = name.len().checked_sub(ending.len() + 1) else {
            return false;
        };
        name[dot] == b'.' && name[dot + 1..].eq_ignore_ascii_case(ending.as_bytes())
    })?;
    Some(found)
}

fn built_in(name: &[u8]) -> Option<&'static str> {
    let name = name.rsplit(|&b| b == b'/').next()?;
    let dot = name.iter().rposition(|&b| b == b'.')?;
    let ending = std::str::from_utf8(&name[dot + 1..]).ok()?;
    mime_guess::from_ext(ending).first_raw()
}

/// Returns the type without its parameters.
fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim_end()
}

fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/") || essence(media_type) == "application/javascript"
}

/// Returns whether bytes of this type are worth compressing, so that a compressed sibling may exist.
pub(super) fn is_compressible(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence.starts_with("text/")
        || essence.ends_with("+xml")
        || essence.ends_with("+json")
        || COMPRESSIBLE.contains(&essence)
}
