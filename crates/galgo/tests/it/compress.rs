//! Content codings made on the fly: `compress`.

use std::io::{Read, Write};

use crate::harness::{check_refuses, list, new_site, watch::Watch};
use galgo_testkit::{Client, End, Reply, Server, Site, process::all_threads_are, wait_until};
use rustix::process::Signal;

list![
    every_coding_gives_back_what_went_in,
    what_stays_as_it_is,
    caches_are_told,
    a_pause_is_seen,
    what_is_cut_looks_cut,
    a_client_that_reads_slowly,
    who_waits_keeps_no_other_waiting,
    so_many_at_once,
    a_crowd_for_small_bodies,
    wrong_configurations_are_named,
];

fn site() -> Site {
    let text = "All work and no play makes Jack a dull boy.\n".repeat(20_000);
    new_site()
        .file("public/large.txt", &text, 0o644)
        .file("public/small.html", &text[..2000], 0o644)
        .file("public/tiny.html", "<p>", 0o644)
        .file("public/picture.png", &text, 0o644)
        .file("public/said.txt", &text, 0o644)
        .config("workers = 1\nmax_running = 64\n[[route]]\npath = \"/\"\nfiles = \"public\"\ncompress = true")
        .config("[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\ncompress = true")
        .config("[[route]]\npath = \"/said\"\nrespond = { file = \"public/said.txt\" }\ncompress = true")
        .config("[[route]]\npath = \"/plain/\"\nfiles = \"public\"")
        .config("[[route]]\npath = \"/own/\"\nfiles = \"public\"\ncompress = true\ncompress_types = [\"image/*\"]\ncompress_min = 1")
        .config("[[route]]\npath = \"/kept/\"\nfiles = \"public\"\ncompress = true\nheaders = { Cache-Control = \"public, No-Transform\" }")
}

fn ask(server: &Server, target: &str, fields: &str) -> Reply {
    server.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

fn accepting(server: &Server, target: &str, codings: &str) -> Reply {
    ask(server, target, &format!("Accept-Encoding: {codings}\r\n"))
}

/// Returns the decoded body of a reply, by its `Content-Encoding`.
fn decoded(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    let body = &reply.body[..];
    match reply.field("content-encoding") {
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut out),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_end(&mut out),
        Some("zstd") => zstd::Decoder::new(body).unwrap().read_to_end(&mut out),
        None => (&mut &*body).read_to_end(&mut out),
        Some(other) => panic!("{other}"),
    }
    .unwrap();
    out
}

fn every_coding_gives_back_what_went_in() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let text = "/cgi-bin/t?out=Content-Type:%20text/plain%0A%0A&fill=1000000";
    let few = "/cgi-bin/t?out=Content-Type:%20text/plain%0A%0A&fill=3000";
    let stated =
        "/cgi-bin/t?out=Content-Type:%20text/plain%0AContent-Length:%20300000%0A%0A&fill=300000";
    let mut asked = 0;
    for target in ["/large.txt", "/small.html", "/said", text, few, stated] {
        let plain = accepting(&server, target, "");
        assert_eq!(plain.field("content-encoding"), None, "{target}");
        for (accepts, coding) in [
            ("gzip", "gzip"),
            ("br", "br"),
            ("zstd", "zstd"),
            ("gzip, deflate, br, zstd", "zstd"),
            ("gzip;q=1.0, br;q=0.5, *;q=0", "gzip"),
            ("deflate, br;q=0.9, gzip;q=0.8", "br"),
        ] {
            let reply = accepting(&server, target, accepts);
            assert_eq!(reply.field("content-encoding"), Some(coding), "{target}");
            assert_eq!((reply.status, reply.end), (200, End::Whole), "{target}");
            assert!(decoded(&reply) == plain.body, "{target} {coding}");
            assert!(target.contains("fill") || reply.body.len() < plain.body.len() / 10);
            asked += 1;
        }
        asked += 1;
    }
    // A coded body to HTTP/1.0, which ends with the connection.
    let mut client = server.connect();
    client.send(format!(
        "GET {text} HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n"
    ));
    let reply = client.reply();
    assert_eq!(reply.end, End::Close);
    assert_eq!(decoded(&reply).len(), 1_000_000);
    drop(client);
    watch.after(&vec!["ok"; asked + 1]);
}

