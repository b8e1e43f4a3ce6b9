//! `galgo check`.

use crate::scene::{Done, GALGO, Site, assert_gone, is_root};
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn a_good_site_is_fine() {
    let site = Site::new();
    site.sh("sub/hello", "");
    site.file("public/index.html", "");
    site.file("cgi-bin/.hidden", "");
    let done = site.galgo(&["check"]);
    let want = "ok    cgi-bin/sub/hello\n2 routes, 1 program: 1 ok, 0 warnings, 0 would fail\n";
    assert_eq!((done.out.as_str(), done.code), (want, 0), "{}", done.err);
}

#[test]
fn every_finding_has_its_line() {
    let site = Site::new();
    site.sh("good", "");
    site.program("cr.sh", "#!/bin/sh\r\n");
    site.program("deep/er/lost.py", "#!/usr/bin/env no-such-python\n");
    site.program("empty", "");
    site.file("cgi-bin/data.json", "{}");
    site.file("cgi-bin/forgot.sh", "#!/bin/sh\n");
    site.sh("open", "");
    let open = site.path("cgi-bin/open");
    std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
    symlink("/bin/true", site.path("cgi-bin/link")).unwrap();
    symlink("moved", site.path("cgi-bin/nothing")).unwrap();
    symlink("me@here.1:2", site.path("cgi-bin/.#lock")).unwrap();
    site.file("cgi-bin/page.php", "<?php");
    site.file("public/db.sqlite3", "");
    site.file("public/page.html", "");
    let done = site.galgo(&["check"]);
    let lines = [
        ("ok    cgi-bin/good", ""),
        (
            "FAIL  cgi-bin/cr.sh: interpreter `/bin/sh\\r` does not exist",
            "sed -i 's/\\r$//'",
        ),
        (
            "FAIL  cgi-bin/deep/er/lost.py: interpreter `no-such-python`",
            "install it",
        ),
        ("FAIL  cgi-bin/empty: the program is an empty file", ""),
        (
            "note  cgi-bin/data.json: is not a program",
            "403 (try: files that are sent",
        ),
        (
            "note  cgi-bin/page.php: is not a program",
            "(try: name what runs it: \".php\"",
        ),
        (
            "FAIL  cgi-bin/nothing: the program is a symbolic link to moved",
            "",
        ),
        (
            "FAIL  cgi-bin/forgot.sh: the program is not executable",
            "chmod +x",
        ),
        (
            "warn  cgi-bin/open: the program is writable by others",
            "chmod o-w",
        ),
        ("FAIL  cgi-bin/link: ", "leads out of the program folder"),
        ("warn  public/db.sqlite3: is named like a database", ""),
        ("2 routes, 8 programs: 1 ok, 2 warnings, 6 would fail", ""),
    ];
    for (begins, has) in lines {
        let fits = |l: &str| l.starts_with(begins) && l.contains(has);
        assert!(done.out.lines().any(fits), "{begins}:\n{}", done.out);
    }
    assert_eq!(
        (done.out.lines().count(), done.code),
        (lines.len(), 1),
        "{}",
        done.out
    );
}

/// Applications that stay: whether somebody takes connections, and what to do where nobody does.
#[test]
fn upstreams_are_looked_for() {
    use std::os::unix::net::UnixListener;
    let site = Site::new();
    let route = |path: &str, key: &str, to: &str| {
        let handler = match key {
            "authorizer" => "respond = {}\n",
            _ => "",
        };
        format!("[[route]]\npath = '{path}'\n{handler}{key} = '{to}'\n")
    };
    let _there = UnixListener::bind(site.path("there.sock")).unwrap();
    drop(UnixListener::bind(site.path("refused.sock")).unwrap());
    let _tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = _tcp.local_addr().unwrap().port();
    // On an address of this machine that nobody else asks for a port: what is free there stays free.
    let free = std::net::TcpListener::bind("127.9.8.7:0").unwrap();
    let closed = free.local_addr().unwrap();
    drop(free);
    let routes = [
        route("/a", "fastcgi", "unix:there.sock"),
        route("/b", "scgi", &format!("127.0.0.1:{port}")),
        route("/c", "fastcgi", "unix:refused.sock"),
        route("/d", "scgi", "unix:missing.sock"),
        route("/e", "authorizer", "unix:missing.sock"),
        route("/f", "fastcgi", &closed.to_string()),
    ];
    site.file("galgo.toml", &routes.concat());
    let done = site.galgo(&["check"]);
    let at = |name: &str| format!("unix:{}", site.path(name).display());
    let missing = "there is no such socket. Start the application, or correct the path";
    let refused = "nobody listens there. Start the application";
    let mut want = [
        format!("ok    fastcgi {}", at("there.sock")),
        format!("ok    scgi 127.0.0.1:{port}"),
        format!(
            "FAIL  fastcgi: {} cannot be reached: {refused}",
            at("refused.sock")
        ),
        format!(
            "FAIL  scgi: {} cannot be reached: {missing}",
            at("missing.sock")
        ),
        format!(
            "FAIL  authorizer: {} cannot be reached: {missing}",
            at("missing.sock")
        ),
        format!("FAIL  fastcgi: {closed} cannot be reached: {refused}"),
        "6 routes, 0 programs: 0 ok, 0 warnings, 4 would fail".into(),
    ];
    let mut said: Vec<_> = done.out.lines().collect();
    want.sort();
    said.sort_unstable();
    assert_eq!(
        (said, done.code),
        (want.iter().map(String::as_str).collect(), 1)
    );
}

