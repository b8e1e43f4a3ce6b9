//! Templates of targets: a text with `{names}` for parts of the request.
//!
//! A value never changes the text around it. In a path and in a query a value is encoded, so that it cannot end them. No value
//! holds a control character.

use galgo_proto::target::Target;

/// Parts of a request that every template may name.
const PARTS: [&str; 4] = ["path", "rest", "host", "query"];

/// A text with names.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetTemplate {
    path: Vec<Piece>,
    query: Option<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    Name(String),
}

/// A value, and the form that it comes in.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Part<'a> {
    /// Bytes of a decoded path.
    Decoded(&'a [u8]),
    /// Text as it came, such as a query: visible ASCII.
    Raw(&'a str),
}

/// Values of the names in a template.
#[derive(Debug)]
pub struct Values<'a> {
    /// The request's target.
    pub target: &'a Target,
    /// The clean path below the route, without a leading slash.
    pub rest: &'a [u8],
    /// The parsed host; may be empty.
    pub host: &'a str,
    /// Groups of patterns.
    pub groups: Vec<(&'a str, Part<'a>)>,
}

impl<'a> Values<'a> {
    fn part_named(&self, name: &str) -> Part<'a> {
        match name {
            "path" => Part::Decoded(self.target.path()),
            "rest" => Part::Decoded(self.rest),
            "host" => Part::Raw(self.host),
            "query" => Part::Raw(self.target.query()),
            name => {
                let group = self.groups.iter().find(|(own, _)| *own == name);
                group.map_or(Part::Raw(""), |(_, part)| *part)
            }
        }
    }
}

impl TargetTemplate {
    /// Parses a text. `groups` are names from patterns, besides the names that every request has.
    ///
    /// # Errors
    /// In words: a name is unknown, or a brace is not closed.
    pub fn parse(text: &str, groups: &[&str]) -> Result<Self, String> {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        Ok(Self {
            path: parse_pieces(path, groups)?,
            query: query.map(|query| parse_pieces(query, groups)).transpose()?,
        })
    }

    /// Returns the text before the first name of the path, and that name.
    pub fn literal_prefix(&self) -> (&str, Option<&str>) {
        match &self.path[..] {
            [Piece::Text(text), Piece::Name(name), ..] => (text, Some(name)),
            [Piece::Text(text), ..] => (text, None),
            [Piece::Name(name), ..] => ("", Some(name)),
            [] => ("", None),
        }
    }

    /// Returns a URI reference. If the template has no query, the request's query is used.
    pub fn expand_uri(&self, values: &Values<'_>) -> String {
        let mut uri = String::new();
        for piece in &self.path {
            match piece {
                Piece::Text(text) => uri.push_str(text),
                Piece::Name(name) => match values.part_named(name) {
                    Part::Decoded(bytes) => encode(&mut uri, bytes, IN_PATH),
                    // Browsers treat a backslash as a slash.
                    Part::Raw(text) => uri.push_str(&text.replace('\\', "%5C")),
                },
            }
        }
        // A URI reference such as `//evil.example` names another site.
        let slashes = uri.bytes().take_while(|&b| b == b'/').count();
        uri.drain(1..slashes.max(1).min(uri.len().max(1)));
        // Omit an empty query: such a template drops the request's own.
        if let Some(query) = self.expand_query(values).filter(|query| !query.is_empty()) {
            uri.push('?');
            uri.push_str(&query);
        }
        uri
    }

    /// Returns a decoded path and the query; `None`: the query of the request stays.
    pub fn expand_path_and_query(&self, values: &Values<'_>) -> (Vec<u8>, Option<String>) {
        let mut path = Vec::new();
        for piece in &self.path {
            match piece {
                Piece::Text(text) => path.extend_from_slice(text.as_bytes()),
                Piece::Name(name) => match values.part_named(name) {
                    Part::Decoded(bytes) => path.extend_from_slice(bytes),
                    Part::Raw(text) => path.extend_from_slice(text.as_bytes()),
                },
            }
        }
        (
            path,
            self.query.as_ref().and_then(|_| self.expand_query(values)),
        )
    }

