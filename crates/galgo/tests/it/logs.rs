//! The access log and the error log.

use std::{fs, path::Path, time::Instant};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;

use crate::harness::{list, new_site};
use galgo_testkit::{Server, Site, eventually, file::whole_lines, wait_until};

list![
    why_a_request_was_refused,
    why_many_requests_were_refused_is_said_once_a_second,
    a_developer_is_told_why_a_request_was_refused,
    json_has_every_field,
    combined_has_its_form,
    no_line_is_forged,
    both_are_opened_again,
    a_full_disk_is_counted_and_said,
    an_access_log_that_is_off,
    a_fifo_that_nobody_reads,
    logs_of_many_routes_share_a_thread,
];

fn line(server: &Server, target: &str) -> Value {
    eventually("the line of the request", || {
        let lines = server.access();
        lines.into_iter().find(|l| l["target"] == target)
    })
}

fn json_has_every_field() {
    let server = new_site().start();
    let target = "/cgi-bin/t?head&out=hello&exit=3";
    let reply = server.ask(format!(
        "GET {target} HTTP/1.1\r\nHost: A.example:80\r\nReferer: r\"\\\r\nUser-Agent: \u{e4}\t\u{7f52}\r\n\r\n"
    ));
    assert_eq!(reply.status, 200);
    let program = line(&server, target);
    for (name, wanted) in [
        ("remote", Value::from("127.0.0.1")),
        ("host", "a.example".into()),
        ("method", "GET".into()),
        ("referer", "r\"\\".into()),
        ("user_agent", "\u{e4}\t\u{7f52}".into()),
        ("outcome", "ok".into()),
        ("status", 200.into()),
        ("bytes", 5.into()),
        ("exit", 3.into()),
    ] {
        assert_eq!(program[name], wanted, "{name}: {program}");
    }
    assert_eq!(program["id"].as_str().unwrap().len(), 20);
    let time = program["time"].as_str().unwrap();
    assert!(
        time.len() == 24 && time.starts_with("20") && time.ends_with('Z'),
        "{time}"
    );
    let number = |name: &str| {
        program[name]
            .as_f64()
            .unwrap_or_else(|| panic!("{name}: {program}"))
    };
    let times = [
        "queue_ms",
        "start_ms",
        "first_byte_ms",
        "total_ms",
        "user_ms",
        "system_ms",
    ];
    assert!(times.iter().all(|name| number(name) >= 0.0), "{program}");
    assert!(number("start_ms") > 0.0 && number("user_ms") + number("system_ms") > 0.0);
    assert!(number("first_byte_ms") >= number("start_ms"));
    assert!(number("total_ms") >= number("first_byte_ms"));
    assert!(number("max_rss") > 1e5);

    let killed = "/cgi-bin/t?die=9";
    assert_eq!(server.get(killed).status, 502);
    let killed = line(&server, killed);
    assert_eq!(
        (&killed["signal"], &killed["outcome"]),
        (&9.into(), &"script_error".into())
    );
    assert!(killed.get("exit").is_none());
    // A request that started no program has no exit status.
    server.get("/none");
    let none = line(&server, "/none");
    assert_eq!(
        (&none["outcome"], none.get("exit")),
        (&"not_found".into(), None)
    );
    // Invalid bytes instead of a request get a line, too.
    assert_eq!(server.ask("nonsense\r\n\r\n").status, 400);
    let nonsense = line(&server, "");
    assert_eq!(
        (&nonsense["outcome"], &nonsense["status"]),
        (&"client_error".into(), &400.into())
    );
}

/// Starts a server with its own configuration from `--config`.
fn own(site: Site, top: &str) -> Server {
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n{top}\n[[route]]\npath = \"/health\"\nrespond = {{ body = \"fine\" }}\n\
         [[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n"
    );
    let file = site.path("own.toml");
    let site = site.file("own.toml", config, 0o644);
    site.arguments(&["--config", file.to_str().unwrap()])
        .start()
}

fn lines(path: &Path, least: usize) -> Vec<String> {
    eventually("lines of the log", || {
        let lines: Vec<_> = whole_lines(path).lines().map(str::to_owned).collect();
        (lines.len() >= least).then_some(lines)
    })
}

