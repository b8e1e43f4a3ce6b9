//! Rewriting of paths: the first rule that fits changes the request, once.

use galgo_proto::{h1::Head, hosts::Hosts, target::Target};
use galgo_service::{body::Response, link::Link};
use regex::{
    Regex as TextRegex, RegexBuilder as TextRegexBuilder,
    bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder},
};

use super::{
    redirect,
    template::{Part, TargetTemplate, Values},
};

/// Limit for the size of a compiled pattern.
const SIZE: usize = 1 << 20;
/// Limit for the size of all compiled patterns together.
const ALL: usize = 64 << 20;

/// A rule of rewriting.
#[derive(Debug)]
pub struct RewriteRule {
    /// Only requests to these hosts; `None`: to any host.
    pub host: Option<Hosts>,
    /// `true`: only requests that came by TLS; `false`: only requests that did not.
    pub https: Option<bool>,
    /// Pattern for the clean path.
    pub path: Regex,
    /// Pattern for the query as it came.
    pub query: Option<TextRegex>,
    /// New target of the request.
    pub to: TargetTemplate,
    /// Status of a redirect to the new target, if the client is redirected instead.
    pub status: Option<u16>,
}

/// Outcome for a request that a rule fits.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Rewritten {
    Target(Target),
    Response(Response),
}

/// Compiles the pattern of a path. Matching takes time linear in the path's length, whatever the pattern (crate regex).
///
/// # Errors
/// The text is not a pattern, or the pattern is too large.
pub fn path_pattern(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(SIZE).build();
    built.map_err(|e| e.to_string())
}

/// Compiles the pattern of a query.
///
/// # Errors
/// The text is not a pattern, or the pattern is too large.
pub fn query_pattern(text: &str) -> Result<TextRegex, String> {
    let built = TextRegexBuilder::new(text).size_limit(SIZE).build();
    built.map_err(|e| e.to_string())
}

/// Rules of rewriting, in order.
#[derive(Debug)]
pub struct Rewrites {
    rules: Vec<RewriteRule>,
    /// Finds the rules whose path fits, in one pass over the path.
    set: RegexSet,
}

impl Rewrites {
    /// Compiles the rules.
    ///
    /// # Errors
    /// The rules together are too large.
    pub fn new(rules: Vec<RewriteRule>) -> Result<Self, String> {
        let patterns = rules.iter().map(|rule| rule.path.as_str());
        let set = RegexSetBuilder::new(patterns).size_limit(ALL).build();
        Ok(Self {
            set: set.map_err(|e| e.to_string())?,
            rules,
        })
    }

    /// Applies the first rule that fits a request. `None`: no rule fits, or the new path is not valid.
    pub fn answer(&self, link: &Link, head: &Head) -> Option<Rewritten> {
        let path = head.target.path();
        let fits = self.set.matches(path);
        let mut rules = fits.iter().filter_map(|at| self.rules.get(at));
        let (rule, groups) = rules.find_map(|rule| Some((rule, rule.match_groups(link, head)?)))?;
        let values = Values {
            target: &head.target,
            rest: path.strip_prefix(b"/").unwrap_or(path),
            host: &head.host,
            groups,
        };
        match rule.status {
            Some(status) => Some(Rewritten::Response(redirect::redirect_to(
                status, &rule.to, &values,
            ))),
            None => redirect::moved_target(&head.target, &rule.to, &values).map(Rewritten::Target),
        }
    }
}

impl RewriteRule {
    /// Returns the named groups that the rule's patterns find in a request; `None` if the rule does not fit.
    fn match_groups<'r>(&'r self, link: &Link, head: &'r Head) -> Option<Vec<(&'r str, Part<'r>)>> {
        let hosts = self.host.as_ref();
        let host = hosts.is_none_or(|hosts| hosts.match_closeness(&head.host).is_some());
        if !host || self.https.is_some_and(|https| https != link.https) {
            return None;
        }
        let mut groups: Vec<(&str, Part<'_>)> = Vec::new();
        let in_path = self.path.captures(head.target.path())?;
        for name in self.path.capture_names().flatten() {
            let value = in_path.name(name).map_or(&b""[..], |m| m.as_bytes());
            groups.push((name, Part::Decoded(value)));
        }
        if let Some(pattern) = &self.query {
            let in_query = pattern.captures(head.target.query())?;
            for name in pattern.capture_names().flatten() {
                let value = in_query.name(name).map_or("", |m| m.as_str());
                groups.push((name, Part::Raw(value)));
            }
        }
        Some(groups)
    }
}
