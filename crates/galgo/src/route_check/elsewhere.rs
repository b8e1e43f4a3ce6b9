//! Paths that are replaced by other paths: `redirect`, `[[rewrite]]`, `try`, `errors`.

use std::sync::Arc;

use galgo_handlers::steps::{
    errors::Errors,
    redirect::Redirect,
    rewrite::{RewriteRule, Rewrites, path_pattern, query_pattern},
    template::TargetTemplate,
    tries::{Last, Tries},
};
use toml::Spanned;

use crate::{
    config::{Handler, Respond},
    config_text::{
        config_error::{Checked, ConfigText},
        raw::{self, RawConfig, RawRewrite, RawRoute, Typed, where_typed},
        units::Value,
    },
};

/// Status of a redirect if the route names none: a permanent redirect cannot be taken back.
const REDIRECT: u16 = 302;

impl ConfigText<'_> {
    pub(crate) fn check_redirect(&self, route: &RawRoute) -> Checked<Option<Redirect>> {
        let Some(typed) = &route.redirect else {
            return Ok(None);
        };
        let raw = typed.get_ref();
        let Some(to) = &raw.to else {
            return Err(self.error_at(
                typed.span(),
                "needs `to`: { to = \"https://www.example.org{path}\" }",
            ));
        };
        let port = where_typed(&raw.port, |port| {
            self.check_number_at(port.span(), port.get_ref().0, 1, 65535)
        })?;
        Ok(Some(Redirect {
            to: self.check_destination(to, &[], true)?,
            status: self.check_redirect_status(&raw.status)?.unwrap_or(REDIRECT),
            https: self.check_scheme(&raw.scheme)?,
            port,
        }))
    }

    /// Returns the handler of a route that only redirects: it answers 404 without a body.
    pub(crate) fn redirect_only_handler(&self, route: &RawRoute) -> Option<Handler> {
        let nothing = Respond {
            status: 404,
            content_type: None,
            headers: Vec::new(),
            body: Arc::from([]),
        };
        route.redirect.as_ref().map(|_| Handler::Respond(nothing))
    }

    fn check_redirect_status(&self, typed: &Typed<Value<u64>>) -> Checked<Option<u16>> {
        where_typed(typed, |typed| {
            let status = u16::try_from(typed.get_ref().0).ok();
            let good = status.filter(|status| [301, 302, 303, 307, 308].contains(status));
            let message = "is not the status of a redirect: 301, 302, 303, 307 or 308";
            good.ok_or_else(|| self.error_at(typed.span(), message))
        })
    }

    /// Returns whether the scheme is https; `None` if none is typed.
    fn check_scheme(&self, typed: &Typed<String>) -> Checked<Option<bool>> {
        let words = [("https", Some(true)), ("http", Some(false))];
        self.one_of(typed, None, &words, "is neither \"http\" nor \"https\"")
    }

    /// Parses a destination: a path or, if `uri` is set, a URI. The host of a URI may hold no value but the request's own
    /// host.
    fn check_destination(
        &self,
        typed: &raw::Text,
        groups: &[&str],
        uri: bool,
    ) -> Checked<TargetTemplate> {
        let text = typed.get_ref();
        let fail =
            |message: String| Err(self.error_at(typed.span(), format!("{text:?} {message}")));
        let plain = |b: u8| matches!(b, b'!'..=b'~') && b != b'#' && b != b'\\';
        if text.is_empty() || !text.bytes().all(plain) {
            return fail("holds something other than visible ASCII, or # or \\".into());
        }
        let is_dollar = |pair: &[u8]| pair[0] == b'$' && pair[1].is_ascii_alphanumeric();
        if text.as_bytes().windows(2).any(is_dollar) {
            return fail("holds a $: write {path}, {query} or {host}; and name a group in the pattern, (?P<name>…), to write {name}".into());
        }
        let template = match TargetTemplate::parse(text, groups) {
            Ok(template) => template,
            Err(words) => return fail(format!("is not a destination: {words}")),
        };
        let rest = ["https://", "http://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme));
        let local =
            (text.starts_with('/') && !text.starts_with("//")) || text.starts_with("{path}");
        let good = match rest.filter(|_| uri) {
            None => local,
            Some(rest) => {
                let own = rest.replace("{host}", "host");
                let end = own.find(['/', '?', '{']).unwrap_or(own.len());
                let (host, behind) = own.split_at(end);
                let named = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
                let begins = |start: &&str| behind.starts_with(*start);
                let ends = behind.is_empty() || ["/", "?", "{path}"].iter().any(begins);
                !host.is_empty() && host.bytes().all(named) && ends
            }
        };
        match (good, uri) {
            (true, _) => Ok(template),
            (false, true) => fail("begins with neither \"/\" nor \"https://HOST/\": write it as in \"https://www.example.org{path}\"".into()),
            (false, false) => fail("does not begin with one \"/\"".into()),
        }
    }

    pub(crate) fn check_tries(&self, route: &RawRoute) -> Checked<Option<Tries>> {
        let Some(typed) = &route.r#try else {
            return Ok(None);
        };
        let Some((last, paths)) = typed.get_ref().split_last() else {
            return Err(self.error_at(
                typed.span(),
                "names no path: write it as in [\"{path}\", \"/index.cgi{path}\"]",
            ));
        };
        let path = |typed: &raw::Text| self.check_destination(typed, &[], false);
        let last = match last.get_ref().strip_prefix('=') {
            None => Last::Path(path(last)?),
            Some(status) => match status.parse() {
                Ok(status @ 400..=599) => Last::Status(status),
                _ => {
                    return Err(self.error_at(
                        last.span(),
                        "is not the status of an error: write it as in \"=404\"",
                    ));
                }
            },
        };
        Ok(Some(Tries {
            paths: paths.iter().map(path).collect::<Checked<_>>()?,
            last,
        }))
    }

    pub(crate) fn check_errors(&self, typed: &Typed<raw::Map>) -> Checked<Option<Errors>> {
        let mut pages = Vec::new();
        for (status, page) in typed.iter().flat_map(|map| map.get_ref()) {
            let statuses = parse_statuses(status.get_ref()).filter(|(from, _)| *from >= 400);
            let Some(statuses) = statuses else {
                let message = format!(
                    "errors: {:?} is not the status of an error: 404, or \"5xx\"",
                    status.get_ref()
                );
                return Err(self.keyless_error(status.span(), message));
            };
            let text = page.get_ref();
            let sound = galgo_proto::target::Target::parse(text.as_bytes(), 1024).is_ok();
            if !sound || !text.starts_with('/') || text.starts_with("//") {
                let message =
                    format!("{text:?} is not the path of a page: begin it with one \"/\"");
                return Err(self.error_at(page.span(), message));
            }
            pages.push((statuses, text.clone()));
        }
        // Sort 404 before 4xx.
        pages.sort_by_key(|((from, to), _)| to - from);
        Ok((!pages.is_empty()).then_some(Errors(pages)))
    }

    pub(crate) fn check_rewrites(&self, raw: &RawConfig) -> Checked<Option<Rewrites>> {
        let Some(typed) = &raw.rewrite else {
            return Ok(None);
        };
        let rules = typed.get_ref().iter().map(|rule| self.check_rewrite(rule));
        let rules = rules.collect::<Checked<Vec<_>>>()?;
        let made = Rewrites::new(rules);
        made.map(Some).map_err(|e| self.error_at(typed.span(), e))
    }

    fn check_rewrite(&self, typed: &Spanned<RawRewrite>) -> Checked<RewriteRule> {
        let raw = typed.get_ref();
        let (Some(pattern), Some(to)) = (&raw.pattern, &raw.to) else {
            return Err(self.keyless_error(typed.span(), "rewrite: needs `pattern` and `to`"));
        };
        self.require_first_slash(pattern)?;
        let path = self.parse_regex(pattern, path_pattern)?;
        let query = where_typed(&raw.query, |query| self.parse_regex(query, query_pattern))?;
        let of_query = query.iter().flat_map(|query| query.capture_names());
        let groups: Vec<&str> = path.capture_names().chain(of_query).flatten().collect();
        let status = self.check_redirect_status(&raw.status)?;
        let to = self.check_destination(to, &groups, status.is_some())?;
        Ok(RewriteRule {
            host: self.check_hosts(&raw.host)?,
            https: self.check_scheme(&raw.scheme)?,
            path,
            query,
            to,
            status,
        })
    }

    /// Refuses a pattern that matches no path because it lacks the first slash, as patterns in Apache's .htaccess do.
    pub(crate) fn require_first_slash(&self, typed: &raw::Text) -> Checked<()> {
        let text = typed.get_ref();
        let first = text.strip_prefix('^').and_then(|rest| rest.chars().next());
        if first.is_some_and(|first| first.is_alphanumeric() || "_-~%".contains(first)) {
            let message = format!(
                "fits no path, because each begins with \"/\": write \"^/{}\"",
                &text[1..]
            );
            return Err(self.error_at(typed.span(), message));
        }
        Ok(())
    }

    /// Parses a pattern with `read`.
    pub(crate) fn parse_regex<R>(
        &self,
        typed: &raw::Text,
        read: impl Fn(&str) -> Result<R, String>,
    ) -> Checked<R> {
        let text = typed.get_ref();
        // The author of the pattern meant `\b`, the end of a word.
        if text.contains('\u{8}') {
            let message = "holds a backspace (\"\\b\" in double quotes is one): write the pattern in single quotes";
            return Err(self.error_at(typed.span(), message));
        }
        read(text).map_err(|e| self.error_at(typed.span(), pattern_error(&e)))
    }
}

/// Returns the last line of a message of the regex library: the lines before it only mark the place.
fn pattern_error(error: &str) -> String {
    let last = error.lines().last().unwrap_or(error);
    format!("is no pattern: {}", last.trim_start_matches("error: "))
}

/// Parses `404` or `4xx` into the first and the last status.
pub(crate) fn parse_statuses(text: &str) -> Option<(u16, u16)> {
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (2..=5).contains(class))?;
        return Some((class * 100, class * 100 + 99));
    }
    let status = text.parse().ok()?;
    (200..=599).contains(&status).then_some((status, status))
}
