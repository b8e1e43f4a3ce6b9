//! Differences that docs/migration/README.md names.

use super::requests::{Asked, Difference};

/// What a difference is called there, and which ones are meant.
type Known = (&'static str, fn(&Asked, &Difference) -> bool);

const NGINX: &str = "nginx";
const APACHE: &str = "apache";
const LIGHTTPD: &str = "lighttpd";

/// Needs accounts to be met.
pub(super) const REFUSED: &str = "What suexec refuses";

pub(super) const KNOWN: [Known; 16] = [
    ("Errors are not stored", |_, d| {
        d.what == "cache-control" && d.status >= 400 && d.ours == "no-store"
    }),
    ("416 has each field once", |_, d| {
        d.status == 416 && d.theirs == format!("{0}, {0}", d.ours)
    }),
    ("POST of a file", |asked, d| {
        asked.method == "POST" && d.is_status("405", &["200", "301", "403", "404"])
    }),
    ("If-Modified-Since behind the file's date", |asked, d| {
        d.peer != LIGHTTPD
            && asked.fields.contains("Since: Thu, 01 Jan 2099")
            && d.is_status("304", &["200"])
    }),
    ("UTF-8 in passwords", |_, d| {
        d.what == "www-authenticate" && d.ours == format!("{}, charset=\"UTF-8\"", d.theirs)
    }),
    ("A program that is not there", |asked, d| {
        let program = asked.target.contains("cgi");
        d.peer == NGINX
            && program
            && (d.is_status("404", &["403", "502"]) || d.is_status("405", &["502"]))
    }),
    ("A folder without its last slash", |asked, d| {
        asked.target == "/sub"
            && (d.is_status("403", &["301"]) || (d.status == 301 && d.theirs.is_empty()))
    }),
    ("Redirects name clean paths", |asked, d| {
        d.what == "location" && asked.target.contains("/.") && !d.ours.contains("/.")
    }),
    ("The length behind 416", |_, d| {
        d.peer != NGINX
            && d.what == "content-range"
            && d.ours.starts_with("bytes */")
            && d.theirs.is_empty()
    }),
    ("If-Match", |asked, d| {
        d.peer == LIGHTTPD && asked.fields.starts_with("If-Match") && d.is_status("412", &["200"])
    }),
    ("Ranges of what programs print", |asked, d| {
        d.peer == LIGHTTPD
            && asked.fields.starts_with("Range")
            && d.is_status("200", &["206", "416"])
    }),
    ("A host that is not there", |asked, d| {
        d.peer == LIGHTTPD && asked.host == "other" && d.is_status("404", &["403"])
    }),
    ("Conditions on what programs print", |asked, d| {
        d.peer == APACHE && asked.fields.starts_with("If-Match") && d.is_status("200", &["412"])
    }),
    ("CORS without Origin", |_, d| {
        d.what == "access-control-allow-origin" && d.ours.is_empty()
    }),
    ("A path behind a program", |asked, d| {
        let behind = asked.target.starts_with("/cgi-bin/app/");
        d.peer == NGINX && behind && d.is_status("200", &["403", "502"])
    }),
    (REFUSED, |asked, d| {
        let refused = ["writable", "strange", "setuid", "open/app"];
        refused.iter().any(|name| asked.target.ends_with(name)) && d.is_status("403", &["500"])
    }),
];
