//! The guestbook in seven languages: all behave the same over HTTP.

use std::process::Command;

use galgo_testkit::{Server, Site, wait_until};

use crate::{
    curl::{Reply, curl, curl_with},
    processes::{MARK, mark, marked},
    site::{demo, new_site},
};

const LANGUAGES: [&str; 7] = [
    "guestbook-c",
    "guestbook-rust",
    "guestbook-go",
    "guestbook.py",
    "guestbook.pl",
    "guestbook.js",
    "guestbook.sh",
];
const FORM: &str = "application/x-www-form-urlencoded";

/// Body, status, and text of the newest entry (303) or of the error page (400).
#[rustfmt::skip]
const SIGNED: &[(&str, u16, &str)] = &[
    ("name=Ada&message=Hello", 303, "<p>Hello</p>"),
    ("name=%3Cb%3E%26%22%27&message=x", 303, "<h2>&lt;b&gt;&amp;&quot;&#x27; <time>"),
    ("name=a&message=%3Cscript%3Ealert('1')%3C/script%3E", 303, "<p>&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;</p>"),
    ("name=Zo%C3%AB+%E5%90%8D%E5%89%8D&message=smile+%F0%9F%98%80", 303, "<h2>Zoë 名前 <time>"),
    ("name=a&message=%F0%9F%98%80", 303, "<p>\u{1F600}</p>"),
    ("name=é&message=raw", 303, "<h2>é <time>"),
    ("name=Robert')%3B+DROP+TABLE+entry;--&message=$(id)+%60id%60+${PATH}+%25s+\\n", 303, "<p>$(id) `id` ${PATH} %s \\n</p>"),
    ("name=a&message=one%0D%0Atwo", 303, "<p>one\ntwo</p>"),
    ("message=b&other=&name=a", 303, "<p>b</p>"),
    ("", 400, "name is empty"),
    ("name=a", 400, "message is empty"),
    ("name=+++&message=m", 400, "name is empty"),
    ("name=a%0Ab&message=m", 400, "name contains control"),
    ("name=a&message=m%00", 400, "message contains control"),
    ("name=a&message=%FF", 400, "UTF-8"),
    ("name=a&message=%zz", 400, "UTF-8"),
    ("name=a&message=%ED%A0%80", 400, "UTF-8"),
];

struct Book {
    server: Server,
    name: &'static str,
}

impl Book {
    /// Opens a guestbook with an empty database of its own.
    fn open(name: &'static str) -> Self {
        Self::with(name, new_site(), "")
    }

    /// Opens a guestbook with more keys on its route.
    fn with(name: &'static str, site: Site, keys: &str) -> Self {
        let config = format!(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"{}\"\nenv = {{ GUESTBOOK_DB = \"{}\", {MARK} = \"{}\" }}\n{keys}",
            demo().join("cgi-bin").display(),
            site.path("book.db").display(),
            mark(name),
        );
        let server = site.config(&config).start();
        Self { server, name }
    }

    fn path(&self) -> String {
        format!("/cgi-bin/{}", self.name)
    }

    fn url(&self) -> String {
        self.server.url(&self.path())
    }

    fn list(&self) -> String {
        let reply = curl(&[&self.url()]).ok();
        assert_eq!(reply.field("Content-Type"), "text/html; charset=utf-8");
        reply.text()
    }

    /// Signs with a body of this type; `more` are arguments of curl.
    fn post(&self, body: &str, content_type: &str, more: &[&str]) -> Reply {
        let field = format!("Content-Type: {content_type}");
        let url = self.url();
        let args = [more, &["-H", &field, "--data-binary", "@-", &url]].concat();
        curl_with(&args, body.as_bytes())
    }

    fn sql(&self, statement: &str) {
        let mut sqlite = Command::new("sqlite3");
        sqlite.arg(self.server.site.path("book.db")).arg(statement);
        assert!(sqlite.status().unwrap().success());
    }
}

/// Checks that a language's guestbook behaves like the others.
fn behaves(name: &'static str) {
    let book = Book::open(name);
    let empty = book.list();
    assert!(
        empty.contains("<form method=\"post\">") && !empty.contains("<article>"),
        "{empty}"
    );
    lists_what_is_signed(&book);
    refuses(&book);
    shows_the_newest_100(&book);
    assert_eq!(
        book.server.errors().matches("stderr").count(),
        0,
        "{}",
        book.server.errors()
    );
    wait_until("every program has ended", || marked(&mark(name)).is_empty());
}

fn lists_what_is_signed(book: &Book) {
    for &(body, status, shown) in SIGNED {
        // First as a browser sends it, then without a length.
        for chunked in [&[][..], &["-H", "Transfer-Encoding: chunked"]] {
            let before = book.list();
            let reply = book.post(body, FORM, chunked).is(status);
            if status == 303 {
                assert_eq!(reply.field("Location"), book.path());
                assert!(reply.body.is_empty(), "{body}: {reply:?}");
                let page = book.list();
                let newest = page.split("</article>").next().unwrap();
                assert!(newest.contains(shown), "{body}: {newest}");
                assert_eq!(
                    page.matches("<article>").count(),
                    before.matches("<article>").count() + 1
                );
            } else {
                assert!(reply.text().contains(shown), "{body}: {reply:?}");
                assert_eq!(book.list(), before, "{body}");
            }
        }
    }
    let newest = curl(&["-L", "--data", "name=Last&message=followed", &book.url()]).ok();
    assert!(newest.text().contains("<p>followed</p>"));
}

