//! Modules of `examples/`, on the unchanged demo site, compared with native programs from the same
//! sources. Other modules try actions that they are not allowed.

use std::{
    ffi::OsStr,
    io::{ErrorKind, Read, Write},
    net::TcpListener,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
};

use crate::{
    curl::curl,
    repository::noise,
    site::{compiled, demo, new_site, serve_programs},
};

/// Returns the bytes of a response's body, without the lines that vary and without the program's
/// name.
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
    // The bytes are read as Latin-1, so that bytes that are not UTF-8 stay distinct.
    let text: String = lines.join(&b'\n').into_iter().map(char::from).collect();
    text.replace(&format!("/{name}"), "/PROGRAM").into_bytes()
}

#[test]
fn one_source_answers_alike_as_a_native_program_and_as_a_module() {
    let server = new_site().serving(demo()).start();
    let field = ["-H", "X-Own: \u{e4}\u{f6}"];
    for (name, target) in [
        ("hello", ""),
        ("environment", "/extra%20path/%ff?a=b&c"),
        ("environment", "?word"),
    ] {
        let [native, module] = [name.to_owned(), format!("{name}.wasm")].map(|name| {
            if name.ends_with(".wasm") {
                compiled(&server, &name);
            }
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
    let server = new_site().serving(demo()).start();
    let file = tempfile::NamedTempFile::new().unwrap();
    let sent = noise(3 << 20);
    std::fs::write(file.path(), &sent).unwrap();
    let data = format!("@{}", file.path().display());
    compiled(&server, "echo.wasm");
    for name in ["echo", "echo.wasm"] {
        let url = server.url(&format!("/cgi-bin/{name}"));
        let reply = curl(&["--data-binary", &data, &url]).ok();
        assert!(reply.body == sent, "{name}");
    }
}

#[test]
fn modules_of_every_language_say_hello() {
    let server = new_site().serving(demo()).start();
    for (name, said) in [
        ("hello.wasm", "Hello from C.\n"),
        ("hello-go.wasm", "Hello from Go, in WebAssembly.\n"),
        ("hello-rust.wasm", "Hello from Rust, in WebAssembly.\n"),
        ("hello-component.wasm", "Hello from Rust, in WebAssembly.\n"),
    ] {
        compiled(&server, name);
        let reply = curl(&[&server.url(&format!("/cgi-bin/{name}"))]).ok();
        assert_eq!(reply.text(), said, "{name}");
    }
}

#[test]
fn a_guestbook_keeps_every_entry_of_writers_at_once() {
    let server = new_site().serving(demo()).start();
    compiled(&server, "guestbook.wasm");
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
    let server = new_site().serving(demo()).start();
    compiled(&server, "handler.wasm");
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

/// Builds a program in a language that has its own compiler.
fn build(compiler: &str, arguments: &[&OsStr]) {
    let done = Command::new(compiler).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{compiler}: {said}");
}

/// Actions that `escape.c` may do. It fails at everything else that it tries.
const ALLOWED: [&str; 9] = [
    "read /data/note",
    "read /data/./note",
    "read /data/inner/../note",
    "read /data/inner/to-note",
    "write /own/new",
    "read /own/new",
    "mkdir /own/inner",
    "rename /own/new",
    "unlink /own/inner/new",
];

#[test]
fn nothing_leads_out_of_the_folders_of_a_route() {
    let site = new_site();
    let module = site.path("cgi-bin/escape.wasm");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real/escape.c");
    let words = ["--target=wasm32-wasi", "-O2", "-D_DEFAULT_SOURCE", "-o"].map(OsStr::new);
    build(
        "clang",
        &[&words[..], &[module.as_os_str(), source.as_ref()]].concat(),
    );
    let secret = site.write("secret", "untouched");
    site.write("data/note", "a note");
    for folder in ["data/inner", "own"] {
        std::fs::create_dir(site.path(folder)).unwrap();
    }
    for (to, at) in [
        (Path::new("../secret"), "data/link"),
        (&secret, "data/absolute"),
        (Path::new(".."), "data/folder"),
        (Path::new("../../secret"), "data/inner/out"),
        (Path::new("../note"), "data/inner/to-note"),
    ] {
        symlink(to, site.path(at)).unwrap();
    }
    let server = serve_programs(
        site,
        "preopen = { \"/data\" = \"data\" }\npreopen_rw = { \"/own\" = \"own\" }\n",
    );
    let page = curl(&[&server.url("/cgi-bin/escape.wasm")]).ok().text();
    assert!(page.lines().count() > 40, "{page}");
    for line in page.lines() {
        let (tried, worked) = line.rsplit_once(": ").unwrap();
        assert_eq!(worked == "yes", ALLOWED.contains(&tried), "{line}");
    }
    let names = |folder: &str| {
        let found = std::fs::read_dir(server.site.path(folder)).unwrap();
        let mut names: Vec<_> = found.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(std::fs::read(secret).unwrap(), b"untouched");
    assert_eq!(
        std::fs::read(server.site.path("data/note")).unwrap(),
        b"a note"
    );
    assert_eq!(
        names("data"),
        ["absolute", "folder", "inner", "link", "note"]
    );
    let all = [
        ".cache",
        "cgi-bin",
        "data",
        "galgo.toml",
        "own",
        "secret",
        "stderr",
    ];
    let mut beside = names("");
    beside.retain(|name| name != "cache");
    assert_eq!(beside, all);
}

/// Sends a hello to the port of this machine that its query names, and prints the answer.
const CALLER: &str = r#"
use std::{env, io::{Read, Write}, net::{TcpStream, UdpSocket}};
fn main() {
    println!("Content-Type: text/plain\n");
    let port = env::var("QUERY_STRING").unwrap().parse::<u16>().unwrap();
    println!("UDP {}", UdpSocket::bind("127.0.0.1:0").is_ok());
    for host in ["127.0.0.1", "localhost"] {
        let told = TcpStream::connect((host, port)).and_then(|mut stream| {
            stream.write_all(b"hello\n")?;
            let mut told = String::new();
            stream.read_to_string(&mut told).map(|_| told)
        });
        println!("{host} {}", told.unwrap_or("refused".into()));
    }
}
"#;

#[test]
fn a_component_reaches_the_network_where_its_route_allows_it_and_nowhere_else() {
    let site = new_site();
    let source = site.write("caller.rs", CALLER);
    let module = site.path("cgi-bin/caller.wasm");
    let words = ["-O", "--edition", "2024", "--target", "wasm32-wasip2", "-o"].map(OsStr::new);
    build(
        "rustc",
        &[&words[..], &[module.as_os_str(), source.as_os_str()]].concat(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Both routes are in the same server, and so in the same worker. A permission for a route must
    // not help the other.
    let server = site
        .config(
            "[[route]]\npath = \"/open/\"\ncgi = \"cgi-bin\"\nnetwork = true\n\
         [[route]]\npath = \"/shut/\"\ncgi = \"cgi-bin\"\n",
        )
        .start();
    let ask = |path: &str| {
        let url = server.url(&format!("{path}caller.wasm?{port}"));
        curl(&[&url]).ok().text()
    };
    let answers = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut said = [0; 6];
            stream.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"hello\n");
            stream.write_all(b"welcome").unwrap();
        }
        listener
    });
    let refused = "UDP false\n127.0.0.1 refused\nlocalhost refused\n";
    assert_eq!(ask("/shut/"), refused);
    assert_eq!(
        ask("/open/"),
        "UDP true\n127.0.0.1 welcome\nlocalhost welcome\n"
    );
    assert_eq!(ask("/shut/"), refused);
    // There were no other connections.
    let listener = answers.join().unwrap();
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}
