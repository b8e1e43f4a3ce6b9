//! Fields of requests and responses that the configuration sets, adds and removes.
//!
//! Values come from the configuration alone: nothing that a client sent becomes part of a value.

use galgo_proto::{
    Fields,
    fields::{is_one_of, is_token},
    h1::Head,
};
use galgo_service::body::Response;

/// A field and its value.
pub type Field = (String, String);

/// Changes to fields.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct FieldChanges {
    /// Names of fields to remove.
    pub remove: Vec<String>,
    /// Fields that replace all fields of the same name.
    pub set: Vec<Field>,
    /// Fields to add, even if others have the same name.
    pub add: Vec<Field>,
    /// Fields to add if no field has the same name.
    pub default: Vec<Field>,
}

/// Changes to the fields of some responses.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct HeaderRule {
    /// Ranges of statuses, first and last; empty: all statuses.
    pub statuses: Vec<(u16, u16)>,
    /// Media types; empty: all types, and responses without a type.
    pub types: Vec<TypePattern>,
    /// Changes for these responses.
    pub changes: FieldChanges,
}

/// `text/html`, `image/*` or `*`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum TypePattern {
    Any,
    /// In lower case.
    Main(String),
    /// In lower case.
    Exact(String),
}

impl TypePattern {
    /// Reads a pattern; `None` if the text is not a pattern.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let token = |t: &str| !t.is_empty() && t != "*" && t.bytes().all(is_token);
        match text.split_once('/') {
            None => (text == "*").then_some(Self::Any),
            Some((main, "*")) => token(main).then(|| Self::Main(main.into())),
            Some((main, sub)) => (token(main) && token(sub)).then_some(Self::Exact(text)),
        }
    }

    /// Returns whether a media type, without parameters, fits the pattern.
    pub fn matches_type(&self, media: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(own) => own.eq_ignore_ascii_case(media),
            Self::Main(own) => media
                .split_once('/')
                .is_some_and(|(main, _)| main.eq_ignore_ascii_case(own)),
        }
    }
}

/// Returns the media type of a response, without parameters; empty if the response has none.
pub(super) fn media_type(fields: &Fields) -> &str {
    let value = fields.first_value("content-type").unwrap_or_default();
    let media = value.split(|&b| b == b';').next().unwrap_or_default();
    str::from_utf8(media).unwrap_or_default().trim()
}

impl HeaderRule {
    fn applies(&self, response: &Response) -> bool {
        let status = response.status;
        let of = |(from, to): &(u16, u16)| (*from..=*to).contains(&status);
        let statuses = self.statuses.is_empty() || self.statuses.iter().any(of);
        statuses && (self.types.is_empty() || self.matches_type(media_type(&response.fields)))
    }

    fn matches_type(&self, media: &str) -> bool {
        self.types.iter().any(|pattern| pattern.matches_type(media))
    }
}

impl FieldChanges {
    /// Makes the changes.
    pub fn apply_to(&self, fields: &mut Fields) {
        if !self.remove.is_empty() || !self.set.is_empty() {
            let is_own = |name: &[u8], own: &str| name.eq_ignore_ascii_case(own.as_bytes());
            let is_set = |name: &[u8]| self.set.iter().any(|(own, _)| is_own(name, own));
            fields.retain(|name, _| !is_one_of(name, &self.remove) && !is_set(name));
        }
        for (name, value) in self.set.iter().chain(&self.add) {
            fields.push(name, value);
        }
        for (name, value) in &self.default {
            if !fields.has_field(name) {
                fields.push(name, value);
            }
        }
    }
}

/// Changes to the fields of a route's responses and requests.
#[derive(Debug, Default, PartialEq)]
pub struct Headers {
    /// Rules for responses, in order.
    pub rules: Vec<HeaderRule>,
    /// Cache-Control of successful responses that have none: the value of the first pattern that fits.
    pub expires: Vec<(TypePattern, String)>,
    /// Changes to requests, made before the handler runs.
    pub request: Option<FieldChanges>,
}

impl Headers {
    /// Changes a response.
    pub fn change_response(&self, response: &mut Response) {
        for rule in &self.rules {
            if rule.applies(response) {
                rule.changes.apply_to(&mut response.fields);
            }
        }
        let lasts = response.status < 400 && !self.expires.is_empty();
        if lasts && !response.fields.has_field("cache-control") {
            let media = media_type(&response.fields);
            let found = self
                .expires
                .iter()
                .find(|(pattern, _)| pattern.matches_type(media));
            if let Some((_, value)) = found {
                response.fields.push("Cache-Control", value);
            }
        }
    }

    /// Returns the head that the handler sees; `None` if nothing changes.
    pub fn change_request(&self, head: &Head) -> Option<Head> {
        let changes = self.request.as_ref()?;
        let mut head = head.clone();
        changes.apply_to(&mut head.fields);
        Some(head)
    }
}

/// Fields that `security_headers` adds to responses that lack them.
pub const SECURITY: [(&str, &str); 4] = [
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
    ("Referrer-Policy", "strict-origin-when-cross-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &str)]) -> Vec<Field> {
        pairs
            .iter()
            .map(|(n, v)| ((*n).into(), (*v).into()))
            .collect()
    }

    #[test]
    fn what_is_done_to_fields() {
        let changes = FieldChanges {
            remove: vec!["x-a".into()],
            set: list(&[("X-B", "new")]),
            add: list(&[("X-C", "2")]),
            default: list(&[("X-C", "3"), ("X-D", "4")]),
        };
        let mut fields = Fields::new();
        for (name, value) in [("X-A", "1"), ("x-b", "old"), ("X-B", "older"), ("X-C", "1")] {
            fields.push(name, value);
        }
        changes.apply_to(&mut fields);
        let shown: Vec<_> = fields
            .iter()
            .map(|(n, v)| (str::from_utf8(n).unwrap(), str::from_utf8(v).unwrap()))
            .collect();
        assert_eq!(
            shown,
            [("X-C", "1"), ("X-B", "new"), ("X-C", "2"), ("X-D", "4")]
        );
    }

    #[test]
    fn rules_are_for_some_responses() {
        let rule = |statuses: &[(u16, u16)], types: &[&str]| HeaderRule {
            statuses: statuses.to_vec(),
            types: types
                .iter()
                .map(|t| TypePattern::parse(t).unwrap())
                .collect(),
            changes: FieldChanges::default(),
        };
        let html =
            |status| Response::new(status).with_field("Content-Type", "Text/HTML; charset=utf-8");
        for (rule, response, applies) in [
            (rule(&[], &[]), html(200), true),
            (rule(&[(200, 299)], &[]), html(404), false),
            (rule(&[(200, 299), (404, 404)], &[]), html(404), true),
            (rule(&[], &["text/html"]), html(200), true),
            (rule(&[], &["text/*"]), html(200), true),
            (rule(&[], &["image/*", "text/css"]), html(200), false),
            (rule(&[], &["*"]), Response::new(204), true),
            (rule(&[], &["text/*"]), Response::new(204), false),
        ] {
            assert_eq!(rule.applies(&response), applies, "{rule:?}");
        }
        for wrong in ["", "text", "/", "*/*", "text/", "a b/c", "text/html; x"] {
            assert_eq!(TypePattern::parse(wrong), None, "{wrong}");
        }
    }
}
