//! `[userdir]` with real accounts.

use std::os::unix::fs::chown;

use crate::{
    harness::list,
    warm::{becomes, perl},
};
use galgo_testkit::{
    Client, Server, Site,
    accounts::{Accounts, uid},
    process::pids,
    wait_until,
};

use super::{WHO, helpers, mode, own, site, uid_of};

list![
    each_runs_as_its_owner_and_reads_its_own,
    one_that_takes_all_processes_leaves_the_others_alone,
    one_that_takes_all_else_leaves_the_others_alone,
    fifty_start_warm_beside_one_that_takes_the_processors,
];

/// Returns the configuration that gives each account a home page and programs.
fn config(accounts: &Accounts) -> String {
    format!(
        "[userdir]\nfiles = \"public_html\"\ncgi = \"cgi-bin\"\nuser = \"owner\"\nusers = {:?}\n",
        accounts.names()
    )
}

/// Creates a file in a home, owned by the home's owner.
fn put(site: &Site, home: &str, name: &str, content: &str, bits: u32) {
    let uid = uid(home);
    let path = site.write(&format!("{home}/{name}"), content);
    mode(site, &format!("{home}/{name}"), bits);
    for path in [&*path, path.parent().unwrap(), &site.path(home)] {
        chown(path, Some(uid), Some(uid)).unwrap();
    }
    mode(site, home, 0o711);
}

/// Copies a compiled program of the site into a home, owned by the home's owner.
fn put_program(site: &Site, home: &str, name: &str) {
    let target = format!("{home}/cgi-bin/{name}");
    put(site, home, &format!("cgi-bin/{name}"), "", 0o755);
    std::fs::copy(site.path(name), site.path(&target)).unwrap();
}

fn each_runs_as_its_owner_and_reads_its_own() {
    let site = site();
    let accounts = Accounts::new("galgo-a", 50, |name| site.path(name));
    for name in accounts.names() {
        put(&site, name, "cgi-bin/who", WHO, 0o755);
        put(&site, name, "public_html/page", name, 0o644);
        put(&site, name, "secret", "a secret\n", 0o600);
        let read = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\n\
            for home in $QUERY_STRING; do cat ../../$home/secret 2>&1; done\n";
        let read = read.replace("$QUERY_STRING", "$(echo $QUERY_STRING | tr , ' ')");
        put(&site, name, "cgi-bin/read", &read, 0o755);
    }
    let server = site.config(&config(&accounts)).start();
    for name in accounts.names() {
        let uid = uid(name);
        let said = server.get(&format!("/~{name}/cgi-bin/who")).text();
        assert!(
            said.starts_with(&format!("{uid}\n")),
            "{said}{}",
            server.errors()
        );
        assert_eq!(server.get(&format!("/~{name}/page")).text(), *name);
    }
    let users: Vec<String> = helpers(&server).into_iter().map(uid_of).collect();
    assert_eq!(users.len(), 50);
    let all = accounts.names().join(",");
    let said = server
        .get(&format!("/~{}/cgi-bin/read?{all}", accounts.names()[7]))
        .text();
    assert_eq!(said.matches("a secret").count(), 1, "{said}");
    assert_eq!(said.matches("Permission denied").count(), 49, "{said}");
    // A file of one account in the folder of another is not run.
    let strange = format!("{}/cgi-bin/who", accounts.names()[3]);
    own(&server.site, &strange, uid(&accounts.names()[4]));
    assert_eq!(
        server
            .get(&format!("/~{}/cgi-bin/who", accounts.names()[3]))
            .status,
        403
    );
}

/// Forks as often as the query says, or until fork(2) fails, and prints how often it succeeded. Stays with all children if
/// there are many.
const FORKS: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void none(int signal) { (void)signal; }
int main(void) {
    int most = atoi(getenv("QUERY_STRING")), n = 0;
    while (n < most) {
        int pid = fork();
        if (pid == 0) for (;;) pause();
        if (pid < 0) break;
        n++;
    }
    signal(SIGTERM, none);
    if (most <= 100) kill(0, SIGTERM);
    while (most <= 100 && wait(0) > 0) {}
    printf("Content-Type: text/plain\n\n%d\n", n);
    fflush(stdout);
    if (most > 100) for (;;) pause();
    return 0;
}
"#;

