//! Users that programs run as, and the checks before a start.

use std::{fs, os::unix::fs::symlink, process::Command};

use crate::{
    faults::cut::{READS, STAYING, never_whole},
    harness::list,
    secrets::ATTACK,
};
use galgo_testkit::{End, process::pids, wait_until};

use super::{GAMES, MAN, WHO, apart, fails, helpers, mode, own, site, spawner, uid_of, written};

list![
    programs_run_as_their_user,
    programs_in_the_folder_of_a_host,
    the_owner_of_the_file_decides,
    what_is_checked_before,
    variables_from_elsewhere_reach_them,
    bodies_arguments_and_ends,
    interpreters_run_files_by_their_ending,
    what_is_not_executed_says_why,
    the_first_byte_of_an_output_may_come_alone,
    a_user_of_defaults_holds_where_a_route_has_none,
    what_holds_the_output_open_belongs_to_the_response,
    a_cut_body_never_looks_whole,
    run_to_completion_lets_leftover_processes_go_on,
    standard_streams_have_names,
    who_leaves_ends_the_program,
    a_program_attacks_the_server_its_helper_and_others,
    without_root_it_is_refused_in_words,
    what_cannot_be_is_refused_in_words,
    check_names_the_user_and_what_is_wrong,
    run_becomes_the_user,
];

fn a_user_of_defaults_holds_where_a_route_has_none() {
    let mine = "[[route]]\npath = \"/mine/\"\ncgi = \"own\"\nuser = \"nobody\"\n";
    let server = site().defaults("user = \"games\"").config(mine).start();
    for (path, user) in [
        ("/cgi-bin/who", "5"),
        ("/games/who", "5"),
        ("/own/man", ""),
        // `user` of this route names the server's own user.
        ("/mine/nobody", "65534"),
    ] {
        let said = server.get(path);
        let ran = said.text();
        let ran = if said.status == 200 {
            ran.lines().next().unwrap()
        } else {
            ""
        };
        assert_eq!(ran, user, "{path}: {}", server.errors());
    }
}

fn programs_run_as_their_user() {
    let server = site().start();
    let said = server.get("/games/who");
    let folder = server.path("games").canonicalize().unwrap();
    let want = format!(
        "5\n60\n60\nNoNewPrivs:\t1\nSeccomp:\t2\n0\n1\n2\n3\n{}\n0022\n",
        folder.display()
    );
    assert_eq!(said.text(), want, "{}", server.errors());
    assert!(
        server
            .get("/cgi-bin/who")
            .text()
            .starts_with("65534\n65534\n")
    );
    assert_eq!(uid_of(server.pid()), apart(65534));
    assert_eq!(uid_of(spawner(&server)), "0 0 0 0");
    let helpers = helpers(&server);
    assert_eq!(helpers.len(), 1);
    assert_eq!(uid_of(helpers[0]), apart(5));
}

