//! Files that change: the very next request sees the change.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{c, perl, python, site};
use crate::harness::list;
use galgo_testkit::{Server, file::compile, wait_until};

list![
    a_program_replaced_by_a_rename,
    a_script_written_in_place,
    a_program_cannot_be_written_in_place,
    a_module_replaced,
    a_module_replaced_under_load,
    a_module_that_changes_all_the_time,
    modules_switched_by_a_link_or_a_folder,
];

/// Replaces a file like an editor or `install` does.
fn rename_over(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    let mode = fs::metadata(path).unwrap().permissions().mode();
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
    fs::rename(&new, path).unwrap();
}

fn warm(server: &Server, target: &str, says: &str) {
    let reply = server.get(target);
    assert_eq!(reply.text(), format!("warm {says}"), "{}", server.errors());
}

/// Asserts that this version answers, cold or warm.
fn version(server: &Server, target: &str, says: &str) {
    let text = server.get(target).text();
    assert_eq!(text.split(' ').next_back(), Some(says), "{target}");
}

fn a_program_replaced_by_a_rename() {
    let server = site()
        .compiled("cgi-bin/p", &c("0"), &[])
        .file("cgi-bin/p.pl", perl("", "'0'"), 0o755)
        .file("cgi-bin/p.py", python("", "'0'"), 0o755)
        .start();
    let folder = server.path("cgi-bin");
    for n in 0..4 {
        let says = n.to_string();
        if n > 0 {
            let new = compile(server.site.folder(), "new", &c(&says), &[]);
            fs::rename(&new, folder.join("p")).unwrap();
            rename_over(&folder.join("p.pl"), &perl("", &format!("'{n}'")));
            rename_over(&folder.join("p.py"), &python("", &format!("'{n}'")));
        }
        for target in ["/cgi-bin/p", "/cgi-bin/p.pl", "/cgi-bin/p.py"] {
            version(&server, target, &says);
            version(&server, target, &says);
        }
    }
    for target in ["/cgi-bin/p", "/cgi-bin/p.pl", "/cgi-bin/p.py"] {
        super::becomes(&server, target, "warm 3");
    }
}

/// A template of the script may just be executed: the kernel forbids writing while it looks for the interpreter.
fn write_in_place(script: &Path, text: &str) {
    wait_until("a script that can be written", || {
        let written = fs::write(script, text);
        let is_busy = |e: &std::io::Error| e.kind() == ErrorKind::ExecutableFileBusy;
        let busy = written.as_ref().is_err_and(is_busy);
        assert!(busy || written.is_ok(), "{written:?}");
        !busy
    });
}

fn a_script_written_in_place() {
    let server = site()
        .file("cgi-bin/p.pl", perl("", "'0'"), 0o755)
        .file("cgi-bin/p.py", python("", "'0'"), 0o755)
        .start();
    let folder = server.path("cgi-bin");
    for n in 0..4 {
        // The text has the same length each time, so only the modification time changes.
        write_in_place(&folder.join("p.pl"), &perl("", &format!("'{n}'")));
        write_in_place(&folder.join("p.py"), &python("", &format!("'{n}'")));
        for target in ["/cgi-bin/p.pl", "/cgi-bin/p.py"] {
            version(&server, target, &n.to_string());
            version(&server, target, &n.to_string());
        }
    }
}

/// ETXTBSY, as for every program that runs.
fn a_program_cannot_be_written_in_place() {
    let server = site().compiled("cgi-bin/p", &c("1"), &[]).start();
    warm(&server, "/cgi-bin/p", "1");
    let path = server.path("cgi-bin/p");
    let refused = fs::OpenOptions::new().write(true).open(&path).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ExecutableFileBusy);
    fs::remove_file(&path).unwrap();
    assert_eq!(server.get("/cgi-bin/p").status, 404);
}

/// Each version prints a longer text, because Python uses a compiled module if the source has the same length and second.
fn said(n: usize) -> String {
    format!("{n}{}", "x".repeat(n))
}

fn perl_module(n: usize) -> String {
    format!("package M; sub says {{ '{}' }} 1;\n", said(n))
}

fn python_module(n: usize) -> String {
    format!("def says(): return '{}'\n", said(n))
}

fn with_modules() -> galgo_testkit::Site {
    site()
        .file("cgi-bin/lib/M.pm", perl_module(0), 0o644)
        .file("cgi-bin/lib/m.py", python_module(0), 0o644)
        .file(
            "cgi-bin/p.pl",
            perl("use lib 'lib'; use M;", "M::says()"),
            0o755,
        )
        .file(
            "cgi-bin/p.py",
            python(
                "import sys; sys.path.insert(0, 'lib'); import m",
                "m.says()",
            ),
            0o755,
        )
}

