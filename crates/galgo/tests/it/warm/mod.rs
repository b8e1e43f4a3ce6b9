//! Programs kept loaded (`start = "warm"`): guarantees that must hold although a request's process is forked from an older
//! process.
//!
//! Programs find out whether they are warm from the kernel's copy of a template's first environment.

pub mod body;
mod changes;
mod children;
mod descriptors;
mod faults;
mod limits;
pub mod modules;
pub mod parked;
pub mod reports;
mod unfit;
pub mod unheard;

use std::{fs, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Test, needs_root, new_site};
use galgo_testkit::{
    Server, Site, eventually,
    process::{parent, pids, waits_for_a_request},
    wait_until,
};

/// Returns the tests of these modules.
pub fn tests() -> Vec<Test> {
    [
        body::tests(),
        changes::tests(),
        children::tests(),
        descriptors::tests(),
        faults::tests(),
        reports::tests(),
        limits::tests(),
        modules::tests(),
        parked::tests(),
        unfit::tests(),
        unheard::tests(),
    ]
    .concat()
}

/// Returns a site whose programs all start warm.
fn site() -> Site {
    new_site().defaults("start = \"warm\"")
}

/// Minimum time that a program stays cold after it was given up or has failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The beginning of every C program here: `how()` returns "warm" or "cold".
const C: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
static int holds(const char *file, const char *word) {
    static char text[65536];
    int fd = open(file, O_RDONLY);
    ssize_t got = read(fd, text, sizeof text);
    close(fd);
    return got > 0 && memmem(text, got, word, strlen(word)) != NULL;
}
static const char *how(void) {
    return holds("/proc/self/environ", "GALGO_TEMPLATE=") ? "warm" : "cold";
}
"#;

/// Returns a C program that prints how it was started, and `says`.
pub fn c(says: &str) -> String {
    format!(
        "{C}int main(void){{printf(\"Content-Type: text/plain\\n\\n%s %s\", how(), \"{says}\");}}\n"
    )
}

/// Returns a C program that runs `does` while it is loaded.
fn loading(does: &str) -> String {
    format!(
        "{C}__attribute__((constructor)) static void load(void){{{does}}}\nint main(void){{printf(\"Content-Type: text/plain\\n\\n%s\", how());}}\n"
    )
}

/// Returns a Perl program that prints how it was started, and an expression.
pub fn perl(before: &str, says: &str) -> String {
    format!(
        "#!/usr/bin/perl\nuse strict;\n{before}\nopen(my $f, '<', '/proc/self/environ');\n\
         my $how = <$f> =~ /GALGO_TEMPLATE=/ ? 'warm' : 'cold';\n\
         print \"Content-Type: text/plain\\n\\n$how \", {says};\n"
    )
}

/// Returns a Python program that prints how it was started, and an expression.
pub fn python(before: &str, says: &str) -> String {
    format!(
        "#!/usr/bin/env python3\n{before}\n\
         how = 'warm' if b'GALGO_TEMPLATE=' in open('/proc/self/environ', 'rb').read() else 'cold'\n\
         print('Content-Type: text/plain\\n')\nprint(how, {says}, end='')\n"
    )
}

/// Returns the templates of a server: they read from descriptor 3. A child also has this descriptor until it waits, but reads
/// nothing from it.
pub fn templates(server: &Server) -> Vec<u32> {
    needs_root();
    let reads_control = |pid: &u32| {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let words: Vec<&str> = call.split(' ').collect();
        words.len() > 2 && words[1] == "0x3"
    };
    let is_template = |pid: &u32| {
        parent(*pid) == Some(server.pid()) && waits_for_a_request(*pid) && reads_control(pid)
    };
    pids().filter(is_template).collect()
}

/// Returns the templates' children that wait for requests.
fn waiting(server: &Server) -> Vec<u32> {
    let templates = templates(server);
    let waits = |pid: &u32| parent(*pid) == Some(server.pid()) && waits_for_a_request(*pid);
    pids()
        .filter(waits)
        .filter(|pid| !templates.contains(pid))
        .collect()
}

/// Waits until the server has `count` templates.
fn has_templates(server: &Server, count: usize) -> Vec<u32> {
    eventually(&format!("{count} templates"), || {
        let all = templates(server);
        (all.len() == count).then_some(all)
    })
}

fn kill(pid: u32) {
    // The process may have ended meanwhile.
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
}

/// Returns how many lines of the error log contain both.
pub fn says(server: &Server, program: &str, words: &str) -> usize {
    let errors = server.errors();
    let both = |l: &&str| l.contains(program) && l.contains(words);
    errors.lines().filter(both).count()
}

/// Asks until the program's answer begins with `how`.
pub fn becomes(server: &Server, target: &str, how: &str) {
    wait_until(&format!("a {how} start of {target}"), || {
        let reply = server.get(target);
        assert_eq!(reply.status, 200, "{}", server.errors());
        let is = reply.text().starts_with(how);
        if !is {
            std::thread::sleep(Duration::from_millis(20));
        }
        is
    });
}