/// The settings in that host's folder belong to root. Programs of other hosts run as the server's user.
fn programs_in_the_folder_of_a_host() {
    let settings = "host = \"a.example\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nuser = \"owner\"\n";
    let site = site()
        .config("sites = \"www\"\ninclude = \"www/*/site.toml\"\nmin_uid = 5\nmin_gid = 12\n")
        .file("www/a.example/site.toml", settings, 0o644)
        .file("www/a.example/cgi-bin/who", WHO, 0o755)
        .file("www/b.example/cgi-bin/who", WHO, 0o755);
    own(&site, "www/a.example/cgi-bin/who", MAN);
    own(&site, "www/b.example/cgi-bin/who", MAN);
    let server = site.start();
    for (host, user) in [("a.example", "6\n12\n"), ("b.example", "65534\n")] {
        let reply = server.ask(format!("GET /cgi-bin/who HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let said = reply.text();
        assert!(said.starts_with(user), "{host}: {said}{}", server.errors());
    }
    // If another user owned the settings, that user could run programs as others: the server ignores the settings.
    own(&server.site, "www/a.example/site.toml", GAMES);
    assert!(server.reload());
    server.says("site.toml: root would start programs as this file says");
    let reply = server.ask("GET /cgi-bin/who HTTP/1.1\r\nHost: a.example\r\n\r\n");
    assert!(reply.text().starts_with("65534\n"), "{}", reply.text());
}

fn the_owner_of_the_file_decides() {
    let server = site().config("min_uid = 6\nmin_gid = 12\n").start();
    assert!(server.get("/own/man").text().starts_with("6\n12\n"));
    assert!(server.get("/own/nobody").text().starts_with("65534\n"));
    assert_eq!(server.get("/own/root").status, 403);
    server.says("min_uid = 6");
    let server = site().start();
    assert_eq!(server.get("/own/man").status, 403);
    server.says("min_uid = 1000");
    let server = site().config("min_uid = 6\n").start();
    assert_eq!(server.get("/own/man").status, 403);
    server.says("min_gid = 100");
}

/// Server and spawner read the same values: `pass_env`, `env_file`, and the variables for an error page.
fn variables_from_elsewhere_reach_them() {
    let program = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\n\
        echo $GALGO_PASSED $SECRET $REDIRECT_STATUS $REDIRECT_URL\n";
    let site = site()
        .env("GALGO_PASSED", "passed")
        .file("secrets.env", "SECRET=kept\n", 0o600)
        .file("games/says", program, 0o755)
        .config("errors = { 404 = \"/says/says\" }")
        .config("[[route]]\npath = \"/says/\"\ncgi = \"games\"\nuser = \"games\"\npass_env = [\"GALGO_PASSED\"]\nenv_file = \"secrets.env\"\n");
    own(&site, "games/says", GAMES);
    let server = site.start();
    let said = server.get("/says/says").text();
    assert_eq!(said, "passed kept 200\n", "{}", server.errors());
    let page = server.get("/nowhere");
    let said = (page.status, page.text());
    assert_eq!(
        said,
        (404, "passed kept 404 /nowhere\n".to_owned()),
        "{}",
        server.errors()
    );
}

fn what_is_checked_before() {
    let site = site();
    symlink("who", site.path("games/link")).unwrap();
    for (name, bits, uid) in [
        ("group", 0o775, GAMES),
        ("others", 0o757, GAMES),
        ("setuid", 0o4755, GAMES),
        ("setgid", 0o2755, GAMES),
        ("foreign", 0o755, MAN),
        ("roots", 0o755, 0),
    ] {
        let name = format!("games/{name}");
        site.write(&name, WHO);
        own(&site, &name, uid);
        mode(&site, &name, bits);
    }
    for (name, bits, uid) in [
        ("open", 0o777, GAMES),
        ("shared", 0o775, GAMES),
        ("mans", 0o755, MAN),
    ] {
        site.write(&format!("games/{name}/who"), WHO);
        own(&site, &format!("games/{name}/who"), GAMES);
        mode(&site, &format!("games/{name}/who"), 0o755);
        own(&site, &format!("games/{name}"), uid);
        mode(&site, &format!("games/{name}"), bits);
    }
    let server = site.start();
    for (path, why) in [
        ("group", "is writable for its group: chmod g-w"),
        ("others", "is writable for others: chmod o-w"),
        ("setuid", "is set-user-ID: chmod u-s"),
        ("setgid", "is set-group-ID: chmod g-s"),
        (
            "foreign",
            "belongs to the user 6, but its program runs as the user 5",
        ),
        ("link", "is a symbolic link"),
        ("open/who", "games/open\" is writable for others"),
        ("shared/who", "games/shared\" is writable for its group"),
        ("mans/who", "games/mans\" belongs to the user 6"),
    ] {
        assert_eq!(server.get(&format!("/games/{path}")).status, 403, "{path}");
        server.says(why);
    }
    // Root may install programs for users.
    assert!(server.get("/games/roots").text().starts_with("5\n"));
    // If others may write to the folder itself, nothing in it runs.
    mode(&server.site, "games", 0o777);
    assert_eq!(server.get("/games/who").status, 403);
}

fn bodies_arguments_and_ends() {
    let echo = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho \"$# $1 $HTTP_X $FOO\"\ncat | wc -c\n";
    let site = site()
        .file("games/echo", echo, 0o755)
        .file("games/dies", "#!/bin/sh\nkill -SEGV $$\n", 0o755)
        .file("games/none", "#!/no/such\n", 0o755)
        .config("[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\nquery_args = true\nenv = { FOO = \"bar\" }\n");
    for name in ["echo", "dies", "none"] {
        own(&site, &format!("games/{name}"), GAMES);
    }
    let server = site.start();
    let body = "x".repeat(300_000);
    for _ in 0..20 {
        let request = format!(
            "POST /games/echo HTTP/1.1\r\nHost: a\r\nX: y\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        assert_eq!(
            server.ask(request).text(),
            "0  y bar\n300000\n",
            "{}",
            server.errors()
        );
    }
    assert_eq!(server.get("/games/echo?one+two").text(), "2 one  bar\n0\n");
    assert_eq!(server.get("/games/dies").status, 502);
    server.says("SIGSEGV");
    assert_eq!(server.get("/games/none").status, 502);
    assert_eq!(helpers(&server).len(), 1);
}

/// The child that fails to execute ends before its helper can report.
fn what_is_not_executed_says_why() {
    let site = site()
        .file("games/lost", "#!/nowhere/sh\n", 0o755)
        .file("games/busy", WHO, 0o755);
    own(&site, "games/lost", GAMES);
    own(&site, "games/busy", GAMES);
    let server = site.start();
    for _ in 0..20 {
        assert_eq!(server.get("/games/lost").status, 502);
    }
    server.says("/nowhere/sh");
    let written = fs::File::options()
        .append(true)
        .open(server.path("games/busy"));
    assert_eq!(server.get("/games/busy").status, 502);
    server.says("busy");
    drop(written.unwrap());
    assert!(server.get("/games/busy").text().starts_with("5\n"));
}

/// A leftover process of the program prints the rest. If the process prints nothing, the response is cut.
fn what_holds_the_output_open_belongs_to_the_response() {
    const LEAVES: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void) {
    const char *query = getenv("QUERY_STRING");
    printf("Content-Type: text/plain\n\nfirst\n");
    fflush(stdout);
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        if (strstr(query, "session")) setsid();
        if (!strstr(query, "rest")) for (;;) pause();
        sleep(1);
        puts("rest");
    }
    return 0;
}
"#;
    let site = site().compiled("games/leaves", LEAVES, &[]).config(
        "[[route]]\npath = \"/strict/\"\ncgi = \"games\"\nuser = \"games\"\nsandbox = \"strict\"\n\
         [[route]]\npath = \"/warm/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\n",
    );
    own(&site, "games/leaves", GAMES);
    let server = site.start();
    for folder in ["games", "strict", "warm"] {
        for way in ["group", "session"] {
            let reply = server.get(&format!("/{folder}/leaves?{way}&rest"));
            assert_eq!(reply.text(), "first\nrest\n", "{folder} {way}");
            let reply = server.get(&format!("/{folder}/leaves?{way}"));
            let cut = ("first\n".into(), End::Cut);
            assert_eq!((reply.text(), reply.end), cut, "{folder} {way}");
        }
    }
    server.says("start such a process with \">/dev/null &\"");
}