fn one_that_takes_all_processes_leaves_the_others_alone() {
    let site = site().compiled("forks", FORKS, &[]);
    let accounts = Accounts::new("galgo-b", 2, |name| site.path(name));
    for name in accounts.names() {
        put_program(&site, name, "forks");
        put(&site, name, "public_html/page", name, 0o644);
    }
    let config = config(&accounts) + "[defaults]\nprocesses = 40\n";
    let server = site.config(&config).start();
    let [one, other] = [0, 1].map(|n| format!("/~{}/cgi-bin/forks", accounts.names()[n]));
    let mut client = server.connect();
    client.get(&format!("{one}?1000"));
    assert_eq!(client.head().status, 200, "{}", server.errors());
    let full = String::from_utf8(client.chunk().unwrap()).unwrap();
    let full: u32 = full.trim().parse().unwrap();
    assert!((30..40).contains(&full), "{full}");
    for _ in 0..20 {
        assert_eq!(
            server.get(&format!("{other}?20")).text(),
            "20\n",
            "{}",
            server.errors()
        );
    }
    let taken = |uid: &str| pids().filter(|pid| is_of(*pid, uid)).count();
    let user = uid(&accounts.names()[0]).to_string();
    assert!(taken(&user) > 30);
    drop(client);
    // Only the account's helper is left.
    wait_until("the end of all that it has forked", || taken(&user) <= 1);
}

/// Takes the resource in the query until it gets no more, reports that, and stays. Without a query the program ends at once.
const TAKES: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    const char *what = getenv("QUERY_STRING");
    static char block[65536], output[256];
    FILE *file;
    signal(SIGXFSZ, SIG_IGN);
    setvbuf(stdout, output, _IOFBF, sizeof output);
    if (!strcmp(what, "memory"))
        for (char *more; (more = malloc(sizeof block)); ) memset(more, 1, sizeof block);
    if (!strcmp(what, "disk") && (file = tmpfile()))
        while (fwrite(block, sizeof block, 1, file) == 1 && !fflush(file)) {}
    printf("Content-Type: text/plain\n\n%s\n", *what ? what : "nothing");
    fflush(stdout);
    if (!strcmp(what, "processor")) for (volatile int n = 0; ; n++) {}
    while (*what) pause();
    return 0;
}
"#;

/// Runs a program `times` times at once, and waits until each instance has taken all that it can get.
fn take_all(server: &Server, path: &str, times: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..times).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.get(path));
    for client in &mut clients {
        assert_eq!(client.head().status, 200, "{}", server.errors());
        let said = String::from_utf8(client.chunk().unwrap()).unwrap();
        assert!(path.ends_with(said.trim()), "{said} for {path}");
    }
    clients
}

fn one_that_takes_all_else_leaves_the_others_alone() {
    let site = site().compiled("takes", TAKES, &[]);
    let accounts = Accounts::new("galgo-c", 2, |name| site.path(name));
    for name in accounts.names() {
        put_program(&site, name, "takes");
    }
    let limits = "[defaults]\nmemory = \"64M\"\nfile_size = \"1M\"\ntotal_timeout = \"10m\"\n";
    let server = site.config(&(config(&accounts) + limits)).start();
    let [one, other] = [0, 1].map(|n| format!("/~{}/cgi-bin/takes", accounts.names()[n]));
    for what in ["processor", "memory", "disk"] {
        let taken = take_all(&server, &format!("{one}?{what}"), 6);
        for _ in 0..20 {
            assert_eq!(
                server.get(&other).text(),
                "nothing\n",
                "{}",
                server.errors()
            );
        }
        drop(taken);
    }
}

/// Each account has its own template, and its programs run as its own user.
fn fifty_start_warm_beside_one_that_takes_the_processors() {
    let site = site().compiled("takes", TAKES, &[]);
    let accounts = Accounts::new("galgo-d", 50, |name| site.path(name));
    let (first, others) = accounts.names().split_first().unwrap();
    put_program(&site, first, "takes");
    for name in others {
        put(&site, name, "cgi-bin/p", &perl("", "$<"), 0o755);
    }
    let keys = "[defaults]\nstart = \"warm\"\ntotal_timeout = \"10m\"\n";
    let site = site.config("max_templates = 200\n");
    let server = site.config(&(config(&accounts) + keys)).start();
    for _ in 0..2 {
        for name in others {
            let said = format!("warm {}", uid(name));
            becomes(&server, &format!("/~{name}/cgi-bin/p"), &said);
        }
    }
    let _taken = take_all(&server, &format!("/~{first}/cgi-bin/takes?processor"), 6);
    for name in others {
        let said = server.get(&format!("/~{name}/cgi-bin/p")).text();
        assert_eq!(said, format!("warm {}", uid(name)), "{}", server.errors());
    }
}

fn is_of(pid: u32, uid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains(&format!("\nUid:\t{uid}\t"))
}
