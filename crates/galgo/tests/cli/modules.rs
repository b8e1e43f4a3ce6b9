//! Modules where what runs them, `galgo-wasm`, is not beside galgo, or does not fit.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::scene::{Done, GALGO, Server, Site, host};

/// A copy that no descriptor of this process has been open for (ETXTBSY).
fn copy(from: impl AsRef<Path>, to: &Path) {
    let done = Command::new("cp").arg(from.as_ref()).arg(to).status();
    assert!(done.unwrap().success());
}

/// A site with a module, and galgo alone in a folder.
fn scene() -> (Site, PathBuf) {
    let site = Site::new();
    let module = wat::parse_str("(module (func (export \"_start\")))").unwrap();
    std::fs::write(site.path("cgi-bin/a.wasm"), module).unwrap();
    site.file(
        "galgo.toml",
        "cache = \"cache\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n",
    );
    let galgo = site.path("bin/galgo");
    std::fs::create_dir(site.path("bin")).unwrap();
    copy(GALGO, &galgo);
    (site, galgo)
}

fn command(site: &Site, galgo: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(galgo);
    command
        .args(args)
        .current_dir(site.path(""))
        .stdin(Stdio::null());
    command
}

fn done(site: &Site, galgo: &Path, args: &[&str]) -> Done {
    command(site, galgo, args).output().unwrap().into()
}

fn words(site: &Site) -> String {
    let folder = site.path("bin").canonicalize().unwrap();
    format!(
        "it is a WebAssembly module and needs galgo-wasm, which is not beside galgo ({})",
        folder.display()
    )
}

#[test]
fn without_what_runs_them_every_command_says_so() {
    let (site, galgo) = scene();
    let words = words(&site);
    let check = done(&site, &galgo, &["check"]);
    assert!(
        check
            .out
            .contains(&format!("FAIL  cgi-bin/a.wasm: {words}\n")),
        "{}",
        check.out
    );
    assert_eq!(check.code, 1);
    let run = done(&site, &galgo, &["run", "cgi-bin/a.wasm"]);
    assert!(run.err.contains(&words), "{} {}", run.out, run.err);
    assert_eq!(run.code, 1);
    let serve = command(&site, &galgo, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::start(serve);
    assert!(server.table.contains("FAIL"), "{}", server.table);
    assert!(server.table.contains(&words), "{}", server.table);
    let page = server.page("/cgi-bin/a.wasm");
    assert!(page.starts_with("HTTP/1.1 403 "), "{page}");
    // Nothing has to be started again once it is there.
    copy(host(), &site.path("bin/draft"));
    std::fs::rename(site.path("bin/draft"), site.path("bin/galgo-wasm")).unwrap();
    let check = done(&site, &galgo, &["check"]);
    assert!(
        check.out.contains("ok    cgi-bin/a.wasm\n"),
        "{}",
        check.out
    );
    let page = server.page("/cgi-bin/a.wasm");
    assert!(
        page.starts_with("HTTP/1.1 502 "),
        "it prints nothing: {page}"
    );
}

#[test]
fn one_of_another_build_is_refused() {
    let (site, galgo) = scene();
    for (says, want) in [
        (
            "9.9.9-0\\nengine\\n",
            "is 9.9.9-0: build and install both together",
        ),
        ("usage", "is another program"),
    ] {
        let script = format!("#!/bin/sh\nprintf '{says}'\n");
        site.program("../bin/galgo-wasm", &script);
        let check = done(&site, &galgo, &["check"]);
        assert!(check.out.contains(want), "{}", check.out);
        assert_eq!(check.code, 1);
        let run = done(&site, &galgo, &["run", "cgi-bin/a.wasm"]);
        assert!(run.err.contains(want) && run.code == 1, "{}", run.err);
    }
}