fn refuses(book: &Book) {
    let before = book.list();
    let large = format!("name=a&message={}", "m".repeat(16 << 10));
    for chunked in [&[][..], &["-H", "Transfer-Encoding: chunked"]] {
        let reply = book.post(&large, FORM, chunked).is(413);
        assert!(reply.text().contains("16 KiB"), "{reply:?}");
        for other in [
            "text/plain",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencodedx",
        ] {
            book.post("name=a&message=m", other, chunked).is(415);
        }
    }
    for method in ["PUT", "DELETE", "PATCH", "get"] {
        let reply = curl(&["-X", method, &book.url()]).is(405);
        assert_eq!(reply.field("Allow"), "GET, HEAD, POST", "{method}");
    }
    let head = curl(&["-I", "-o", "/dev/null", &book.url()]).ok();
    assert_eq!(head.field("Content-Type"), "text/html; charset=utf-8");
    assert_eq!(book.list(), before, "something refused left an entry");
}

fn shows_the_newest_100(book: &Book) {
    book.sql(
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
         INSERT INTO entry (name, message) SELECT 'n' || i, 'm' FROM n",
    );
    book.post("name=newest&message=m", FORM, &[]).is(303);
    let page = book.list();
    assert_eq!(page.matches("<article>").count(), 100);
    let at = |name: &str| page.find(&format!("<h2>{name} <"));
    assert!(at("newest") < at("n100") && at("n100") < at("n2"), "{page}");
    assert!(
        at("newest").is_some() && at("n2").is_some() && at("n1").is_none(),
        "{page}"
    );
}

macro_rules! languages {
    ($($test:ident: $program:literal,)*) => {
        $(#[test]
        fn $test() {
            behaves($program);
        })*

        #[test]
        fn all_seven_are_tested() {
            assert_eq!([$($program),*], LANGUAGES);
        }
    };
}

languages! {
    c: "guestbook-c",
    rust: "guestbook-rust",
    go: "guestbook-go",
    python: "guestbook.py",
    perl: "guestbook.pl",
    node: "guestbook.js",
    bash: "guestbook.sh",
}

/// Sixteen programs start at once. Any of them may make the database; the others wait for it.
#[test]
fn sixteen_readers_open_a_new_book_at_once() {
    for name in ["guestbook-c", "guestbook-rust"] {
        let book = Book::open(name);
        for _ in 0..20 {
            let _ = std::fs::remove_file(book.server.site.path("book.db"));
            let together = std::sync::Barrier::new(16);
            std::thread::scope(|scope| {
                for _ in 0..16 {
                    scope.spawn(|| {
                        together.wait();
                        book.list()
                    });
                }
            });
        }
    }
}

/// The sandbox only allows the folder of the book, and the modules that Node loads from beside the
/// programs.
#[test]
fn each_behaves_in_a_strict_sandbox() {
    for name in LANGUAGES {
        let site = new_site();
        let modules = demo().join("node_modules");
        let keys = format!(
            "start = \"cold\"\nsandbox = {{ write = [{:?}], read = [{modules:?}] }}\n",
            site.folder()
        );
        let book = Book::with(name, site, &keys);
        let empty = book.list();
        assert!(!empty.contains("<article>"), "{name}: {empty}");
        book.post("name=Ada&message=Hello", FORM, &[]).is(303);
        let said = book.server.errors();
        assert!(book.list().contains("<p>Hello</p>"), "{name}: {said}");
        assert_eq!(said.matches("stderr").count(), 0, "{name}: {said}");
    }
}

/// Sixteen clients sign the same book at once, in every language.
#[test]
fn sixteen_writers_lose_no_entry() {
    const WRITERS: usize = 16;
    let book = Book::open(LANGUAGES[0]);
    let server = &book.server;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for turn in 0..4 {
                    let name = LANGUAGES[(writer + turn) % LANGUAGES.len()];
                    let url = server.url(&format!("/cgi-bin/{name}"));
                    let entry = format!("name=w&message=%5B{writer}-{turn}%5D");
                    curl(&["-d", &entry, &url]).is(303);
                }
            });
        }
    });
    let page = book.list();
    assert_eq!(page.matches("<article>").count(), WRITERS * 4);
    for writer in 0..WRITERS {
        for turn in 0..4 {
            let entry = format!("<p>[{writer}-{turn}]</p>");
            assert_eq!(page.matches(&entry).count(), 1, "{entry}");
        }
    }
    // Every language shows the same page.
    for name in LANGUAGES {
        let other = curl(&[&server.url(&format!("/cgi-bin/{name}"))]).ok();
        assert_eq!(other.text(), page, "{name}");
    }
}