fn what_stays_as_it_is() {
    let server = site().start();
    for (target, fields) in [
        ("/large.txt", ""),
        ("/large.txt", "Accept-Encoding: \r\n"),
        ("/large.txt", "Accept-Encoding: deflate, compress\r\n"),
        ("/large.txt", "Accept-Encoding: gzip;q=0\r\n"),
        ("/large.txt", "Accept-Encoding: gzip;q=0.5, identity\r\n"),
        (
            "/large.txt",
            "Accept-Encoding: gzip\r\nRange: bytes=0-999\r\n",
        ),
        (
            "/large.txt",
            "Accept-Encoding: gzip\r\nRange: bytes=0-9,20-29\r\n",
        ),
        ("/tiny.html", "Accept-Encoding: gzip\r\n"),
        ("/picture.png", "Accept-Encoding: gzip\r\n"),
        ("/plain/large.txt", "Accept-Encoding: gzip\r\n"),
        ("/own/large.txt", "Accept-Encoding: gzip\r\n"),
        ("/kept/large.txt", "Accept-Encoding: gzip\r\n"),
        (
            "/cgi-bin/t?out=Content-Type:%20text/plain%0AContent-Encoding:%20br%0A%0A&fill=9999",
            "Accept-Encoding: gzip\r\n",
        ),
        (
            "/cgi-bin/t?out=Content-Type:%20text/plain%0ACache-Control:%20no-transform%0A%0A&fill=9999",
            "Accept-Encoding: gzip\r\n",
        ),
        (
            "/cgi-bin/t?out=Content-Type:%20text/event-stream%0A%0A&fill=9999",
            "Accept-Encoding: gzip\r\n",
        ),
        (
            "/cgi-bin/t?out=Content-Type:%20text/plain%0AStatus:%20206%0AContent-Range:%20bytes%200-9998/9999%0A%0A&fill=9999",
            "Accept-Encoding: gzip\r\n",
        ),
    ] {
        let reply = ask(&server, target, fields);
        let coding = reply.field("content-encoding");
        assert!(
            coding.is_none() || coding == Some("br"),
            "{target} {fields}"
        );
        assert!(matches!(reply.status, 200 | 206), "{target}");
    }
    let own = accepting(&server, "/own/picture.png", "gzip");
    assert_eq!(own.field("content-encoding"), Some("gzip"));
    let mut client = server.connect();
    client.send("HEAD /large.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let reply = client.reply_to("HEAD");
    assert_eq!(reply.field("content-encoding"), None);
    assert_eq!(reply.field("content-length"), Some("880000"));
}

fn caches_are_told() {
    let server = site().start();
    let plain = accepting(&server, "/large.txt", "");
    let coded = accepting(&server, "/large.txt", "gzip");
    assert_eq!(plain.field("vary"), Some("Accept-Encoding"));
    assert_eq!(coded.field("vary"), Some("Accept-Encoding"));
    // A file that was written just now has a weak tag even without a coding.
    let tag = plain.field("etag").unwrap().trim_start_matches("W/");
    assert_eq!(coded.field("etag"), Some(&*format!("W/{tag}")));
    let tagged = "/cgi-bin/t?out=Content-Type:%20text/plain%0AETag:%20%22a%22%0A%0A&fill=9999";
    let own = accepting(&server, tagged, "gzip");
    assert_eq!(own.fields("etag"), ["W/\"a\""]);
    assert_eq!(plain.field("accept-ranges"), Some("bytes"));
    assert_eq!(coded.field("accept-ranges"), None);
    assert_eq!(
        accepting(&server, "/picture.png", "gzip").field("vary"),
        None
    );
    // RFC 9110, 15.3.7: a part has the Vary of the whole.
    for (target, range, vary) in [
        ("/large.txt", "0-9", Some("Accept-Encoding")),
        ("/large.txt", "0-9,20-29", Some("Accept-Encoding")),
        ("/picture.png", "0-9", None),
        ("/tiny.html", "0-1", None),
    ] {
        let part = ask(&server, target, &format!("Range: bytes={range}\r\n"));
        assert_eq!((part.status, part.field("vary")), (206, vary), "{target}");
    }
    let own = accepting(&server, "/picture.png", "gzip");
    let known = format!("If-None-Match: {}\r\n", own.field("etag").unwrap());
    let reply = ask(&server, "/picture.png", &known);
    assert_eq!((reply.status, reply.field("vary")), (304, None));
    let known = "Accept-Encoding: gzip\r\nIf-None-Match: W/\"a\"\r\n";
    let reply = ask(&server, tagged, known);
    assert_eq!(
        (reply.status, reply.field("vary")),
        (304, Some("Accept-Encoding"))
    );
    let known = format!("Accept-Encoding: gzip\r\nIf-None-Match: W/{tag}\r\n");
    let reply = ask(&server, "/large.txt", &known);
    assert_eq!(
        (reply.status, reply.field("vary")),
        (304, Some("Accept-Encoding"))
    );
    // A client must not put a part of a coded body together with a part of an uncoded one.
    let part = format!("Accept-Encoding: gzip\r\nRange: bytes=0-9\r\nIf-Range: W/{tag}\r\n");
    assert_eq!(ask(&server, "/large.txt", &part).status, 200);
    let own = "/cgi-bin/t?out=Content-Type:%20text/plain%0AVary:%20Cookie,%20accept-encoding%0A%0A&fill=9999";
    assert_eq!(
        accepting(&server, own, "gzip").fields("vary"),
        ["Cookie, accept-encoding"]
    );
}

/// The server does not wait for a program that pauses: the output so far arrives, and can be decoded.
fn a_pause_is_seen() {
    let server = site().start();
    for coding in ["gzip", "br", "zstd"] {
        let mut client = server.connect();
        let mark = format!("go-{coding}");
        let target = format!(
            "/cgi-bin/t?out=Content-Type:%20text/plain%0A%0A&out=first&await={mark}&out=second"
        );
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n"
        ));
        let head = client.head();
        assert_eq!(head.field("content-encoding"), Some(coding));
        let mut reply = head.clone();
        while partly(&reply) != b"first" {
            let chunk = client.chunk().unwrap();
            assert!(!chunk.is_empty());
            reply.body.extend_from_slice(&chunk);
        }
        server.set(&mark);
        while let Some(chunk) = client.chunk()
            && !chunk.is_empty()
        {
            reply.body.extend_from_slice(&chunk);
        }
        assert_eq!(decoded(&reply), b"firstsecond");
    }
}

