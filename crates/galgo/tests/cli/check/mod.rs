//! `galgo check`.

mod certificates;
mod warm;

use crate::scene::{GALGO, new_site};
use galgo_testkit::{Done, is_root};
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn a_good_site_is_fine() {
    let site = new_site();
    site.sh("sub/hello", "");
    site.write("public/index.html", "");
    site.write("cgi-bin/.hidden", "");
    let done = site.galgo(&["check"]);
    let (first, rest) = done.out.split_once('\n').unwrap();
    let says = first.starts_with("ok    cgi-bin/sub/hello: runs as ")
        && first.ends_with("; leftover processes are killed by the server");
    assert!(says, "{first}");
    let want = "2 routes, 1 program: 1 ok, 0 warnings, 0 would fail\n";
    assert_eq!((rest, done.code), (want, 0), "{}", done.err);
}

/// Beginnings of lines, with a text that each line contains.
const FINDINGS: [(&str, &str); 12] = [
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
        "403 (try: static files belong",
    ),
    (
        "note  cgi-bin/page.php: is not a program",
        "(try: name its interpreter: \".php\"",
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

#[test]
fn every_finding_has_its_line() {
    let site = new_site();
    site.sh("good", "");
    site.program("cr.sh", "#!/bin/sh\r\n");
    site.program("deep/er/lost.py", "#!/usr/bin/env no-such-python\n");
    site.program("empty", "");
    site.write("cgi-bin/data.json", "{}");
    site.write("cgi-bin/forgot.sh", "#!/bin/sh\n");
    site.sh("open", "");
    let open = site.path("cgi-bin/open");
    std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
    symlink("/bin/true", site.path("cgi-bin/link")).unwrap();
    symlink("moved", site.path("cgi-bin/nothing")).unwrap();
    symlink("me@here.1:2", site.path("cgi-bin/.#lock")).unwrap();
    site.write("cgi-bin/page.php", "<?php");
    site.write("public/db.sqlite3", "");
    site.write("public/page.html", "");
    let done = site.galgo(&["check"]);
    for (begins, has) in FINDINGS {
        let fits = |l: &str| l.starts_with(begins) && l.contains(has);
        assert!(done.out.lines().any(fits), "{begins}:\n{}", done.out);
    }
    assert_eq!(
        (done.out.lines().count(), done.code),
        (FINDINGS.len(), 1),
        "{}",
        done.out
    );
}

/// Applications that keep running: `check` tells whether they take connections, and advises if they
/// do not.
#[test]
fn upstreams_are_looked_for() {
    use std::os::unix::net::UnixListener;
    let site = new_site();
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
    // No other test asks for a port on this address, so the port stays free.
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
    site.write("galgo.toml", routes.concat());
    let done = site.galgo(&["check"]);
    let at = |name: &str| format!("unix:{}", site.path(name).display());
    let missing = "the socket does not exist. Start the application, or correct the path";
    let refused = "no process listens there. Start the application";
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

/// If this user may not connect to a socket, `check` says so, and says where to change the socket's
/// owner or mode.
#[test]
fn an_upstream_that_lets_nobody_in() {
    let site = new_site();
    let path = site.path("closed.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    site.write(
        "galgo.toml",
        "[[route]]\npath = '/'\nfastcgi = 'unix:closed.sock'\n",
    );
    // Root may connect to any socket, so root runs galgo as user 65534.
    let mut command = if is_root() {
        let mut as_nobody = std::process::Command::new("setpriv");
        as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        as_nobody.args([GALGO, "check"]).current_dir(site.path("."));
        as_nobody
    } else {
        site.command(&["check"])
    };
    let done: Done = command.output().unwrap().into();
    let words = "the server's user cannot connect. Change the owner or mode of the socket (listen.owner and listen.mode of php-fpm)";
    assert!(done.out.contains(words), "{}{}", done.out, done.err);
    assert_eq!(done.code, 1);
}

#[test]
fn what_an_interpreter_runs_needs_no_executable_bit() {
    let site = new_site();
    site.write("cgi-bin/page.php", "<?php");
    site.write(
        "galgo.toml",
        "[[route]]\npath = '/'\ncgi = 'cgi-bin'\n[interpreters]\n'.php' = '/bin/sh'\n",
    );
    let done = site.galgo(&["check"]);
    let first = done.out.lines().next().unwrap_or_default();
    let says = first.starts_with("ok    cgi-bin/page.php: runs as ")
        && first.ends_with("; leftover processes are killed by the server");
    assert!(says, "{first}");
    assert_eq!(done.code, 0);
}

#[test]
fn a_configuration_that_cannot_be_used_fails() {
    let site = new_site();
    site.write("galgo.toml", "lisen = []\n");
    let done = site.galgo(&["check"]);
    assert_eq!(done.code, 1);
    let want =
        "FAIL  configuration: ./galgo.toml:1:1: unknown key \"lisen\"; did you mean \"listen\"?\n";
    assert_eq!(done.out, want);
}

#[test]
fn missing_libraries_are_named() {
    let site = new_site();
    let (lib, bin) = (site.path("libgone.so"), site.path("cgi-bin/needs"));
    let source = site.write(
        "f.c",
        "int f(void){return 0;}\n#ifdef M\nint main(void){return f();}\n#endif\n",
    );
    let main = site.write("m.c", "int f(void);int main(void){return f();}\n");
    let cc = |args: &[&std::ffi::OsStr]| {
        let status = std::process::Command::new("cc").args(args).status();
        status.is_ok_and(|s| s.success())
    };
    let (o, shared) = ("-o".as_ref(), "-shared".as_ref());
    assert!(
        cc(&[shared, o, lib.as_ref(), source.as_ref()]),
        "this test needs a C compiler: cc"
    );
    assert!(cc(&[o, bin.as_ref(), main.as_ref(), lib.as_ref()]));
    std::fs::remove_file(lib).unwrap();
    let done = site.galgo(&["check"]);
    done.has_out("cgi-bin/needs: the shared library `");
    assert!(
        done.out.contains("libgone.so` is missing") && done.code == 1,
        "{}",
        done.out
    );
}

#[test]
fn modules_are_looked_into() {
    galgo_testkit::file::wasm_host(GALGO);
    let site = new_site();
    let module = |name: &str, text: &str| {
        let path = site.path("cgi-bin").join(name);
        std::fs::write(path, wat::parse_str(text).unwrap()).unwrap();
    };
    module("good.wasm", "(module (func (export \"_start\")))");
    let imports = "(module (import \"env\" \"one\" (func)) (import \"env\" \"two\" (func))
        (func (export \"_start\")))";
    module("asks.wasm", imports);
    site.write("cgi-bin/cut.wasm", "\0asm");
    site.program("executable", "\0asm");
    site.write("cgi-bin/plain", "\0asm");
    let done = site.galgo(&["check"]);
    for line in [
        "FAIL  cgi-bin/asks.wasm: it imports names that galgo does not offer: env.one, env.two\n",
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

/// A missing account does not prevent the others from being served.
#[test]
fn a_removed_account_is_a_warning() {
    let site = new_site();
    let toml = "[userdir]\nfiles = \"public_html\"\nusers = [\"no-such-user\"]\n[[route]]\npath = \"/\"\nfiles = \"public\"\n";
    site.write("galgo.toml", toml);
    site.write("public/a.txt", "a");
    let done = site.galgo(&["check"]);
    done.has_out("users: there is no user `no-such-user`, so /~no-such-user/ answers 404: delete it or correct the name");
    assert_eq!(done.code, 0, "{done:?}");
}

/// The file's mode allows execution, but its file system does not.
#[test]
fn a_program_on_a_noexec_mount_is_not_told_to_chmod() {
    assert!(is_root(), "this test needs root");
    let site = new_site();
    let script = format!(
        "mount -t tmpfs -o noexec none cgi-bin && printf '#!/bin/sh\\n' >cgi-bin/a && chmod 755 cgi-bin/a && {GALGO} check"
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let done = Done::of(command.current_dir(site.folder()), b"");
    done.has_out("FAIL  cgi-bin/a: the program is on a file system that is mounted noexec (try: mount -o remount,exec ");
    assert!(!done.out.contains("chmod"), "{done:?}");
}

/// A link to nothing leads nowhere, not out of the folder to the folder.
#[test]
fn a_link_to_nothing_is_named_with_its_target() {
    let site = new_site();
    std::os::unix::fs::symlink("/nonexistent/x", site.path("cgi-bin/x")).unwrap();
    let link = site.path("cgi-bin/x");
    let says = format!("{link:?} is a symbolic link to \"/nonexistent/x\", which does not exist");
    let done = site.galgo(&["check"]);
    done.has_out(format!("FAIL  cgi-bin/x: {says}\n"));
    site.galgo(&["check", "--url", "/cgi-bin/x"]).has_out(&says);
}

/// Files that Apache hid and galgo serves to everybody, and scripts under any name.
#[test]
fn files_that_everybody_gets_are_named() {
    let site = new_site();
    let toml = "[[route]]\npath = \"/\"\nfiles = \"public\"\n[[route]]\npath = \"/kept/\"\nfiles = \"public/kept\"\naccess = { deny = [\"all\"] }\n\
                [[route]]\npath = \"/gone.pl\"\nrespond = { status = 404 }\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n";
    site.write("galgo.toml", toml);
    let names = "<FilesMatch (\\.pm|localconfig.*)$>\n  Require all denied\n</FilesMatch>\n";
    site.write("public/.htaccess", names);
    site.write("public/localconfig", "secret");
    for module in ["Bug.pm", "CGI.pm", "lib/DB.pm", "lib/Error.pm"] {
        site.write(&format!("public/{module}"), "1;");
    }
    site.write("public/book", "SQLite format 3\0");
    site.write("public/config.php~", "secret");
    site.write("public/index.html", "page");
    site.write("public/gone.pl", "never answered");
    site.write("public/data/.htaccess", "Deny from all\n");
    site.write("public/data/params.json", "{}");
    site.write("public/kept/.htaccess", "Require all denied\n");
    site.write("public/kept/book.sqlite3", "never answered");
    site.write("public/new/.htaccess", "Options -Indexes\n");
    site.write(
        "cgi-bin/.htaccess",
        "<Files \"admin\">\nRequire all denied\n</Files>\n",
    );
    site.sh("admin", "");
    let site =
        site.file("public/tool", "#!/bin/sh\n", 0o755)
            .file("public/notes", "#!/bin/sh\n", 0o644);
    let done = site.galgo(&["check"]);
    for line in [
        "warn  public/.htaccess: galgo ignores .htaccess files; this one denied (\\.pm|localconfig.*)$, but galgo serves localconfig, Bug.pm, CGI.pm and 2 more (try: ",
        "warn  public/book: is a SQLite database, and anybody can read it (try: move it away)\n",
        "warn  public/config.php~: is named like a database or a backup, and anybody can read it (try: move it away)\n",
        "warn  public/data/.htaccess: galgo ignores .htaccess files; this one denied everything, but galgo serves params.json (try: ",
        "note  public/kept/.htaccess: galgo ignores .htaccess files; this one denied everything, and galgo does not serve that either\n",
        "note  public/new/.htaccess: galgo ignores .htaccess files; this one denies nothing\n",
        "warn  cgi-bin/.htaccess: galgo ignores .htaccess files; this one denied admin, but galgo serves admin (try: ",
        "warn  public/tool: is an executable script, and anybody can read it (try: move it away)\n",
    ] {
        done.has_out(line);
    }
    for name in ["gone.pl", "book.sqlite3", "public/notes"] {
        assert!(!done.out.contains(name), "{name}: {}", done.out);
    }
    assert_eq!(
        done.out.matches("kept/.htaccess").count(),
        1,
        "{}",
        done.out
    );
}
