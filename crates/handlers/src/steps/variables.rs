//! Variables that programs get for some requests, as with Apache's SetEnvIf.

use galgo_proto::{h1::Head, hosts::Hosts};
use galgo_service::{link::Link, request::Request};
use regex::bytes::Regex;

use super::access::Addresses;

/// A rule: if all conditions hold, the variables are set.
#[derive(Debug, Default, PartialEq)]
pub struct VariableRule {
    /// Patterns for values of fields; a field that is missing counts as empty.
    pub headers: Vec<(String, Pattern)>,
    /// Pattern for the clean path.
    pub path: Option<Pattern>,
    /// Pattern for the query as it came.
    pub query: Option<Pattern>,
    /// Methods that the request may have; empty: any method.
    pub methods: Vec<String>,
    /// Hosts that the request may be for; `None`: any host.
    pub host: Option<Hosts>,
    /// Addresses that the client may have; `None`: any address.
    pub from: Option<Addresses>,
    /// Names and values. The values are constants.
    pub set: Vec<(String, String)>,
}

/// A pattern. Matching takes time linear in the length of the text (crate regex).
#[derive(Debug)]
pub struct Pattern(pub Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl VariableRule {
    fn applies_to(&self, link: &Link, head: &Head) -> bool {
        let fits = |pattern: &Option<Pattern>, text: &[u8]| {
            pattern.as_ref().is_none_or(|own| own.0.is_match(text))
        };
        let (method, hosts) = (head.method.as_str(), self.host.as_ref());
        (self.methods.is_empty() || self.methods.iter().any(|own| own == method))
            && hosts.is_none_or(|own| own.match_closeness(&head.host).is_some())
            && self
                .from
                .as_ref()
                .is_none_or(|own| own.contains_client(link))
            && fits(&self.path, head.target.path())
            && fits(&self.query, head.target.query().as_bytes())
            && self.headers.iter().all(|(name, pattern)| {
                let mut values = head.fields.all_values(name).peekable();
                match values.peek() {
                    None => pattern.0.is_match(b""),
                    Some(_) => values.any(|value| pattern.0.is_match(value)),
                }
            })
    }
}

/// Returns names and values of the variables whose rules hold for a request. If two rules set a name, the later rule wins.
pub fn matching_variables<'r>(
    rules: &'r [VariableRule],
    link: &Link,
    head: &Head,
) -> Vec<(&'r str, &'r str)> {
    let mut set: Vec<(&str, &str)> = Vec::new();
    for rule in rules.iter().filter(|rule| rule.applies_to(link, head)) {
        for (name, value) in &rule.set {
            set.retain(|(known, _)| known != name);
            set.push((name, value));
        }
    }
    set
}

/// Gives a request the variables of the rules that hold for it. Variables from an authorizer stay.
pub(super) fn grant_variables(rules: &[VariableRule], request: &mut Request<'_>, head: &Head) {
    let granted = &mut request.granted;
    for (name, value) in matching_variables(rules, request.link, head) {
        if !granted.iter().any(|(known, _)| known == name) {
            granted.push((name.to_owned(), value.into()));
        }
    }
}
