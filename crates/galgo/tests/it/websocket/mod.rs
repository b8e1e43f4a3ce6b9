//! Connections that are handed to a program (`upgrade = true`): WebSockets, and other protocols that a client asks for.

mod ends;
mod requests;
mod slow;

use crate::harness::{Test, both_ways, encode, new_site};
use galgo_testkit::{Client, Reply, Server, Site};

/// Returns the tests of this module and its submodules.
pub fn tests() -> Vec<Test> {
    both_ways([requests::tests(), ends::tests(), slow::tests()].concat())
}

/// Returns a site whose programs may take over the connection at `/ws/`, and may not at `/cgi-bin/`.
pub fn site() -> Site {
    new_site().config("[[route]]\npath = \"/ws/\"\ncgi = \"cgi-bin\"\nupgrade = true")
}

/// Header fields of a client that asks for a WebSocket.
const ASKS: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Returns the target of a program that takes over the connection, and then runs the steps `more`.
pub fn granting(more: &str) -> String {
    let head = encode(
        "Status: 101 Switching Protocols\nUpgrade: websocket\nSec-WebSocket-Accept: s3pP\n\n",
    );
    format!("/ws/t?out={head}{more}")
}

fn asking(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{ASKS}\r\n")
}

/// Opens a connection to a program that takes it over and runs the steps `more`.
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