/// Splits a line in the Combined format. Panics if the line has another form.
fn combined(line: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = match rest.as_bytes()[0] {
            b'[' => rest.find(']').expect("a bracket") + 1,
            b'"' => {
                let mut escaped = false;
                let close = rest[1..].bytes().position(|b| {
                    let ends = b == b'"' && !escaped;
                    escaped = b == b'\\' && !escaped;
                    ends
                });
                close.expect("a quote") + 2
            }
            _ => rest.find(' ').unwrap_or(rest.len()),
        };
        parts.push(rest[..end].to_owned());
        rest = &rest[end..];
        if !rest.is_empty() {
            rest = rest.strip_prefix(' ').expect("one space");
        }
    }
    assert_eq!(parts.len(), 9, "{line}");
    assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line}");
    let time: Vec<_> = parts[3].split(['[', '/', ':', ' ', ']']).collect();
    assert_eq!((time.len(), time[7]), (9, "+0000"), "{line}");
    assert!(
        parts[5].len() == 3 && parts[5].parse::<u16>().is_ok(),
        "{line}"
    );
    let bytes = &parts[6];
    let some = bytes.parse::<u64>().is_ok_and(|n| n > 0);
    assert!(some || bytes == "-", "{line}");
    parts
}

fn combined_has_its_form() {
    let server = own(new_site(), "access_log = \"combined.log\"");
    server.ask(
        "GET /cgi-bin/t?head&out=\"hello\" HTTP/1.1\r\nHost: a\r\nReferer: a\"b\\\r\nUser-Agent: c\td \u{e4}\r\n\r\n",
    );
    server.ask("nonsense\r\n\r\n");
    server.ask("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    let path = server.path("combined.log");
    let all: Vec<_> = lines(&path, 4).iter().map(|l| combined(l)).collect();
    let with = |text: &str| all.iter().find(|p| p[4].contains(text)).unwrap();
    let program = with("/cgi-bin/t");
    assert_eq!(
        program[4],
        "\"GET /cgi-bin/t?head&out=\\\"hello\\\" HTTP/1.1\""
    );
    assert_eq!(program[0], "127.0.0.1");
    assert_eq!((program[5].as_str(), program[6].as_str()), ("200", "7"));
    assert_eq!(program[7], "\"a\\\"b\\\\\"");
    assert_eq!(program[8], "\"c\\x09d \\xc3\\xa4\"");
    let empty = with("OPTIONS");
    assert_eq!((empty[5].as_str(), empty[6].as_str()), ("204", "-"));
    let nonsense = all.iter().find(|p| p[5] == "400").unwrap();
    assert_eq!(nonsense[4], "\"-\"");
}

/// Targets that would forge a line of a log if galgo logged them as they are.
const TARGETS: [&str; 6] = [
    "/a%0a",
    "/a%0d%0a",
    "/%1b[2K",
    "/cgi-bin/%c2%85x",
    "/cgi-bin/%ff",
    "/cgi-bin/\\n",
];

/// Field values that would forge a line.
const VALUES: [&str; 5] = [
    "a\tb",
    "\u{85}",
    "\u{9b}31m",
    "\"}\n{\"",
    "\\\",\"outcome\":\"forged",
];

fn no_line_is_forged() {
    let server = new_site().start();
    let forged = "2026-01-01T00:00:00.000Z error forged";
    // Forged by a program: line ends of every kind, terminal escapes, bytes that are no text.
    for text in [
        format!("a\r{forged}"),
        format!("a\u{1b}[2K\u{1b}[1A{forged}"),
        format!("a\u{85}{forged}"),
        format!("a\u{2028}{forged}"),
        format!("a\0{forged}\u{8}"),
        format!("{forged}\n{forged}\n"),
    ] {
        let program = format!("/cgi-bin/t?err={}&exit=1", crate::harness::encode(&text));
        assert_eq!(server.get(&program).status, 502);
    }
    // Forged by a client: in the target, and in header fields.
    for target in TARGETS {
        server.get(target);
    }
    for value in VALUES {
        server.ask(format!(
            "GET /health HTTP/1.1\r\nHost: a\r\nUser-Agent: {value}\r\nReferer: {value}\r\n\r\n"
        ));
    }
    server.get("/cgi-bin/t?err=last&exit=1");
    server.says("last");
    for line in server.errors().lines() {
        let ours = line.starts_with("galgo: ");
        let words: Vec<_> = line.splitn(3, ' ').collect();
        let dated = words.len() == 3 && words[0].len() == 24 && words[0].ends_with('Z');
        assert!(
            ours || dated && ["error", "warn", "info", "stderr"].contains(&words[1]),
            "{line:?}"
        );
        // Lines from programs start with the id of the request.
        assert!(
            ours || words[1] != "stderr" || words[2].starts_with('['),
            "{line:?}"
        );
        assert!(
            !line.chars().any(|c| c.is_control() && c != '\t'),
            "{line:?}"
        );
        assert!(!line.starts_with("2026-01-01"), "{line:?}");
    }
    // Each line of the access log is JSON, which `access` asserts, and has the usual fields.
    for line in server.access() {
        assert_ne!(line["outcome"], "forged");
        assert!(line["id"].is_string() && line["total_ms"].is_number());
    }
    let raw = fs::read(server.path("access.log")).unwrap();
    assert!(raw.iter().all(|&b| b >= b' ' || b == b'\n'));
}

fn reopen(server: &Server) {
    kill_process(Pid::from_raw(server.pid() as i32).unwrap(), Signal::USR1).unwrap();
}

fn both_are_opened_again() {
    let server = own(
        new_site(),
        "access_log = \"a.log\"\nerror_log = \"e.log\"\nlog_format = \"json\"",
    );
    let at = |name: &str| server.path(name);
    server.get("/cgi-bin/t?err=first&head");
    lines(&at("a.log"), 2);
    lines(&at("e.log"), 1);
    for name in ["a", "e"] {
        fs::rename(at(&format!("{name}.log")), at(&format!("{name}.old"))).unwrap();
    }
    reopen(&server);
    wait_until("the new files", || {
        at("a.log").exists() && at("e.log").exists()
    });
    server.get("/cgi-bin/t?err=second&head");
    let (access, error) = (lines(&at("a.log"), 1), lines(&at("e.log"), 1));
    assert!(
        access.len() == 1 && access[0].contains("second"),
        "{access:?}"
    );
    assert!(error.len() == 1 && error[0].contains("second"), "{error:?}");
    // No line was lost, and the server writes no more to the old files.
    assert_eq!(lines(&at("a.old"), 2).len(), 2);
    assert_eq!(lines(&at("e.old"), 1).len(), 1);
    // If the log cannot be opened again, the old file stays in use.
    fs::rename(at("a.log"), at("a.kept")).unwrap();
    fs::create_dir(at("a.log")).unwrap();
    reopen(&server);
    wait_until("the complaint", || {
        lines(&at("e.log"), 1)
            .iter()
            .any(|l| l.contains("could not be reopened"))
    });
    server.get("/cgi-bin/t?head&out=third");
    assert!(lines(&at("a.kept"), 2)[1].contains("third"));
}

fn a_full_disk_is_counted_and_said() {
    let server = own(
        new_site(),
        "access_log = \"/dev/full\"\nerror_log = \"e.log\"",
    );
    let began = Instant::now();
    let mut client = server.connect();
    for _ in 0..50 {
        client.get("/health");
        assert_eq!(client.reply().text(), "fine");
    }
    let path = server.path("e.log");
    let lost = |l: &str| -> Option<u64> {
        assert!(l.contains("No space left on device"), "{l}");
        l.split("log: ").nth(1)?.split(' ').next()?.parse().ok()
    };
    // The few log lines count all lost lines, including that of the start-up request.
    let said = eventually("the count of lost lines", || {
        let said = lines(&path, 1);
        let lost: u64 = said.iter().filter_map(|l| lost(l)).sum();
        (lost >= 51).then_some(said)
    });
    // At most one line a second.
    let most = 20 + began.elapsed().as_secs();
    assert!((said.len() as u64) < most, "{said:?}");
}

fn an_access_log_that_is_off() {
    let server = own(new_site(), "access_log = \"off\"");
    assert_eq!(server.get("/cgi-bin/t?head&out=a").text(), "a");
    assert!(!server.path("off").exists());
}

/// Returns requests that are refused, with their status and the words in the log.
fn refused() -> [(String, u16, &'static str); 8] {
    let get =
        |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let long = "x".repeat(70_000);
    [
        (get("/a\u{1}", ""), 400, "a byte that no target may hold"),
        (
            get("/", "X : y\r\n"),
            400,
            "a field name that is not a token",
        ),
        ("GET / HTTP/1.1\r\n\r\n".into(), 400, "no Host"),
        (
            "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".into(),
            405,
            "method TRACE or CONNECT",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".into(),
            405,
            "files are for GET, HEAD and OPTIONS",
        ),
        (
            "POST /cgi-bin/t?head HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n".into(),
            413,
            "the request body is larger than this route allows (max_body)",
        ),
        (get(&format!("/{long}"), ""), 414, "(max_target)"),
        (get("/", &format!("X: {long}\r\n")), 431, "(max_head)"),
    ]
}

fn why_a_request_was_refused() {
    let server = new_site().defaults("max_body = 9").start();
    for (request, status, why) in refused() {
        // The log may have reported another refused request in this second, so the request is repeated.
        eventually(why, || {
            let mut client = server.connect();
            client.try_send(&request);
            assert_eq!(client.reply().status, status, "{why}");
            let errors = server.errors();
            let mut lines = errors.lines().filter(|l| l.contains(why));
            lines.find(|l| {
                l.contains(&format!(": {status} for 127.0.0.1: ")) && l.contains(" info [")
            })?;
            Some(())
        });
    }
    assert!(
        server.errors().contains("] /cgi-bin/t: 413 for"),
        "{}",
        server.errors()
    );
}

fn why_many_requests_were_refused_is_said_once_a_second() {
    let server = new_site().config("workers = 1").start();
    let began = Instant::now();
    for _ in 0..300 {
        assert_eq!(server.ask("GET / HTTP/1.1\r\n\r\n").status, 400);
    }
    server.says("no Host");
    let lines = server.errors().matches("no Host").count() as u64;
    let seconds = began.elapsed().as_secs();
    assert!(lines <= seconds + 2, "{lines} lines in {seconds} s");
}

fn a_developer_is_told_why_a_request_was_refused() {
    for (shows, key) in [(true, "dev_errors = true"), (false, "dev_errors = false")] {
        let server = new_site().config(key).defaults("max_body = 9").start();
        for (request, status, why) in refused() {
            let request = request.replace("Host: a", "Host: localhost");
            let mut client = server.connect();
            client.try_send(&request);
            let reply = client.reply();
            assert_eq!(reply.status, status, "{why}");
            assert_eq!(reply.text().contains(why), shows, "{why}: {}", reply.text());
            assert!(
                !reply.text().contains("galgo run"),
                "it is no program's fault"
            );
        }
    }
}

/// A FIFO without a reader does not stop a server that is told to log there, and a later reload can leave the FIFO.
fn a_fifo_that_nobody_reads() {
    let server = new_site().start();
    let fifo = |name: &str| {
        let path = server.path(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    };
    // The configuration names the FIFO; later a FIFO replaces the file.
    fifo("pipe");
    server.configure("access_log = \"pipe\"");
    assert!(server.reload());
    let filler = "x".repeat(4000);
    let mut client = server.connect();
    // Writes more than the FIFO holds.
    for _ in 0..40 {
        client.get(&format!("/health?{filler}"));
        assert_eq!(client.reply().status, 200);
    }
    server.says("lines could not be written");
    let log = server.path("access.log");
    server.configure("access_log = \"access.log\"");
    fs::remove_file(&log).unwrap();
    fifo("access.log");
    assert!(server.reload());
    fs::remove_file(&log).unwrap();
    assert!(server.reload());
    client.get("/last");
    client.reply();
    wait_until("a line in the file", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.contains("\"/last\"")
    });
}

/// Returns how many threads write logs.
fn log_threads(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.unwrap()).ok());
    names.filter(|name| name == "log\n").count()
}

