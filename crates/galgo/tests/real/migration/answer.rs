//! What is compared of two answers.

use std::{collections::BTreeSet, fmt, io::Read};

use flate2::read::MultiGzDecoder;
use galgo_testkit::Reply;

use super::{Page, Pair, requests::Asked};

/// What differs between two answers.
pub(super) struct Difference {
    pub(super) peer: &'static str,
    /// The page and the number of the pair.
    pub(super) pair: (&'static str, String),
    /// `status`, `type`, `body`, or the name of a field.
    pub(super) what: &'static str,
    /// The status of our answer.
    pub(super) status: u16,
    pub(super) ours: String,
    pub(super) theirs: String,
}

impl Difference {
    /// The statuses differ so.
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

/// The site's own page of an error.
pub(super) const ERROR_PAGE: &str = "nothing here\n";

/// What is compared of a response.
pub(super) struct Answer(pub(super) Reply);

/// How the values of a field are compared.
type Seen = fn(&Reply, &str, &Asked) -> String;

/// Fields that a client acts upon, where both sides have a say in them.
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
    /// Whether what was to answer is not there, yet or any more.
    pub(super) fn is_unavailable(&self) -> bool {
        self.0.status == 503
    }

    /// What differs from the answer of the server that was before.
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

/// The media type, without its parameters.
fn kind(reply: &Reply) -> String {
    let kind = reply.field("content-type").unwrap_or("");
    kind.split(';').next().unwrap_or("").to_ascii_lowercase()
}

/// The body as it was before its coding; a part as it is.
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

/// The values of a field, whatever the host of the server in it.
fn value(reply: &Reply, name: &str, asked: &Asked) -> String {
    let all = reply.fields(name).join(", ");
    let schemes = ["http", "https"].map(|scheme| format!("{scheme}://{}/", asked.host));
    let rest = schemes.iter().find_map(|own| all.strip_prefix(own));
    rest.map_or(all.clone(), |rest| format!("/{rest}"))
}

/// The members of a list, in whatever order and letter case.
fn set(reply: &Reply, name: &str, _: &Asked) -> String {
    let all = reply.fields(name).join(",").to_ascii_lowercase();
    let members = all.split(',').map(str::trim).filter(|m| !m.is_empty());
    Vec::from_iter(members.collect::<BTreeSet<_>>()).join(", ")
}

/// Whether the field is there: each server has its own way to a value.
fn presence(reply: &Reply, name: &str, _: &Asked) -> String {
    let is_there = !reply.fields(name).is_empty();
    String::from(if is_there { "some" } else { "" })
}

/// Whether there is a validator, and of which strength.
fn strength(reply: &Reply, name: &str, _: &Asked) -> String {
    let strength = match reply.field(name) {
        None => "",
        Some(tag) if tag.starts_with("W/") => "weak",
        Some(_) => "strong",
    };
    strength.to_owned()
}
