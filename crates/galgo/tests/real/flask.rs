//! A Flask site through wsgiref's CGIHandler: docs/recipes/flask.md.

use std::path::PathBuf;

use galgo_testkit::Server;

use crate::{
    curl::{Begun, curl},
    recipe::block,
    repository::{noise, sha256},
    site::{needed, new_site, root, serve_programs},
};

fn serve() -> Server {
    let site = new_site();
    site.program(
        "site.py",
        &format!("#!{}\n{}", python().display(), include_str!("site.py")),
    );
    site.fifo("go-on");
    serve_programs(site, "")
}

fn python() -> PathBuf {
    needed(
        root()
            .canonicalize()
            .unwrap()
            .join(".build/venv/bin/python"),
    )
}

/// The program of the recipe, in a folder of programs and as a route of its own.
#[test]
fn recipe() {
    let site = new_site();
    let program = block("flask.md", "python", &[("/srv/venv/bin/python", &python())]);
    site.program("site.py", &program);
    let route = "[[route]]\npath = \"/site\"\ncgi = \"cgi-bin/site.py\"\n";
    let server = serve_programs(site, route);
    for path in [SITE, "/site"] {
        let home = curl(&[&server.url(&format!("{path}/"))]).ok().text();
        assert_eq!(
            home,
            format!("<a href=\"{path}/hello/Zo%C3%AB\">Say hello</a>")
        );
        let hello = curl(&[&server.url(&format!("{path}/hello/Zo%C3%AB"))]).ok();
        assert_eq!(hello.text(), "Hello, Zoë!");
    }
}

const SITE: &str = "/cgi-bin/site.py";

#[test]
fn path_is_split_between_server_and_site() {
    let server = serve();
    let told = curl(&[&server.url(&format!("{SITE}/where/one/two?a=b"))]).ok();
    let port = server.address().port();
    assert_eq!(
        told.text(),
        format!(
            "script_root={SITE}\npath=/where/one/two\nurl_for={SITE}/hello/Ada%20L\n\
             url=http://127.0.0.1:{port}{SITE}/where/one/two?a=b\nremote=127.0.0.1\n"
        )
    );
    let home = curl(&[&server.url(SITE)]);
    assert!(matches!(home.status, 200 | 308), "{home:?}");
    assert_eq!(
        curl(&[&server.url(&format!("{SITE}/"))]).ok().text(),
        "home"
    );
    curl(&[&server.url(&format!("{SITE}/nowhere"))]).is(404);
    curl(&["-X", "DELETE", &server.url(&format!("{SITE}/"))]).is(405);
}

#[test]
fn path_outside_ascii() {
    let server = serve();
    let told = curl(&[&server.url(&format!("{SITE}/gr%C3%BC%C3%9Fe?an=%E5%90%8D"))]).ok();
    assert_eq!(told.text(), "Grüße an 名");
    assert_eq!(told.field("Content-Type"), "text/html; charset=utf-8");
    let name = curl(&[&server.url(&format!("{SITE}/hello/Zo%C3%AB%20%2B"))]).ok();
    assert_eq!(name.text(), "Hello, Zoë +!");
}

/// The first part arrives while the generator waits. Only then the test lets it go on.
#[test]
fn generator_streams() {
    let server = serve();
    let begun = Begun::ask(&server.url(&format!("{SITE}/stream")));
    assert_eq!(begun.first, "first\n");
    assert_eq!(
        begun.go_on(&server.site.path("go-on"), "went on\n"),
        "went on\nlast\n"
    );
}

#[test]
fn upload() {
    let server = serve();
    let bytes = noise(3_000_000);
    let file = server.site.write("größe.bin", &bytes);
    let form = format!("file=@{}", file.display());
    let told = curl(&[
        "-F",
        "title=Ä title",
        "-F",
        &form,
        &server.url(&format!("{SITE}/upload")),
    ])
    .ok();
    assert_eq!(
        told.text(),
        format!("größe.bin 3000000 {} Ä title", sha256(&bytes))
    );
}

#[test]
fn redirect_and_cookies() {
    let server = serve();
    let jar = server.site.path("jar");
    let jar = jar.to_str().unwrap();
    let login = server.url(&format!("{SITE}/login"));
    let reply = curl(&["-c", jar, "-d", "name=Zoë", &login]).is(303);
    assert_eq!(reply.field("Location"), format!("{SITE}/me"));
    assert_eq!(reply.fields("Set-Cookie").len(), 2, "{reply:?}");
    let me = curl(&["-b", jar, &server.url(&format!("{SITE}/me"))]).ok();
    assert_eq!(me.text(), "Zoë, dark");
    let followed = curl(&["-L", "-b", "", "-d", "name=Ada", &login]).ok();
    assert_eq!(followed.text(), "Ada, dark");
}

#[test]
fn exception_is_500_and_its_trace_is_logged() {
    let server = serve();
    let reply = curl(&[&server.url(&format!("{SITE}/broken"))]).is(500);
    assert!(!reply.text().contains("ZeroDivisionError"), "{reply:?}");
    server.says("ZeroDivisionError");
}

#[test]
fn head_has_the_length_and_no_body() {
    let server = serve();
    let reply = curl(&[
        "-I",
        "-o",
        "/dev/null",
        &server.url(&format!("{SITE}/hello/Ada")),
    ])
    .ok();
    assert_eq!(reply.field("Content-Length"), "11");
    assert!(reply.body.is_empty());
}
