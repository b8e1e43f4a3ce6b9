//! Files that no client must see.

use crate::harness::{list, new_site};
use galgo_testkit::Server;
use std::os::unix::fs::symlink;

list![
    sources_never_appear,
    a_program_folder_serves_no_files,
    traversal_by_encoding,
    traversal_by_links,
];

const SOURCE: &str = "THE-SOURCE-OF-A-PROGRAM";

/// Programs, and leftover copies of them.
const FILES: [(&str, u32); 15] = [
    ("cgi-bin/run", 0o755),
    ("cgi-bin/run.php", 0o644),
    ("cgi-bin/run.bak", 0o644),
    ("cgi-bin/run~", 0o755),
    ("cgi-bin/.run", 0o755),
    ("cgi-bin/sub/run", 0o755),
    ("cgi-bin/text.txt", 0o644),
    ("cgi-bin/index.html", 0o644),
    ("public/run.php", 0o644),
    ("public/RUN.PHP", 0o644),
    ("public/run.php~", 0o644),
    ("public/run.php.bak", 0o644),
    ("public/.run.php.swp", 0o644),
    ("public/sub/run.php", 0o755),
    ("index/index.php", 0o644),
];

/// Paths at which a program or its source may be found.
const SCRIPTS: [&str; 14] = [
    "/cgi-bin/run",
    "/cgi-bin/run.php",
    "/cgi-bin/run.bak",
    "/cgi-bin/run~",
    "/cgi-bin/.run",
    "/cgi-bin/sub/run",
    "/cgi-bin/text.txt",
    "/cgi-bin/",
    "/cgi-bin/index.html",
    "/run.php",
    "/RUN.PHP",
    "/sub/run.php",
    "/index/",
    "/index/index.php",
];

/// Suffixes to try after the name of a program.
const BEHIND: [&str; 39] = [
    "", "%00", "%00.html", "%0a", "%0d", "%20", "%09", ".", "%2e", "..", "/", "//", "/.", "/..",
    "/x", ";x", ";x=/", "%3b", "%2f", "%2F", "%5c", "\\", "%252f", "%25", "%", "~", ".bak", ".old",
    ".orig", ".save", ".swp", "?-s", "?%2ds", "?source", "%3f", "%23", "::$DATA", ":", "%c0%80",
];

fn sources_never_appear() {
    let script = format!("#!/bin/sh\n# {SOURCE}\nprintf 'Content-Type: text/plain\\n\\nran'\n");
    let mut site = new_site()
        .config("[interpreters]\n\".php\" = \"/bin/sh\"")
        .config("[[route]]\npath = \"/index/\"\nfiles = \"index\"\nindex = [\"index.php\"]\nlisting = true");
    for (path, mode) in FILES {
        site = site.file(path, &script, mode);
    }
    let server = site.start();
    for script in SCRIPTS {
        for end in BEHIND {
            let target = format!("{script}{end}");
            let upper = target.to_ascii_uppercase();
            let doubled = format!("/{target}");
            for target in [&target, &upper, &doubled] {
                check_source(
                    &server,
                    &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n"),
                );
            }
        }
        for head in [
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nRange: bytes=-20,0-10\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nTranslate: f\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: br, gzip\r\n"),
            format!("GET {script} HTTP/1.0\r\n"),
            format!("GET http://localhost{script} HTTP/1.1\r\nHost: localhost\r\n"),
            format!("GET {script} HTTP/1.1\r\nHost: other.example\r\n"),
            format!("HEAD {script} HTTP/1.1\r\nHost: localhost\r\n"),
            format!("PUT {script} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"),
            format!("POST {script} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"),
            format!("PROPFIND {script} HTTP/1.1\r\nHost: localhost\r\n"),
            format!("COPY {script} HTTP/1.1\r\nHost: localhost\r\nDestination: /a.txt\r\n"),
            format!("get {script} HTTP/1.1\r\nHost: localhost\r\n"),
        ] {
            check_source(&server, &head);
        }
    }
    // The programs do run at their own paths.
    for target in ["/cgi-bin/run", "/cgi-bin/run.php", "/cgi-bin/sub/run"] {
        assert_eq!(server.get(target).text(), "ran", "{target}");
    }
    for target in [
        "/run.php",
        "/index/",
        "/index/index.php",
        "/run.php~",
        "/RUN.PHP",
    ] {
        assert_eq!(server.get(target).status, 403, "{target}");
    }
}

fn check_source(server: &Server, head: &str) {
    let mut client = server.connect();
    client.send(format!("{head}Connection: close\r\n\r\n"));
    let said = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(said.starts_with("HTTP/1.1 "), "{head}: {said}");
    assert!(!said.contains("SOURCE"), "{head}: {said}");
    assert!(!said.contains("printf"), "{head}: {said}");
}

fn a_program_folder_serves_no_files() {
    let server = new_site()
        .file("cgi-bin/page.html", "<p>", 0o644)
        .file("cgi-bin/sub/data.db", "data", 0o600)
        .start();
    for (target, status) in [
        ("/cgi-bin/page.html", 403),
        ("/cgi-bin/sub/data.db", 403),
        ("/cgi-bin/page.html/more", 403),
        ("/cgi-bin/", 404),
        ("/cgi-bin/sub/", 404),
        ("/cgi-bin/sub", 404),
        ("/cgi-bin/none", 404),
    ] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    server.says("chmod +x");
}

