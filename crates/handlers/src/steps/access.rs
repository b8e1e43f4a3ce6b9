//! Who may ask at all: by address, method and host.

use galgo_proto::{forwarded::Block, h1::Method};
use galgo_service::{body::Response, link::Link};

/// A rule about clients.
#[derive(Debug, Default, PartialEq)]
pub struct Access {
    /// Addresses that may ask; empty: all that are not denied.
    pub allow: Addresses,
    /// Addresses that may not, whatever `allow` says.
    pub deny: Addresses,
    /// Methods that are answered, HEAD with GET; empty: all.
    pub methods: Vec<String>,
    /// An address of `allow` needs no password.
    pub any: bool,
}

/// Addresses of clients.
#[derive(Debug, Default, PartialEq)]
pub struct Addresses {
    /// Blocks of them.
    pub blocks: Vec<Block>,
    /// Clients without an address, as on a Unix socket.
    pub unix: bool,
    /// Every client.
    pub all: bool,
}

impl Addresses {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the client is one of them.
    pub fn has(&self, link: &Link) -> bool {
        self.all
            || match link.remote_ip {
                Some(ip) => self.blocks.iter().any(|block| block.contains(ip)),
                None => self.unix,
            }
    }
}

/// What is said of a client.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum AccessDecision {
    /// As far as its address goes.
    Allowed,
    /// And needs no password.
    Trusted,
    /// It may only with a password: its address is not one of those that need none.
    NeedsPassword,
    Denied(Response),
    /// No client may ask with this method.
    OtherMethod(Response),
}

impl Access {
    /// Whether a request with this method may be answered.
    pub fn judge(&self, link: &Link, method: &Method) -> AccessDecision {
        if !self.answers(method) {
            let allow = self.allowed_methods();
            return AccessDecision::OtherMethod(Response::new(405).with("Allow", allow));
        }
        let known = self.allow.is_empty() || self.allow.has(link);
        let denied = self.deny.has(link);
        match (known && !denied, self.any) {
            (true, true) => AccessDecision::Trusted,
            (true, false) => AccessDecision::Allowed,
            // Who is denied by name is not let in by a password either.
            (false, true) if !denied => AccessDecision::NeedsPassword,
            (false, _) => AccessDecision::Denied(Response::new(403)),
        }
    }

    fn answers(&self, method: &Method) -> bool {
        let get = *method == Method::Head && self.names("GET");
        self.methods.is_empty() || self.names(method.as_str()) || get
    }

    fn allowed_methods(&self) -> String {
        let mut names = self.methods.clone();
        if self.names("GET") && !self.names("HEAD") {
            names.push("HEAD".into());
        }
        names.join(", ")
    }

    fn names(&self, method: &str) -> bool {
        self.methods.iter().any(|own| own == method)
    }
}
