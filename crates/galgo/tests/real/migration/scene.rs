//! The site that both sides serve.

use std::fs;

use galgo_testkit::{Server, file::chmod};

use super::requests::ERROR_PAGE;
use crate::site::new_site;

/// Prints what a program is told that does not depend on the server.
const APP: &str = "#!/bin/sh\n\
printf 'Content-Type: text/plain\\nX-Powered-By: sh\\n\\n'\n\
for name in REQUEST_METHOD QUERY_STRING PATH_INFO SCRIPT_NAME REMOTE_ADDR SITE_NAME HTTP_X_TEST HTTP_COOKIE; do\n\
  eval \"printf '%s=%s\\n' $name \\\"\\$$name\\\"\"\n\
done\n\
[ \"$REQUEST_METHOD\" != POST ] || { echo $CONTENT_LENGTH; cat; }\n";

/// Answers with a status of its own.
const STATUS: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Status: 404 Not Found\\nContent-Type: text/plain\\nCache-Control: no-store\\n\\nmine\\n'\n";

/// Sends the client elsewhere.
const MOVED: &str = "#!/bin/sh\ncat >/dev/null\nprintf 'Status: 302 Found\\nLocation: http://elsewhere.example/x\\n\\n'\n";

const LARGE: usize = 100_000;

/// Starts galgo in a folder with everything that the pairs speak of.
pub(super) fn galgo(configuration: &str) -> Server {
    let site = new_site();
    for (name, content) in [
        ("public/index.html", "<p>index</p>\n"),
        ("public/404.html", ERROR_PAGE),
        ("public/a b.txt", "a space\n"),
        ("public/sub/a.png", "png"),
        ("public/sub/a.thing", "thing"),
        ("public/sub/index.html", "<p>sub</p>\n"),
        ("public/status", "fine"),
        ("private/a.txt", "secret\n"),
        ("mixed/index.html", "<p>mixed</p>\n"),
        ("mixed/pic.png", "png"),
        ("www/a.example/public/index.html", "<p>a</p>\n"),
        ("www/b.example/public/index.html", "<p>b</p>\n"),
        (
            "site.htpasswd",
            "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
        ),
        ("groups", "staff: bob carol\n"),
    ] {
        chmod(site.write(name, content), 0o644);
    }
    site.write("public/large.bin", vec![b'x'; LARGE]);
    fs::create_dir_all(site.path("empty")).unwrap();
    for (name, text) in [
        ("cgi-bin/app", APP),
        ("cgi-bin/status", STATUS),
        ("cgi-bin/moved", MOVED),
        ("cgi-bin/oops", APP),
        ("mixed/app.cgi", APP),
    ] {
        chmod(site.write(name, text), 0o755);
    }
    site.config(configuration)
        .config("access_log = \"off\"\ndev_errors = false")
        .start()
}
