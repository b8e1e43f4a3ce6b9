//! Differences that docs/migration/README.md names.

use super::{answer::Difference, requests::Asked};

/// What a difference is called there, and which ones are meant.
type Known = (&'static str, fn(&Asked, &Difference) -> bool);

const NGINX: &str = "nginx";
const APACHE: &str = "apache";
const LIGHTTPD: &str = "lighttpd";

/// Needs accounts to be met.
pub(super) const REFUSED: &str = "What suexec refuses";

pub(super) const KNOWN: [Known; 33] = [
    ("Errors are not stored", |_, d| {
        d.what == "cache-control" && d.status >= 400 && d.ours == "no-store"
    }),
    ("Errors have no version", |_, d| {
        matches!(d.what, "etag" | "last-modified") && d.status >= 400 && d.ours.is_empty()
    }),
    ("A lifetime without Expires", |_, d| {
        d.what == "expires" && d.ours.is_empty()
    }),
    ("416 has each field once", |_, d| {
        d.status == 416 && d.theirs == format!("{0}, {0}", d.ours)
    }),
    ("POST of a file", |asked, d| {
        asked.method == "POST" && d.is_status("405", &["200", "301", "403", "404"])
    }),
    ("OPTIONS of a file", |asked, d| {
        let ours = ["204", "405", "404"];
        let theirs = ["200", "403", "404", "405"];
        asked.method == "OPTIONS" && ours.iter().any(|ours| d.is_status(ours, &theirs))
    }),
    ("Other methods of a file", |asked, d| {
        matches!(asked.method, "PUT" | "DELETE" | "PATCH")
            && (d.is_status("405", &["403", "404", "501", "502"]) || d.is_status("404", &["405"]))
    }),
    ("Allow", |_, d| {
        let all = "get, head, options, post, trace";
        d.what == "allow"
            && d.status == 405
            && match d.peer {
                NGINX => d.theirs.is_empty(),
                _ => d.theirs == all,
            }
    }),
    ("Ranges by HEAD", |asked, d| {
        asked.method == "HEAD"
            && asked.fields.starts_with("Range")
            && d.is_status("200", &["206", "416"])
    }),
    ("An empty query", |asked, d| {
        d.what == "location" && asked.target.ends_with('?') && d.theirs == format!("{}?", d.ours)
    }),
    ("A query behind a pattern", |asked, d| {
        let fits = match asked.target.ends_with('?') {
            true => d.is_status("301", &["404"]) || d.is_status("200", &["404"]),
            false => d.is_status("301", &["404"]),
        };
        d.peer == LIGHTTPD && asked.target.contains('?') && fits
    }),
    ("Fields on 416", |_, d| {
        d.peer == LIGHTTPD
            && d.status == 416
            && matches!(d.what, "x-content-type-options" | "x-powered-by")
            && d.theirs.is_empty()
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
        let program = asked.target.contains("gi-bin/") || asked.target.contains(".cgi");
        d.peer == NGINX
            && program
            && (d.is_status("404", &["403", "502"]) || d.is_status("405", &["502"]))
    }),
    ("A folder without its last slash", |asked, d| {
        asked.target == "/sub"
            && (d.is_status("403", &["301"]) || (d.status == 301 && d.theirs.is_empty()))
    }),
    ("Redirects name clean paths", |asked, d| {
        d.what == "location" && {
            let is_odd = |text: &str| ["/.", "//", "%"].iter().any(|odd| text.contains(odd));
            let path = d.ours.rsplit("://").next().unwrap_or("");
            is_odd(&asked.target) && !is_odd(path)
        }
    }),
    ("The length behind 416", |_, d| {
        d.peer != NGINX
            && d.what == "content-range"
            && d.ours.starts_with("bytes */")
            && d.theirs.is_empty()
    }),
    ("If-Match", |asked, d| {
        let conditions = ["If-Match", "If-Unmodified-Since"];
        let asks = conditions.iter().any(|name| asked.fields.starts_with(name));
        d.peer == LIGHTTPD && asks && d.is_status("412", &["200"])
    }),
    ("Ranges of what programs print", |asked, d| {
        d.peer == LIGHTTPD
            && asked.fields.starts_with("Range")
            && d.is_status("200", &["206", "416"])
    }),
    ("X-Sendfile of a file that is not there", |asked, d| {
        let is_named = ["end", "none"]
            .iter()
            .all(|part| asked.target.contains(part));
        d.peer == LIGHTTPD && is_named && d.is_status("502", &["404"])
    }),
    ("A prefix that ends within a name", |asked, d| {
        let theirs = ["200", "206", "416"];
        let differs = d.is_status("404", &theirs) || d.is_status("405", &theirs);
        d.peer == LIGHTTPD && asked.target.contains("pple") && differs
    }),
    ("A lifetime on 304, and for HTTP/1.0", |asked, d| {
        d.peer == LIGHTTPD
            && d.what == "cache-control"
            && (d.status == 304 || asked.version == "1.0")
            && d.theirs.is_empty()
    }),
    ("Vary of what may be compressed", |_, d| {
        d.peer == LIGHTTPD && d.what == "vary" && d.ours == "accept-encoding" && d.theirs.is_empty()
    }),
    ("The version of what was compressed", |asked, d| {
        let asks = asked.fields.contains("Accept-Encoding: gzip");
        d.peer == LIGHTTPD && asks && d.what == "etag" && d.ours == "weak" && d.theirs == "strong"
    }),
    ("A coding that is refused", |asked, d| {
        d.peer == LIGHTTPD
            && asked.fields.contains("gzip;q=0")
            && d.what == "content-encoding"
            && d.ours.is_empty()
    }),
    ("The page that lists a folder", |asked, d| {
        let lists = |page: &String| page.contains("Index of /errors/");
        let is_list = d.what == "body" && lists(&d.ours) && lists(&d.theirs);
        let is_asked = asked.target.starts_with("/errors/") && asked.fields.contains("Match: *");
        d.peer == LIGHTTPD && (is_list || (is_asked && d.is_status("304", &["200"])))
    }),
    ("A host that is not there", |asked, d| {
        d.peer == LIGHTTPD && asked.host == "other" && d.is_status("404", &["403"])
    }),
    ("Conditions on what programs print", |asked, d| {
        let conditions = ["If-Match", "If-Unmodified-Since", "If-None-Match: *"];
        let asks = conditions.iter().any(|name| asked.fields.starts_with(name));
        d.peer == APACHE && asks && d.is_status("200", &["304", "412"])
    }),
    ("CORS without Origin", |asked, d| {
        let has_origin = asked.fields.starts_with("Origin");
        match d.what {
            "access-control-allow-origin" if has_origin => d.status >= 400 && d.theirs.is_empty(),
            "access-control-allow-origin" => d.ours.is_empty(),
            "access-control-allow-methods" => d.ours.is_empty(),
            "vary" => d.ours == "origin" && d.theirs.is_empty(),
            _ => false,
        }
    }),
    ("A path behind a program", |asked, d| {
        let behind = asked.target.contains("gi-bin/app/");
        d.peer == NGINX && behind && d.is_status("200", &["403", "502"])
    }),
    ("A file without a type", |asked, d| {
        d.peer == APACHE
            && d.what == "type"
            && asked.target.contains("a.thing")
            && d.ours == "application/octet-stream"
            && d.theirs.is_empty()
    }),
    (REFUSED, |asked, d| {
        let refused = ["writable", "strange", "setuid", "open/app"];
        refused.iter().any(|name| asked.target.ends_with(name)) && d.is_status("403", &["500"])
    }),
];
