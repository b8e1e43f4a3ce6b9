//! Sites for the binary of this package, and helpers that their tests need.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use galgo_testkit::{Server, Site, file::wasm_host, wait_until};

use crate::curl::curl;

pub(crate) const GALGO: &str = env!("CARGO_BIN_EXE_galgo");

/// Long timeouts, because a busy machine must not change the result of a test.
const PATIENT: &str = r#"
min_rate = 0
head_timeout = "5m"
queue_wait = "5m"
[defaults]
first_byte_timeout = "5m"
idle_timeout = "5m"
"#;

/// A site with an empty `cgi-bin`.
pub(crate) fn new_site() -> Site {
    let site = Site::new(GALGO).arguments(&["--listen", "127.0.0.1:0"]);
    site.config(PATIENT).waiting().ends_by_term()
}

/// Serves a site with `cgi-bin` at `/cgi-bin/`, by a route with the given keys.
pub(crate) fn serve_programs(site: Site, keys: &str) -> Server {
    let route = "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\n";
    site.config(&format!("{route}{keys}")).start()
}

/// Asks for a module of the demo site until it is compiled. On a busy machine that takes longer than the timeouts of the
/// demo site allow.
pub(crate) fn compiled(server: &Server, name: &str) {
    wasm_host(GALGO);
    let url = server.url(&format!("/cgi-bin/{name}"));
    wait_until("a module is compiled", || curl(&[&url]).status != 504);
}

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the path of a file that the test needs, or fails with advice.
pub(crate) fn needed(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    assert!(
        path.exists(),
        "{} is missing: `scripts/need test` installs it",
        path.display()
    );
    path.to_owned()
}

/// Returns the demo site, built once from `examples/`. The test fails unless every program of the site builds.
pub(crate) fn demo() -> &'static Path {
    static DEMO: OnceLock<PathBuf> = OnceLock::new();
    DEMO.get_or_init(|| {
        let root = root().canonicalize().unwrap();
        let site = root.join(".build/demo");
        let output = Command::new(root.join("examples/build"))
            .arg("--strict")
            .arg(&site)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "`scripts/need test` installs what is missing: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        site
    })
}
