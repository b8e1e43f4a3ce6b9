//! Programs that can only start cold: they are answered, and the log says why, once.

use super::{loading, perl, python, says, site};
use crate::harness::list;
use galgo_testkit::{Site, wait_until};

list![
    what_a_file_shows,
    what_loading_shows,
    what_a_route_says_may_be_read,
    a_module_that_is_mended,
    a_program_that_cannot_be_loaded,
    warnings_of_loading_are_not_lost,
    what_cannot_be_stopped_runs_for_requests_only,
    what_was_not_stopped_is_not_started_again,
];

/// Asks each program three times, and asserts that the log gives the reason once.
fn told_once(site: Site, programs: &[(&str, &str)]) {
    let server = site.start();
    for (name, words) in programs {
        for _ in 0..3 {
            let reply = server.get(&format!("/cgi-bin/{name}"));
            let text = reply.text();
            assert_eq!(reply.status, 200, "{name}: {}", server.errors());
            assert!(text.starts_with("cold"), "{name}: {text}");
        }
        // If a file of the program seemed to change during loading, galgo tries again later.
        wait_until(words, || {
            server.get(&format!("/cgi-bin/{name}"));
            says(&server, &format!("/{name}:"), words) > 0
        });
        assert_eq!(says(&server, &format!("/{name}:"), words), 1, "{name}");
        let cold = says(&server, &format!("/{name}:"), "started cold although");
        assert_eq!(cold, 1, "{name}: {}", server.errors());
    }
}

fn what_a_file_shows() {
    let taint = perl("", "''").replace("/perl", "/perl -T");
    let site = site()
        .compiled("cgi-bin/static", &super::c(""), &["-static"])
        .file(
            "cgi-bin/shell",
            "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\ncold'\n",
            0o755,
        )
        .file("cgi-bin/taint", taint, 0o755);
    told_once(
        site,
        &[
            ("static", "it is linked statically"),
            ("shell", "it is a script for sh"),
            ("taint", "it runs with taint checks (-T)"),
        ],
    );
}

fn what_loading_shows() {
    // If the program is a template, the thread waits, so that it is still there when galgo looks.
    let thread = super::loading("static pthread_t t; pthread_create(&t, NULL, wait_for_ever, NULL);")
        .replace("#include <time.h>", "#include <time.h>\n#include <pthread.h>\nstatic void *wait_for_ever(void *n){pause();return n;}");
    let site = site()
        .compiled("cgi-bin/thread", &thread, &["-pthread"])
        .compiled(
            "cgi-bin/file",
            &loading("(void)!open(\"../marks/database\", O_RDWR | O_CREAT, 0600);"),
            &[],
        )
        .compiled(
            "cgi-bin/socket",
            &loading("socket(AF_INET, SOCK_STREAM, 0);"),
            &[],
        )
        .compiled(
            "cgi-bin/timer",
            &loading("static timer_t t; timer_create(CLOCK_REALTIME, NULL, &t);"),
            &[],
        )
        .compiled(
            "cgi-bin/child",
            &loading("if (fork() == 0) { if (how()[0] == 'w') pause(); _exit(0); }"),
            &[],
        )
        .compiled(
            "cgi-bin/prints",
            &loading("if (how()[0] == 'w') (void)!write(1, \"X: y\\n\", 5);"),
            &[],
        )
        .file(
            "cgi-bin/perl-file",
            perl(
                "our $f; BEGIN { open($f, '>>', '../marks/log') or die }",
                "''",
            ),
            0o755,
        )
        .file(
            "cgi-bin/perl-socket",
            perl(
                "use Socket; our $s; BEGIN { socket($s, PF_INET, SOCK_STREAM, 0) }",
                "''",
            ),
            0o755,
        );
    told_once(
        site,
        &[
            ("thread", "it runs 2 threads (thread, thread)"),
            (
                "file",
                "marks/database while loading: open it below the first line",
            ),
            ("socket", "it opens a socket while loading"),
            ("timer", "it sets a timer while loading"),
            ("child", "it starts a process while loading"),
            ("prints", "it prints while loading"),
            (
                "perl-file",
                "marks/log while loading: open it below the first line",
            ),
            ("perl-socket", "it opens a socket while loading"),
        ],
    );
}

/// The variable has its configured value while the program is loaded. Each request has its own value, or none.
fn what_a_route_says_may_be_read() {
    let early = "our $early; BEGIN { $early = $ENV{PATH_INFO} . defined $ENV{HTTP_X} }";
    let linked = loading("early = getenv(\"PATH_INFO\");")
        .replace(
            "extern char **environ;",
            "extern char **environ;\nstatic const char *early;",
        )
        .replace(
            "%s\", how())",
            "%s %s %s\", how(), early, getenv(\"PATH_INFO\"))",
        );
    let server = site()
        .file(
            "cgi-bin/p",
            perl(
                early,
                "\"$early $ENV{PATH_INFO}\", exists $ENV{HTTP_X} ? 1 : 0",
            ),
            0o755,
        )
        .compiled("cgi-bin/c", &linked, &[])
        .config(
            "[[route]]\npath = \"/told/\"\ncgi = \"cgi-bin\"\n\
             load_env = { PATH_INFO = \"load\", HTTP_X = \"x\" }\n",
        )
        .start();
    super::becomes(&server, "/told/p/a", "warm");
    super::becomes(&server, "/told/c/a", "warm");
    assert_eq!(server.get("/told/p/a").text(), "warm load1 /a0");
    assert_eq!(server.get("/told/c/b").text(), "warm load /b");
    // The other route has no `load_env`.
    for (name, kind) in [("p", "cold"), ("c", "cold")] {
        let text = server.get(&format!("/cgi-bin/{name}/a")).text();
        assert!(text.starts_with(kind), "{text}");
    }
    server.says("load_env = { PATH_INFO = \"\" }");
}

