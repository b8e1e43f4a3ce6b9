//! Programs and modules of hosts in strict sandboxes: each sees only its own host's folder of programs.

use std::{fs, os::unix::fs::symlink};

use super::{CONFIG, accounts, ask, host, link, runs_as};
use crate::{
    harness::list,
    owners::{MAN, NOBODY, WHO, mode, needs_a_lasting_place, own, site},
    wasm,
};
use galgo_testkit::{Server, Site, accounts::uid};

list![
    they_see_their_own_host,
    a_folder_that_is_a_link_is_nobodys,
    those_of_the_servers_user,
    modules_of_a_host,
];

const STRICT: &str = "[defaults]\nsandbox = \"strict\"\n";

/// Prints whether the program can read the file that its variables name, and each file in the query.
const SEES: &str = "#!/bin/sh\necho Content-Type: text/plain\necho\nid -u\n\
    for file in \"$SCRIPT_FILENAME\" $(echo $QUERY_STRING | tr '&' ' '); do\n\
    cat \"$file\" >/dev/null 2>&1 && echo yes || echo no\ndone\n";

fn with(site: &Site, host: &str) {
    let file = format!("www/{host}/cgi-bin/sees");
    site.write(&file, SEES);
    mode(site, &file, 0o755);
}

/// Returns whether a program can read its own file, and each of these in the folder of hosts.
fn sees(server: &Server, host: &str, files: &[&str]) -> Vec<String> {
    let files = files.iter().map(|file| server.path(&format!("www/{file}")));
    let files: Vec<_> = files.map(|file| file.display().to_string()).collect();
    let reply = ask(server, host, &format!("/cgi-bin/sees?{}", files.join("&")));
    assert_eq!(reply.status, 200, "{}", server.errors());
    reply.text().lines().map(str::to_owned).collect()
}

fn they_see_their_own_host() {
    needs_a_lasting_place();
    let site = site().config(CONFIG).config(STRICT);
    let accounts = accounts(&site, 1);
    let one = accounts.names()[0].as_str();
    // Both hosts belong to the same user.
    for name in ["one.example", "two.example"] {
        with(&site, name);
        host(&site, name, one);
    }
    symlink("one.example", site.path("www/www.one.example")).unwrap();
    let server = site.start();
    let files = [
        "one.example/cgi-bin/who",
        "one.example/data/secret",
        "two.example/cgi-bin/who",
    ];
    let user = uid(one).to_string();
    for name in ["one.example", "www.one.example"] {
        let said = sees(&server, name, &files);
        assert_eq!(said, [&*user, "yes", "yes", "no", "no"], "{name}");
    }
    let said = sees(&server, "two.example", &files);
    assert_eq!(said, [&*user, "yes", "no", "no", "yes"]);
    // A host that is added later needs no reload.
    with(&server.site, "late.example");
    host(&server.site, "late.example", one);
    let said = sees(&server, "late.example", &files);
    assert_eq!(said, [&*user, "yes", "no", "no", "no"]);
}

fn a_folder_that_is_a_link_is_nobodys() {
    let site = site().config(CONFIG).config(STRICT);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "one.example", one);
    host(&site, "two.example", two);
    host(&site, "apart.example", one);
    link(
        &site,
        "../two.example/cgi-bin",
        "apart.example/cgi-bin",
        one,
    );
    // Within the folder of the host the server itself follows the link.
    link(&site, "cgi-bin.was", "two.example/cgi-bin", two);
    let server = site.start();
    assert_eq!(
        runs_as(&server, "one.example", "/cgi-bin/who"),
        Ok(uid(one))
    );
    let reply = ask(&server, "apart.example", "/cgi-bin/who");
    assert_eq!(reply.status, 403);
    let reply = ask(&server, "two.example", "/cgi-bin/who");
    assert_eq!(reply.status, 403);
    server.says("two.example/cgi-bin\" is a symbolic link");
}

fn those_of_the_servers_user() {
    needs_a_lasting_place();
    let site = site()
        .config("sites = \"www\"\n")
        .config(STRICT)
        .file("www/one.example/releases/5/who", WHO, 0o755)
        .file("www/two.example/cgi-bin/who", WHO, 0o755);
    for name in ["two.example", "one.example/releases/5"] {
        let name = format!("www/{name}/note");
        site.write(&name, "x");
        mode(&site, &name, 0o644);
    }
    // The owner of the program does not matter.
    own(&site, "www/two.example/cgi-bin/who", MAN);
    with(&site, "two.example");
    symlink("releases/5", site.path("www/one.example/cgi-bin")).unwrap();
    fs::copy(
        site.path("www/two.example/cgi-bin/sees"),
        site.path("www/one.example/releases/5/sees"),
    )
    .unwrap();
    let server = site.start();
    assert_eq!(runs_as(&server, "one.example", "/cgi-bin/who"), Ok(NOBODY));
    assert_eq!(runs_as(&server, "two.example", "/cgi-bin/who"), Ok(NOBODY));
    let files = ["one.example/releases/5/note", "two.example/cgi-bin/who"];
    let user = NOBODY.to_string();
    let said = sees(&server, "one.example", &files);
    assert_eq!(said, [&*user, "yes", "yes", "no"]);
    let said = sees(&server, "two.example", &files);
    assert_eq!(said, [&*user, "yes", "no", "yes"]);
}

fn modules_of_a_host() {
    wasm::host();
    let site = site().config(CONFIG).config(STRICT);
    let accounts = accounts(&site, 1);
    let one = accounts.names()[0].as_str();
    site.write("www/one.example/cgi-bin/a.wasm", wasm::programs::hello());
    mode(&site, "www/one.example/cgi-bin/a.wasm", 0o644);
    host(&site, "one.example", one);
    let server = site.start();
    let reply = ask(&server, "one.example", "/cgi-bin/a.wasm");
    let met = (reply.status, reply.text());
    assert_eq!(met, (200, "yes\n".into()), "{}", server.errors());
}
