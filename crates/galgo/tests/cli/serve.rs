//! `galgo serve`: its output, and the clients that are shown the causes of failures.

use crate::scene::{GALGO, new_site};
use galgo_testkit::{
    Client, Config, Server, Site,
    client::{page, proxy_header},
    process::assert_gone,
    wait_until,
};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

#[test]
fn the_table_names_every_program_and_why_one_would_fail() {
    let site = new_site();
    site.sh("hello", "printf 'Content-Type: text/plain\n\nhello'");
    site.program("broken", "#!/no/such\n");
    site.write("cgi-bin/data", "");
    site.write("public/index.html", "page");
    let server = site.serve(&["-l", "127.0.0.1:0"]);
    let at = server.listener(0);
    let want = format!(
        "listening on {at}\n\n  /cgi-bin/   programs in cgi-bin\n    FAIL  {at}/cgi-bin/broken\n          \
         interpreter `/no/such` does not exist\n    ok    {at}/cgi-bin/hello\n  /           files in public\n\n"
    );
    assert_eq!(server.table, want);
    assert!(server.page("/cgi-bin/hello").contains("\nhello"));
    assert!(server.page("/").ends_with("page"));
}

#[test]
fn the_table_is_bounded() {
    let site = new_site();
    for n in 0..53 {
        site.sh(&format!("p{n:02}"), "");
    }
    let server = site.serve(&["-l", "127.0.0.1:0"]);
    assert_eq!(
        server.table.matches("    ok    ").count(),
        50,
        "{}",
        server.table
    );
    assert!(
        server.table.contains("    and 3 more files (galgo check"),
        "{}",
        server.table
    );
}

#[test]
fn an_empty_folder_says_what_to_do() {
    let site = new_site();
    let server = site.serve(&["-l", "127.0.0.1:0"]);
    assert!(
        server.table.contains("no program yet: copy one in"),
        "{}",
        server.table
    );
    site.sh("new", "printf 'Content-Type: text/plain\n\nnew'");
    assert!(server.page("/cgi-bin/new").contains("\nnew"));
}

/// Makes a site with a program that prints text on standard error which only its author may see.
fn failing() -> Site {
    let site = new_site();
    site.sh("fail", "echo 'secret <detail>' >&2; exit 7");
    site.write(
        "galgo.toml",
        "listen = ['127.0.0.1:0', 'unix:plain.sock', 'proxy+unix:proxy.sock', 'proxy+127.0.0.2:0']\n\
         dev_errors = true\n[[route]]\npath = '/cgi-bin/'\ncgi = 'cgi-bin'\n",
    );
    site
}

