//! Variables that programs get for some requests: Apache's SetEnvIf.

use galgo_proto::{h1::Head, hosts::Hosts};
use galgo_service::{link::Link, request::Request};
use regex::bytes::Regex;

use super::access::Addresses;

/// A rule: where all conditions hold, the variables are set.
#[derive(Debug, Default, PartialEq)]
pub struct VariableRule {
    /// Values of fields; a field that is not there has an empty one.
    pub headers: Vec<(String, Pattern)>,
    /// The clean path.
    pub path: Option<Pattern>,
    /// The query as it came.
    pub query: Option<Pattern>,
    /// One of these methods; empty: any.
    pub methods: Vec<String>,
    /// One of these hosts.
    pub host: Option<Hosts>,
    /// The client's address.
    pub from: Option<Addresses>,
    /// Names and values, none of which is computed.
    pub set: Vec<(String, String)>,
}

/// A pattern: linear in the length of what it is compared with (crate regex).
#[derive(Debug)]
pub struct Pattern(pub Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl VariableRule {
    fn holds(&self, link: &Link, head: &Head) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &[u8]| {
            pattern.as_ref().is_none_or(|own| own.0.is_match(text))
        };
        let (method, hosts) = (head.method.as_str(), self.host.as_ref());
        (self.methods.is_empty() || self.methods.iter().any(|own| own == method))
            && hosts.is_none_or(|own| own.fit(&head.host).is_some())
            && self.from.as_ref().is_none_or(|own| own.has(link))
            && fits(&self.path, head.target.path())
            && fits(&self.query, head.target.query().as_bytes())
            && self.headers.iter().all(|(name, pattern)| {
                let mut values = head.fields.all(name).peekable();
                match values.peek() {
                    None => pattern.0.is_match(b""),
                    Some(_) => values.any(|value| pattern.0.is_match(value)),
                }
            })
    }
}

/// The variables of the rules that hold for a request, with their values. Of two rules the later one counts.
pub fn given<'r>(rules: &'r [VariableRule], link: &Link, head: &Head) -> Vec<(&'r str, &'r str)> {
    let mut set: Vec<(&str, &str)> = Vec::new();
    for rule in rules.iter().filter(|rule| rule.holds(link, head)) {
        for (name, value) in &rule.set {
            set.retain(|(known, _)| known != name);
            set.push((name, value));
        }
    }
    set
}

/// Gives a request the variables of the rules that hold for it. What an authorizer has given stays.
pub(super) fn grant(rules: &[VariableRule], request: &mut Request<'_>, head: &Head) {
    let granted = &mut request.granted;
    for (name, value) in given(rules, request.link, head) {
        if !granted.iter().any(|(known, _)| known == name) {
            granted.push((name.to_owned(), value.into()));
        }
    }
}
