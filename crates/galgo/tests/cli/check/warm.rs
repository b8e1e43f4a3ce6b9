//! `galgo check` of programs that start warm.

use crate::scene::new_site;
use galgo_testkit::{Done, Site, is_root, process::assert_gone};

#[test]
fn says_which_programs_start_warm() {
    let site = new_site();
    site.sh("a.sh", "");
    site.program("b.pl", "#!/usr/bin/perl\n");
    site.program("c.pl", "#!/usr/bin/perl -T\n");
    site.write("cgi-bin/d.pyx", "");
    site.program("e.js", "#!/usr/bin/env node\n");
    site.program(
        "f.pl",
        "#!/usr/bin/perl\nBEGIN { $h = $ENV{HTTP_HOST}; $a = $ENV{REMOTE_ADDR}; }\n",
    );
    site.write(
        "galgo.toml",
        "[[route]]\npath = '/'\ncgi = 'cgi-bin'\nstart = 'warm'\n[interpreters]\n'.pyx' = '/usr/bin/python3'\n",
    );
    let done = site.galgo(&["check"]);
    // The rest of a line names the user of the program.
    let lines = done.out.lines();
    let lines: Vec<_> = lines
        .filter_map(|line| line.split("; runs as ").next())
        .collect();
    assert!(
        lines[0].starts_with("ok    cgi-bin/a.sh: starts cold, because it is a script for sh"),
        "{lines:#?}"
    );
    assert_eq!(lines[1], "ok    cgi-bin/b.pl: starts warm");
    assert!(
        lines[2].starts_with("ok    cgi-bin/c.pl: starts cold, because it runs with taint checks"),
        "{lines:#?}"
    );
    assert_eq!(lines[3], "ok    cgi-bin/d.pyx: starts warm");
    let node = "ok    cgi-bin/e.js: starts warm, or parked if it cannot be forked";
    assert_eq!(lines[4], node);
    // The words are the same as the server's when it loads the program.
    assert!(
        lines[5].starts_with(
            "ok    cgi-bin/f.pl: starts cold, because it reads HTTP_HOST, REMOTE_ADDR while loading"
        ),
        "{lines:#?}"
    );
    let named = "load_env = { HTTP_HOST = \"\", REMOTE_ADDR = \"\" } in the route";
    assert!(lines[5].contains(named), "{lines:#?}");
    assert_eq!(done.code, 0);
}

/// Start of a Perl program that knows whether it was started cold or warm.
const HOW: &str = "open(my $f, '<', '/proc/self/environ'); my $how = <$f> =~ /GALGO_T/ ? 'warm' : 'cold';\n\
                   print \"Content-Type: text/plain\\n\\n\";\n";

/// Name of a program, the part of its answers that differs, the texts when cold and when warm, and
/// the methods concerned.
const DIFFERENCES: [(&str, &str, &str, &str, &[&str]); 4] = [
    ("body", "body", "cold", "warm", &["GET", "POST"]),
    ("stderr", "stderr", "cold", "warm", &["POST"]),
    (
        "exit",
        "exit status",
        "with status 0",
        "with status 3",
        &["GET", "POST"],
    ),
    (
        "status",
        "headers",
        "x-how: cold",
        "x-how: warm",
        &["GET", "POST"],
    ),
];

