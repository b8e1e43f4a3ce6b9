//! Steps that change fields: `headers`, `header_rules`, `request_headers`, `security_headers`, `expires`, `cors`; and content
//! codings: `compress`.

use galgo_handlers::steps::{
    compress::{self, Compress},
    cors::Cors,
    headers::{FieldChanges, HeaderRule, Headers, SECURITY, TypePattern},
};
use toml::Spanned;

use crate::{
    config_text::{
        config_error::{Checked, ConfigText},
        raw::{self, RawHeaderRule, RawRoute, Typed, each_typed, first_place, flag_or_default},
        units::{G, Time},
    },
    route_check::{elsewhere::parse_statuses, fields::is_token},
};

impl ConfigText<'_> {
    pub(crate) fn check_header_steps(&self, route: &RawRoute) -> Checked<Option<Headers>> {
        let mut rules = Vec::new();
        let fields = self.check_headers(&route.headers)?;
        if !fields.is_empty() {
            // On errors, a field is added only if the response lacks it: a lifetime that is meant for files must not keep an
            // error alive.
            let (mut fine, mut error) = (HeaderRule::default(), HeaderRule::default());
            (fine.statuses, error.statuses) = (vec![(200, 399)], vec![(400, 599)]);
            (fine.changes.set, error.changes.default) = (fields.clone(), fields);
            rules.extend([fine, error]);
        }
        rules.extend(each_typed(&route.header_rules, |rule| {
            self.check_header_rule(rule.get_ref())
        })?);
        if flag_or_default(&route.security_headers, false) {
            let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            let mut rule = HeaderRule::default();
            rule.changes.default = SECURITY.map(own).to_vec();
            rules.push(rule);
        }
        let headers = Headers {
            rules,
            expires: self.check_expires(route)?,
            request: self.check_request_headers(route)?,
        };
        Ok((headers != Headers::default()).then_some(headers))
    }

    fn check_header_rule(&self, raw: &RawHeaderRule) -> Checked<HeaderRule> {
        let status = |typed: &raw::Text| {
            let message = "is no status: write \"404\" or \"2xx\"";
            parse_statuses(typed.get_ref()).ok_or_else(|| self.error_at(typed.span(), message))
        };
        Ok(HeaderRule {
            statuses: each_typed(&raw.status, status)?,
            types: each_typed(&raw.types, |typed| self.check_type_pattern(typed))?,
            changes: FieldChanges {
                remove: self.check_field_names(&raw.remove)?,
                set: self.check_headers(&raw.set)?,
                add: self.check_headers(&raw.add)?,
                default: self.check_headers(&raw.default)?,
            },
        })
    }

    pub(crate) fn check_type_pattern(&self, typed: &raw::Text) -> Checked<TypePattern> {
        let message = "is no media type: write \"text/html\", \"image/*\" or \"*\"";
        TypePattern::parse(typed.get_ref()).ok_or_else(|| self.error_at(typed.span(), message))
    }

    /// Checks names of fields that have no value, by the same rules as fields with values.
    fn check_field_names(&self, typed: &Typed<Vec<raw::Text>>) -> Checked<Vec<String>> {
        let names = typed.iter().flat_map(|list| list.get_ref());
        let pair = |name: &raw::Text| (name.clone(), Spanned::new(name.span(), String::new()));
        let map: raw::Map = names.map(pair).collect();
        let fields = self.check_headers(&Some(Spanned::new(0..0, map)))?;
        Ok(fields.into_iter().map(|(name, _)| name).collect())
    }

    fn check_request_headers(&self, route: &RawRoute) -> Checked<Option<FieldChanges>> {
        let Some(typed) = &route.request_headers else {
            return Ok(None);
        };
        let raw = typed.get_ref();
        let changes = FieldChanges {
            remove: self.check_field_names(&raw.remove)?,
            set: self.check_headers(&raw.set)?,
            add: self.check_headers(&raw.add)?,
            default: Vec::new(),
        };
        /// Fields that decide how the request was read and which route answers it.
        const READ: [&str; 4] = ["host", "expect", "te", "proxy"];
        let names = changes
            .remove
            .iter()
            .chain(changes.set.iter().chain(&changes.add).map(|(name, _)| name));
        for name in names {
            let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            if !plain || READ.contains(&name.to_ascii_lowercase().as_str()) {
                let message = format!("request_headers: {name} is not to be changed: delete it");
                return Err(self.keyless_error(typed.span(), message));
            }
        }
        Ok(Some(changes))
    }

    fn check_expires(&self, route: &RawRoute) -> Checked<Vec<(TypePattern, String)>> {
        let mut expires = Vec::new();
        for (media, time) in route.expires.iter().flat_map(|map| map.get_ref()) {
            let Time(time) = time.0;
            let value = match time.as_secs() {
                0 => "no-cache".to_owned(),
                seconds => format!("max-age={seconds}"),
            };
            expires.push((self.check_type_pattern(media)?, value));
        }
        let width = |pattern: &TypePattern| match pattern {
            TypePattern::Exact(_) => 0,
            TypePattern::Main(_) => 1,
            TypePattern::Any => 2,
        };
        expires.sort_by_key(|(pattern, _)| width(pattern));
        Ok(expires)
    }

    pub(crate) fn check_cors(&self, route: &RawRoute) -> Checked<Option<Cors>> {
        let Some(typed) = &route.cors else {
            return Ok(None);
        };
        let raw = typed.get_ref();
        let list = raw.origins.as_ref();
        let Some(list) = list.filter(|list| !list.get_ref().is_empty()) else {
            return Err(self.error_at(
                typed.span(),
                "needs `origins`: [\"https://app.example.org\"], or [\"*\"]",
            ));
        };
        let origins = list
            .get_ref()
            .iter()
            .map(|origin| self.check_origin(origin));
        let mut origins = origins.collect::<Checked<Vec<_>>>()?;
        let any = origins.iter().any(|origin| origin == "*");
        let credentials = flag_or_default(&raw.credentials, false);
        if any && (credentials || origins.len() > 1) {
            let message = "\"*\" stands alone, and without `credentials`: every site could act as its visitors here";
            return Err(self.error_at(list.span(), message));
        }
        if any {
            origins.clear();
        }
        let max_age =
            self.check_time(&raw.max_age, std::time::Duration::ZERO, 0, 24 * 3_600_000)?;
        let methods = match &raw.methods {
            None => "GET, HEAD, POST".to_owned(),
            some => self.check_tokens(some)?,
        };
        Ok(Some(Cors {
            origins,
            methods,
            headers: self.check_tokens(&raw.headers)?,
            expose: self.check_tokens(&raw.expose)?,
            credentials,
            max_age: max_age.as_secs(),
        }))
    }

    fn check_origin(&self, typed: &raw::Text) -> Checked<String> {
        let text = typed.get_ref().to_ascii_lowercase();
        let host = ["https://", "http://"]
            .iter()
            .find_map(|s| text.strip_prefix(s));
        let named = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        let good = host.is_some_and(|host| !host.is_empty() && host.bytes().all(named));
        if good || text == "*" {
            return Ok(text);
        }
        let message = format!(
            "{text:?} is no origin: scheme and host without a path, as in \"https://app.example.org\""
        );
        Err(self.error_at(typed.span(), message))
    }

    fn check_tokens(&self, typed: &Typed<Vec<raw::Text>>) -> Checked<String> {
        let mut tokens = Vec::new();
        for typed in typed.iter().flat_map(|list| list.get_ref()) {
            let text = typed.get_ref();
            if !is_token(text) {
                let message = format!("{text:?} is no name of a method or field");
                return Err(self.error_at(typed.span(), message));
            }
            tokens.push(text.as_str());
        }
        Ok(tokens.join(", "))
    }

    pub(crate) fn check_compress(&self, route: &RawRoute) -> Checked<Option<Compress>> {
        if !flag_or_default(&route.compress, false) {
            let place = first_place!(route, compress_types, compress_min);
            self.refuse(place, "needs `compress = true` beside it")?;
            return Ok(None);
        }
        let types = match &route.compress_types {
            None => compress::TYPES
                .iter()
                .filter_map(|media| TypePattern::parse(media))
                .collect(),
            Some(list) => {
                let types = list
                    .get_ref()
                    .iter()
                    .map(|typed| self.check_type_pattern(typed));
                types.collect::<Checked<_>>()?
            }
        };
        let least = self.check_number(&route.compress_min, compress::LEAST, 0, G)?;
        Ok(Some(Compress { types, least }))
    }
}