/// The obstacle disappears with the old version of the module.
fn a_module_that_is_mended() {
    let opens = "package M; our $f; open($f, '>>', '../marks/log') or die; 1;\n";
    let server = site()
        .file("cgi-bin/lib/M.pm", opens, 0o644)
        .file("cgi-bin/p", perl("use lib 'lib'; use M;", "''"), 0o755)
        .start();
    wait_until("what is wrong with it", || {
        assert_eq!(server.get("/cgi-bin/p").text(), "cold ");
        server.errors().contains("marks/log while loading")
    });
    std::fs::write(server.path("cgi-bin/lib/M.pm"), "package M; 1;\n").unwrap();
    super::becomes(&server, "/cgi-bin/p", "warm");
}

/// Loading fails like the cold start, which answers the request. Loading is tried again only after a pause.
fn a_program_that_cannot_be_loaded() {
    let server = site()
        .file("cgi-bin/p.pl", perl("use No::Such::Module;", "''"), 0o755)
        .file("cgi-bin/p.py", python("import no_such_module", "''"), 0o755)
        .start();
    for name in ["p.pl", "p.py"] {
        let target = format!("/cgi-bin/{name}");
        for _ in 0..5 {
            assert_eq!(server.get(&target).status, 502);
        }
    }
    server.says("not loaded for warm starts: it ended while loading");
    assert!(says(&server, "p.pl", "not loaded for warm starts") < 5);
    let mended = perl("", "'mended'");
    std::fs::write(server.path("cgi-bin/p.pl"), mended).unwrap();
    let text = server.get("/cgi-bin/p.pl").text();
    assert!(text.ends_with(" mended"), "{text}");
}

fn warnings_of_loading_are_not_lost() {
    let server = site()
        .file(
            "cgi-bin/p",
            perl("BEGIN { warn \"an old module\\n\" }", "''"),
            0o755,
        )
        .start();
    super::becomes(&server, "/cgi-bin/p", "warm");
    server.says("standard error while loading: an old module");
}

/// Adds a line to a file, and answers.
const MARKS: &str = r#"
#define SAYS "Content-Type: text/plain\n\ncold"
int run(void) {
    int fd = open("../marks/ran", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (write(fd, "x\n", 2) != 2 || write(1, SAYS, sizeof SAYS - 1) < 0)
        _exit(1);
    _exit(0);
}
"#;

fn runs(server: &galgo_testkit::Server) -> usize {
    let ran = std::fs::read_to_string(server.path("marks/ran"));
    ran.unwrap_or_default().lines().count()
}

/// A program that does not reach its `main` through the C library, like programs that Go links itself.
fn what_cannot_be_stopped_runs_for_requests_only() {
    let source = format!("{}{MARKS}void begin(void) {{ run(); }}\n", super::C);
    let server = site()
        .compiled(
            "cgi-bin/p",
            &source,
            &["-nostartfiles", "-Wl,-e,begin", "-w"],
        )
        .start();
    for n in 1..=4 {
        assert_eq!(server.get("/cgi-bin/p").text(), "cold");
        assert_eq!(runs(&server), n);
    }
    server.says("/p: started cold although `start` is \"warm\": it does not enter `main` through the C library");
    assert_eq!(runs(&server), 4);
}

/// A wrapper starts the interpreter and removes the variables that would stop it. galgo notices too late, but only once.
fn what_was_not_stopped_is_not_started_again() {
    let wrapper = "#!/bin/sh\nexec env -i /usr/bin/perl \"$@\"\n";
    let site = site().file("perl", wrapper, 0o755);
    let text = format!(
        "#!{}/perl\nopen my $f, '>>', '../marks/ran'; print $f \"x\\n\"; print \"Content-Type: text/plain\\n\\ncold\";",
        site.folder().display()
    );
    let server = site.file("cgi-bin/p", text, 0o755).start();
    assert_eq!(server.get("/cgi-bin/p").text(), "cold");
    server.says(
        "/p: started cold although `start` is \"warm\": it did not stop before its first line",
    );
    let before = runs(&server);
    assert!(before <= 2, "{before}");
    // Longer than the pause after which galgo tries to load a program again after other failures.
    std::thread::sleep(2 * super::PAUSE);
    for n in 1..=3 {
        assert_eq!(server.get("/cgi-bin/p").text(), "cold");
        assert_eq!(runs(&server), before + n);
    }
}