/// Adds programs that answer the same cold and warm, and programs that do not.
fn programs(site: &Site) {
    let perl = |name: &str, does: &str| {
        site.program(name, &format!("#!/usr/bin/perl\n{HOW}{does}\n"));
    };
    perl(
        "same",
        "print join '|', @ENV{qw(REQUEST_METHOD CONTENT_TYPE)}, <STDIN>;",
    );
    perl("varies", "print $$;");
    // Among the answers to POST, only the second, which is warm, differs. The difference does not
    // occur again.
    let posts =
        "if ($ENV{REQUEST_METHOD} eq 'POST') { open my $o, '>>', \"../$0.posts\"; print $o 'x' }
                 my $posts = -s \"../$0.posts\" // 0;";
    perl(
        "rarely",
        &format!("$0 = 'rarely'; {posts} print $posts == 2 ? 'other' : 'usual';"),
    );
    // A clock that ticks once, after the first answer to POST or after the second.
    perl(
        "ticks",
        &format!("$0 = 'ticks'; {posts} print $posts < 2 ? 1 : 2;"),
    );
    perl(
        "tocks",
        &format!("$0 = 'tocks'; {posts} print $posts < 3 ? 1 : 2;"),
    );
    perl("body", "print \"as ever\\n\", $how;");
    perl(
        "stderr",
        "print STDERR $how if $ENV{REQUEST_METHOD} eq 'POST';",
    );
    perl("exit", "exit($how eq 'warm' ? 3 : 0);");
    site.program(
        "status",
        &format!(
            "#!/usr/bin/perl\n{}",
            HOW.replace("Content", "Status: 404\\nX-How: $how\\nContent")
        ),
    );
    site.sh("shell", "printf 'Content-Type: text/plain\\n\\n'");
    site.program(
        "opens",
        &format!("#!/usr/bin/perl\nBEGIN {{ open(our $o, '>>', '/dev/null') }}\n{HOW}"),
    );
    site.program(
        "early",
        &format!("#!/usr/bin/perl\nuse constant ASKED => $ENV{{QUERY_STRING}};\n{HOW}"),
    );
}

/// Returns the verdict on a program without the times, and the lines below it.
fn verdict<'d>(done: &'d Done, name: &str) -> (String, Vec<&'d str>) {
    let own = format!("cgi-bin/{name}: ");
    let mut lines = done.out.lines().skip_while(|l| !l.starts_with(&own));
    let first = lines.next().unwrap_or_else(|| panic!("{name}: {done:?}"));
    let words = first.split_whitespace();
    let words = words.filter(|w| w.parse::<f64>().is_err());
    let rest = lines.take_while(|l| l.starts_with("    ")).map(str::trim);
    (words.collect::<Vec<_>>().join(" "), rest.collect())
}

#[test]
fn cold_and_warm_are_compared() {
    let site = new_site();
    programs(&site);
    let mut command = site.command(&["check", "--warm"]);
    command.env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1");
    let done: Done = command.output().unwrap().into();
    let said = |name: &str| verdict(&done, name);
    // The times vary, and so does the gain.
    let (same, rest) = said("same");
    assert!(
        same.starts_with("cgi-bin/same: cold ms, warm ms, identical; "),
        "{same}"
    );
    assert!(rest.is_empty());
    let (varies, rest) = said("varies");
    assert!(varies.contains("identical"), "{varies}");
    assert_eq!(
        rest,
        ["differs between cold starts, too: body of GET, body of POST"]
    );
    let (rarely, rest) = said("rarely");
    assert!(rarely.contains("identical") && rest.is_empty(), "{rarely}");
    for name in ["ticks", "tocks"] {
        let (ticks, rest) = said(name);
        assert!(ticks.contains("identical"), "{ticks}");
        assert_eq!(rest, ["differs between cold starts, too: body of POST"]);
    }
    let code = |part: &str, cold: &str, warm: &str, method: &str| {
        format!("{part} of {method}: cold {cold:?}, warm {warm:?}")
    };
    for (name, part, cold, warm, methods) in DIFFERENCES {
        let (verdict, rest) = said(name);
        assert!(
            verdict.ends_with("differs; keep start = \"cold\""),
            "{verdict}"
        );
        let all: Vec<_> = methods.iter().map(|m| code(part, cold, warm, m)).collect();
        let lower = |lines: &str| lines.to_ascii_lowercase();
        assert_eq!(lower(&rest.join("\n")), lower(&all.join("\n")));
    }
    assert_eq!(
        said("shell").0,
        "cgi-bin/shell: stays cold: it is a script for sh; Perl, Python, Ruby, Node, PHP and linked programs can be"
    );
    assert!(
        said("opens")
            .0
            .starts_with("cgi-bin/opens: stays cold: it opens /dev/null while loading")
    );
    assert!(
        said("early")
            .0
            .starts_with("cgi-bin/early: stays cold: it reads QUERY_STRING while loading, ")
    );
    assert_eq!(done.code, 1);
    // In a pipe, a line names the program that is being tried.
    let progress: Vec<_> = done.err.lines().collect();
    assert_eq!(progress.len(), 12, "{}", done.err);
    assert_eq!(progress[0], "1 of 12: cgi-bin/body");

    let one = site.galgo(&["check", "--warm", "cgi-bin/same"]);
    assert_eq!((one.out.lines().count(), one.code), (1, 0), "{one:?}");
    let folder = site.path("").to_string_lossy().into_owned();
    assert_eq!(site.galgo(&["check", "--warm", &folder]).code, 1);
}

