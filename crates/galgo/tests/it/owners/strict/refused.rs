//! A kernel, a container or a filter refuses a call that a strict sandbox needs: galgo serves with the rest, and never panics.

use crate::{
    harness::{
        inject::{self, Calls, fail_each},
        list, needs_root, new_site,
    },
    owners::helpers,
};
use galgo_testkit::{Server, Site, eventually, wait_until};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

list![
    in_a_user_namespace_of_its_own,
    in_a_user_namespace_of_an_ordinary_user,
    namespaces_that_are_refused_are_not_used,
    a_start_with_a_call_that_fails,
    calls_of_helpers_that_fail,
    calls_of_the_spawner_that_fail,
    calls_of_starts_that_fail,
];

fn strict() -> Site {
    new_site().defaults("sandbox = \"strict\"\nstart = \"cold\"")
}

/// Like a rootless container with the machine's PID namespace, which no process in it may enter again.
fn in_a_user_namespace_of_its_own() {
    needs_root();
    let site = new_site().defaults("sandbox = \"strict\"");
    let server = site
        .through(&["unshare", "--user", "--map-root-user"])
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/cgi-bin/t?head&out=a").text(), "a");
    }
    assert!(!server.errors().contains("without namespaces"));
}

/// Id 0 there is not root: nobody can own `/`. A plain sandbox and a strict one, cold and warm, server and commands.
fn in_a_user_namespace_of_an_ordinary_user() {
    needs_root();
    let user = [
        "setpriv",
        "--reuid=5",
        "--regid=5",
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
    ];
    for sandbox in ["standard", "strict"] {
        let site = new_site().defaults(&format!("sandbox = \"{sandbox}\""));
        let site = site.file(
            "cgi-bin/p",
            "#!/usr/bin/perl\nprint \"Content-Type: text/plain\\n\\n$<\";\n",
            0o755,
        );
        for args in [
            &["check"][..],
            &["check", "--warm", "cgi-bin/p"],
            &["run", "cgi-bin/p"],
        ] {
            let galgo = site.command(args);
            let mut command = Command::new(user[0]);
            command.args(&user[1..]).arg(galgo.get_program()).args(args);
            command.current_dir(site.folder()).stdin(Stdio::null());
            let done = command.output().unwrap();
            assert!(done.status.success(), "{sandbox} {args:?}: {done:?}");
        }
        let server = site.owned_by(5).through(&user).start();
        for _ in 0..3 {
            assert_eq!(server.get("/cgi-bin/t?head&out=a").text(), "a");
        }
        assert!(!server.errors().contains("without namespaces"));
    }
}

/// The server finds that out when it starts.
fn namespaces_that_are_refused_are_not_used() {
    needs_root();
    let becomes = "user = \"nobody\"";
    for (name, keys) in [("+unshare", ""), ("+mount", ""), ("+unshare", becomes)] {
        let site = Calls::all(name).of(strict().config(keys));
        fail_each(&site, &name[1..], Errno::PERM);
        let server = site.start();
        server.says("a strict sandbox without namespaces");
        assert_eq!(server.get("/cgi-bin/t?head&out=a").text(), "a", "{name}");
    }
}

/// The server starts, or logs why not.
fn a_start_with_a_call_that_fails() {
    needs_root();
    for name in [
        "clone",
        "close_range",
        "dup3",
        "fchdir",
        "fcntl",
        "fstat",
        "getdents64",
        "getsockopt",
        "inotify_init1",
        "kill",
        "landlock_create_ruleset",
        "landlock_restrict_self",
        "memfd_create",
        "mount",
        "openat2",
        "pidfd_open",
        "pipe2",
        "ppoll",
        "prctl",
        "prlimit64",
        "recvmsg",
        "seccomp",
        "sendmsg",
        "setfsuid",
        "setsockopt",
        "socketpair",
        "statx",
        "umask",
        "unshare",
        "wait4",
        "waitid",
    ] {
        let site = strict();
        fail_each(&site, name, Errno::PERM);
        let wrapped = Calls::all(name).wrapped(&site);
        let mut command = Command::new(&wrapped[0]);
        command.args(&wrapped[1..]).arg(env!("CARGO_BIN_EXE_galgo"));
        command
            .arg("serve")
            .arg(site.folder())
            .args(["-l", "127.0.0.1:0"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let said = BufReader::new(server.stdout.take().unwrap()).lines();
        let is_up = said
            .map_while(Result::ok)
            .any(|line| line.starts_with("listening"));
        server.kill().unwrap();
        let ended = server.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!said.contains("panicked"), "{name}: {said}");
        assert!(is_up || said.contains("galgo: "), "{name}: {said}");
    }
}

/// Makes each of these calls fail in the server, the spawner, the helpers and the programs while a helper and a program start.
fn each_fails(calls: &'static str) {
    needs_root();
    let all = Calls::all(calls);
    let start = || all.of(strict()).start();
    let mut server = start();
    for name in calls.trim_start_matches('+').split(',') {
        for error in [Errno::PERM, Errno::NOSYS, Errno::INVAL] {
            end_helpers(&server);
            fail_each(&server.site, name, error);
            // Any of these statuses will do. The server may end if it logs a reason.
            let status = status(&server);
            let known = [0, 200, 403, 404, 500, 502, 503, 504];
            assert!(known.contains(&status), "{name} {error}: {status}");
            inject::heal(&server);
            let said = server.errors();
            assert!(!said.contains("panicked"), "{name} {error}: {said}");
            if !serves(&server) {
                server = start();
            }
        }
    }
}

/// Asks a program: returns the status, 0 if the server ends before it answers.
fn status(server: &Server) -> u16 {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(server.address())?;
        stream.write_all(
            b"GET /cgi-bin/t?head&out=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        )?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    };
    let line = ask().unwrap_or_default();
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.unwrap_or_default()
}

/// Returns whether programs answer again; false if the server has ended.
fn serves(server: &Server) -> bool {
    eventually("an answer, or the end of the server", || {
        let has_ended = TcpStream::connect(server.address()).is_err();
        match status(server) {
            200 => Some(true),
            _ => has_ended.then_some(false),
        }
    })
}

/// Ends all helpers, so that the next request starts another.
fn end_helpers(server: &Server) {
    for helper in helpers(server) {
        let pid = Pid::from_raw(helper as i32).unwrap();
        let _ = kill_process(pid, Signal::KILL);
    }
    wait_until("the end of helpers", || helpers(server).is_empty());
}

fn calls_of_helpers_that_fail() {
    each_fails(
        "+unshare,mount,mount_setattr,move_mount,open_tree,landlock_create_ruleset,landlock_add_rule,\
         landlock_restrict_self,seccomp,prctl,setgroups,setresgid,setresuid,setfsuid,chdir,umask,readlinkat",
    );
}

fn calls_of_the_spawner_that_fail() {
    each_fails(
        "+clone,pidfd_open,prlimit64,socketpair,sendmsg,recvmsg,ppoll,wait4,waitid,kill,pidfd_send_signal,dup3,\
         memfd_create,getdents64,close_range",
    );
}

fn calls_of_starts_that_fail() {
    each_fails(
        "+execve,execveat,openat2,statx,fstat,pipe2,setsid,setpgid,setpriority,inotify_init1,inotify_add_watch,getsockopt",
    );
}