/// A helper starts the program, with and without a strict sandbox, cold and warm.
fn a_cut_body_never_looks_whole() {
    let mut site = site()
        .compiled("games/reads", READS, &[])
        .defaults("kill_grace = \"100ms\"");
    let kinds = [
        ("plain", ""),
        ("strict", "sandbox = { write = [\"marks\"] }\n"),
        ("warm", "start = \"warm\"\n"),
    ];
    for (kind, keys) in kinds {
        for stays in [false, true] {
            site = site.config(&format!(
                "[[route]]\npath = \"/{kind}-{stays}/\"\ncgi = \"games\"\nuser = \"games\"\n\
                 run_to_completion = {stays}\n{keys}"
            ));
        }
    }
    own(&site, "games/reads", GAMES);
    let server = site.start();
    for path in ["plain", "strict", "warm"]
        .iter()
        .flat_map(|kind| [format!("{kind}-false"), format!("{kind}-true")])
    {
        for query in STAYING {
            for mark in ["up", "done"] {
                let _ = fs::remove_file(server.mark(mark));
            }
            let mut client = server.connect();
            client.begin_post(&format!("/{path}/reads?{query}"), 1_000_000);
            client.try_send([b'x'; 150_000]);
            server.wait_for("up");
            client.reset();
            never_whole(&server, path.starts_with("strict"));
        }
    }
}