fn shows_cause(page: &str) -> bool {
    assert!(page.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{page}");
    let cause = ["secret", "status 7", "galgo run"].map(|c| page.contains(c));
    assert!(cause.iter().all(|c| *c == cause[0]), "{page}");
    if !cause[0] {
        // The page contains the status and the request id, and nothing more.
        assert!(
            !page.contains("cgi-bin") && !page.contains("galgo "),
            "{page}"
        );
        assert!(page.contains("Request "), "{page}");
    }
    cause[0]
}

#[test]
fn a_browser_on_this_machine_is_shown_the_cause() {
    let site = failing();
    let server = site.serve(&[]);
    let page = server.page("/cgi-bin/fail");
    assert!(shows_cause(&page));
    for has in [
        "it exited with status 7",
        "<pre>secret &lt;detail&gt;</pre>",
        "Hint: ",
    ] {
        assert!(page.contains(has), "{has}: {page}");
    }
}

#[test]
fn nobody_else_is_shown_the_cause() {
    let site = failing();
    let server = site.serve(&[]);
    let path = "/cgi-bin/fail";
    for field in [
        "Forwarded: for=192.0.2.1",
        "X-Forwarded-For: 192.0.2.1",
        "X-Real-IP: ::1",
        "X-Forwarded-Host: localhost",
        "CF-Connecting-IP: 127.0.0.1",
        "Via: 1.1 x",
    ] {
        assert!(
            !shows_cause(&page(server.tcp(), path, &format!("{field}\r\n"))),
            "{field}"
        );
    }
    assert!(!shows_cause(&page(
        Client::unix(&site.path("plain.sock")).stream,
        path,
        ""
    )));
    // A proxy's claims about a client never make the client a developer.
    let proxied = server
        .table
        .lines()
        .find_map(|l| l.strip_prefix("listening on http://127.0.0.2:"));
    let proxied = format!("127.0.0.2:{}", proxied.unwrap());
    for from in [[192, 0, 2, 1], [10, 0, 0, 1], [127, 0, 0, 1]] {
        let mut to = Client::unix(&site.path("proxy.sock")).stream;
        to.write_all(&proxy_header(from, [127, 0, 0, 1])).unwrap();
        assert!(!shows_cause(&page(to, path, "")), "{from:?}");
        let mut to = TcpStream::connect(&proxied).unwrap();
        to.write_all(&proxy_header(from, [127, 0, 0, 1])).unwrap();
        assert!(!shows_cause(&page(to, path, "")), "{from:?}");
    }
    // The cause is also hidden if the request names another host (DNS rebinding), or comes through a proxy that
    // does not announce itself.
    for (version, host, near) in [
        ("1.1", "evil.example", false),
        ("1.1", "localhost.evil.example:8080", false),
        ("1.1", "192.0.2.1", false),
        ("1.0", "127.0.0.1", false),
        ("1.1", "127.0.0.1:8080", true),
        ("1.1", "LOCALHOST", true),
        ("1.1", "[::1]:1", true),
    ] {
        let head =
            format!("GET {path} HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let mut to = server.tcp();
        to.write_all(head.as_bytes()).unwrap();
        let page = std::io::read_to_string(to).unwrap();
        assert_eq!(shows_cause(&page), near, "{version} {host}");
    }
}

/// Makes a server end with its terminal even if the tests were started by nohup(1).
const HEARS_HANGUP: &str = "env --default-signal=HUP";

/// "auto" in a terminal, which script(1) provides.
#[test]
fn auto_is_off_where_others_are_served() {
    let site = failing();
    let file = site.path("galgo.toml");
    let mut config = Config::read(&file);
    config.remove("dev_errors");
    config.merge("access_log = 'off'");
    let mut alone = config.clone();
    alone.merge("listen = ['127.0.0.1:0']");
    for (config, shows) in [(alone, true), (config, false)] {
        config.write(&file);
        let mut script = Command::new("script");
        script.args([
            "-qfec",
            &format!("stty -onlcr; exec {HEARS_HANGUP} {GALGO} serve"),
            "/dev/null",
        ]);
        script.current_dir(site.path("")).env("NO_COLOR", "1");
        let server = Server::start(script, &site);
        assert_eq!(shows_cause(&server.page("/cgi-bin/fail")), shows);
    }
}

#[test]
fn without_dev_errors_nobody_is_shown_the_cause() {
    let site = failing();
    let file = site.path("galgo.toml");
    let mut config = Config::read(&file);
    // "auto" in a pipe is off.
    config.remove("dev_errors");
    config.write(&file);
    assert!(!shows_cause(&site.serve(&[]).page("/cgi-bin/fail")));
}

#[test]
fn a_program_that_cannot_start_tells_its_author_why() {
    let site = failing();
    site.program("cr", "#!/bin/sh\r\n");
    let page = site.serve(&[]).page("/cgi-bin/cr");
    assert!(
        page.contains("the first line ends in a carriage return"),
        "{page}"
    );
    assert!(!page.contains("Standard error"), "{page}");
}

#[test]
fn signals_end_it_with_0() {
    use rustix::process::{Pid, Signal, kill_process};
    let site = new_site();
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = site.serve(&["-l", "127.0.0.1:0"]);
        kill_process(Pid::from_child(&server.child), signal).unwrap();
        assert_eq!(server.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let site = new_site();
    site.sh("hello", "");
    let check = |no_color: &str| {
        let out = Command::new("script")
            .args(["-qec", &format!("{} check", GALGO), "/dev/null"])
            .current_dir(site.path(""))
            .env("TERM", "xterm")
            .env("NO_COLOR", no_color)
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert!(
        check("").starts_with("\x1b[32mok  \x1b[0m  cgi-bin/hello"),
        "{}",
        check("")
    );
    assert!(
        check("1").starts_with("ok    cgi-bin/hello"),
        "{}",
        check("1")
    );
    assert!(!site.galgo(&["check"]).out.contains('\x1b'));
}

/// script(1) gives the server a terminal. If a program could write to the terminal, the operator would take the
/// text for the server's. If it could push input into the terminal (TIOCSTI), the operator's shell would take the
/// input for typed.
#[test]
fn programs_have_no_terminal() {
    let site = new_site();
    let asks = "printf 'Content-Type: text/plain\\n\\n'; (: </dev/tty) 2>/dev/null && echo one || echo none";
    site.sh("asks", asks);
    let perl = "#!/usr/bin/perl\nprint \"Content-Type: text/plain\\n\\n\", open(my $t, '<', '/dev/tty') ? 'one' : 'none', \
                getpgrp() == $$ ? ' leads' : '';\n";
    site.program("perl", perl);
    let rest = "[[route]]\npath = '/warm/'\ncgi = 'cgi-bin'\nstart = 'warm'\n";
    let routes = format!("[[route]]\npath = '/cold/'\ncgi = 'cgi-bin'\nstart = 'cold'\n{rest}");
    site.write("galgo.toml", format!("listen = ['unix:socket']\n{routes}"));
    // First the server is a member of a session with a terminal, then its leader.
    for before in ["true; ", "exec "] {
        let before = format!("{before}{HEARS_HANGUP} ");
        let script = Command::new("script")
            .args(["-q", "-c", &format!("{before}{GALGO} serve ."), "/dev/null"])
            .current_dir(site.path(""))
            .env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let script = Terminal(script);
        for (path, answer) in [
            ("/cold/asks", "none"),
            ("/cold/perl", "none leads"),
            ("/warm/perl", "none leads"),
        ] {
            let page = page(connect(&site.path("socket")), path, "");
            assert!(
                page.contains(&format!("\n{answer}")),
                "{before}{path}: {page}"
            );
        }
        drop(script);
        // The server ends with its terminal.
        wait_until("the end of the server", || !site.path("socket").exists());
    }
}

/// Dropping this ends the terminal, and the server with it.
struct Terminal(std::process::Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects as soon as a server listens at this path.
fn connect(path: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => {
                let patience = Some(Duration::from_secs(180));
                stream.set_read_timeout(patience).unwrap();
                return stream;
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Shows that it runs by a file named after its process id. Answers once there is a file `go`.
const DEAF: &str = "#!/usr/bin/perl\n$SIG{TERM} = 'IGNORE';\nopen(my $f, '>', \"../marks/$$\"); close $f;\n\
                    select(undef, undef, undef, 0.01) until -e '../go';\nprint \"Content-Type: text/plain\\n\\ndone\";\n";

/// Makes a site with a program that may be started cold or warm. Returns the site and its server.
fn deaf(workers: usize) -> (Site, Server) {
    let site = new_site();
    site.program("deaf", DEAF);
    fs::create_dir(site.path("marks")).unwrap();
    let route = |start: &str| {
        format!("[[route]]\npath = '/{start}/'\ncgi = 'cgi-bin'\nstart = '{start}'\n")
    };
    let top = format!("listen = ['127.0.0.1:0']\nworkers = {workers}\nshutdown_grace = '1h'\n");
    let config = [top, route("cold"), route("warm")].concat();
    site.write("galgo.toml", &config);
    let mut command = site.command(&["serve"]);
    command.env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1");
    let server = Server::start(command, &site);
    (site, server)
}

/// Asks for the program, and does not wait for the answer.
fn asked(server: &Server, path: &str) -> TcpStream {
    let mut to = server.tcp();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    to.write_all(head.as_bytes()).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
    to
}

/// Waits until `count` programs run. Returns their process ids.
fn running(site: &Site, count: usize) -> Vec<u32> {
    loop {
        let marks = fs::read_dir(site.path("marks")).unwrap();
        let pids = marks.map(|m| m.unwrap().file_name().to_string_lossy().parse().unwrap());
        let pids: Vec<u32> = pids.collect();
        if pids.len() == count {
            return pids;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_server_that_is_killed_takes_its_programs_with_it() {
    let (site, mut server) = deaf(2);
    let _clients = ["/cold/deaf", "/warm/deaf"].map(|path| asked(&server, path));
    let pids = running(&site, 2);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    pids.into_iter().for_each(assert_gone);
}

/// A template is a child of the thread that loaded it, and so are the template's children. That thread may have
/// nothing left to do while another thread still serves a child of the template.
#[test]
fn a_thread_that_has_drained_takes_nothing_with_it() {
    let (site, mut server) = deaf(4);
    let clients = ["/warm/deaf"; 3].map(|path| asked(&server, path));
    running(&site, 3);
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    // A refused connection shows that the event loops have begun to drain. Loops without a request have ended.
    while TcpStream::connect(server.address()).is_ok() {
        std::thread::sleep(Duration::from_millis(1));
    }
    site.write("go", "");
    for mut client in clients {
        let mut page = String::new();
        client.read_to_string(&mut page).unwrap();
        assert!(page.contains("\ndone"), "{page}");
    }
    // The server waits neither for the thread that looks after the templates nor for the grace period.
    let ended = (0..18_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        server.child.try_wait().unwrap()
    });
    assert!(ended.is_some_and(|status| status.success()));
}

/// Makes the site that README's lines make.
fn readme() -> Site {
    let page = include_str!("../../../../README.md");
    let block = page.split("```\n").nth(1).unwrap();
    let lines = block.split("$ galgo serve").next().unwrap();
    let lines: Vec<_> = lines
        .lines()
        .map(|l| l.strip_prefix("$ ").unwrap_or(l))
        .collect();
    assert_eq!(lines.len(), 8, "{block}");
    let site = new_site();
    std::fs::remove_dir(site.path("cgi-bin")).unwrap();
    let done = std::process::Command::new("sh")
        .args(["-ec", &lines.join("\n")])
        .current_dir(site.path(""))
        .status();
    assert!(done.unwrap().success());
    site
}

#[test]
fn a_developer_is_shown_what_is_live() {
    let site = readme();
    site.write("galgo.toml", "dev_errors = true\n");
    site.write("cgi-bin/<b>forgot</b>.sh", "#!/bin/sh\n");
    site.write("cgi-bin/notes.txt", "");
    let server = site.serve(&["-l", "127.0.0.1:0"]);
    let page = server.page("/");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(
        page.contains("<a href=\"/cgi-bin/hello\">/cgi-bin/hello</a>"),
        "{page}"
    );
    assert!(
        page.contains("fails: the program is not executable<br>try: <code>chmod +x "),
        "{page}"
    );
    assert!(
        page.contains("/cgi-bin/&lt;b&gt;forgot") && !page.contains("<b>forgot"),
        "{page}"
    );
    assert!(!page.contains("notes.txt"), "{page}");
    assert!(
        server
            .page("/cgi-bin/hello")
            .contains("Hello from process ")
    );
    // A program that is copied in appears at the next request.
    site.sh("new", "");
    assert!(server.page("/").contains("<a href=\"/cgi-bin/new\">"));
    // The index is not shown to other clients, at other paths, or for other methods.
    let proxied = galgo_testkit::client::page(server.tcp(), "/", "X-Forwarded-For: 192.0.2.1\r\n");
    for page in [proxied, server.page("/other"), server.page("/cgi-bin/none")] {
        assert!(
            page.starts_with("HTTP/1.1 404 ") && !page.contains("cgi-bin"),
            "{page}"
        );
    }
    site.write("galgo.toml", "dev_errors = false\n");
    let server = site.serve(&["-l", "127.0.0.1:0"]);
    assert!(server.page("/").starts_with("HTTP/1.1 404 "));
    // A page of the site's own takes precedence over the index.
    site.write("galgo.toml", "dev_errors = true\n");
    site.write("public/index.html", "own page");
    let server = site.serve(&["-l", "127.0.0.1:0"]);
    assert!(server.page("/").ends_with("own page"));
}
