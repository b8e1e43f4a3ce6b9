//! Cross-Origin Resource Sharing for scripts of other origins (fetch.spec.whatwg.org, 3.2).

use galgo_proto::{
    Fields,
    h1::{Head, Method},
};
use galgo_service::body::Response;

/// Origins that may read the responses of a route, and how.
#[derive(Debug, Default, PartialEq)]
pub struct Cors {
    /// Origins in lower case; empty: every origin.
    pub origins: Vec<String>,
    /// Methods that these origins may use, as one list.
    pub methods: String,
    /// Fields that these origins may send, as one list; empty: only the fields that need no permission.
    pub headers: String,
    /// Fields that these origins may read, as one list.
    pub expose: String,
    /// Whether requests may carry cookies and passwords.
    pub credentials: bool,
    /// Seconds that a browser may remember the answer.
    pub max_age: u64,
}

impl Cors {
    /// Answers a browser that asks for permission to send a request (a preflight); `None` if the request is not a preflight. The
    /// permission is in the fields that [`Cors::add_fields`] adds.
    ///
    /// A browser sends no password with a preflight, and the answer reveals nothing about the site.
    pub fn preflight(&self, head: &Head) -> Option<Response> {
        is_preflight(head).then(|| Response::new(204))
    }

    /// Adds the fields that let the request's origin read a response.
    pub fn add_fields(&self, head: &Head, fields: &mut Fields) {
        fields.retain(|name, _| {
            let start = name.get(..b"access-control-".len());
            !start.is_some_and(|start| start.eq_ignore_ascii_case(b"access-control-"))
        });
        if !self.origins.is_empty() {
            // A cache must not give one origin a response with another origin's fields.
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

    /// Returns the origin that may read the response; `None` if the request names no origin, or a forbidden origin.
    fn allowed(&self, head: &Head) -> Option<&str> {
        let origin = head.fields.first_value("origin")?;
        if self.origins.is_empty() {
            return Some("*");
        }
        // The value comes from the configuration, not from the client.
        let mut own = self.origins.iter().map(String::as_str);
        own.find(|own| origin.eq_ignore_ascii_case(own.as_bytes()))
    }
}

fn is_preflight(head: &Head) -> bool {
    let options = matches!(&head.method, Method::Other(name) if name == "OPTIONS");
    options
        && head.fields.has_field("access-control-request-method")
        && head.fields.has_field("origin")
}