    fn expand_query(&self, values: &Values<'_>) -> Option<String> {
        let Some(pieces) = &self.query else {
            let own = values.target.query();
            return (!own.is_empty()).then(|| own.to_owned());
        };
        let mut query = String::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => query.push_str(text),
                Piece::Name(name) => match values.part_named(name) {
                    Part::Decoded(bytes) => encode(&mut query, bytes, IN_QUERY),
                    Part::Raw(text) => query.push_str(text),
                },
            }
        }
        // Drop the last `&` of `?id={id}&{query}` if the request has no query.
        if matches!(pieces.last(), Some(Piece::Name(_))) && query.ends_with('&') {
            query.pop();
        }
        Some(query)
    }
}

fn parse_pieces(mut text: &str, groups: &[&str]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    while let Some((before, rest)) = text.split_once('{') {
        let (name, behind) = rest.split_once('}').ok_or("\"{\" is not closed by \"}\"")?;
        if !PARTS.contains(&name) && !groups.contains(&name) {
            let known = PARTS.iter().chain(groups).map(|name| format!("{{{name}}}"));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(format!("{{{name}}} is unknown; known here: {known}"));
        }
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(Piece::Name(name.to_owned()));
        text = behind;
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    Ok(pieces)
}

/// Bytes that stay unencoded in a path (RFC 3986, 3.3). `IN_QUERY` leaves out the bytes that separate values.
const IN_PATH: &[u8] = b"/-._~!$&'()*+,;=:@";
const IN_QUERY: &[u8] = b"/-._~";

fn encode(out: &mut String, bytes: &[u8], plain: &[u8]) {
    for &b in bytes {
        match b {
            b if b.is_ascii_alphanumeric() || plain.contains(&b) => out.push(char::from(b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str, target: &str) -> (String, String, Option<String>) {
        let target = Target::parse(target.as_bytes(), 1000).unwrap();
        let template = TargetTemplate::parse(template, &["id"]).unwrap();
        let values = Values {
            target: &target,
            rest: target.path().strip_prefix(b"/a/").unwrap_or_default(),
            host: "h.example",
            groups: vec![("id", Part::Decoded(target.path()))],
        };
        let (path, query) = template.expand_path_and_query(&values);
        let path = String::from_utf8_lossy(&path).into_owned();
        (template.expand_uri(&values), path, query)
    }

    #[test]
    fn values_stay_where_they_stand() {
        for (template, target, uri, path, query) in [
            ("{path}", "/a/b?c=d", "/a/b?c=d", "/a/b", None),
            ("/x/{rest}", "/a/b%20c?", "/x/b%20c", "/x/b c", None),
            (
                "https://w{path}",
                "//evil/..;/%3fx",
                "https://w/evil/..;/%3Fx",
                "https://w/evil/..;/?x",
                None,
            ),
            (
                "/i?p={path}&{query}",
                "/a%26b=%23/?c",
                "/i?p=/a%26b%3D%23/&c",
                "/i",
                Some("p=/a%26b%3D%23/&c"),
            ),
            ("/i?", "/a?c", "/i", "/i", Some("")),
            ("/i?p=1&{query}", "/a", "/i?p=1", "/i", Some("p=1")),
            (
                "https://{host}/",
                "/\\",
                "https://h.example/",
                "https://h.example/",
                None,
            ),
            ("{query}", "/a?//evil", "/evil?//evil", "//evil", None),
            ("/{query}", "/a?\\evil", "/%5Cevil?\\evil", "/\\evil", None),
            ("/{rest}", "/a/%5Cevil", "/%5Cevil", "/\\evil", None),
        ] {
            let query = query.map(str::to_owned);
            assert_eq!(
                shown(template, target),
                (uri.into(), path.into(), query),
                "{template} {target}"
            );
        }
    }

    #[test]
    fn names_are_known() {
        for wrong in ["{", "/{pat}", "/?{x}", "{}"] {
            assert!(TargetTemplate::parse(wrong, &["id"]).is_err(), "{wrong}");
        }
    }
}
