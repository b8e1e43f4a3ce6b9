//! Mojolicious, cold and warm: docs/recipes/mojolicious.md.

use galgo_testkit::{Server, Site};

use crate::{
    curl::curl,
    recipe::block,
    site::{new_site, serve_programs},
};

const APP: &str = "/cgi-bin/hello.pl";

fn answers(server: &Server) {
    for _ in 0..3 {
        let home = curl(&[&server.url(&format!("{APP}/"))]).ok().text();
        assert_eq!(
            home.trim(),
            format!("<a href=\"{APP}/hello/Ada\">Say hello</a>")
        );
        let hello = curl(&[&server.url(&format!("{APP}/hello/Ada"))]).ok();
        assert_eq!(hello.text(), "Hello, Ada!");
    }
    let none = curl(&[&server.url(&format!("{APP}/none"))]);
    assert_eq!(none.status, 404);
}

fn site() -> Site {
    let site = new_site();
    site.program("hello.pl", &block("mojolicious.md", "perl", &[]));
    site
}

#[test]
fn cold() {
    answers(&serve_programs(site(), "start = \"cold\""));
}

#[test]
fn warm() {
    let server = site().config(&block("mojolicious.md", "toml", &[])).start();
    answers(&server);
    let log = server.errors();
    assert!(log.contains("hello.pl: loaded"), "{log}");
    assert!(!log.contains("started cold"), "{log}");
}

/// Without the recipe's key the program starts cold, and the log proposes the key.
#[test]
fn the_key_is_proposed() {
    let server = serve_programs(site(), "start = \"warm\"");
    answers(&server);
    server.says("load_env = { PATH_INFO = \"\" }");
}
