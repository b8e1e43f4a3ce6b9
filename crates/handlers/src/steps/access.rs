//! Access control by address, method and host.

use galgo_proto::{forwarded::Block, h1::Method};
use galgo_service::{body::Response, link::Link};

/// A rule about clients.
#[derive(Debug, Default, PartialEq)]
pub struct Access {
    /// Addresses that may send requests; empty: all addresses that `deny` does not name.
    pub allow: Addresses,
    /// Addresses that may not send requests, whatever `allow` says.
    pub deny: Addresses,
    /// Methods that are answered (GET includes HEAD); empty: all methods.
    pub methods: Vec<String>,
    /// Whether an address of `allow` needs no password.
    pub any: bool,
}

/// Addresses of clients.
#[derive(Debug, Default, PartialEq)]
pub struct Addresses {
    /// Blocks of addresses.
    pub blocks: Vec<Block>,
    /// Whether to include clients without an address, such as those on a Unix socket.
    pub unix: bool,
    /// Whether to include every client.
    pub all: bool,
}

impl Addresses {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether the client's address is among these addresses.
    pub fn contains_client(&self, link: &Link) -> bool {
        self.all
            || match link.remote_ip {
                Some(ip) => self.blocks.iter().any(|block| block.contains(ip)),
                None => self.unix,
            }
    }
}

/// Decision about a client.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum AccessDecision {
    /// The address is allowed.
    Allowed,
    /// The address is allowed and needs no password.
    Trusted,
    /// The address is allowed only with a password.
    NeedsPassword,
    Denied(Response),
    /// The route answers this method for no client.
    OtherMethod(Response),
}

impl Access {
    /// Decides whether a request with this method may be answered.
    pub fn judge_request(&self, link: &Link, method: &Method) -> AccessDecision {
        if !self.answers_method(method) {
            let allow = self.allowed_methods();
            return AccessDecision::OtherMethod(Response::new(405).with_field("Allow", allow));
        }
        let known = self.allow.is_empty() || self.allow.contains_client(link);
        let denied = self.deny.contains_client(link);
        match (known && !denied, self.any) {
            (true, true) => AccessDecision::Trusted,
            (true, false) => AccessDecision::Allowed,
            // A password does not admit a client that `deny` names.
            (false, true) if !denied => AccessDecision::NeedsPassword,
            (false, _) => AccessDecision::Denied(Response::new(403)),
        }
    }

    fn answers_method(&self, method: &Method) -> bool {
        let get = *method == Method::Head && self.names_method("GET");
        self.methods.is_empty() || self.names_method(method.as_str()) || get
    }

    fn allowed_methods(&self) -> String {
        let mut names = self.methods.clone();
        if self.names_method("GET") && !self.names_method("HEAD") {
            names.push("HEAD".into());
        }
        names.join(", ")
    }

    fn names_method(&self, method: &str) -> bool {
        self.methods.iter().any(|own| own == method)
    }
}
