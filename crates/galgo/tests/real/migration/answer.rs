//! Compares two answers.

use std::{collections::BTreeSet, fmt, io::Read};

use flate2::read::MultiGzDecoder;
use galgo_testkit::Reply;

use super::{Page, Pair, requests::Asked};

/// A difference between two answers.
pub(super) struct Difference {
    pub(super) peer: &'static str,
    /// The page, and the number of the pair.
    pub(super) pair: (&'static str, String),
    /// The part that differs: `status`, `type`, `body`, or the name of a field.
    pub(super) what: &'static str,
    /// Status of galgo's answer.
    pub(super) status: u16,
    pub(super) ours: String,
    pub(super) theirs: String,
}

impl Difference {
    /// Whether the statuses differ in this way.
    pub(super) fn is_status(&self, ours: &str, theirs: &[&str]) -> bool {
        self.what == "status" && self.ours == ours && theirs.contains(&&*self.theirs)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, theirs] =
            [&self.ours, &self.theirs].map(|text| text.chars().take(300).collect::<String>());
        write!(f, "{}: {} {ours:?}, not {theirs:?}", self.status, self.what)
    }
}

/// Text of the site's own error page.
pub(super) const ERROR_PAGE: &str = "nothing here\n";

/// A response, as it is compared.
pub(super) struct Answer(pub(super) Reply);

/// Prepares the values of a field for the comparison.
type Seen = fn(&Reply, &str, &Asked) -> String;

/// Fields that a client acts upon, and that both servers influence.
const FIELDS: [(&str, Seen); 18] = [
    ("location", value),
    ("allow", set),
    ("vary", set),
    ("set-cookie", value),
    ("etag", strength),
    ("last-modified", value),
    ("expires", presence),
    ("content-range", value),
    ("www-authenticate", value),
    ("cache-control", set),
    ("content-disposition", value),
    ("x-robots-tag", value),
    ("x-powered-by", value),
    ("x-content-type-options", value),
    ("access-control-allow-origin", value),
    ("access-control-allow-methods", set),
    ("content-encoding", value),
    ("strict-transport-security", value),
];

impl Answer {
    /// Whether the program that should answer is not available at the moment.
    pub(super) fn is_unavailable(&self) -> bool {
        self.0.status == 503
    }

    /// Returns the differences from the other server's answer.
    pub(super) fn differs(
        &self,
        theirs: &Self,
        asked: &Asked,
        (page, pair): (&Page, &Pair),
    ) -> Vec<Difference> {
        let (ours, theirs) = (&self.0, &theirs.0);
        let mut pairs = vec![("status", ours.status.to_string(), theirs.status.to_string())];
        if ours.status == theirs.status {
            let field = |(name, seen): (_, Seen)| {
                let [ours, theirs] = [ours, theirs].map(|reply| seen(reply, name, asked));
                (name, ours, theirs)
            };
            pairs.extend(FIELDS.map(field));
            let success = matches!(ours.status, 200 | 206);
            if success {
                pairs.push(("type", kind(ours), kind(theirs)));
            }
            let refused = matches!(ours.status, 403 | 404);
            let has_page = |reply: &Reply| reply.text() == ERROR_PAGE;
            if success || (refused && (has_page(ours) || has_page(theirs))) {
                pairs.push(("body", body(ours), body(theirs)));
            }
        }
        let differing = pairs.into_iter().filter(|(_, ours, theirs)| ours != theirs);
        let difference = |(what, own, theirs)| Difference {
            peer: page.language,
            pair: (page.name, pair.number.clone()),
            what,
            status: ours.status,
            ours: own,
            theirs,
        };
        differing.map(difference).collect()
    }
}

/// Returns the media type, without its parameters.
fn kind(reply: &Reply) -> String {
    let kind = reply.field("content-type").unwrap_or("");
    kind.split(';').next().unwrap_or("").to_ascii_lowercase()
}

/// Returns the body with its content coding removed. A partial body stays coded.
fn body(reply: &Reply) -> String {
    match reply.field("content-encoding") {
        Some("gzip") if !reply.body.is_empty() && reply.status != 206 => {
            let mut text = Vec::new();
            MultiGzDecoder::new(&*reply.body)
                .read_to_end(&mut text)
                .expect("a body in gzip");
            String::from_utf8_lossy(&text).into_owned()
        }
        _ => reply.text(),
    }
}

/// Returns the values of a field, without the server's own host.
fn value(reply: &Reply, name: &str, asked: &Asked) -> String {
    let all = reply.fields(name).join(", ");
    let schemes = ["http", "https"].map(|scheme| format!("{scheme}://{}/", asked.host));
    let rest = schemes.iter().find_map(|own| all.strip_prefix(own));
    rest.map_or(all.clone(), |rest| format!("/{rest}"))
}

/// Returns the members of a list, regardless of order and letter case.
fn set(reply: &Reply, name: &str, _: &Asked) -> String {
    let all = reply.fields(name).join(",").to_ascii_lowercase();
    let members = all.split(',').map(str::trim).filter(|m| !m.is_empty());
    Vec::from_iter(members.collect::<BTreeSet<_>>()).join(", ")
}

/// Returns whether the field is present: each server computes its value differently.
fn presence(reply: &Reply, name: &str, _: &Asked) -> String {
    let is_there = !reply.fields(name).is_empty();
    String::from(if is_there { "some" } else { "" })
}

/// Returns the kind of validator: none, weak or strong.
fn strength(reply: &Reply, name: &str, _: &Asked) -> String {
    let strength = match reply.field(name) {
        None => "",
        Some(tag) if tag.starts_with("W/") => "weak",
        Some(_) => "strong",
    };
    strength.to_owned()
}
