//! Modules of `examples/`, on the demo site as it is, beside the same sources as native programs.

use crate::{
    curl::curl,
    repository::noise,
    site::{Site, demo},
};

/// The bytes of a response's body, but for what is of the moment and the program's name.
fn body(url: &str, name: &str, more: &[&str]) -> Vec<u8> {
    let mut arguments = more.to_vec();
    arguments.push(url);
    let reply = curl(&arguments).ok();
    assert!(
        reply.field("Content-Type").starts_with("text/plain"),
        "{name}"
    );
    let moment =
        |line: &&[u8]| !line.starts_with(b"UNIQUE_ID=") && !line.starts_with(b"REMOTE_PORT=");
    let lines: Vec<_> = reply.body.split(|&b| b == b'\n').filter(moment).collect();
    // Latin-1, so that bytes stay apart which are no UTF-8.
    let text: String = lines.join(&b'\n').into_iter().map(char::from).collect();
    text.replace(&format!("/{name}"), "/PROGRAM").into_bytes()
}

#[test]
fn one_source_answers_alike_as_a_native_program_and_as_a_module() {
    let server = Site::new().serve_folder(demo());
    let field = ["-H", "X-Own: \u{e4}\u{f6}"];
    for (name, target) in [
        ("hello", ""),
        ("environment", "/extra%20path/%ff?a=b&c"),
        ("environment", "?word"),
    ] {
        let [native, module] = [name.to_owned(), format!("{name}.wasm")].map(|name| {
            let url = server.url(&format!("/cgi-bin/{name}{target}"));
            body(&url, &name, &field)
        });
        let shown = String::from_utf8_lossy(&module);
        assert!(
            native == module,
            "{name}: {} {shown}",
            String::from_utf8_lossy(&native)
        );
        assert!(native.len() > 10);
    }
}

#[test]
fn an_echo_gives_back_every_byte() {
    let server = Site::new().serve_folder(demo());
    let file = tempfile::NamedTempFile::new().unwrap();
    let sent = noise(3 << 20);
    std::fs::write(file.path(), &sent).unwrap();
    let data = format!("@{}", file.path().display());
    for name in ["echo", "echo.wasm"] {
        let url = server.url(&format!("/cgi-bin/{name}"));
        let reply = curl(&["--data-binary", &data, &url]).ok();
        assert!(reply.body == sent, "{name}");
    }
}

#[test]
fn modules_of_every_language_say_hello() {
    let server = Site::new().serve_folder(demo());
    for (name, said) in [
        ("hello.wasm", "Hello from C.\n"),
        ("hello-go.wasm", "Hello from Go, in WebAssembly.\n"),
        ("hello-rust.wasm", "Hello from Rust, in WebAssembly.\n"),
        ("hello-component.wasm", "Hello from Rust, in WebAssembly.\n"),
    ] {
        let reply = curl(&[&server.url(&format!("/cgi-bin/{name}"))]).ok();
        assert_eq!(reply.text(), said, "{name}");
    }
}

#[test]
fn a_guestbook_keeps_every_entry_of_writers_at_once() {
    let server = Site::new().serve_folder(demo());
    let url = server.url("/cgi-bin/guestbook.wasm");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let url = &url;
            scope.spawn(move || {
                for n in 0..5 {
                    let entry = format!("name=writer{writer}&text=%3Centry+{n}%3E");
                    let reply = curl(&["-d", &entry, url]);
                    assert_eq!(reply.status, 303);
                }
            });
        }
    });
    let page = curl(&[&url]).ok().text();
    for writer in 0..8 {
        for n in 0..5 {
            let entry = format!("<dt>writer{writer}<dd>&lt;entry {n}&gt;");
            assert!(page.contains(&entry), "{entry} in {page}");
        }
    }
}

#[test]
fn a_component_handles_http_itself() {
    let server = Site::new().serve_folder(demo());
    let url = server.url("/cgi-bin/handler.wasm/a/b?x=y");
    let file = tempfile::NamedTempFile::new().unwrap();
    let sent = noise(2 << 20);
    std::fs::write(file.path(), &sent).unwrap();
    let data = format!("@{}", file.path().display());
    let reply = curl(&["--data-binary", &data, "-H", "X-Own: v", &url]).ok();
    let (head, body) = reply.body.split_at(reply.body.len() - sent.len());
    let head = String::from_utf8_lossy(head);
    assert!(
        head.starts_with("Method::Post /cgi-bin/handler.wasm/a/b?x=y\n"),
        "{head}"
    );
    assert!(head.contains("\nx-own: v\n"), "{head}");
    assert!(body == sent, "the body comes back");
    assert_eq!(reply.field("Content-Type"), "text/plain; charset=utf-8");
}
