//! A WebSocket program, asked by a real client (the package websockets of PyPI) and a real browser: docs/programs.md.

use std::{fs, path::Path, process::Command};

use galgo_testkit::{Done, Server, Site, eventually, file::whole_lines, stream::own};

use crate::site::{needed, new_site, root, serve_programs};

/// The client's program. It exits with status 0 if everything is right.
const CLIENT: &str = r#"
import asyncio, ssl, sys, websockets
from websockets.exceptions import InvalidStatus

url, plain, certificate = sys.argv[1:]
context = None
if certificate:
    context = ssl.create_default_context(cafile=certificate)

async def one(n):
    async with websockets.connect(url, ssl=context, compression="deflate", max_size=None) as ws:
        for message in ["", "Grüße", "x" * 70_000, b"\0" * 126, bytes(range(256)) * 2000]:
            await ws.send(message)
            assert await ws.recv() == message
        # In fragments, with a ping between them.
        async def pieces():
            for piece in ["a", "b", "c"]:
                yield piece
                await (await ws.ping())
        await ws.send(pieces())
        assert await ws.recv() == "abc"
        # Many at once.
        for i in range(200):
            await ws.send(str(i))
        for i in range(200):
            assert await ws.recv() == str(i)
    assert ws.close_code == 1000, ws.close_code

async def main():
    await asyncio.gather(*(one(n) for n in range(5)))
    try:
        await websockets.connect(plain, ssl=context)
    except InvalidStatus as refused:
        assert refused.response.status_code == 426, refused
    else:
        raise AssertionError("a route without upgrade gave its connection away")

asyncio.run(asyncio.wait_for(main(), 100))
"#;

const ROUTE: &str = "[[route]]\npath = \"/ws/\"\ncgi = \"cgi-bin\"\nupgrade = true\n";

fn serve(site: Site, more: &str) -> Server {
    let program = fs::read_to_string(root().join("examples/programs/websocket.py")).unwrap();
    site.program("echo", &program);
    serve_programs(site, &format!("{ROUTE}{more}"))
}

fn client(base: &str, certificate: &Path) {
    let python = root()
        .canonicalize()
        .unwrap()
        .join(".build/venv/bin/python");
    let urls = ["/ws/echo", "/cgi-bin/echo"].map(|path| format!("{base}{path}"));
    let done = Command::new(needed(python))
        .args(["-c", CLIENT])
        .args(&urls)
        .arg(certificate)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

#[test]
fn messages_both_ways() {
    let server = serve(new_site(), "");
    client(&format!("ws://{}", server.address()), Path::new(""));
}

#[test]
fn messages_both_ways_in_tls() {
    let own = own();
    let tls = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\n",
        own.certificate, own.key
    );
    let site = new_site().arguments(&["--listen", "https://127.0.0.1:0"]);
    let server = serve(site, &tls);
    let port = server.listens(1).port();
    client(&format!("wss://localhost:{port}"), &own.certificate);
}

/// Sends messages, receives them back, closes the connection, and shows the result.
const PAGE: &str = r#"<!doctype html><title>echo</title><script>
const messages = ["", "Grüße", "x".repeat(70_000), new Uint8Array([...Array(200_000).keys()])];
const same = (a, b) => typeof a === "string" ? a === b : a.every((byte, i) => byte === new Uint8Array(b)[i]);
const result = new Promise((done, failed) => {
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}/ws/echo`);
  socket.binaryType = "arraybuffer";
  const back = [];
  socket.onopen = () => messages.forEach(message => socket.send(message));
  socket.onmessage = event => {
    back.push(event.data);
    if (back.length < messages.length) return;
    if (!messages.every((message, i) => same(message, back[i]))) failed("a message has changed");
    socket.close(1000, "enough");
  };
  socket.onclose = event => done(`${back.length} back, closed by ${event.code} ${event.reason}`);
});
</script>
"#;

/// Opens the page in Chromium and checks its result. Returns the access log's line of the WebSocket.
fn browser(site: Site, scheme: &str, more: &str) -> String {
    let site = site
        .file("public/echo.html", PAGE, 0o644)
        .config("access_log = \"access.log\"");
    let files = "[[route]]\npath = \"/\"\nfiles = \"public\"\n";
    let server = serve(site, &format!("{files}{more}"));
    needed("/usr/bin/chromedriver");
    needed("/usr/bin/chromium");
    let listener = usize::from(scheme == "https");
    let port = server.listens(listener).port();
    let page = format!("{scheme}://localhost:{port}/echo.html");
    let program = root().join("crates/galgo/tests/real/browser.py");
    let done = Command::new("python3").arg(program).arg(page).output();
    let done = Done::from(done.unwrap());
    assert_eq!(
        done.out.trim_end(),
        "4 back, closed by 1000 enough",
        "{}{}",
        done.err,
        server.errors()
    );
    let log = server.path("access.log");
    let line = || {
        whole_lines(&log)
            .lines()
            .find(|line| line.contains("/ws/echo"))
            .map(str::to_owned)
    };
    eventually("the WebSocket is in the log", line)
}

#[test]
fn a_browser() {
    let line = browser(new_site(), "http", "");
    assert!(line.contains("\"GET /ws/echo HTTP/1.1\" 101 "), "{line}");
}

/// The WebSocket uses the same connection as its page (RFC 8441).
#[test]
fn a_browser_over_http2() {
    let own = own();
    let tls = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\n",
        own.certificate, own.key
    );
    let site = new_site().arguments(&["--listen", "https://127.0.0.1:0"]);
    let line = browser(site, "https", &tls);
    assert!(line.contains("\"GET /ws/echo HTTP/2.0\" 101 "), "{line}");
}
