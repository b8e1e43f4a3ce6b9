//! A server that is asked over persistent connections.

use std::{collections::HashMap, net::SocketAddr};

use galgo_testkit::{Client, End, Reply, client::proxy_header};

use super::{Pair, answer::Answer, requests::Asked};

/// Either of the two servers that are compared.
pub(super) struct Side {
    at: SocketAddr,
    /// Whether each connection begins with a header of the PROXY protocol.
    proxied: bool,
    secure: bool,
    connection: Option<Client>,
    /// Validators that the server has given for its pages.
    versions: HashMap<(&'static str, String), Version>,
}

/// Validators of a version of a page.
struct Version {
    tag: String,
    date: String,
}

/// Address of the client behind a proxy, for PROXY headers and fields.
pub(super) const BEHIND: [u8; 4] = [192, 0, 2, 7];

impl Side {
    pub(super) fn new(at: SocketAddr, pair: &Pair) -> Self {
        Self {
            at,
            proxied: pair.is_proxied(),
            secure: pair.is_secure(),
            connection: None,
            versions: HashMap::new(),
        }
    }

    /// Asks, and remembers the page's validators.
    pub(super) fn ask(&mut self, asked: &Asked) -> Answer {
        let head = self.head(asked);
        let reply = self.sent(&head, asked.method);
        assert_ne!(reply.status, 0, "no answer: {asked}");
        let page = (asked.host, asked.target.clone());
        if asked.is_plain() && reply.status == 200 {
            let field = |name, other: &str| reply.field(name).unwrap_or(other).to_owned();
            let version = Version {
                tag: field("etag", "\"absent\""),
                date: field("last-modified", NEVER),
            };
            self.versions.insert(page, version);
        }
        Answer(reply)
    }

    /// Returns the request, with the server's own validators if they are known.
    fn head(&self, asked: &Asked) -> String {
        let Asked {
            method,
            host,
            target,
            version,
            fields,
            body,
        } = asked;
        let (tag, date) = match self.versions.get(&(*host, target.clone())) {
            Some(version) => (&*version.tag, &*version.date),
            None => ("\"absent\"", NEVER),
        };
        let fields = fields
            .replace("{tag}", tag)
            .replace("{date}", date)
            .replace("{weak}", tag.trim_start_matches("W/"));
        format!("{method} {target} HTTP/{version}\r\nHost: {host}\r\n{fields}\r\n{body}")
    }

    /// Sends the request over the existing connection, or over a new one if the server has closed it.
    fn sent(&mut self, head: &str, method: &str) -> Reply {
        let kept = self.connection.take();
        let again = kept.is_some();
        let mut client = kept.unwrap_or_else(|| self.connect());
        let mut reply = asked(&mut client, head, method);
        if reply.status == 0 && again {
            client = self.connect();
            reply = asked(&mut client, head, method);
        }
        let stays = reply.end == End::Whole && !client.ended && !reply.closes();
        self.connection = stays.then_some(client);
        reply
    }

    fn connect(&self) -> Client {
        let mut client = if self.secure {
            Client::connect_securely(self.at)
        } else {
            Client::connect(self.at)
        };
        if self.proxied {
            client.send(proxy_header(BEHIND, [127, 0, 0, 1]));
        }
        client
    }
}

/// The date for a page without a date.
const NEVER: &str = "Thu, 01 Jan 1970 00:00:01 GMT";

fn asked(client: &mut Client, head: &str, method: &str) -> Reply {
    // If the server has closed the connection, the read reports that.
    let _ = client.try_send(head);
    // Some servers answer clients of HTTP/1.0 in that version. If the server then closes the connection, the
    // next request notices.
    if let Some(head) = client.until(b"\r\n\r\n") {
        let text = match head.strip_prefix(b"HTTP/1.0 ") {
            Some(rest) => [b"HTTP/1.1 ", rest].concat(),
            None => head,
        };
        client.buf.splice(0..0, text);
    }
    client.reply_to(method)
}
