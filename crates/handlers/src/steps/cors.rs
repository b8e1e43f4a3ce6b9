//! Scripts of other origins: Cross-Origin Resource Sharing (fetch.spec.whatwg.org, 3.2).

use galgo_proto::{
    Fields,
    h1::{Head, Method},
};
use galgo_service::body::Response;

/// Which origins may read the responses of a route.
#[derive(Debug, Default, PartialEq)]
pub struct Cors {
    /// Origins in lower case; empty: every one.
    pub origins: Vec<String>,
    /// Methods they may use, as one list.
    pub methods: String,
    /// Fields they may send, as one list; empty: only those that need no leave.
    pub headers: String,
    /// Fields they may read, as one list.
    pub expose: String,
    /// With cookies and passwords.
    pub credentials: bool,
    /// Seconds that a browser may remember the answer.
    pub max_age: u64,
}

impl Cors {
    /// The answer to a browser that asks whether it may ask (a preflight); `None`: it asks for something else. What it is
    /// told stands in the fields that [`Cors::add_fields`] adds.
    ///
    /// A browser sends no password with it, and it tells nothing of what is there.
    pub fn preflight(&self, head: &Head) -> Option<Response> {
        is_preflight(head).then(|| Response::new(204))
    }

    /// Adds to a response what lets its origin read it.
    pub fn add_fields(&self, head: &Head, fields: &mut Fields) {
        fields.retain(|name, _| {
            let start = name.get(..b"access-control-".len());
            !start.is_some_and(|start| start.eq_ignore_ascii_case(b"access-control-"))
        });
        if !self.origins.is_empty() {
            // A cache must not give one origin what another was told.
            fields.push("Vary", "Origin");
        }
        let Some(origin) = self.allowed(head) else {
            return;
        };
        fields.push("Access-Control-Allow-Origin", origin);
        if self.credentials {
            fields.push("Access-Control-Allow-Credentials", "true");
        }
        let max_age = self.max_age.to_string();
        let told: &[(&str, &str)] = if is_preflight(head) {
            &[
                ("Access-Control-Allow-Methods", &self.methods),
                ("Access-Control-Allow-Headers", &self.headers),
                ("Access-Control-Max-Age", &max_age),
            ]
        } else {
            &[("Access-Control-Expose-Headers", &self.expose)]
        };
        for (name, value) in told.iter().filter(|(_, value)| !value.is_empty()) {
            fields.push(name, value);
        }
    }

    /// The origin that a response is told to be for; `None`: it is for none, or the request names none.
    fn allowed(&self, head: &Head) -> Option<&str> {
        let origin = head.fields.first("origin")?;
        if self.origins.is_empty() {
            return Some("*");
        }
        // What is sent back is the configuration's word, not the client's.
        let mut own = self.origins.iter().map(String::as_str);
        own.find(|own| origin.eq_ignore_ascii_case(own.as_bytes()))
    }
}

fn is_preflight(head: &Head) -> bool {
    let options = matches!(&head.method, Method::Other(name) if name == "OPTIONS");
    options && head.fields.has("access-control-request-method") && head.fields.has("origin")
}