/// Spellings of a step up and of a slash.
const UP: [&str; 16] = [
    "..",
    "%2e%2e",
    "%2E.",
    ".%2e",
    "%252e%252e",
    "..%00",
    "..%0a",
    "%00..",
    "....",
    "..;",
    "..%20",
    "%c0%ae%c0%ae",
    "%u002e%u002e",
    "%e0%80%ae%e0%80%ae",
    ".%00.",
    "%%32%65%%32%65",
];
const SLASH: [&str; 10] = [
    "/",
    "%2f",
    "%2F",
    "\\",
    "%5c",
    "//",
    "/./",
    "%252f",
    "%c0%af",
    "%ef%bc%8f",
];

fn traversal_by_encoding() {
    let server = new_site()
        .file("secret", "OUTSIDE", 0o644)
        .file(
            "outside",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nOUTSIDE'\n",
            0o755,
        )
        .file("public/sub/a", "a", 0o644)
        .start();
    let mut tried = 0;
    for up in UP {
        for slash in SLASH {
            for (before, behind) in [
                ("/", "secret"),
                ("/sub", "secret"),
                ("/cgi-bin/", "outside"),
                ("/cgi-bin", "outside"),
                ("/cgi-bin/t/", "secret"),
            ] {
                let steps = format!("{up}{slash}").repeat(1 + tried % 3);
                let lead = if before.ends_with('/') { "" } else { slash };
                let target = format!("{before}{lead}{steps}{behind}");
                check_traversal(&server, &target);
                tried += 1;
            }
        }
    }
    for target in [
        "//etc/passwd",
        "///etc/passwd",
        "/%2fetc/passwd",
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/secret",
        "/dev/fd/3",
        "/cgi-bin//../secret",
        "/cgi-bin/t/../../secret",
        "/cgi-bin/t/%2e%2e/%2e%2e/secret",
        "/~root/secret",
        "/~root/.profile",
        "http://localhost/../secret",
        "file:///etc/passwd",
    ] {
        check_traversal(&server, target);
        tried += 1;
    }
    assert!(tried > 500);
}

fn check_traversal(server: &Server, target: &str) {
    let mut client = server.connect();
    client.send(format!(
        "GET {target}?head&env HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    ));
    let said = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(said.starts_with("HTTP/1.1 "), "{target}: {said}");
    let outside = said.contains("OUTSIDE") || said.contains("root:");
    assert!(!outside, "{target}: {said}");
    // The path variables of a program contain no step up either.
    for line in said.lines().filter(|l| l.starts_with("PATH_")) {
        let value = line.split('=').nth(1).unwrap();
        assert!(
            !value.split('/').any(|s| s == ".." || s == "."),
            "{target}: {line}"
        );
    }
}

/// Targets of links, and the places of the links.
const LINKS: [(&str, &str); 11] = [
    ("../secret", "public/file"),
    ("..", "public/folder"),
    ("/etc", "public/etc"),
    ("/proc", "public/proc"),
    ("/proc/self/root", "public/root"),
    ("/proc/self/fd/0", "public/fd"),
    ("inside", "public/fine"),
    ("../outside", "cgi-bin/out"),
    ("..", "cgi-bin/up"),
    ("inside", "cgi-bin/fine"),
    ("loop", "public/loop"),
];

/// Paths through links that no client may read.
const LEAD_OUT: [&str; 15] = [
    "/file",
    "/folder/secret",
    "/folder/public/inside",
    "/etc/passwd",
    "/proc/self/root/etc/passwd",
    "/root/etc/passwd",
    "/fd",
    "/absolute",
    "/loop",
    "/cgi-bin/out",
    "/cgi-bin/up/outside",
    "/cgi-bin/up/cgi-bin/inside",
    "/cgi-bin/absolute",
    "/cgi-bin/absolute/info",
    "/cgi-bin/itself/absolute",
];

fn traversal_by_links() {
    let site = new_site()
        .file("secret", "OUTSIDE", 0o644)
        .file(
            "outside",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nOUTSIDE'\n",
            0o755,
        )
        .file("public/inside", "inside", 0o644)
        .file(
            "cgi-bin/inside",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\ninside'\n",
            0o755,
        );
    let at = |path: &str| site.path(path);
    for (to, link) in LINKS {
        symlink(to, at(link)).unwrap();
    }
    symlink(at("secret"), at("public/absolute")).unwrap();
    symlink(at("outside"), at("cgi-bin/absolute")).unwrap();
    // These links lead back into the served folders.
    symlink(at("public/inside"), at("public/absolute-inside")).unwrap();
    symlink(at("cgi-bin"), at("cgi-bin/itself")).unwrap();
    symlink(at("cgi-bin/inside"), at("cgi-bin/absolute-inside")).unwrap();
    let outside = at("outside");
    let server = site.start();
    for target in LEAD_OUT {
        let reply = server.get(target);
        assert!(
            matches!(reply.status, 403 | 404),
            "{target}: {}",
            reply.status
        );
        check_traversal(&server, target);
    }
    assert_eq!(server.get("/fine").text(), "inside");
    assert_eq!(server.get("/cgi-bin/fine").text(), "inside");
    for target in [
        "/absolute-inside",
        "/cgi-bin/absolute-inside",
        "/cgi-bin/absolute-inside/info",
        "/cgi-bin/itself/itself/inside",
    ] {
        assert_eq!(server.get(target).text(), "inside", "{target}");
    }
    server.says(&format!(
        "([[route]] path = \"/cgi-bin/absolute\", cgi = \"{}\")",
        outside.display()
    ));
}