/// Decodes the beginning of a coded body as far as possible.
fn partly(reply: &Reply) -> Vec<u8> {
    let body = &reply.body[..];
    match reply.field("content-encoding") {
        Some("gzip") => {
            let mut decoder = flate2::write::GzDecoder::new(Vec::new());
            decoder.write_all(body).unwrap();
            decoder.flush().unwrap();
            decoder.get_ref().clone()
        }
        Some("br") => {
            let mut decoder = brotli::DecompressorWriter::new(Vec::new(), 4096);
            decoder.write_all(body).unwrap();
            decoder.flush().unwrap();
            decoder.get_ref().clone()
        }
        _ => {
            let mut decoder = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
            decoder.write_all(body).unwrap();
            decoder.flush().unwrap();
            decoder.get_ref().clone()
        }
    }
}

fn what_is_cut_looks_cut() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let typed = "/cgi-bin/t?out=Content-Type:%20text/plain%0A";
    for target in [
        format!("{typed}%0A&fill=300000&await=go&die=9"),
        format!("{typed}Content-Length:%20300001%0A%0A&fill=300000&await=go"),
    ] {
        let mut client = server.connect();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
        ));
        let head = client.head();
        assert_eq!(head.field("content-encoding"), Some("gzip"));
        server.set("go");
        let rest = client.rest();
        assert!(!rest.ends_with(b"\r\n0\r\n\r\n"), "{target}");
    }
    server.says("promised Content-Length 300001 and printed 300000 bytes");
    // Output beyond the promised length is cut off, and the rest is whole.
    let more = format!("{typed}Content-Length:%20290000%0A%0A&fill=300000");
    let reply = accepting(&server, &more, "gzip");
    assert_eq!((reply.end, decoded(&reply).len()), (End::Whole, 290_000));
    server.says("printed more than its Content-Length 290000");
    watch.after(&["script_error", "script_error", "ok"]);
}

