//! Programs that name their interpreter in their first line.

use std::sync::atomic::{AtomicBool, Ordering};

use galgo_testkit::wait_until;

use crate::{
    curl::curl_with,
    site::{new_site, serve_programs},
};

const RUBY: &str = r#"#!/usr/bin/env ruby
body = $stdin.read
print "Content-Type: text/plain\r\nX-Language: Ruby\r\n\r\n"
print [ENV['REQUEST_METHOD'], ENV['PATH_INFO'], ENV['QUERY_STRING'], ENV['CONTENT_LENGTH'], body, ARGV.length].join('|')
"#;
const TCL: &str = r#"#!/usr/bin/env tclsh
fconfigure stdin -translation binary
fconfigure stdout -translation lf
set body [read stdin]
puts "Content-Type: text/plain\nX-Language: Tcl\n"
puts -nonewline [join [list $env(REQUEST_METHOD) $env(PATH_INFO) $env(QUERY_STRING) $env(CONTENT_LENGTH) $body $argc] |]
"#;
const SHELL: &str = r#"#!/bin/sh
printf 'Content-Type: text/plain\nX-Language: shell\n\n'
printf '%s|%s|%s|%s|' "$REQUEST_METHOD" "$PATH_INFO" "$QUERY_STRING" "$CONTENT_LENGTH"
cat
printf '|%s' "$#"
"#;
const AWK: &str = r#"#!/usr/bin/awk -f
BEGIN {
    getline body
    e = "|"
    printf "Content-Type: text/plain\nX-Language: awk\n\n"
    printf "%s", ENVIRON["REQUEST_METHOD"] e ENVIRON["PATH_INFO"] e ENVIRON["QUERY_STRING"] e ENVIRON["CONTENT_LENGTH"] e body e ARGC - 1
}
"#;

#[test]
fn ruby_tcl_shell_and_awk() {
    let site = new_site();
    let programs = [
        ("ask.rb", "Ruby", RUBY),
        ("ask.tcl", "Tcl", TCL),
        ("ask", "shell", SHELL),
        ("ask.awk", "awk", AWK),
    ];
    for (name, _, source) in programs {
        site.program(name, source);
    }
    let server = serve_programs(site, "");
    for (name, language, _) in programs {
        let url = server.url(&format!("/cgi-bin/{name}/a/b?some+words"));
        let reply = curl_with(
            &[
                "-H",
                "Content-Type: text/plain",
                "--data-binary",
                "@-",
                &url,
            ],
            b"the body",
        )
        .ok();
        assert_eq!(reply.field("X-Language"), language);
        assert_eq!(reply.text(), "POST|/a/b|some+words|8|the body|0", "{name}");
    }
}

/// A program that is copied in or replaced is used by the next request.
#[test]
fn copied_and_replaced_while_the_server_runs() {
    let server = serve_programs(new_site(), "");
    let url = server.url("/cgi-bin/new.sh");
    curl_with(&[&url], b"").is(404);
    for version in ["one", "two", "three"] {
        let source = format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n{version}'\n");
        server.site.program("new.tmp", &source);
        std::fs::rename(
            server.site.path("cgi-bin/new.tmp"),
            server.site.path("cgi-bin/new.sh"),
        )
        .unwrap();
        assert_eq!(curl_with(&[&url], b"").ok().text(), version);
    }
}

/// Clients that ask while a program is being replaced get the old program or the new one, never a
/// failure.
#[test]
fn no_request_fails_during_a_replacement() {
    let site = new_site();
    let source = |n: u32| format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n{n}'\n");
    site.program("now.sh", &source(0));
    let server = serve_programs(site, "");
    let url = server.url("/cgi-bin/now.sh");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1.. {
                let new = server.site.path("cgi-bin/now.tmp");
                server.site.program("now.tmp", &source(n));
                std::fs::rename(new, server.site.path("cgi-bin/now.sh")).unwrap();
                if done.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let asked = std::panic::catch_unwind(|| {
            // Many requests over a single connection. They are repeated if no replacement happened
            // meanwhile.
            let urls = [url.as_str()].repeat(100);
            wait_until("a replacement", || {
                let reply = curl_with(&[&["-f", "-w", "\\n"], &urls[..]].concat(), b"").ok();
                let seen: Vec<u32> = reply.text().lines().map(|n| n.parse().unwrap()).collect();
                assert_eq!(seen.len(), 100);
                assert!(seen.is_sorted(), "{seen:?}");
                seen[0] < seen[99]
            });
        });
        done.store(true, Ordering::Relaxed);
        asked.unwrap();
    });
}
