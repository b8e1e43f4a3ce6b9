//! `galgo run`.

mod life;

use crate::scene::new_site;
use galgo_testkit::{Done, client::page};

#[test]
fn a_response_is_printed_as_it_is() {
    let site = new_site();
    site.sh(
        "echo",
        r#"printf 'Status: 201 Made\nContent-Type: text/plain\nX-A: b\n\n'
echo "$REQUEST_METHOD $QUERY_STRING $PATH_INFO $CONTENT_TYPE $CONTENT_LENGTH $HTTP_X_Y"; cat; echo oops >&2"#,
    );
    let args = [
        "run",
        "cgi-bin/echo",
        "-q",
        "a=1&b=%20",
        "--path-info",
        "/p q",
        "-d",
        "body",
        "-H",
        "X-Y: z",
        "-H",
        "Content-Type: text/x",
    ];
    let done = site.galgo(&args);
    let want = "HTTP/1.1 201 Made\nContent-Type: text/plain\nX-A: b\n\n\
                POST a=1&b=%20 /p q text/x 4 z\nbody";
    assert_eq!((done.out.as_str(), done.code), (want, 0), "{}", done.err);
    assert!(done.err.contains(" stderr [") && done.err.contains("] /cgi-bin/echo: oops\n"));

    let done = site.galgo(&[&args[..], &["-o", "body", "-X", "PUT", "--time"]].concat());
    assert_eq!(done.out, "PUT a=1&b=%20 /p q text/x 4 z\nbody");
    let said = [
        "HTTP/1.1 201 Made\n",
        "oops\n",
        "start ",
        "first byte ",
        "peak memory ",
    ];
    for said in said {
        assert!(done.err.contains(said), "{said}: {}", done.err);
    }
}

#[test]
fn a_port_that_the_kernel_is_to_choose() {
    let site = new_site();
    site.sh(
        "port",
        "printf 'Content-Type: text/plain\n\n'; echo \"$HTTP_HOST $SERVER_PORT\"",
    );
    let config = "listen = [\"127.0.0.1:0\"]\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n";
    site.write("galgo.toml", config);
    let done = site.galgo(&["run", "cgi-bin/port", "-o", "body"]);
    let met = (&*done.out, done.code);
    assert_eq!(met, ("localhost:8080 8080\n", 0), "{}", done.err);
}

#[test]
fn the_body_comes_from_a_file_or_from_standard_input() {
    let site = new_site();
    site.sh("cat", "printf 'Content-Type: text/plain\n\n'; cat");
    site.write("data", "from a file");
    let run = ["run", "cgi-bin/cat", "-o", "body", "-d"];
    assert_eq!(
        site.galgo(&[&run[..], &["@data"]].concat()).out,
        "from a file"
    );
    let done = Done::of(&mut site.command(&[&run[..], &["@-"]].concat()), b"piped");
    assert_eq!(done.out, "piped");
    let done = site.galgo(&[&run[..], &["@nothing"]].concat());
    assert_eq!(done.code, 2);
    done.has_err("nothing: No such file");
}

/// Returns the environment without the variables that differ between requests or clients.
fn variables(text: &str) -> Vec<&str> {
    let own = [
        "UNIQUE_ID=",
        "REMOTE_PORT=",
        "SERVER_PORT=",
        "HTTP_",
        "_=",
        "SHLVL=",
    ];
    let body = text.split_once("\n\n").map_or(text, |(_, body)| body);
    body.lines()
        .filter(|l| l.contains('=') && !own.iter().any(|o| l.starts_with(o)))
        .collect()
}

