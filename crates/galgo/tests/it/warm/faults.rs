//! Templates that die, hang, or whose children crash.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{C, becomes, c, has_templates, kill, loading, says, site, templates, waiting};
use crate::harness::{
    eventually, list,
    watch::{parent, pids, waits_for_a_request},
};

list![
    templates_killed_under_load,
    waiting_children_killed,
    a_template_that_hangs_while_it_is_loaded,
    a_template_that_stands_still,
    a_child_that_crashes_retires_its_template,
    zombies_of_programs_are_reaped,
];

fn templates_killed_under_load() {
    let server = site().compiled("cgi-bin/p", &c(""), &[]).start();
    becomes(&server, "/cgi-bin/p", "warm");
    let over = AtomicBool::new(false);
    let killed = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.connect();
                while !over.load(Ordering::Relaxed) {
                    client.get("/cgi-bin/p");
                    let reply = client.reply();
                    assert_eq!(reply.status, 200, "{}", server.errors());
                    assert!(["warm ", "cold "].contains(&reply.text().as_str()));
                }
            });
        }
        let mut killed = 0;
        for _ in 0..30 {
            let all = templates(&server);
            killed += all.len();
            all.into_iter().for_each(kill);
            thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Ordering::Relaxed);
        killed
    });
    assert!(killed >= 10, "{killed} killed");
    becomes(&server, "/cgi-bin/p", "warm");
}

fn waiting_children_killed() {
    let server = site().compiled("cgi-bin/p", &c(""), &[]).start();
    for _ in 0..10 {
        becomes(&server, "/cgi-bin/p", "warm");
        let killed = eventually("children that wait", || {
            let all = waiting(&server);
            all.iter().copied().for_each(kill);
            (!all.is_empty()).then_some(all)
        });
        eventually("their end", || {
            let gone = |pid: &u32| !waits_for_a_request(*pid);
            killed.iter().all(gone).then_some(())
        });
        for _ in 0..6 {
            assert_eq!(server.get("/cgi-bin/p").status, 200, "{}", server.errors());
        }
    }
}

/// Requests do not wait for it, and it is given up where a cold start would be.
fn a_template_that_hangs_while_it_is_loaded() {
    let hangs = loading("if (how()[0] == 'w') for (;;) pause();");
    let server = site()
        .compiled("cgi-bin/p", &hangs, &[])
        .defaults("first_byte_timeout = \"1500ms\"")
        .without_waiting()
        .start();
    let gone = "not loaded for warm starts: it has not come to its first line";
    let mut meanwhile = 0;
    eventually("the end of the template", || {
        assert_eq!(server.get("/cgi-bin/p").text(), "cold");
        meanwhile += 1;
        (says(&server, "/p:", gone) > 0).then_some(())
    });
    assert!(meanwhile > 1);
    assert_eq!(server.get("/cgi-bin/p").text(), "cold");
}

/// One that was stopped gives no children: those that wait are used up, then it is replaced.
fn a_template_that_stands_still() {
    let server = site().compiled("cgi-bin/p", &c(""), &[]).start();
    becomes(&server, "/cgi-bin/p", "warm");
    let all = has_templates(&server, 2);
    for pid in &all {
        let pid = rustix::process::Pid::from_raw(*pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
    for _ in 0..12 {
        assert_eq!(server.get("/cgi-bin/p").status, 200, "{}", server.errors());
    }
    server.says("its template gave no child");
    eventually("the end of both", || {
        let left = templates(&server);
        all.iter().all(|pid| !left.contains(pid)).then_some(())
    });
    becomes(&server, "/cgi-bin/p", "warm");
}

/// And both are not loaded again at once, so that nobody learns from a series of crashes.
fn a_child_that_crashes_retires_its_template() {
    let crashes = format!(
        "{C}int main(void){{if(strstr(getenv(\"QUERY_STRING\"),\"crash\"))raise(SIGSEGV);\
         printf(\"Content-Type: text/plain\\n\\n%s\",how());}}\n"
    );
    let server = site().compiled("cgi-bin/p", &crashes, &[]).start();
    becomes(&server, "/cgi-bin/p", "warm");
    let first = has_templates(&server, 2);
    for left in [1, 0] {
        assert_eq!(server.get("/cgi-bin/p?crash").status, 502);
        let all = has_templates(&server, left);
        assert!(all.iter().all(|pid| first.contains(pid)), "loaded at once");
    }
    assert_eq!(server.get("/cgi-bin/p").text(), "cold");
    assert_eq!(says(&server, "/p:", "was ended by a signal"), 2);
    becomes(&server, "/cgi-bin/p", "warm");
    // A crash of a cold start is no template's.
    assert_eq!(server.get("/cgi-bin/p?crash").status, 502);
}

/// A process that is made the server's own child (CLONE_PARENT) is nobody's to wait for.
fn zombies_of_programs_are_reaped() {
    let leaves = format!(
        "{C}int main(void){{for(int i=0;i<5;i++)\
         if(syscall(SYS_clone,CLONE_PARENT|(i%2?SIGCHLD:0),0,0,0,0)==0)_exit(0);\
         printf(\"Content-Type: text/plain\\n\\n%s\",how());}}\n"
    );
    let server = site()
        .compiled("cgi-bin/p", &leaves, &[])
        .table("[[route]]\npath = \"/cold/\"\ncgi = \"cgi-bin\"\nstart = \"cold\"\n")
        .start();
    for target in ["/cold/p", "/cgi-bin/p"] {
        for _ in 0..5 {
            assert_eq!(server.get(target).status, 200);
        }
    }
    let zombies = || -> Vec<u32> {
        let is = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains(") Z ") && parent(*pid) == Some(server.pid())
        };
        pids().filter(is).collect()
    };
    eventually("an end of the zombies", || {
        zombies().is_empty().then_some(())
    });
    assert_eq!(server.get("/cgi-bin/p").status, 200);
}