/// A program that ends before it stops at its first line most often ends so when cold, too.
#[test]
fn what_does_not_load_is_a_warning() {
    let site = new_site();
    site.program("dies.pl", "#!/usr/bin/perl\nBEGIN { kill SEGV => $$ }\n");
    site.program("wrong.pl", "#!/usr/bin/perl\nprint 'never' if;\n");
    site.write(
        "galgo.toml",
        "[[route]]\npath = '/'\ncgi = 'cgi-bin'\nstart = 'warm'\n",
    );
    let done = site.galgo(&["check"]);
    for name in ["dies.pl", "wrong.pl"] {
        done.has_out(format!(
            "warn  cgi-bin/{name}: starts cold, because it ended while loading"
        ));
    }
    done.has_out("1 route, 2 programs: 0 ok, 2 warnings, 0 would fail");
}

#[test]
fn what_fails_is_said_and_what_stays_cold_is_not_run() {
    let site = new_site();
    site.program("wrong.pl", "#!/usr/bin/perl\nprint 'never' if;\n");
    site.program("wrong.py", "#!/usr/bin/python3\nif\n");
    site.program("dies.pl", "#!/usr/bin/perl\ndie 'no database' . \"\\n\";\n");
    site.write("cgi-bin/plain.pl", "#!/usr/bin/perl\n");
    let ran = site.path("ran");
    site.sh("shell", &format!("touch '{}'", ran.display()));
    site.program(
        "opens.pl",
        &format!(
            "#!/usr/bin/perl\nBEGIN {{ open(our $o, '>>', '/dev/null') }}\n\
             open(my $ran, '>', '{}'); print \"Content-Type: text/plain\\n\\n\";\n",
            ran.display()
        ),
    );
    let done = site.galgo(&["check", "--warm"]);
    assert_eq!(done.code, 1, "{done:?}");
    for (name, says) in [
        ("wrong.pl", "standard error: syntax error at "),
        ("wrong.py", "standard error: SyntaxError: "),
        ("dies.pl", "it exited with status "),
        ("dies.pl", "standard error: no database"),
        ("plain.pl", "the program is not executable (try: chmod +x "),
    ] {
        let from = format!("cgi-bin/{name}: fails: ");
        let told = done.out.split(&from).nth(1);
        let told = told.unwrap_or_else(|| panic!("{name}: {done:?}"));
        let own = told.split("\ncgi-bin/").next().unwrap();
        assert!(own.contains(says), "{name}: {own}");
    }
    for name in ["shell", "opens.pl"] {
        done.has_out(format!("cgi-bin/{name}: stays cold: it "));
    }
    assert!(!ran.exists() && !done.out.contains("Code("));
    for name in ["wrong.pl", "plain.pl"] {
        let one = site.galgo(&["check", "--warm", &format!("cgi-bin/{name}")]);
        assert_eq!(one.code, 1, "{one:?}");
        assert!(
            one.out.starts_with(&format!("cgi-bin/{name}: fails: ")),
            "{one:?}"
        );
    }
}