/// A helper starts the program, cold and warm.
fn run_to_completion_lets_leftover_processes_go_on() {
    let route = |path, keys| {
        format!("[[route]]\npath = \"/{path}/\"\ncgi = \"games\"\nuser = \"games\"\n{keys}\n")
    };
    let site = site()
        .config(&route("cold", "run_to_completion = true"))
        .config(&route("warm", "run_to_completion = true\nstart = \"warm\""));
    let server = site.start();
    let left = |path: &str, name: &str| {
        let said = server.get(&format!("/{path}/stays?session&{name}"));
        assert_eq!(said.text(), "left\n", "{}", server.errors());
        let pid = fs::read_to_string(server.mark(name)).unwrap();
        pid.parse::<u32>().unwrap()
    };
    let stay = [left("cold", "cold"), left("warm", "warm")];
    let ends = left("games", "ends");
    wait_until("the end of what may not stay", || {
        !pids().any(|pid| pid == ends)
    });
    for pid in stay {
        assert!(pids().any(|one| one == pid));
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}

/// The standard streams belong to the server's user.
fn standard_streams_have_names() {
    const NAMES: &str = "#!/bin/sh\n{ echo 'Content-Type: text/plain'; echo; cat /dev/stdin; } >/dev/stdout\n\
        echo told >/dev/stderr\n";
    let site = site().file("games/names", NAMES, 0o755).config(
        "[[route]]\npath = \"/strict/\"\ncgi = \"games\"\nuser = \"games\"\nsandbox = \"strict\"\n\
         [[route]]\npath = \"/file/\"\ncgi = \"games\"\nuser = \"games\"\nbody = \"file\"\n",
    );
    own(&site, "games/names", GAMES);
    let server = site.start();
    // The body comes in a pipe, is in memory, or in a file on disk.
    let requests = [
        ("games", "length", 8),
        ("games", "chunks", 8),
        ("games", "chunks", 200_000),
        ("strict", "length", 8),
        ("strict", "chunks", 8),
        ("file", "length", 8),
        ("file", "length", 2_000_000),
    ];
    for (n, (path, framing, len)) in requests.into_iter().enumerate() {
        let mut client = server.connect();
        let body = "x".repeat(len);
        match framing {
            "chunks" => client.send(format!(
                "POST /{path}/names HTTP/1.1\r\nHost: localhost\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{len:x}\r\n{body}\r\n0\r\n\r\n"
            )),
            _ => client.post(&format!("/{path}/names"), body.as_bytes()),
        }
        let text = client.reply().text();
        assert!(
            text == body,
            "{path} {framing} {len}: {} bytes {}",
            text.len(),
            server.errors()
        );
        wait_until("its words", || {
            server.errors().matches("names: told").count() == n + 1
        });
    }
}

/// A child that fails to execute also writes a single byte.
fn the_first_byte_of_an_output_may_come_alone() {
    const SLOWLY: &str = "#!/bin/sh\nprintf C\nwhile ! [ -e ../marks/go ]; do :; done\n\
        printf 'ontent-Type: text/plain\\n\\nall of it\\n'\n";
    let site = site().file("games/slowly", SLOWLY, 0o755);
    own(&site, "games/slowly", GAMES);
    let server = site.start();
    let mut client = server.connect();
    client.get("/games/slowly");
    assert!(server.get("/games/who").text().starts_with("5\n"));
    fs::write(server.path("marks/go"), "").unwrap();
    assert_eq!(client.reply().text(), "all of it\n");
}

fn interpreters_run_files_by_their_ending() {
    let site = site().config("[interpreters]\n\".echo\" = \"/bin/sh\"");
    let site = site.file("games/p.echo", WHO.replacen("#!/bin/sh\n", "", 1), 0o644);
    own(&site, "games/p.echo", GAMES);
    let server = site.start();
    let said = server.get("/games/p.echo").text();
    assert!(said.starts_with("5\n60\n60\n"), "{}", server.errors());
}

fn who_leaves_ends_the_program() {
    let server = site().start();
    let mut client = server.connect();
    client.get("/games/attack?stay");
    assert_eq!(client.head().status, 200);
    let pid: u32 = String::from_utf8(client.chunk().unwrap())
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(uid_of(pid), "5 5 5 5");
    drop(client);
    wait_until("the end of the program", || !pids().any(|p| p == pid));
}

fn a_program_attacks_the_server_its_helper_and_others() {
    let site = site().compiled("cgi-bin/p", ATTACK, &[]);
    site.write("secret", "of man");
    own(&site, "secret", MAN);
    mode(&site, "secret", 0o600);
    let read = format!(
        "#!/bin/sh\necho 'Content-Type: text/plain'\necho\ncat {} 2>&1\n",
        site.path("secret").display()
    );
    site.program("../games/read", &read);
    own(&site, "games/read", GAMES);
    let server = site.start();
    let stays = ["/cgi-bin/p", "/games/attack"].map(|path| {
        let mut client = server.connect();
        client.get(&format!("{path}?stay"));
        assert_eq!(client.head().status, 200);
        let pid = String::from_utf8(client.chunk().unwrap()).unwrap();
        (client, pid.trim().parse::<u32>().unwrap())
    });
    let mut all = vec![server.pid(), spawner(&server)];
    all.extend(helpers(&server));
    all.extend(stays.iter().map(|(_, pid)| pid));
    let named: Vec<String> = all.iter().map(u32::to_string).collect();
    let met = server
        .get(&format!("/games/attack?{}", named.join("&")))
        .text();
    for pid in &named {
        let line = met
            .lines()
            .find(|l| l.starts_with(&format!("{pid} ")))
            .unwrap();
        assert!(
            line.split(' ').skip(1).all(|e| e == "1" || e == "13"),
            "{met}"
        );
    }
    assert!(all.iter().all(|pid| pids().any(|p| p == *pid)));
    assert!(
        server
            .get("/games/read")
            .text()
            .contains("Permission denied")
    );
}

fn without_root_it_is_refused_in_words() {
    let config = "listen = [\"127.0.0.1:0\"]\n[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\n";
    let site = written(site(), config);
    let mut galgo = Command::new("setpriv");
    galgo.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let done = galgo
        .args([env!("CARGO_BIN_EXE_galgo"), "serve"])
        .arg(site.folder())
        .output()
        .unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        !done.status.success() && said.contains("/games/: `user` needs root"),
        "{said}"
    );
}