fn a_module_replaced() {
    let server = with_modules().start();
    let lib = server.path("cgi-bin/lib");
    for n in 0..6 {
        match n % 2 {
            0 => {
                fs::write(lib.join("M.pm"), perl_module(n)).unwrap();
                fs::write(lib.join("m.py"), python_module(n)).unwrap();
            }
            _ => {
                rename_over(&lib.join("M.pm"), &perl_module(n));
                rename_over(&lib.join("m.py"), &python_module(n));
            }
        }
        for target in ["/cgi-bin/p.pl", "/cgi-bin/p.py"] {
            for _ in 0..3 {
                version(&server, target, &said(n));
            }
        }
    }
}

/// The module is also replaced while it is being loaded: no answer is older than the file at the time of the request.
fn a_module_replaced_under_load() {
    for target in ["/cgi-bin/p.pl", "/cgi-bin/p.py"] {
        let server = with_modules().without_waiting().start();
        let lib = server.path("cgi-bin/lib");
        let (now, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut client = server.connect();
                    while !over.load(Ordering::SeqCst) {
                        let least = now.load(Ordering::SeqCst);
                        client.get(target);
                        let reply = client.reply();
                        assert_eq!(reply.status, 200, "{}", server.errors());
                        let text = reply.text();
                        let says = text.split(' ').next_back().unwrap();
                        let n: usize = says.trim_end_matches('x').parse().expect("a version");
                        assert!(n >= least, "{n} where {least} was there");
                    }
                });
            }
            for n in 1..=15 {
                rename_over(&lib.join("M.pm"), &perl_module(n));
                rename_over(&lib.join("m.py"), &python_module(n));
                now.store(n, Ordering::SeqCst);
                // Sometimes in the middle of loading, sometimes after it.
                thread::sleep(Duration::from_millis(20 * (n as u64 % 5)));
            }
            over.store(true, Ordering::SeqCst);
        });
        version(&server, target, &said(15));
        super::becomes(&server, target, &format!("warm {}", said(15)));
    }
}

/// A program that writes to a module that it loads is still answered, and is not loaded again for each request.
fn a_module_that_changes_all_the_time() {
    let writes = "BEGIN { require './lib/M.pm' }\n\
                  open(my $o, '>>', 'lib/M.pm') or die; print $o \"# \\n\"; close $o;";
    let server = with_modules()
        .file("cgi-bin/w.pl", perl(writes, "M::says()"), 0o755)
        .start();
    let before = Instant::now();
    for _ in 0..40 {
        version(&server, "/cgi-bin/w.pl", &said(0));
    }
    let loaded = super::says(&server, "w.pl", "loaded for warm starts");
    // Two templates, at most once a second.
    let most = 20 + 2 * before.elapsed().as_secs();
    assert!(loaded as u64 <= most, "loaded {loaded} times");
}

/// A link or a rename of folders switches to another release: no file changes then.
fn modules_switched_by_a_link_or_a_folder() {
    let uses = perl(
        "use lib '../linked', '../moved'; use M; use N;",
        "M::says().N::says()",
    );
    let mut site = site().file("cgi-bin/p", uses, 0o755);
    for n in 0..4 {
        let other = perl_module(n).replace("package M", "package N");
        site = site
            .file(&format!("r{n}/M.pm"), perl_module(n), 0o644)
            .file(&format!("m{n}/N.pm"), other, 0o644);
    }
    let link = |root: &Path, n: usize| {
        std::os::unix::fs::symlink(format!("r{n}"), root.join("new")).unwrap();
        fs::rename(root.join("new"), root.join("linked")).unwrap();
    };
    link(site.folder(), 0);
    fs::rename(site.path("m0"), site.path("moved")).unwrap();
    let server = site.start();
    let root = server.site.folder();
    warm(&server, "/cgi-bin/p", "00");
    for n in 1..4 {
        link(root, n);
        version(
            &server,
            "/cgi-bin/p",
            &format!("{}{}", said(n), said(n - 1)),
        );
        fs::rename(root.join("moved"), root.join(format!("gone{n}"))).unwrap();
        fs::rename(root.join(format!("m{n}")), root.join("moved")).unwrap();
        version(&server, "/cgi-bin/p", &said(n).repeat(2));
    }
}
