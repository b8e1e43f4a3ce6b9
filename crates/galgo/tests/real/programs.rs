//! The small programs of `examples/`, on the unchanged demo site.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use galgo_testkit::{Server, wait_until};

use crate::{
    curl::{self, Reply, curl, curl_with},
    processes::{MARK, mark, marked},
    repository::{noise, sha256},
    site::{compiled, demo, new_site},
};

fn serve() -> Server {
    new_site().serving(demo()).start()
}

fn get(server: &Server, path: &str) -> Reply {
    curl(&[&server.url(path)])
}

#[test]
fn each_says_hello() {
    let server = serve();
    for (name, said) in [
        ("hello", "Hello from C.\n"),
        ("hello.sh", "Hello from a shell script.\n"),
        ("hello.pl", "Hello from Perl.\n"),
        ("hello.py", "Hello from Python.\n"),
        ("static", "Hello without a C library.\n"),
    ] {
        let reply = get(&server, &format!("/cgi-bin/{name}")).ok();
        assert_eq!(reply.text(), said, "{name}");
        assert!(
            reply.field("Content-Type").starts_with("text/plain"),
            "{name}"
        );
    }
}

#[test]
fn every_link_of_the_index_works() {
    let server = serve();
    let index = get(&server, "/").ok().text();
    let links: Vec<_> = index
        .split("href=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(links.len() > 20, "{index}");
    for link in links {
        if link.ends_with("/clock.sh") {
            continue; // the clock never ends
        }
        if let Some(name) = link.strip_prefix("/cgi-bin/")
            && name.ends_with(".wasm")
        {
            compiled(&server, name);
        }
        let reply = get(&server, link);
        assert!(matches!(reply.status, 200 | 301 | 302), "{link}: {reply:?}");
    }
    let pixel = get(&server, "/pixel").ok();
    assert_eq!(pixel.field("Content-Type"), "image/gif");
    assert_eq!((pixel.body.len(), &pixel.body[..6]), (43, &b"GIF89a"[..]));
}

#[test]
fn environment_is_shown_escaped() {
    let server = serve();
    let page = curl(&["-H", "X-Test: <b>&\"", &server.url("/cgi-bin/env.sh?a=b")])
        .ok()
        .text();
    assert!(page.contains("HTTP_X_TEST=&lt;b&gt;&amp;"), "{page}");
    assert!(page.contains("\nQUERY_STRING=a=b\n"), "{page}");
}

#[test]
fn debug_tells_arguments_variables_and_input() {
    let server = serve();
    let url = server.url("/cgi-bin/debug/extra/path?foo+bar+--me%202");
    let told = curl_with(
        &["-H", "Content-Type: a/b", "--data-binary", "@-", &url],
        b"the input",
    )
    .ok()
    .text();
    for line in [
        "method: POST",
        "arguments: 0",
        "  PATH_INFO=/extra/path",
        "  QUERY_STRING=foo+bar+--me%202",
        "  SCRIPT_NAME=/cgi-bin/debug",
        "  CONTENT_TYPE=a/b",
        "  CONTENT_LENGTH=9",
    ] {
        assert!(told.lines().any(|l| l == line), "{line} in {told}");
    }
    assert!(told.ends_with("standard input:\nthe input"), "{told}");
}

#[test]
fn redirects_of_every_kind() {
    let server = serve();
    let to = |query: &str| get(&server, &format!("/cgi-bin/redirect.sh?to={query}"));
    let local = to("local").ok();
    assert!(local.fields("Location").is_empty());
    assert!(
        local.text().contains("\n  PATH_INFO=/redirected\n"),
        "{}",
        local.text()
    );
    assert!(
        local.text().contains("\n  QUERY_STRING=locally\n"),
        "{}",
        local.text()
    );
    assert_eq!(to("file").ok().body, get(&server, "/").ok().body);
    let client = to("client").is(302);
    assert_eq!(client.field("Location"), format!("{}/", server.listener(0)));
    let document = to("document").is(301);
    assert_eq!(document.text(), "This page lives at / now.\n");
    assert_eq!(
        document.field("Location"),
        format!("{}/", server.listener(0))
    );
    to("loop").is(502);
    to("nowhere").is(400);
}

#[test]
fn bytes_and_echo_carry_what_they_are_given() {
    let server = serve();
    for count in [0, 1, 65_536, 3_000_000] {
        let reply = get(&server, &format!("/cgi-bin/bytes?n={count}")).ok();
        assert_eq!(reply.field("Content-Length"), count.to_string());
        assert_eq!(reply.body.len(), count);
        assert!(reply.body.iter().all(|&b| b == b'x'));
    }
    get(&server, "/cgi-bin/bytes").is(400);
    let sent = noise(5_000_000);
    let url = server.url("/cgi-bin/echo");
    for how in [
        "Accept: */*",
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
    ] {
        let args = [
            "-H",
            how,
            "-H",
            "Content-Type: a/noise",
            "--data-binary",
            "@-",
            &url,
        ];
        let reply = curl_with(&args, &sent).ok();
        assert_eq!(reply.field("Content-Type"), "a/noise");
        assert!(
            reply.body == sent,
            "{how}: {} bytes came back",
            reply.body.len()
        );
    }
}

#[test]
fn upload_tells_the_sum_of_each_file() {
    let server = serve();
    let bytes = noise(2_000_000);
    let file = server.site.write("noise.bin", &bytes);
    let form = format!("file=@{}", file.display());
    let url = server.url("/cgi-bin/upload.py");
    let page = curl_with(
        &["-F", &form, "-F", "file=@-;filename=<b>.txt", &url],
        b"12345",
    )
    .ok();
    let row = format!(
        "<tr><td>noise.bin<td>2,000,000<td><code>{}</code>",
        sha256(&bytes)
    );
    assert!(page.text().contains(&row), "{}", page.text());
    assert!(
        page.text().contains("<tr><td>&lt;b&gt;.txt<td>5<td>"),
        "{}",
        page.text()
    );
    curl(&["-d", "a=b", &url]).is(415);
}

#[test]
fn nph_reaches_the_client_untouched() {
    let server = serve();
    let reply = get(&server, "/cgi-bin/nph-hello").ok();
    assert_eq!(reply.field("X-Parsed-By"), "nobody");
    assert!(reply.fields("Server").is_empty(), "{reply:?}");
    assert_eq!(reply.text(), "Hello, straight from the program.\n");
}

/// Each event arrives before the next event is made. The clock ends with its client.
#[test]
fn clock_sends_events_one_by_one() {
    let mark = mark("clock");
    let config = format!(
        "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"{}\"\nenv = {{ {MARK} = \"{mark}\" }}\n",
        demo().join("cgi-bin").display()
    );
    let server = new_site().config(&config).start();
    let mut client = curl::command()
        .args(["-N", "-i", &server.url("/cgi-bin/clock.sh")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(client.stdout.take().unwrap());
    let mut lines: Vec<String> = Vec::new();
    let (mut events, mut alone) = (0, 0);
    // Waits for three events that arrived alone. On a slow machine an event may arrive together with the
    // next.
    while alone < 3 {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "{lines:?}");
        let event = line.starts_with("data: ");
        events += usize::from(event);
        alone += usize::from(event && stdout.buffer().len() <= 1);
        assert!(events < 60, "they come together: {lines:?}");
        lines.push(line.trim_end().to_owned());
    }
    assert!(
        lines.contains(&"Content-Type: text/event-stream".to_owned()),
        "{lines:?}"
    );
    assert!(!marked(&mark).is_empty(), "who sends the time?");
    client.kill().unwrap();
    client.wait().unwrap();
    let _rest = stdout.read_to_end(&mut Vec::new());
    wait_until("the clock has ended", || marked(&mark).is_empty());
}
