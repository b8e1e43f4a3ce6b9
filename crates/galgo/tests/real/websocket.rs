//! A WebSocket program, asked by a real client (the package websockets of PyPI): docs/programs.md.

use std::{fs, path::Path, process::Command};

use galgo_testkit::{Server, Site, stream::own};

use crate::site::{needed, new_site, root, serve_programs};

/// What the client does: it exits with status 0 where all is as it should be.
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