#[test]
fn the_program_gets_what_the_server_would_give_it() {
    let site = new_site();
    site.program(
        "sub/env",
        "#!/usr/bin/env python3\nimport os\nprint('Content-Type: text/plain\\n')\n\
         print(*sorted(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')\n\
         print(f'cwd={os.getcwd()}')\n",
    );
    site.write("public/index.html", "");
    for config in [
        "",
        "[[route]]\npath = '/programs/'\ncgi = 'cgi-bin'\nenv = { A = 'b' }\nopen_files = 99\n",
    ] {
        let prefix = if config.is_empty() {
            "/cgi-bin"
        } else {
            "/programs"
        };
        if !config.is_empty() {
            site.write("galgo.toml", config);
        }
        let server = site.serve(&["-l", "127.0.0.1:0"]);
        let page = page(server.tcp(), &format!("{prefix}/sub/env/a%20b?q"), "").replace('\r', "");
        let done = site.galgo(&["run", "cgi-bin/sub/env", "--path-info", "/a b", "-q", "q"]);
        assert_eq!(done.code, 0, "{}", done.err);
        let (ours, theirs) = (variables(&done.out), variables(&page));
        assert!(ours.len() > 15 && ours.iter().any(|v| v.starts_with("SCRIPT_NAME=")));
        assert_eq!(ours, theirs);
        assert_eq!(ours.contains(&"A=b"), !config.is_empty());
    }
}

#[test]
fn what_is_wrong_is_said_in_words() {
    let site = new_site();
    site.write("cgi-bin/plain", "#!/bin/sh\n");
    site.program("cr", "#!/bin/sh\r\necho\r\n");
    site.program("lost", "#!/usr/bin/no-such-python\n");
    site.program("bare", "echo hello\n");
    site.sh("exit", "echo broken >&2; exit 3");
    site.sh("killed", "kill -SEGV $$");
    site.sh("html", "echo '<h1>'");
    site.sh("stop", "printf 'Content-Type: text/plain\n'");
    let table = [
        ("plain", "403 Forbidden: ", "chmod +x"),
        (
            "cr",
            "502 Bad Gateway: interpreter `/bin/sh\\r` does not exist",
            "carriage return",
        ),
        (
            "lost",
            "502 Bad Gateway: interpreter `/usr/bin/no-such-python` does not exist",
            "",
        ),
        (
            "bare",
            "502 Bad Gateway: the program has no `#!` line",
            "#!/bin/sh",
        ),
        (
            "exit",
            "it printed nothing; it exited with status 3",
            "broken",
        ),
        ("killed", "it was killed by signal 11 (SIGSEGV)", ""),
        (
            "html",
            "line 1 of the response head is not a header field: \"<h1>\"",
            "Content-Type",
        ),
        ("stop", "no empty line after the header", ""),
    ];
    for (name, says, too) in table {
        let done = site.galgo(&["run", &format!("cgi-bin/{name}")]);
        assert!(
            done.err.contains(says) && done.err.contains(too),
            "{name}: {}",
            done.err
        );
        assert_eq!(
            (done.out.as_str(), done.code),
            ("", 1),
            "{name}: {}",
            done.err
        );
    }
}

#[test]
fn a_cut_response_is_not_valid() {
    let site = new_site();
    let head = "printf 'Content-Type: text/plain\nContent-Length: 9\n\n'";
    site.sh("short", &format!("{head}; printf 1234"));
    site.sh("long", &format!("{head}; printf 123456789abc"));
    site.sh(
        "dies",
        "printf 'Content-Type: text/plain\n\nhalf'; kill -KILL $$",
    );
    site.sh(
        "sorry",
        "printf 'Content-Type: text/plain\n\nwhole'; exit 4",
    );
    let body = |name: &str| {
        let done = site.galgo(&["run", &format!("cgi-bin/{name}"), "-o", "body"]);
        (done.code, done.out, done.err)
    };
    let (code, out, err) = body("short");
    assert_eq!((code, out.as_str()), (1, "1234"));
    assert!(
        err.contains("the response is cut: the program promised Content-Length 9"),
        "{err}"
    );
    let (code, out, err) = body("long");
    assert_eq!((code, out.as_str()), (0, "123456789"));
    assert!(err.contains("more than its Content-Length 9"), "{err}");
    let (code, out, err) = body("dies");
    // If the program ends before the head is printed, the whole response is refused.
    assert!(code == 1 && (out == "half" || out.is_empty()), "{out}");
    assert!(err.contains("SIGKILL"), "{err}");
    let (code, out, err) = body("sorry");
    assert_eq!((code, out.as_str()), (0, "whole"));
    assert!(err.contains("ended with status 4"), "{err}");
}