/// The program's output waits for the client, and no byte of it is lost.
fn a_client_that_reads_slowly() {
    let server = site().start();
    let watch = Watch::begin(&server);
    let target = "/cgi-bin/t?out=Content-Type:%20text/plain%0A%0A&fill=3000000&touch=printed";
    let mut client = galgo_testkit::Client::connect_with_buffer(4096, server.address());
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n"
    ));
    server.wait_for("printed");
    let reply = client.reply();
    assert_eq!((reply.end, decoded(&reply).len()), (End::Whole, 3_000_000));
    drop(client);
    // If a client leaves, its program is ended.
    let mut client = server.connect();
    client.send(format!(
        "GET {target}&await=never HTTP/1.1\r\nHost: a\r\nAccept-Encoding: zstd\r\n\r\n"
    ));
    client.head();
    drop(client);
    watch.after(&["ok", "client_gone"]);
}

/// The server codes one body at a time. A body that waits for its client or for its program does not keep others waiting.
fn who_waits_keeps_no_other_waiting() {
    let mut seed = 1u32;
    let noise: String = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b' ' + u8::try_from(seed >> 26).unwrap())
    })
    .take(8 << 20)
    .collect();
    let server = site().file("public/noise.txt", &noise, 0o644).start();
    let mut reads_nothing = galgo_testkit::Client::connect_with_buffer(4096, server.address());
    reads_nothing.send("GET /noise.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    reads_nothing.head();
    let mut pauses = server.connect();
    let target = "/cgi-bin/t?out=Content-Type:%20text/plain%0A%0A&fill=100000&await=go";
    pauses.send(format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
    ));
    pauses.head();
    for coding in ["gzip", "br", "zstd"] {
        let reply = accepting(&server, "/large.txt", coding);
        assert_eq!((reply.end, decoded(&reply).len()), (End::Whole, 880_000));
    }
    server.set("go");
    pauses.until(b"\r\n0\r\n\r\n").unwrap();
}

/// Memory and time are bounded: beyond 32 coded bodies at once, a body is sent uncoded.
fn so_many_at_once() {
    let server = site().start();
    let target = "/cgi-bin/t?out=Content-Type:%20text/plain%0A%0A&out=a&await=go";
    let mut clients = Vec::new();
    let mut codings = Vec::new();
    for _ in 0..33 {
        let mut client = server.connect();
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
        ));
        codings.push(client.head().field("content-encoding").is_some());
        clients.push(client);
    }
    assert_eq!(codings.iter().filter(|coded| **coded).count(), 32);
    assert_eq!(codings.last(), Some(&false));
    server.set("go");
    for client in &mut clients {
        client.until(b"\r\n0\r\n\r\n").unwrap();
    }
    // The permits of those bodies are free again.
    let reply = accepting(&server, "/large.txt", "gzip");
    assert_eq!(reply.field("content-encoding"), Some("gzip"));
}

/// If an event loop finds more requests for small bodies than it codes in one go, it sends the rest uncoded.
fn a_crowd_for_small_bodies() {
    let server = site().start();
    let request = "GET /small.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let mut clients: Vec<_> = (0..48).map(|_| server.connect()).collect();
    let coded = |reply: &Reply| {
        assert_eq!(decoded(reply).len(), 2000);
        reply.field("content-encoding") == Some("gzip")
    };
    // First make each client a connection of the event loop: connections that it accepts in one go are a crowd, too.
    for client in &mut clients {
        client.send(request);
        coded(&client.reply());
    }
    wait_until("a server that waits for events", || {
        all_threads_are('S', server.pid())
    });
    server.signal(Signal::STOP);
    wait_until("a server that stands still", || {
        all_threads_are('T', server.pid())
    });
    clients.iter_mut().for_each(|client| client.send(request));
    server.signal(Signal::CONT);
    let replies: Vec<_> = clients.iter_mut().map(Client::reply).collect();
    assert_eq!(replies.iter().filter(|reply| coded(reply)).count(), 32);
    wait_until("an event loop that codes again", || {
        coded(&ask(&server, "/small.html", "Accept-Encoding: gzip\r\n"))
    });
}

fn wrong_configurations_are_named() {
    for (keys, words) in [
        ("compress_min = 1", "needs `compress = true`"),
        (
            "compress = false\ncompress_types = [\"*\"]",
            "needs `compress = true`",
        ),
        (
            "compress = true\ncompress_types = [\"html\"]",
            "is no media type",
        ),
        ("compress = true\ncompress_min = \"2G\"", "is out of range"),
        ("compress = \"gzip\"", "compress: "),
    ] {
        check_refuses(
            &new_site(),
            &format!("[[route]]\npath = \"/\"\nfiles = \"public\"\n{keys}\n"),
            words,
        );
    }
}
