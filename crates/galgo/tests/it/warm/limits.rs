//! Limits of the number, the memory and the life of templates.

use std::{fs, thread, time::Instant};

use super::{PAUSE, becomes, c, has_templates, perl, says, site, templates};
use crate::harness::{list, watch::processes};
use galgo_testkit::{
    Server, eventually,
    process::{descriptors, memory},
    wait_until,
};

list![
    the_number_of_templates,
    the_memory_of_templates,
    no_templates_at_all,
    templates_nobody_asks_for_leave,
    ten_thousand_requests,
];

fn executed(pid: u32) -> String {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    exe.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn kept(server: &Server) -> Vec<String> {
    let mut names: Vec<_> = templates(server).into_iter().map(executed).collect();
    names.sort();
    names
}

/// The program with the longest time since its last request gives way to the first template of another program.
fn the_number_of_templates() {
    let server = ["a", "b", "d"]
        .into_iter()
        .fold(site().config("max_templates = 3"), |site, name| {
            site.compiled(&format!("cgi-bin/{name}"), &c(""), &[])
        })
        .start();
    becomes(&server, "/cgi-bin/a", "warm");
    has_templates(&server, 2);
    becomes(&server, "/cgi-bin/b", "warm");
    has_templates(&server, 3);
    // A template that is just making a child does not look like one.
    wait_until("one that gave way", || kept(&server) == ["a", "a", "b"]);
    // The log shows the bounded figures: the number of templates, and their memory in total.
    server.says("; in all 3 of 3 templates, ");
    server.says(" of 1024 MiB");
    let before = Instant::now();
    becomes(&server, "/cgi-bin/d", "warm");
    wait_until("the two of another program", || {
        kept(&server) == ["b", "d", "d"]
    });
    if stays_cold(&server, "/cgi-bin/a", before) {
        assert_eq!(server.get("/cgi-bin/b").text(), "warm ");
    }
    // A template that was ended may still be visible for a while, so the number comes from the server's log.
    let errors = server.errors();
    let counts = errors.lines().filter_map(|l| l.split("; in all ").nth(1));
    let counts: Vec<_> = counts.map(|l| l.split(" of ").next().unwrap()).collect();
    assert!(
        counts.iter().all(|n| ["1", "2", "3"].contains(n)),
        "{errors}"
    );
}

/// Asserts that a program that gave way is not loaded again at once; otherwise programs would only take turns loading. The
/// program had its templates until `before`. Returns false if it may be loaded again by now, on a slow machine.
fn stays_cold(server: &Server, target: &str, before: Instant) -> bool {
    let cold = server.get(target).text().starts_with("cold ");
    assert!(cold || before.elapsed() >= PAUSE, "loaded again at once");
    cold
}

fn the_memory_of_templates() {
    let server = site()
        .config("templates_memory = \"1M\"")
        .file("cgi-bin/a", perl("", "'a'"), 0o755)
        .file("cgi-bin/b", perl("", "'b'"), 0o755)
        .start();
    // A single template is always allowed, even though it exceeds the limit.
    becomes(&server, "/cgi-bin/a", "warm a");
    has_templates(&server, 1);
    let before = Instant::now();
    becomes(&server, "/cgi-bin/b", "warm b");
    has_templates(&server, 1);
    stays_cold(&server, "/cgi-bin/a", before);
}

fn no_templates_at_all() {
    let server = site()
        .config("max_templates = 0")
        .compiled("cgi-bin/p", &c(""), &[])
        .start();
    assert_eq!(server.get("/cgi-bin/p").text(), "cold ");
    assert_eq!(says(&server, "/p:", ""), 0, "{}", server.errors());
}

fn templates_nobody_asks_for_leave() {
    let server = site()
        .config("template_idle = \"1s\"")
        .compiled("cgi-bin/p", &c(""), &[])
        .start();
    for _ in 0..2 {
        becomes(&server, "/cgi-bin/p", "warm");
        has_templates(&server, 0);
        wait_until("the end of its children", || {
            super::waiting(&server).is_empty()
        });
    }
}

/// Neither the server nor a template has more descriptors, processes or memory afterwards.
fn ten_thousand_requests() {
    let server = site().compiled("cgi-bin/p", &c(""), &[]).start();
    let ask = |count: usize| {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    for _ in 0..count / 4 {
                        client.get("/cgi-bin/p");
                        assert_eq!(client.reply().text(), "warm ");
                    }
                });
            }
        });
        wait_until("the end of all processes", || processes(&server).is_empty());
        // A template that is just making a child has more descriptors.
        let (kept, theirs_open) = eventually("two templates at rest", || {
            let kept = templates(&server);
            let open: usize = kept.iter().map(|pid| descriptors(*pid)).sum();
            (kept.len() == 2 && templates(&server) == kept).then_some((kept, open))
        });
        let open = descriptors(server.pid());
        let own = memory(server.pid(), "VmRSS");
        let theirs: u64 = kept.iter().map(|pid| memory(*pid, "VmRSS")).sum();
        (kept, open, own, theirs, theirs_open)
    };
    becomes(&server, "/cgi-bin/p", "warm");
    let before = ask(1000);
    let after = ask(10_000);
    assert_eq!(before.0, after.0, "other templates: {}", server.errors());
    // Some connections are closing, and some children wait for requests.
    assert!(
        after.1 <= before.1 + 16,
        "descriptors: {before:?}, {after:?}"
    );
    assert_eq!(before.4, after.4, "a template's descriptors");
    assert!(
        after.2 <= before.2 + (4 << 20),
        "memory: {before:?}, {after:?}"
    );
    assert!(
        after.3 <= before.3 + (256 << 10),
        "memory: {before:?}, {after:?}"
    );
}
