//! CGI.pm: docs/recipes/perl.md.

use galgo_testkit::Server;

use crate::{
    curl::curl,
    recipe::block,
    repository::{noise, sha256},
    site::{new_site, serve_programs},
};

fn serve() -> Server {
    let site = new_site();
    site.program("form.pl", include_str!("form.pl"));
    serve_programs(site, "")
}

const FORM: &str = "/cgi-bin/form.pl";

#[test]
fn multipart_upload() {
    let server = serve();
    let bytes = noise(1_000_000);
    let file = server.site.write("data.bin", &bytes);
    let form = format!("file=@{};type=application/x-noise", file.display());
    let url = server.url(&format!("{FORM}/upload"));
    let told = curl(&[
        "-F",
        "title=Zoë",
        "-F",
        "tag=a",
        "-F",
        "tag=b",
        "-F",
        &form,
        &url,
    ])
    .ok();
    let expected = format!(
        "data.bin application/x-noise 1000000 {} Zoë a,b\n",
        sha256(&bytes)
    );
    assert_eq!(told.text(), expected);
    assert_eq!(told.field("Content-Type"), "text/plain; charset=utf-8");
}

#[test]
fn cookies() {
    let server = serve();
    let reply = curl(&[
        "-b",
        "seen=4; other=x%20y",
        &server.url(&format!("{FORM}/cookies")),
    ])
    .ok();
    assert_eq!(
        reply.fields("Set-Cookie"),
        ["seen=5; path=/", "name=two%20words; path=/"]
    );
    assert_eq!(reply.text(), "seen 4, other x y\n");
}

#[test]
fn redirects() {
    let server = serve();
    let away = curl(&[&server.url(&format!("{FORM}/away"))]).is(302);
    assert_eq!(away.field("Location"), "https://example.org/");
    let post = curl(&["-d", "a=b", &server.url(&format!("{FORM}/see-other"))]).is(303);
    assert_eq!(
        post.field("Location"),
        format!("{}{FORM}/self", server.listener(0))
    );
    let followed = curl(&["-L", "-d", "a=b", &server.url(&format!("{FORM}/see-other"))]).ok();
    let expected = format!("{}{FORM}/self {FORM} /self GET\n", server.listener(0));
    assert_eq!(followed.text(), expected);
}

#[test]
fn query_and_post_parameters() {
    let server = serve();
    let url = server.url(&format!("{FORM}/params?a=1;b=2&a=3"));
    assert_eq!(curl(&[&url]).ok().text(), "a=1,3 b=2\n");
    assert_eq!(
        curl(&["-d", "b=%C3%BC&a=x+y", &url]).ok().text(),
        "b=ü a=x y\n"
    );
    curl(&[&server.url(&format!("{FORM}/nothing"))]).is(404);
}

#[test]
fn recipe() {
    let site = new_site();
    site.program("hello.pl", &block("perl.md", "perl", &[]));
    let server = serve_programs(site, "");
    let url = server.url("/cgi-bin/hello.pl");
    assert!(
        curl(&[&url])
            .ok()
            .text()
            .starts_with("<h1>Hello, stranger!</h1>")
    );
    let signed = curl(&["-d", "name=%3CZo%C3%AB%3E", &url]).is(303);
    assert_eq!(signed.field("Location"), url);
    let again = curl(&["-L", "-b", "", "-d", "name=%3CZo%C3%AB%3E", &url]).ok();
    assert!(
        again.text().starts_with("<h1>Hello, &lt;Zoë&gt;!</h1>"),
        "{again:?}"
    );
}

/// CGI.pm needs the length of a body. If the body goes to a file first, CGI.pm gets the length.
#[test]
fn chunked_form_arrives_as_a_file() {
    let site = new_site();
    site.program("form.pl", include_str!("form.pl"));
    let server = serve_programs(site, "body = \"file\"\n");
    let url = server.url(&format!("{FORM}/params"));
    let chunked = ["-H", "Transfer-Encoding: chunked", "-d", "a=1&b=two", &url];
    assert_eq!(curl(&chunked).ok().text(), "a=1 b=two\n");
}