#[test]
fn head_redirects_and_nph() {
    let site = new_site();
    site.sh(
        "page",
        "printf 'Content-Type: text/plain\nContent-Length: 4\n\nbody'",
    );
    let done = site.galgo(&["run", "cgi-bin/page", "-X", "HEAD"]);
    let want = "HTTP/1.1 200 OK\nContent-Type: text/plain\nContent-Length: 4\n\n";
    assert_eq!((done.out.as_str(), done.code), (want, 0), "{}", done.err);

    site.sh("here", "printf 'Location: /other?x=1\n\n'");
    let done = site.galgo(&["run", "cgi-bin/here"]);
    assert_eq!(
        (done.out.as_str(), done.code),
        ("local redirect to /other?x=1\n", 0)
    );

    site.sh("away", "printf 'Location: http://example.org/\n\n'");
    let done = site.galgo(&["run", "cgi-bin/away"]);
    assert_eq!(
        done.out,
        "HTTP/1.1 302 Found\nLocation: http://example.org/\n\n"
    );

    let raw = "HTTP/1.0 299 Own words\r\nX: y\r\n\r\n\u{1}raw";
    site.sh(
        "nph-raw",
        &format!("printf '{}'", raw.replace('\r', "\\r").replace('\n', "\\n")),
    );
    let done = site.galgo(&["run", "cgi-bin/nph-raw"]);
    assert_eq!((done.out.as_str(), done.code), (raw, 0));
}

#[test]
fn a_document_without_a_type_is_warned_of() {
    let site = new_site();
    site.sh("untyped", "printf 'Status: 200\n\nbody'");
    let done = site.galgo(&["run", "cgi-bin/untyped"]);
    assert_eq!(
        (done.out.as_str(), done.code),
        ("HTTP/1.1 200 OK\n\nbody", 0),
        "{}",
        done.err
    );
    done.has_err("a document but no Content-Type");
}

#[test]
fn clocks_limits_and_interpreters_are_the_routes() {
    let site = new_site();
    site.sh("slow", "exec sleep 1000");
    site.sh("files", "printf 'Content-Type: text/plain\n\n'; ulimit -n");
    site.write(
        "cgi-bin/greet.greet",
        "printf 'Content-Type: text/plain\n\nhi'",
    );
    for (file, clock) in [("site", "100ms"), ("patient", "5m")] {
        let config = format!(
            "[[route]]\npath = '/x/'\ncgi = {:?}\nopen_files = 77\nfirst_byte_timeout = '{clock}'\n\
             [interpreters]\n'.greet' = '/bin/sh'\n",
            site.path("cgi-bin")
        );
        site.write(&format!("elsewhere/{file}.toml"), config);
    }
    let run_with = |name: &str, config: &str| {
        let file = format!("elsewhere/{config}.toml");
        site.galgo(&["run", name, "--config", &file, "-o", "body"])
    };
    let run = |name: &str| run_with(name, "patient");

    let done = run_with("cgi-bin/slow", "site");
    assert_eq!(done.code, 1);
    done.has_err("504 Gateway Timeout: no complete response head");
    done.has_err("hint: print the header early");
    assert_eq!(run("cgi-bin/files").out, "77\n");
    assert_eq!(run("cgi-bin/greet.greet").out, "hi");

    site.write("other", "");
    let done = run("other");
    assert_eq!(done.code, 1);
    done.has_err("no `cgi` route of elsewhere/patient.toml holds");
}

