//! Templates that die or hang, and templates whose children crash.

use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::{
    C, PAUSE, becomes, c, has_templates, kill, loading, perl, says, site, templates, waiting,
};
use crate::harness::list;
use galgo_testkit::{
    Reply, Site, eventually,
    process::{parent, pids, waits_for_a_request},
    wait_until,
};

list![
    a_passing_shortage_of_descriptors,
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
    thread::scope(|scope| {
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
        let (mut killed, mut rounds) = (0, 0);
        wait_until("templates to be killed", || {
            let all = templates(&server);
            killed += all.len();
            all.into_iter().for_each(kill);
            thread::sleep(Duration::from_millis(20));
            rounds += 1;
            killed >= 10 && rounds >= 30
        });
        over.store(true, Ordering::Relaxed);
    });
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
        wait_until("their end", || {
            let gone = |pid: &u32| !waits_for_a_request(*pid);
            killed.iter().all(gone)
        });
        for _ in 0..6 {
            assert_eq!(server.get("/cgi-bin/p").status, 200, "{}", server.errors());
        }
    }
}

/// Requests do not wait for the template, which is ended by the same clock as a cold start.
fn a_template_that_hangs_while_it_is_loaded() {
    let hangs = loading("if (how()[0] == 'w') for (;;) pause();");
    let server = site()
        .compiled("cgi-bin/p", &hangs, &[])
        .defaults("first_byte_timeout = \"4s\"")
        .without_waiting()
        .start();
    let gone = "not loaded for warm starts: it did not reach its first line";
    let mut meanwhile = 0;
    // On a machine that stands still for that long, 504 is fine.
    let cold = |reply: Reply| reply.status == 504 || reply.text() == "cold";
    wait_until("the end of the template", || {
        assert!(cold(server.get("/cgi-bin/p")));
        meanwhile += 1;
        says(&server, "/p:", gone) > 0
    });
    assert!(meanwhile > 1);
    assert!(cold(server.get("/cgi-bin/p")));
}

/// A stopped template makes no children: requests use up the waiting ones, then the template is replaced.
fn a_template_that_stands_still() {
    let server = site()
        .compiled("cgi-bin/p", &c(""), &[])
        .without_waiting()
        .start();
    becomes(&server, "/cgi-bin/p", "warm");
    let all = has_templates(&server, 2);
    for pid in &all {
        let pid = rustix::process::Pid::from_raw(*pid as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
    for _ in 0..12 {
        assert_eq!(server.get("/cgi-bin/p").status, 200, "{}", server.errors());
    }
    server.says("the template started no child");
    wait_until("the end of both", || {
        let left = templates(&server);
        all.iter().all(|pid| !left.contains(pid))
    });
    becomes(&server, "/cgi-bin/p", "warm");
}

/// The program is not loaded again at once, so that an attacker learns nothing from a series of crashes.
fn a_child_that_crashes_retires_its_template() {
    let crashes = format!(
        "{C}int main(void){{if(strstr(getenv(\"QUERY_STRING\"),\"crash\"))raise(SIGSEGV);\
         printf(\"Content-Type: text/plain\\n\\n%s\",how());}}\n"
    );
    let server = site().compiled("cgi-bin/p", &crashes, &[]).start();
    becomes(&server, "/cgi-bin/p", "warm");
    // Waits until both templates can be asked, because a template that is being loaded is a process, too.
    server.says("in all 2 of 64 templates");
    let first = has_templates(&server, 2);
    let left = || {
        first
            .iter()
            .filter(|pid| waits_for_a_request(**pid))
            .count()
    };
    let before = Instant::now();
    // On a slow machine the pause may be over before the check, and new templates be there.
    let in_time = || before.elapsed() < PAUSE;
    let crashes = |times| {
        assert_eq!(server.get("/cgi-bin/p?crash").status, 502);
        wait_until("the word of it", || {
            says(&server, "/p:", "was killed by a signal") == times
        });
    };
    crashes(1);
    wait_until("its end", || left() == 1);
    crashes(2);
    wait_until("the end of the other", || left() == 0 || !in_time());
    let loaded = templates(&server).iter().any(|pid| !first.contains(pid));
    assert!(!loaded || !in_time(), "loaded at once");
    let cold = server.get("/cgi-bin/p").text() == "cold";
    assert!(cold || !in_time(), "loaded at once");
    becomes(&server, "/cgi-bin/p", "warm");
    // A crash of a cold start does not count against a template.
    assert_eq!(server.get("/cgi-bin/p?crash").status, 502);
}

/// No other process waits for a program's process that became the server's own child (CLONE_PARENT).
fn zombies_of_programs_are_reaped() {
    let leaves = format!(
        "{C}int main(void){{for(int i=0;i<5;i++)\
         if(syscall(SYS_clone,CLONE_PARENT|(i%2?SIGCHLD:0),0,0,0,0)==0)_exit(0);\
         printf(\"Content-Type: text/plain\\n\\n%s\",how());}}\n"
    );
    let server = site()
        .compiled("cgi-bin/p", &leaves, &[])
        .config("[[route]]\npath = \"/cold/\"\ncgi = \"cgi-bin\"\nstart = \"cold\"\n")
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
    wait_until("an end of the zombies", || zombies().is_empty());
    assert_eq!(server.get("/cgi-bin/p").status, 200);
}

/// At whatever point of loading the shortage occurs, the program does not stay cold.
fn a_passing_shortage_of_descriptors() {
    const PROGRAMS: usize = 32;
    let add = |site: Site, n| site.file(&format!("cgi-bin/p{n}"), perl("", "''"), 0o755);
    // Requests start cold meanwhile, and those programs hold descriptors, too.
    let site = site().config("max_templates = 200").without_waiting();
    let server = (0..PROGRAMS).fold(site, add).start();
    let pid = Pid::from_raw(server.pid() as i32);
    let limit = |to: Option<u64>| {
        let to = Rlimit {
            current: to,
            maximum: getrlimit(Resource::Nofile).maximum, // inherited
        };
        prlimit(pid, Resource::Nofile, to).map(|before| before.current)
    };
    for n in 0..PROGRAMS {
        let mut client = server.connect();
        client.get("/health");
        assert_eq!(client.reply().status, 200);
        let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
        let number = |e: fs::DirEntry| e.file_name().to_str()?.parse::<u64>().ok();
        let open: BTreeSet<u64> = open.flatten().filter_map(number).collect();
        // Leaves `n / 2` descriptor numbers free.
        let first = (0..).filter(|fd| !open.contains(fd)).nth(n / 2);
        let before = limit(first).unwrap();
        client.get(&format!("/cgi-bin/p{n}"));
        client.reply();
        limit(before).unwrap();
    }
    for n in 0..PROGRAMS {
        becomes(&server, &format!("/cgi-bin/p{n}"), "warm");
    }
    let cold = says(&server, "/p", "started cold although");
    assert_eq!(cold, 0, "{}", server.errors());
}