/// A socket that this user may not connect to is said to be one, and whose it is to change.
#[test]
fn an_upstream_that_lets_nobody_in() {
    let site = Site::new();
    let path = site.path("closed.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    site.file(
        "galgo.toml",
        "[[route]]\npath = '/'\nfastcgi = 'unix:closed.sock'\n",
    );
    // Root may connect anywhere.
    let mut command = match is_root() {
        false => site.command(&["check"]),
        true => {
            let mut as_nobody = std::process::Command::new("setpriv");
            as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            as_nobody.args([GALGO, "check"]).current_dir(site.path("."));
            as_nobody
        }
    };
    let done: Done = command.output().unwrap().into();
    let words = "this user may not connect. Change the socket's owner or mode (listen.owner and listen.mode of php-fpm)";
    assert!(done.out.contains(words), "{}{}", done.out, done.err);
    assert_eq!(done.code, 1);
}

#[test]
fn what_an_interpreter_runs_needs_no_executable_bit() {
    let site = Site::new();
    site.file("cgi-bin/page.php", "<?php");
    site.file(
        "galgo.toml",
        "[[route]]\npath = '/'\ncgi = 'cgi-bin'\n[interpreters]\n'.php' = '/bin/sh'\n",
    );
    let done = site.galgo(&["check"]);
    assert!(
        done.out.starts_with("ok    cgi-bin/page.php\n"),
        "{}",
        done.out
    );
    assert_eq!(done.code, 0);
}

#[test]
fn a_configuration_that_cannot_be_used_fails() {
    let site = Site::new();
    site.file("galgo.toml", "lisen = []\n");
    let done = site.galgo(&["check"]);
    assert_eq!(done.code, 1);
    let want =
        "FAIL  configuration: ./galgo.toml:1:1: unknown key \"lisen\"; did you mean \"listen\"?\n";
    assert_eq!(done.out, want);
}

#[test]
fn missing_libraries_are_named() {
    let site = Site::new();
    let (lib, bin) = (site.path("libgone.so"), site.path("cgi-bin/needs"));
    let source = site.file(
        "f.c",
        "int f(void){return 0;}\n#ifdef M\nint main(void){return f();}\n#endif\n",
    );
    let main = site.file("m.c", "int f(void);int main(void){return f();}\n");
    let cc = |args: &[&std::ffi::OsStr]| {
        let status = std::process::Command::new("cc").args(args).status();
        status.is_ok_and(|s| s.success())
    };
    let (o, shared) = ("-o".as_ref(), "-shared".as_ref());
    if !cc(&[shared, o, lib.as_ref(), source.as_ref()]) {
        eprintln!("skipped missing_libraries_are_named: there is no C compiler");
        return;
    }
    assert!(cc(&[o, bin.as_ref(), main.as_ref(), lib.as_ref()]));
    std::fs::remove_file(lib).unwrap();
    let done = site.galgo(&["check"]);
    assert!(
        done.out.contains("cgi-bin/needs: the shared library `"),
        "{}",
        done.out
    );
    assert!(
        done.out.contains("libgone.so` is missing") && done.code == 1,
        "{}",
        done.out
    );
}