#[test]
fn a_path_with_names_has_those_programs_and_no_others() {
    let site = new_site();
    let says = "printf 'Content-Type: text/plain\n\n'; echo $SCRIPT_NAME $OWN";
    for name in ["x.cgi", "y.sh"] {
        site.sh(name, says);
    }
    let route = |path: &str, own: &str| {
        format!("[[route]]\npath = {path:?}\ncgi = \"cgi-bin\"\nenv = {{ OWN = {own:?} }}\n")
    };
    site.write(
        "galgo.toml",
        route("/app/*.cgi", "names") + &route("/a/", "all"),
    );
    for (name, wanted) in [("x.cgi", "/app/x.cgi names\n"), ("y.sh", "/a/y.sh all\n")] {
        let done = site.galgo(&["run", &format!("cgi-bin/{name}"), "-o", "body"]);
        assert_eq!((done.out.as_str(), done.code), (wanted, 0), "{}", done.err);
    }
}

#[test]
fn a_program_that_is_on_no_site_runs_alone() {
    let site = new_site();
    site.sh(
        "../alone",
        "printf 'Content-Type: text/plain\n\n'; echo $SCRIPT_NAME $PATH_INFO",
    );
    let done = site.galgo(&["run", "alone", "-o", "body", "--path-info", "x"]);
    assert_eq!(
        (done.out.as_str(), done.code),
        ("/cgi-bin/alone /x\n", 0),
        "{}",
        done.err
    );
}

#[test]
fn a_module_is_run_as_a_program_is() {
    galgo_testkit::file::wasm_host(crate::scene::GALGO);
    const SAYS: &str = "Status: 201 Made\\nContent-Type: text/plain\\n\\nmade\\n";
    let site = new_site();
    // The bytes at 0 are the address and the length of the text.
    let module = |status: u8| {
        let text = format!(
            r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (memory (export "memory") 1)
            (data (i32.const 16) "{SAYS}")
            (func (export "_start")
              (i32.store (i32.const 0) (i32.const 16))
              (i32.store (i32.const 4) (i32.const {}))
              (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
              (call $exit (i32.const {status}))))"#,
            SAYS.replace("\\n", "n").len()
        );
        wat::parse_str(text).unwrap()
    };
    site.write(
        "galgo.toml",
        "cache = \"cache\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n",
    );
    for status in [0, 3] {
        std::fs::write(site.path("cgi-bin/a.wasm"), module(status)).unwrap();
        let done = site.galgo(&["run", "cgi-bin/a.wasm"]);
        assert_eq!(
            done.out, "HTTP/1.1 201 Made\nContent-Type: text/plain\n\nmade\n",
            "{}",
            done.err
        );
        assert_eq!(
            done.err.contains("ended with status 3"),
            status == 3,
            "{}",
            done.err
        );
    }
}

/// If the route says so, words of the query become arguments of a script, after the script's own
/// name.
#[test]
fn query_args_reach_a_script() {
    let site = new_site();
    let config = "[[route]]\npath = '/cgi-bin/'\ncgi = 'cgi-bin'\nquery_args = true\n\
                  [interpreters]\n'.run' = '/bin/sh'\n";
    let says = "printf 'Content-Type: text/plain\n\n'; echo \"$#:$*\"";
    site.sh("words", says);
    site.write("cgi-bin/words.run", says);
    let said = |name: &str, query: &str| {
        let name = format!("cgi-bin/{name}");
        site.galgo(&["run", &name, "-q", query, "-o", "body"]).out
    };
    assert_eq!(said("words", "one+two"), "0:\n");
    site.write("galgo.toml", config);
    for (name, query, want) in [
        ("words", "one+two", "2:one two\n"),
        ("words", "a=one", "0:\n"),
        ("words", "-e+one", "0:\n"),
        ("words.run", "one+two", "0:\n"),
    ] {
        assert_eq!(said(name, query), want, "{name} {query}");
    }
}
