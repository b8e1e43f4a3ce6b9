//! Programs that run as other users than the server: the choice of the user, checks before a start, limits of programs, and
//! the end of helpers. All tests run as root, with accounts that every Debian has.

mod among_files;
mod execute;
mod front;
mod homes;
mod hosts;
mod life;
mod modules;
mod pool;
mod programs;
mod strict;
mod table;
mod taken;
mod upgrade;
mod visible;
mod warm;
mod workers;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

use crate::{
    harness::{Test, needs_root, new_site, skip},
    secrets::{ATTACK, STAYS},
};
use galgo_testkit::{
    Server, Site,
    process::{children, parent, pids},
};

/// Returns the tests of this module and its submodules.
pub fn tests() -> Vec<Test> {
    [
        programs::tests(),
        front::tests(),
        front::connections::tests(),
        front::workers::tests(),
        front::hosts::tests(),
        front::modules::tests(),
        front::upgrade::tests(),
        among_files::tests(),
        execute::tests(),
        life::tests(),
        pool::tests(),
        homes::tests(),
        hosts::tests(),
        hosts::strict::tests(),
        hosts::wrong::tests(),
        strict::tests(),
        strict::links::tests(),
        strict::refused::tests(),
        strict::replaced::tests(),
        strict::said::tests(),
        workers::tests(),
        workers::strict::tests(),
        warm::tests(),
        warm::children::tests(),
        modules::tests(),
        modules::life::tests(),
        table::tests(),
        upgrade::tests(),
        visible::tests(),
    ]
    .concat()
}

/// The accounts `games`, `man` and `nobody`.
const GAMES: u32 = 5;
const MAN: u32 = 6;
const NOBODY: u32 = 65534;

/// Prints the program's user and groups, its confinement and its descriptors.
const WHO: &str = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nid -u\nid -g\nid -G\n\
    grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status\nls /proc/self/fd\npwd -P\numask\n";

/// Swaps a folder of the user that programs run as with its own folder, and back, as often as the argument says.
const SWAPS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    int done = 0;
    while (done < 10000) {
        if (renameat2(AT_FDCWD, "d", AT_FDCWD, "mine", RENAME_EXCHANGE) != 0) return 1;
        done++;
        rename("mine/p", "mine/q");
        if (symlink("../../who", "mine/p") == 0) done++;
        unlink("mine/p");
        rename("mine/q", "mine/p");
    }
    return 0;
}
"#;

/// Skips a test of strict sandboxes if the checkout is in a folder that strict programs see their own version of.
fn needs_a_lasting_place() {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .canonicalize()
        .unwrap();
    let own = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
    if own.iter().any(|own| here.starts_with(own)) {
        skip!(
            "programs in strict sandboxes see nothing of {}",
            here.display()
        );
    }
}

/// Returns a site whose server runs as `nobody`; `games/` belongs to `games`, and `own/` to root.
fn site() -> Site {
    needs_root();
    let site = new_site();
    if !site.is_reachable() {
        skip!("others may not reach {}", site.folder().display());
    }
    let site = site
        .file("cgi-bin/who", WHO, 0o755)
        .file("games/who", WHO, 0o755)
        .compiled("games/attack", ATTACK, &[])
        .compiled("games/stays", STAYS, &[])
        .file("own/man", WHO, 0o755)
        .file("own/root", WHO, 0o755)
        .file("own/nobody", WHO, 0o755)
        .config(
            "user = \"nobody\"\n[[route]]\npath = \"/games/\"\ncgi = \"games\"\nuser = \"games\"\n",
        )
        .config("[[route]]\npath = \"/own/\"\ncgi = \"own\"\nuser = \"owner\"\n")
        // These programs start cold, even if the tests ask for warm starts.
        .config("[defaults]\nstart = \"cold\"\n");
    for name in ["", "/who", "/attack", "/stays"] {
        own(&site, &format!("games{name}"), GAMES);
    }
    own(&site, "own/man", MAN);
    own(&site, "own/nobody", NOBODY);
    for open in ["marks", "."] {
        mode(&site, open, if open == "." { 0o755 } else { 0o777 });
    }
    own(&site, ".", NOBODY);
    own(&site, ".", 0);
    site
}

fn own(site: &Site, name: &str, uid: u32) {
    chown(site.path(name), Some(uid), Some(uid)).unwrap();
}

fn mode(site: &Site, name: &str, mode: u32) {
    fs::set_permissions(site.path(name), fs::Permissions::from_mode(mode)).unwrap();
}

/// Returns the helpers of a server: long-lived children of its spawner. Other children read the configuration or look up a
/// name, and end soon.
fn helpers(server: &Server) -> Vec<u32> {
    let is_helper = |pid: &u32| {
        fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"galgo-helper\n")
    };
    let mut all = children(spawner(server));
    all.retain(is_helper);
    all
}

fn spawner(server: &Server) -> u32 {
    let is_spawner = |pid: &u32| {
        let line = galgo_testkit::process::command_line(*pid);
        parent(*pid) == Some(server.pid()) && line.contains("spawner")
    };
    pids().find(is_spawner).expect("a spawner")
}

fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    rustix::process::kill_process(galgo_testkit::process::pid(pid), signal).unwrap();
}

/// Returns the four user ids of a process, or nothing if the process has ended.
fn uid_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("Uid:"));
    line.unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the user ids of a helper that starts programs as `user`.
fn apart(user: u32) -> String {
    let own = 0x7000_0000 + user;
    format!("{own} {own} {user} {user}")
}

fn fails(site: &Site, args: &[&str]) -> String {
    let mut galgo = Command::new(env!("CARGO_BIN_EXE_galgo"));
    let done = galgo.args(args).arg(site.folder()).output().unwrap();
    assert!(!done.status.success());
    String::from_utf8(done.stderr).unwrap() + &String::from_utf8(done.stdout).unwrap()
}

/// Writes a configuration into the site. The file already holds everything to serve.
fn written(site: Site, config: &str) -> Site {
    site.write("galgo.toml", config);
    site
}