#[test]
fn modules_are_looked_into() {
    crate::scene::host();
    let site = Site::new();
    let module = |name: &str, text: &str| {
        let path = site.path("cgi-bin").join(name);
        std::fs::write(path, wat::parse_str(text).unwrap()).unwrap();
    };
    module("good.wasm", "(module (func (export \"_start\")))");
    let imports = "(module (import \"env\" \"one\" (func)) (import \"env\" \"two\" (func))
        (func (export \"_start\")))";
    module("asks.wasm", imports);
    site.file("cgi-bin/cut.wasm", "\0asm");
    site.program("executable", "\0asm");
    site.file("cgi-bin/plain", "\0asm");
    let done = site.galgo(&["check"]);
    for line in [
        "FAIL  cgi-bin/asks.wasm: it imports what galgo does not offer: env.one, env.two\n",
        "FAIL  cgi-bin/cut.wasm: the file is cut off within its first 8 bytes\n",
        "ok    cgi-bin/good.wasm\n",
        "FAIL  cgi-bin/executable: the program is a WebAssembly module: its name has to end in .wasm (try: mv ",
        "FAIL  cgi-bin/plain: the program is a WebAssembly module: its name has to end in .wasm (try: mv ",
        "5 programs: 1 ok, 0 warnings, 4 would fail\n",
    ] {
        assert!(done.out.contains(line), "{line} in {}", done.out);
    }
    assert_eq!(done.code, 1);
}

#[test]
fn says_which_programs_start_warm() {
    let site = Site::new();
    site.sh("a.sh", "");
    site.program("b.pl", "#!/usr/bin/perl\n");
    site.program("c.pl", "#!/usr/bin/perl -T\n");
    site.file("cgi-bin/d.pyx", "");
    site.program("e.js", "#!/usr/bin/env node\n");
    site.file(
        "galgo.toml",
        "[[route]]\npath = '/'\ncgi = 'cgi-bin'\nstart = 'warm'\n[interpreters]\n'.pyx' = '/usr/bin/python3'\n",
    );
    let done = site.galgo(&["check"]);
    let lines: Vec<_> = done.out.lines().collect();
    assert!(
        lines[0].starts_with("ok    cgi-bin/a.sh: starts cold, for it is a script for sh"),
        "{lines:#?}"
    );
    assert_eq!(lines[1], "ok    cgi-bin/b.pl: starts warm");
    assert!(
        lines[2].starts_with("ok    cgi-bin/c.pl: starts cold, for it runs with taint checks"),
        "{lines:#?}"
    );
    assert_eq!(lines[3], "ok    cgi-bin/d.pyx: starts warm");
    let node = "ok    cgi-bin/e.js: starts warm; parked, if it cannot be forked";
    assert_eq!(lines[4], node);
    assert_eq!(done.code, 0);
}

/// What a Perl program prints that knows how it was started.
const HOW: &str = "open(my $f, '<', '/proc/self/environ'); my $how = <$f> =~ /GALGO_T/ ? 'warm' : 'cold';\n\
                   print \"Content-Type: text/plain\\n\\n\";\n";

#[test]
fn cold_and_warm_are_compared() {
    let site = Site::new();
    let perl = |name: &str, does: &str| {
        site.program(name, &format!("#!/usr/bin/perl\n{HOW}{does}\n"));
    };
    perl(
        "same",
        "print join '|', @ENV{qw(REQUEST_METHOD CONTENT_TYPE)}, <STDIN>;",
    );
    perl("varies", "print $$;");
    // Of the answers to POST only the second one, a warm one, differs: that does not come back.
    let posts =
        "if ($ENV{REQUEST_METHOD} eq 'POST') { open my $o, '>>', \"../$0.posts\"; print $o 'x' }
                 my $posts = -s \"../$0.posts\" // 0;";
    perl(
        "rarely",
        &format!("$0 = 'rarely'; {posts} print $posts == 2 ? 'other' : 'usual';"),
    );
    // A clock that ticks once, behind the first answer to POST or behind the second.
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
    let mut command = site.command(&["check", "--warm"]);
    command.env("GALGO_TEST_WAIT_FOR_TEMPLATES", "1");
    let done: Done = command.output().unwrap().into();
    let said = |name: &str| -> (String, Vec<&str>) {
        let mut lines = done
            .out
            .lines()
            .skip_while(|l| !l.starts_with(&format!("cgi-bin/{name}: ")));
        let first = lines.next().unwrap_or_else(|| panic!("{name}: {done:?}"));
        let words = first
            .split_whitespace()
            .filter(|w| w.parse::<f64>().is_err());
        let rest = lines.take_while(|l| l.starts_with("    ")).map(str::trim);
        (words.collect::<Vec<_>>().join(" "), rest.collect())
    };
    // Times are whatever they are, and the gain with them.
    let (same, rest) = said("same");
    assert!(
        same.starts_with("cgi-bin/same: cold ms, warm ms, identical; "),
        "{same}"
    );
    assert!(rest.is_empty());
    let (varies, rest) = said("varies");
    assert!(varies.contains("identical"), "{varies}");
    assert_eq!(rest, ["varies when cold, too: body of GET, body of POST"]);
    let (rarely, rest) = said("rarely");
    assert!(rarely.contains("identical") && rest.is_empty(), "{rarely}");
    for name in ["ticks", "tocks"] {
        let (ticks, rest) = said(name);
        assert!(ticks.contains("identical"), "{ticks}");
        assert_eq!(rest, ["varies when cold, too: body of POST"]);
    }
    let code = |part: &str, cold: &str, warm: &str, method: &str| {
        format!("{part} of {method}: cold {cold:?}, warm {warm:?}")
    };
    for (name, part, cold, warm, methods) in [
        ("body", "body", "cold", "warm", &["GET", "POST"][..]),
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
    ] {
        let (verdict, rest) = said(name);
        assert!(
            verdict.ends_with("differs; keep start = \"cold\""),
            "{verdict}"
        );
        let all: Vec<_> = methods.iter().map(|m| code(part, cold, warm, m)).collect();
        assert_eq!(
            rest.iter()
                .map(|l| l.to_ascii_lowercase())
                .collect::<Vec<_>>(),
            all.iter()
                .map(|l| l.to_ascii_lowercase())
                .collect::<Vec<_>>()
        );
    }
    assert_eq!(
        said("shell").0,
        "cgi-bin/shell: stays cold: it is a script for sh; Perl, Python, Ruby, Node and linked programs can be"
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
    // In a pipe a line says which program is tried.
    let progress: Vec<_> = done.err.lines().collect();
    assert_eq!(progress.len(), 12, "{}", done.err);
    assert_eq!(progress[0], "1 of 12: cgi-bin/body");

    let one = site.galgo(&["check", "--warm", "cgi-bin/same"]);
    assert_eq!((one.out.lines().count(), one.code), (1, 0), "{one:?}");
    let folder = site.path("").to_string_lossy().into_owned();
    assert_eq!(site.galgo(&["check", "--warm", &folder]).code, 1);
}

#[test]
fn what_fails_is_said_and_what_stays_cold_is_not_run() {
    let site = Site::new();
    site.program("wrong.pl", "#!/usr/bin/perl\nprint 'never' if;\n");
    site.program("wrong.py", "#!/usr/bin/python3\nif\n");
    site.program("dies.pl", "#!/usr/bin/perl\ndie 'no database' . \"\\n\";\n");
    site.file("cgi-bin/plain.pl", "#!/usr/bin/perl\n");
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
        ("wrong.pl", "it said: syntax error at "),
        ("wrong.py", "it said: SyntaxError: "),
        ("dies.pl", "it exited with status "),
        ("dies.pl", "it said: no database"),
        ("plain.pl", "the program is not executable (try: chmod +x "),
    ] {
        let from = format!("cgi-bin/{name}: fails: ");
        let told = done.out.split(&from).nth(1);
        let told = told.unwrap_or_else(|| panic!("{name}: {done:?}"));
        let own = told.split("\ncgi-bin/").next().unwrap();
        assert!(own.contains(says), "{name}: {own}");
    }
    for name in ["shell", "opens.pl"] {
        assert!(
            done.out
                .contains(&format!("cgi-bin/{name}: stays cold: it "))
        );
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

/// One program without an end does not keep the others from being compared, and goes.
#[test]
fn an_endless_answer_is_given_up() {
    let site = Site::new();
    let endless = "#!/usr/bin/perl\n$| = 1; open(my $o, '>>', '../pids'); print $o \"$$\\n\"; close $o;\n\
                   print \"Content-Type: text/event-stream\\n\\n\";\n\
                   while (1) { print \"data: x\\n\\n\"; sleep 1 }\n";
    site.program("endless.pl", endless);
    site.program("works.pl", &format!("#!/usr/bin/perl\n{HOW}"));
    let done = site.galgo(&["check", "--warm"]);
    let endless = "cgi-bin/endless.pl: not compared: its answer has no end within 10s\n";
    assert!(done.out.starts_with(endless), "{done:?}");
    assert!(done.out.contains("cgi-bin/works.pl: cold "), "{done:?}");
    assert_eq!(done.code, 0);
    let pids = std::fs::read_to_string(site.path("pids")).unwrap();
    pids.lines()
        .for_each(|pid| assert_gone(pid.parse().unwrap()));
}
