//! `galgo check`.

use crate::scene::Site;
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
        ("note  cgi-bin/data.json: is not a program", "403"),
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
        ("2 routes, 7 programs: 1 ok, 2 warnings, 5 would fail", ""),
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

#[cfg(feature = "wasm")]
#[test]
fn modules_are_looked_into() {
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
    let done = site.galgo(&["check"]);
    for line in [
        "FAIL  cgi-bin/asks.wasm: it imports what galgo does not offer: env.one, env.two\n",
        "FAIL  cgi-bin/cut.wasm: the file is cut off within its first 8 bytes\n",
        "ok    cgi-bin/good.wasm\n",
        "3 programs: 1 ok, 0 warnings, 2 would fail\n",
    ] {
        assert!(done.out.contains(line), "{line} in {}", done.out);
    }
    assert_eq!(done.code, 1);
}