/// Four threads: two for the server's logs, one for all files, and one for the FIFO, whose reader may be slow.
fn logs_of_many_routes_share_a_thread() {
    let site = new_site().config("access_log = \"access.log\"");
    site.fifo("fifo.log");
    let mut routes = String::new();
    for n in 0..200 {
        let log = format!(
            "path = \"/{n}\"\nrespond = {{ body = \"{n}\" }}\naccess_log = \"own{n}.log\"\n"
        );
        routes.push_str(&format!("[[route]]\n{log}"));
    }
    routes.push_str("[[route]]\npath = \"/fifo\"\nrespond = {}\naccess_log = \"fifo.log\"\n");
    let server = site.config(&routes).start();
    assert_eq!(log_threads(&server), 4);
    for n in 0..200 {
        assert_eq!(server.get(&format!("/{n}")).text(), n.to_string());
    }
    for n in 0..200 {
        let log = server.path(&format!("own{n}.log"));
        let line = lines(&log, 1).concat();
        assert!(line.contains(&format!("/{n}")), "{line}");
    }
    // The same thread writes the log of a new route, too.
    server.configure(
        "[[route]]\npath = \"/1\"\nrespond = { body = \"1\" }\naccess_log = \"new1.log\"\n",
    );
    assert!(server.reload());
    server.get("/1");
    lines(&server.path("new1.log"), 1);
    assert_eq!(log_threads(&server), 4);
}
