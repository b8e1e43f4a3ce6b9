//! Workers and authorizers in strict sandboxes: files and processes that they see.

use std::{fs, net::TcpListener};

use super::{APP, files, runs};
use crate::{
    harness::list,
    owners::{MAN, helpers, needs_a_lasting_place, own},
};

list![
    they_see_what_is_listed,
    those_of_the_servers_user,
    authorizers_have_the_sandbox_of_defaults,
];

fn they_see_what_is_listed() {
    needs_a_lasting_place();
    let route = APP.replace(
        "user =",
        "sandbox = \"strict\"\nroot = \"scripts\"\nscripts = [\"*\"]\nuser =",
    );
    let site = files().config(&route.replace("\"/app\"", "\"/app/\""));
    let at = |name: &str| site.path(name).canonicalize().unwrap();
    let (secret, page) = (at("secret"), at("scripts/page"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = site.start();
    let name = format!("galgo-test-put-{}", server.pid());
    let commands = format!(
        "exec 2>&1; id -u; cat {}; cat {}; echo x >/tmp/{name} && ls /tmp; ls /proc | grep -c '^[0-9]'; \
         bash -c 'echo </dev/tcp/127.0.0.1/{port}' 2>&1 | grep -o 'Permission denied' | sort -u; grep Seccomp: /proc/self/status",
        secret.display(),
        page.display()
    );
    let mut client = server.connect();
    client.post("/app/page", commands.as_bytes());
    let said = client.reply().text();
    let want = format!(
        "5\ncat: {}: Permission denied\na page\n{name}\n",
        secret.display()
    );
    let rest = said.strip_prefix(&want);
    let rest = rest.unwrap_or_else(|| panic!("{said}{}", server.errors()));
    let lines: Vec<_> = rest.lines().collect();
    let [processes, network, filter] = lines[..] else {
        panic!("{said}");
    };
    // The worker sees itself and its own children, but not its helper.
    assert!(processes.parse::<u32>().unwrap() <= 5, "{said}");
    assert_eq!((network, filter), ("Permission denied", "Seccomp:\t2"));
    assert!(!fs::exists(format!("/tmp/{name}")).unwrap());
    assert_eq!(helpers(&server).len(), 1);
}

/// Without `user`, the program's file may belong to any user.
fn those_of_the_servers_user() {
    needs_a_lasting_place();
    let route = "[defaults]\nsandbox = \"strict\"\n[[route]]\npath = \"/app\"\n\
        fastcgi = { run = [\"own/app\"], workers = 1 }\n";
    let site = files().config(route);
    own(&site, "own/app", MAN);
    let secret = site.path("secret").canonicalize().unwrap();
    let server = site.start();
    let command = format!("id -u; cat {} 2>&1", secret.display());
    let want = format!("65534\ncat: {}: Permission denied\n", secret.display());
    assert_eq!(runs(&server, &command), want);
}

fn authorizers_have_the_sandbox_of_defaults() {
    let judge = |secret: &str| {
        format!(
            "cat {secret} >/dev/null 2>&1 && echo Status: 200 || echo Status: 403; echo 'Content-Type: text/plain'; echo; id -u"
        )
    };
    for (sandbox, status) in [("standard", 200), ("strict", 403)] {
        let site = files();
        let secret = site.path("secret").canonicalize().unwrap();
        let judge = judge(&secret.display().to_string());
        let site = site
            .file("bin/judge", format!("#!/bin/sh\n{judge}\n"), 0o755)
            .file("kept/a.txt", "kept", 0o644)
            .config(&format!("[defaults]\nsandbox = {sandbox:?}\n"))
            .config("[[route]]\npath = \"/program/\"\nfiles = \"kept\"\nauthorizer = { cgi = \"bin/judge\" }\n")
            .config(&format!(
                "[[route]]\npath = \"/worker/\"\nfiles = \"kept\"\nauthorizer = {{ run = [\"own/app\", \"judge\", {judge:?}], workers = 1 }}\n"
            ));
        let server = site.start();
        for path in ["/program/a.txt", "/worker/a.txt"] {
            let said = server.get(path);
            let want = if status == 200 { "kept" } else { "65534\n" };
            let met = (said.status, said.text());
            assert_eq!(
                met,
                (status, want.into()),
                "{sandbox} {path} {}",
                server.errors()
            );
        }
    }
}
