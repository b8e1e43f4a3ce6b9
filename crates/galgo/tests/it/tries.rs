//! `try` before programs among files: the layouts of known applications, with small programs in their places.

use crate::harness::{list, new_site};
use galgo_testkit::{Server, Site};

list![
    nextcloud,
    codeigniter_and_symfony,
    dokuwiki,
    a_controller_is_found_without_the_path_in_try,
    no_program_goes_round_the_controller,
    a_name_made_longer_is_no_program,
];

const SAYS: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n%s|%s|%s|%s' \
    \"$SCRIPT_NAME\" \"$PATH_INFO\" \"$QUERY_STRING\" \"$REQUEST_URI\"\n";

fn site(programs: &[&str], config: &str) -> Site {
    let site = new_site().file("app/style.css", "css", 0o644).config(&format!(
        "[[route]]\npath = \"/\"\nfiles = \"app\"\nindex = [\"index.php\", \"index.html\"]\ncgi_names = [\"*.php\"]\n{config}"
    ));
    let add = |site: Site, name: &&str| site.file(&format!("app/{name}"), SAYS, 0o755);
    programs.iter().fold(site, add)
}

/// Asserts the text of each response, or its status if that is not 200.
fn says(server: &Server, expected: &[(&str, &str)]) {
    for (target, expected) in expected {
        let reply = server.get(target);
        let said = match reply.status {
            200 => reply.text(),
            status => status.to_string(),
        };
        let expected = if expected.contains('|') {
            format!("{expected}|{target}")
        } else {
            (*expected).to_owned()
        };
        assert_eq!(said, expected, "{target}");
    }
}

fn nextcloud() {
    let programs = ["index.php", "remote.php", "status.php", "ocs/v2.php"];
    let server = site(
        &programs,
        "try = [\"{path}\", \"{path}/\", \"/index.php{path}\"]",
    )
    .file("app/core/img/logo.svg", "svg", 0o644)
    .start();
    says(
        &server,
        &[
            ("/", "/index.php||"),
            ("/style.css", "css"),
            ("/core/img/logo.svg", "svg"),
            ("/status.php", "/status.php||"),
            ("/remote.php/dav/files", "/remote.php|/dav/files|"),
            ("/remote.php/dav/files/", "/remote.php|/dav/files/|"),
            (
                "/remote.php/dav/files/.x~/a%20b",
                "/remote.php|/dav/files/.x~/a b|",
            ),
            (
                "/ocs/v2.php/cloud/user?format=json",
                "/ocs/v2.php|/cloud/user|format=json",
            ),
            ("/index.php/apps/files", "/index.php|/apps/files|"),
            ("/apps/files", "/index.php|/apps/files|"),
            ("/apps/files/", "/index.php|/apps/files/|"),
            ("/.well-known/caldav", "/index.php|/.well-known/caldav|"),
            ("/none.php", "/index.php|/none.php|"),
        ],
    );
    let put = "PROPFIND /remote.php/dav/a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let said = server.ask(put).text();
    assert_eq!(said, "/remote.php|/dav/a||/remote.php/dav/a");
}

fn codeigniter_and_symfony() {
    for last in ["/index.php{path}", "/index.php/{rest}"] {
        let config = format!("try = [\"{{path}}\", \"{last}\"]");
        let server = site(&["index.php"], &config).start();
        says(
            &server,
            &[
                ("/welcome/index?x=1", "/index.php|/welcome/index|x=1"),
                ("/index.php/welcome/index", "/index.php|/welcome/index|"),
                ("/index.php", "/index.php||"),
                ("/index.php/", "/index.php|/|"),
                ("/_profiler/a.php/b", "/index.php|/_profiler/a.php/b|"),
                ("/style.css", "css"),
            ],
        );
    }
    // An application may also get the whole path from REQUEST_URI alone.
    let server = site(&["index.php"], "try = [\"{path}\", \"/index.php\"]").start();
    says(
        &server,
        &[
            ("/blog/1", "/index.php||"),
            ("/index.php/blog/1", "/index.php|/blog/1|"),
        ],
    );
}

fn dokuwiki() {
    let programs = ["doku.php", "index.php", "lib/exe/fetch.php"];
    let config = "try = [\"{path}\", \"{path}/\", \"/doku.php?id={rest}&{query}\"]";
    let server = site(&programs, config).start();
    says(
        &server,
        &[
            ("/wiki:start", "/doku.php||id=wiki%3Astart"),
            ("/doku.php/wiki:start", "/doku.php|/wiki:start|"),
            ("/doku.php?id=a", "/doku.php||id=a"),
            (
                "/lib/exe/fetch.php/logo.png?w=9",
                "/lib/exe/fetch.php|/logo.png|w=9",
            ),
        ],
    );
}

/// If the path already names the program, `try` does not lead elsewhere.
fn a_controller_is_found_without_the_path_in_try() {
    let config = "try = [\"/static{path}\", \"/index.php{path}\"]";
    let server = site(&["index.php"], config)
        .file("app/static/a.css", "static", 0o644)
        .start();
    says(
        &server,
        &[
            ("/a.css", "static"),
            ("/blog", "/index.php|/blog|"),
            ("/index.php/blog", "/index.php|/blog|"),
            ("/index.php", "/index.php||"),
        ],
    );
}

fn no_program_goes_round_the_controller() {
    let programs = ["index.php", "secret.php"];
    let server = site(&programs, "try = [\"/index.php{path}\"]").start();
    says(
        &server,
        &[
            ("/secret.php", "/index.php|/secret.php|"),
            ("/secret.php/x", "/index.php|/secret.php/x|"),
            ("/blog", "/index.php|/blog|"),
        ],
    );
}

fn a_name_made_longer_is_no_program() {
    let config = "try = [\"{path}.html\", \"{path}\", \"=404\"]";
    let server = site(&["remote.php"], config)
        .file("app/about.html", "about", 0o644)
        .start();
    says(
        &server,
        &[
            ("/about", "about"),
            ("/remote.php/dav", "/remote.php|/dav|"),
            ("/none", "404"),
        ],
    );
}