fn what_cannot_be_is_refused_in_words() {
    let site = site();
    for (route, words) in [
        ("cgi = \"games\"\nuser = \"root\"", "never run as root"),
        (
            "cgi = \"games\"\nuser = \"no-such-user\"",
            "there is no user `no-such-user`",
        ),
        (
            "cgi = \"games\"\ngroup = \"games\"",
            "needs a `user` beside it",
        ),
        (
            "cgi = \"games\"\nuser = \"owner\"\ngroup = \"games\"",
            "an owner's programs run in the owner's own groups",
        ),
        (
            "fastcgi = \"127.0.0.1:9000\"\nuser = \"games\"",
            "applies only to processes that galgo starts",
        ),
        (
            "scgi = \"127.0.0.1:9000\"\nuser = \"games\"",
            "applies only to processes that galgo starts",
        ),
        (
            "fastcgi = { run = [\"/bin/true\"] }\nuser = \"root\"",
            "never run as root",
        ),
    ] {
        site.write(
            "galgo.toml",
            format!("[[route]]\npath = \"/p/\"\n{route}\n"),
        );
        let said = fails(&site, &["check"]);
        assert!(said.contains(words), "{words}: {said}");
    }
    site.write(
        "galgo.toml",
        "[[route]]\npath = \"/p/*.cgi\"\ncgi = \"games\"\nuser = \"games\"\n",
    );
    let said = fails(&site, &["check"]);
    assert!(
        said.contains(":4:8: user: needs a path without \"*\""),
        "{said}"
    );
}

fn check_names_the_user_and_what_is_wrong() {
    let config =
        "user = \"nobody\"\n[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\n";
    let site = written(site(), config);
    mode(&site, "games/who", 0o775);
    let said = fails(&site, &["check"]);
    assert!(
        said.contains("is writable for its group: chmod g-w"),
        "{said}"
    );
    let fine =
        "runs as games, sandbox = \"standard\"; leftover processes are killed by their helper";
    assert!(said.contains(fine), "{said}");
}

fn run_becomes_the_user() {
    let config =
        "user = \"nobody\"\n[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\n";
    let site = written(site(), config);
    let mut galgo = Command::new(env!("CARGO_BIN_EXE_galgo"));
    let done = galgo
        .args(["run", "-o", "body"])
        .arg(site.path("games/who"))
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(
        said.starts_with("5\n60\n60\n"),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
