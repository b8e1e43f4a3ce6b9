//! HTTP/1 framing: an ambiguous request is refused, and no byte after it is taken for a request.

mod clocks;
mod order;
mod refused;
mod shapes;

use crate::harness::{Test, new_site};
use galgo_testkit::{Client, Site};

/// Returns the tests of this module and of its submodules.
pub fn tests() -> Vec<Test> {
    [
        refused::tests(),
        order::tests(),
        shapes::tests(),
        clocks::tests(),
    ]
    .concat()
}

fn site() -> Site {
    new_site().file("public/marker", "MARKED", 0o644)
}

const MARKER: &str = "GET /marker HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Returns the head of a request to a program that reads its input to the end.
fn post(fields: &str) -> String {
    format!("POST /cgi-bin/t?take=5&take=5&head HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n") + body
}

fn get(target: &str, fields: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// Returns all bytes that the server sends until it closes the connection.
fn everything(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.rest()).into_owned()
}

fn statuses(said: &str) -> Vec<u16> {
    let heads = said.split("HTTP/1.1 ").skip(1);
    heads.map(|h| h[..3].parse().unwrap()).collect()
}
