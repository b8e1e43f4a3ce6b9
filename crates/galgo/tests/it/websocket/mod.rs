//! Connections that a program is given (`upgrade = true`): WebSockets, and whatever else a client asks for by Upgrade.

mod ends;
mod requests;
mod slow;

use crate::harness::{Test, both_ways, encode, new_site};
use galgo_testkit::{Client, Reply, Server, Site};

/// The tests of this module and those below it.
pub fn tests() -> Vec<Test> {
    both_ways([requests::tests(), ends::tests(), slow::tests()].concat())
}

/// Programs at `/ws/`, which may be given the connection; the same at `/cgi-bin/`, which may not.
pub fn site() -> Site {
    new_site().config("[[route]]\npath = \"/ws/\"\ncgi = \"cgi-bin\"\nupgrade = true")
}

/// What a client sends that asks for a WebSocket.
const ASKS: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The steps of a program that takes the connection, and then does `more`.
pub fn granting(more: &str) -> String {
    let head = encode(
        "Status: 101 Switching Protocols\nUpgrade: websocket\nSec-WebSocket-Accept: s3pP\n\n",
    );
    format!("/ws/t?out={head}{more}")
}

fn asking(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{ASKS}\r\n")
}

/// A connection that a program has, which does `more` with it.
fn opened(server: &Server, more: &str) -> Client {
    let mut client = server.connect();
    client.send(asking(&granting(more)));
    let head = client.head();
    assert_eq!(head.status, 101, "{}", head.head);
    client
}

fn lines(reply: &Reply) -> Vec<String> {
    reply.text().lines().map(str::to_owned).collect()
}