/// Helpers load and run the programs of other users and of strict sandboxes, as the server has them do.
#[test]
fn programs_of_helpers_are_tried_as_the_server_starts_them() {
    assert!(is_root(), "this test needs root");
    let site = new_site();
    let who = "exit 1 if $< != 5;";
    site.program("who.pl", &format!("#!/usr/bin/perl\n{HOW}{who}\n"));
    site.program(
        "early.pl",
        &format!("#!/usr/bin/perl\nuse constant ASKED => $ENV{{HTTP_HOST}};\n{HOW}"),
    );
    let route = |path: &str, keys: &str| {
        format!(
            "[[route]]\npath = '{path}'\ncgi = 'cgi-bin'\nstart = 'warm'\nuser = 'games'\n{keys}\n"
        )
    };
    let (plain, strict) = (route("/a/", ""), route("/b/", "sandbox = 'strict'"));
    site.write("galgo.toml", format!("user = 'nobody'\n{plain}{strict}"));
    let done = site.galgo(&["check"]);
    let lines: Vec<_> = done.out.lines().collect();
    for (line, says) in [
        (
            0,
            "ok    cgi-bin/early.pl: starts cold, because it reads HTTP_HOST while loading",
        ),
        (
            1,
            "ok    cgi-bin/who.pl: starts warm; runs as games, sandbox = \"standard\"",
        ),
        (
            2,
            "ok    cgi-bin/early.pl: starts cold, because it reads HTTP_HOST while loading",
        ),
        (
            3,
            "ok    cgi-bin/who.pl: starts warm; runs as games, sandbox = \"strict\"",
        ),
    ] {
        assert!(lines[line].starts_with(says), "{lines:#?}");
    }
    assert_eq!(done.code, 0, "{lines:#?}");
    let mut command = site.command(&["check", "--warm"]);
    command.env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1");
    let done: Done = command.output().unwrap().into();
    let identical = |line: &&str| {
        line.starts_with("cgi-bin/who.pl: cold ") && line.contains(" ms, identical; ")
    };
    assert_eq!(done.out.lines().filter(identical).count(), 2, "{done:?}");
    let cold = "cgi-bin/early.pl: stays cold: it reads HTTP_HOST while loading";
    assert_eq!(done.out.matches(cold).count(), 2, "{done:?}");
    assert_eq!(done.code, 0);
    let one = site.galgo(&["check", "--warm", "cgi-bin/who.pl"]);
    one.has_out("cgi-bin/who.pl: cold ");
    assert_eq!(one.code, 0, "{one:?}");
}

/// An endless program does not keep the others from being compared, and is ended.
#[test]
fn an_endless_answer_is_given_up() {
    let site = new_site();
    let endless = "#!/usr/bin/perl\n$| = 1; open(my $o, '>>', '../pids'); print $o \"$$\\n\"; close $o;\n\
                   print \"Content-Type: text/event-stream\\n\\n\";\n\
                   while (1) { print \"data: x\\n\\n\"; sleep 1 }\n";
    site.program("endless.pl", endless);
    site.program("works.pl", &format!("#!/usr/bin/perl\n{HOW}"));
    let done = site.galgo(&["check", "--warm"]);
    let endless = "cgi-bin/endless.pl: not compared: its response did not end within 10s\n";
    assert!(done.out.starts_with(endless), "{done:?}");
    done.has_out("cgi-bin/works.pl: cold ");
    assert_eq!(done.code, 0);
    let pids = std::fs::read_to_string(site.path("pids")).unwrap();
    pids.lines()
        .for_each(|pid| assert_gone(pid.parse().unwrap()));
}

/// A module starts neither cold nor warm.
#[test]
fn a_module_is_no_failing_program() {
    let module = wat::parse_str(r#"(module (func (export "_start")))"#).unwrap();
    let site = new_site().file("cgi-bin/hello.wasm", module, 0o755);
    for args in [
        &["check", "--warm"][..],
        &["check", "--warm", "cgi-bin/hello.wasm"],
    ] {
        let done = site.galgo(args);
        assert_eq!(done.code, 0, "{done:?}");
        done.has_out("cgi-bin/hello.wasm: stays cold: it is a WebAssembly module: ");
    }
}
