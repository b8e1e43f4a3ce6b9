//! A server that is asked, over connections that stay.

use std::{collections::HashMap, net::SocketAddr};

use galgo_testkit::{Client, End, Reply, client::proxy_header};

use super::{Pair, answer::Answer, requests::Asked};

/// One of the two servers.
pub(super) struct Side {
    at: SocketAddr,
    /// Each connection begins with a header of the PROXY protocol.
    proxied: bool,
    secure: bool,
    connection: Option<Client>,
    /// What the server has said of the versions of its pages.
    versions: HashMap<(&'static str, String), Version>,
}

/// What a server says of the version of a page.
struct Version {
    tag: String,
    date: String,
}

/// Who is behind a proxy, as PROXY headers and fields have it.
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

    /// Asks, and remembers what the server says of the version of a page.
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

    /// The request, with the server's own validators where it has some.
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

    /// Sends it over the connection that is there; over another one, if the server has left that.
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

/// The date of a page that has none.
const NEVER: &str = "Thu, 01 Jan 1970 00:00:01 GMT";

fn asked(client: &mut Client, head: &str, method: &str) -> Reply {
    // A server that has left says so when it is read.
    let _ = client.try_send(head);
    // Some servers answer clients of HTTP/1.0 in that version. One that closes then is met by the next request.
    if let Some(head) = client.until(b"\r\n\r\n") {
        let text = match head.strip_prefix(b"HTTP/1.0 ") {
            Some(rest) => [b"HTTP/1.1 ", rest].concat(),
            None => head,
        };
        client.buf.splice(0..0, text);
    }
    client.reply_to(method)
}
