//! Differences that docs/migration/README.md names.

use super::{answer::Difference, requests::Asked};

/// Name of a difference in docs/migration/README.md, and the test for it.
type Known = (&'static str, fn(&Asked, &Difference) -> bool);

const NGINX: &str = "nginx";
const APACHE: &str = "apache";
const LIGHTTPD: &str = "lighttpd";

/// Only occurs with accounts.
pub(super) const REFUSED: &str = "What suexec refuses";

pub(super) const KNOWN: [Known; 50] = [
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
        let differs = match d.peer {
            LIGHTTPD => asked.target == "/sub?" && d.ours == format!("{}?", d.theirs),
            _ => d.theirs == format!("{}?", d.ours),
        };
        d.what == "location" && asked.target.ends_with('?') && differs
    }),
    ("A query behind a pattern", |asked, d| {
        let fits = if asked.target.ends_with('?') {
            d.is_status("301", &["404"]) || d.is_status("200", &["404"])
        } else {
            d.is_status("301", &["404"])
        };
        d.peer == LIGHTTPD && asked.target.contains('?') && fits
    }),
    ("Fields on 416", |_, d| {
        d.peer == LIGHTTPD
            && d.status == 416
            && matches!(
                d.what,
                "x-content-type-options" | "x-powered-by" | "strict-transport-security"
            )
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
    ("A coding that is refused", |asked, d| {
        d.peer == LIGHTTPD
            && asked.fields.contains("gzip;q=0")
            && d.what == "content-encoding"
            && d.ours.is_empty()
    }),
    ("Conditions on listings", |asked, d| {
        let asks = asked.target.starts_with("/errors/") && asked.fields.contains("Match: *");
        d.peer == LIGHTTPD && asks && d.is_status("304", &["200"])
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
        // This is the only pair that does not split the path. It allows all methods; pairs that deny methods are not
        // covered here.
        let (page, number) = &d.pair;
        let is_meant = (*page, &**number) == ("fcgiwrap.md", "1");
        let behind = asked.target.contains("gi-bin/app/");
        // fcgiwrap refuses the path, and may do so before nginx has passed the body on: nginx then answers 502.
        let theirs = match asked.method {
            "POST" | "PUT" | "PATCH" => &["403", "502"][..],
            _ => &["403"],
        };
        is_meant && behind && d.is_status("200", theirs)
    }),
    ("A file without a type", |asked, d| {
        d.peer == APACHE
            && d.what == "type"
            && asked.target.contains("a.thing")
            && d.ours == "application/octet-stream"
            && d.theirs.is_empty()
    }),
    ("A file that a program may not name", |asked, d| {
        let names = ["/send/none", "/send/outside"];
        let asks = names.iter().any(|name| asked.target.contains(name));
        d.peer == APACHE && asks && d.is_status("502", &["304", "404", "412"])
    }),
    ("The version of a file that a program names", |asked, d| {
        let version = matches!(d.what, "etag" | "last-modified") && d.theirs.is_empty();
        let asks = asked.fields.starts_with("If-None-Match: *");
        d.peer == APACHE && d.status == 304 && asks && asked.target.contains("/send/") && version
    }),
    ("A private address that an outer proxy names", |asked, d| {
        let asks = asked
            .fields
            .starts_with("X-Forwarded-For: 10.0.0.1, 203.0.113.9");
        let own = d.ours.replace("=10.0.0.1\n", "=203.0.113.9\n");
        d.peer == APACHE && asks && d.what == "body" && d.status == 200 && own == d.theirs
    }),
    ("A client that is no address", |asked, d| {
        let asks = asked.fields.starts_with("X-Forwarded-For: nobody");
        d.peer == APACHE && asks && d.is_status("400", &["200", "403"])
    }),
    ("The version of what was compressed", |asked, d| {
        let of_pair = match d.peer {
            LIGHTTPD => true,
            APACHE => asked.target.contains("ages/"),
            _ => false,
        };
        let asks = asked.fields.starts_with("Accept-Encoding");
        of_pair && asks && d.what == "etag" && d.ours == "weak" && d.theirs == "strong"
    }),
    ("Ranges of what is compressed", |asked, d| {
        let asks = asked.fields.starts_with("Accept-Encoding: gzip\r\nRange");
        let part = match d.what {
            "content-encoding" => d.ours.is_empty() && d.theirs == "gzip",
            "content-range" => d.ours.starts_with("bytes 0-1/"),
            "body" => d.theirs.starts_with('\u{1f}'),
            _ => false,
        };
        d.peer == APACHE && asks && asked.target.contains("ages/") && d.status == 206 && part
    }),
    ("The name x-gzip", |asked, d| {
        let asks = asked.fields.starts_with("Accept-Encoding: x-gzip");
        let coded = d.what == "content-encoding" && d.ours == "gzip" && d.theirs.is_empty();
        d.peer == APACHE && asks && coded
    }),
    ("Other methods of a folder without its slash", |asked, d| {
        let is_other = matches!(asked.method, "PUT" | "DELETE" | "PATCH" | "OPTIONS");
        let redirected = d.is_status("405", &["301"]) || d.is_status("204", &["301"]);
        d.peer != NGINX && asked.target == "/sub" && is_other && redirected
    }),
    ("How a folder is spelled", |asked, d| {
        let said = d.what == "location" && d.ours == "/%73ub/" && d.theirs == "/sub/";
        d.peer != NGINX && asked.target == "/%73ub" && said
    }),
    ("The folder of an alias", |asked, d| {
        let path = asked.target.split('?').next().unwrap_or("");
        d.peer == NGINX && path.ends_with("ictures") && d.is_status("301", &["404", "405"])
    }),
    ("Pages of listings", |asked, d| {
        let lists = match d.peer {
            NGINX => asked.target.contains("ictures/"),
            LIGHTTPD => d.theirs.contains("Index of /errors/"),
            _ => false,
        };
        lists && d.what == "body" && links(&d.ours) == links(&d.theirs)
    }),
    ("Dates of what has no date", |asked, d| {
        let undated = ["/pictures/", "/cgi-bin/first"];
        let is_meant = undated.iter().any(|path| asked.target.starts_with(path));
        d.peer == NGINX
            && is_meant
            && asked.fields.starts_with("If-Unmodified-Since")
            && d.is_status("200", &["412"])
    }),
    ("Errors may be compressed", |asked, d| {
        let added = match d.what {
            "vary" => d.ours == "accept-encoding",
            "content-encoding" => d.ours == "gzip",
            _ => false,
        };
        is_compressed(asked, d) && d.status >= 400 && added && d.theirs.is_empty()
    }),
    ("304 of what is compressed", |asked, d| {
        let added = d.ours == "accept-encoding" && d.theirs.is_empty();
        is_compressed(asked, d) && d.status == 304 && d.what == "vary" && added
    }),
    ("HEAD of what is compressed", |asked, d| {
        let asks = asked.method == "HEAD" && asked.fields.starts_with("Accept-Encoding");
        let described = match d.what {
            "content-encoding" => d.ours.is_empty() && d.theirs == "gzip",
            "etag" => d.peer == NGINX && d.ours == "strong" && d.theirs == "weak",
            _ => false,
        };
        is_compressed(asked, d) && asks && described
    }),
    ("Other methods of an index", |asked, d| {
        let method = ["PUT", "DELETE", "PATCH", "OPTIONS"].contains(&asked.method);
        d.peer == NGINX && method && asked.target == "/blog/" && d.is_status("200", &["405"])
    }),
    ("Ranges of answers that are kept", |asked, d| {
        d.peer == NGINX
            && asked.target.contains("gi-bin/first")
            && asked.fields.contains("Range:")
            && d.what == "body"
            && (&*d.ours, &*d.theirs) == ("again\n", "first\n")
    }),
    ("Changes of answers that are kept", |_, d| {
        let (page, number) = &d.pair;
        let is_kept = (*page, &**number) == ("nginx.md", "17");
        is_kept && d.what == "body" && d.ours == "again\n" && d.theirs == "first\n"
    }),
    (REFUSED, |asked, d| {
        let refused = ["writable", "strange", "setuid", "open/app"];
        refused.iter().any(|name| asked.target.ends_with(name)) && d.is_status("403", &["500"])
    }),
];

/// Returns the links of a listing's entries.
fn links(page: &str) -> Vec<&str> {
    let all = page.split("<a href=\"").skip(1);
    let link = all.filter_map(|rest| rest.split('"').next());
    link.filter(|link| *link != "../" && !link.starts_with('?'))
        .collect()
}

/// Whether a pair compresses the requested file.
fn is_compressed(asked: &Asked, d: &Difference) -> bool {
    match d.peer {
        NGINX => true,
        APACHE => asked.target.contains("ages/"),
        _ => false,
    }
}
