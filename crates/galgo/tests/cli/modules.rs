//! Modules if `galgo-wasm`, which runs them, is not beside galgo, or is of another version.

use crate::scene::{GALGO, new_site};
use galgo_testkit::{
    Site,
    file::{copy, wasm_host},
};

/// Makes a site with a module, and a folder that contains only galgo.
fn scene() -> Site {
    let site = new_site();
    let module = wat::parse_str("(module (func (export \"_start\")))").unwrap();
    site.write("cgi-bin/a.wasm", module);
    site.write(
        "galgo.toml",
        "cache = \"cache\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n",
    );
    site.copied("bin/galgo")
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
    let site = scene();
    let words = words(&site);
    let check = site.galgo(&["check"]);
    check.has_out(format!("FAIL  cgi-bin/a.wasm: {words}\n"));
    assert_eq!(check.code, 1);
    let run = site.galgo(&["run", "cgi-bin/a.wasm"]);
    assert!(run.err.contains(&words), "{} {}", run.out, run.err);
    assert_eq!(run.code, 1);
    let server = site.serve(&["--listen", "127.0.0.1:0"]);
    assert!(server.table.contains("FAIL"), "{}", server.table);
    assert!(server.table.contains(&words), "{}", server.table);
    let page = server.page("/cgi-bin/a.wasm");
    assert!(page.starts_with("HTTP/1.1 403 "), "{page}");
    // Once galgo-wasm is there, nothing has to be started again.
    copy(wasm_host(GALGO), &site.path("bin/galgo-wasm"));
    let check = site.galgo(&["check"]);
    check.has_out("ok    cgi-bin/a.wasm\n");
    let page = server.page("/cgi-bin/a.wasm");
    assert!(
        page.starts_with("HTTP/1.1 502 "),
        "it prints nothing: {page}"
    );
}

#[test]
fn one_of_another_build_is_refused() {
    let site = scene();
    for (says, want) in [
        (
            "9.9.9-0\\nengine\\n",
            "is 9.9.9-0: build and install both together",
        ),
        ("usage", "is another program"),
    ] {
        let script = format!("#!/bin/sh\nprintf '{says}'\n");
        site.program("../bin/galgo-wasm", &script);
        let check = site.galgo(&["check"]);
        check.has_out(want);
        assert_eq!(check.code, 1);
        let run = site.galgo(&["run", "cgi-bin/a.wasm"]);
        assert!(run.err.contains(want) && run.code == 1, "{}", run.err);
    }
}
