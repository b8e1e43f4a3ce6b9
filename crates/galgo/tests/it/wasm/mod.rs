//! WebAssembly programs.

mod host;
mod hostile;
mod leaving;
mod life;
pub mod programs;
mod shortage;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::harness::{Test, list, new_site};
use galgo_testkit::{Server, Site, file::wasm_host, wait_until};

/// Returns the tests of this module and its submodules.
pub fn tests() -> Vec<Test> {
    [
        plain(),
        host::tests(),
        hostile::tests(),
        leaving::tests(),
        life::tests(),
        shortage::tests(),
    ]
    .concat()
}

fn plain() -> Vec<Test> {
    own::tests()
}

/// Returns the path of the program that runs modules.
pub fn host() -> PathBuf {
    wasm_host(env!("CARGO_BIN_EXE_galgo"))
}

/// Returns a site with modules in `cgi-bin`, and a cache of its own.
pub fn site(modules: &[(&str, Vec<u8>)]) -> Site {
    host();
    let site = new_site().config("cache = \"cache\"\nmax_running = 16");
    modules.iter().fold(site, |site, (name, bytes)| {
        site.file(&format!("cgi-bin/{name}"), bytes, 0o644)
    })
}

/// Replaces a module in one step.
pub fn replace(server: &Server, name: &str, bytes: &[u8]) {
    replace_in(server, "cgi-bin", name, bytes);
}

/// Replaces a module in another folder in one step.
pub fn replace_in(server: &Server, folder: &str, name: &str, bytes: &[u8]) {
    let folder = server.path(folder);
    let draft = folder.join(".draft");
    fs::write(&draft, bytes).unwrap();
    fs::rename(draft, folder.join(name)).unwrap();
}

/// Waits until the server's wasm worker is up, and returns its process id.
pub fn worker(server: &Server) -> u32 {
    galgo_testkit::eventually("a wasm worker", || {
        galgo_testkit::process::children(server.pid())
            .into_iter()
            .find(|pid| {
                let line = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"));
                line.is_ok_and(|line| line.starts_with(b"galgo-wasm\0worker\0"))
            })
    })
}

mod own {
    use super::*;
    use galgo_testkit::{eventually, process};

    list![
        a_module_is_known_by_its_ending_alone,
        variables_are_those_of_every_program_byte_for_byte,
        names_that_proxies_do_not_know_reach_no_module,
        sixty_four_megabytes_pass_through_with_flat_memory,
        a_slow_reader_holds_no_permit,
        a_thousand_at_once,
        a_body_that_is_not_read_is_nobody_elses,
        a_guest_never_sees_the_end_of_a_body_that_was_broken_off,
        its_exit_status_is_logged,
        folders_are_seen_as_configured_and_nothing_beside_them,
        nothing_is_left_for_the_next_instance,
        the_worker_has_no_privileges,
        a_wcgi_file_is_never_served_as_a_file,
    ];

    fn a_module_is_known_by_its_ending_alone() {
        let server = site(&[
            ("a.wasm", programs::hello()),
            ("b.wcgi", programs::hello()),
            ("plain", programs::hello()),
        ]);
        let server = server.file("cgi-bin/run", programs::hello(), 0o755).start();
        for (name, status) in [
            ("a.wasm", 200),
            ("b.wcgi", 200),
            ("run", 502),
            ("plain", 403),
        ] {
            let reply = server.get(&format!("/cgi-bin/{name}"));
            assert_eq!(reply.status, status, "{name}");
            assert!(status != 200 || reply.text() == "yes\n", "{name}");
        }
        server.says("the program is a WebAssembly module: its name has to end in .wasm");
    }

    fn a_slow_reader_holds_no_permit() {
        use crate::{harness::child::pattern, spool::output::slow_reader};
        const LARGE: usize = 6_000_000;
        let site = new_site()
            .config("cache = \"cache\"\nmax_running = 1\nrate_grace = \"1h\"\nqueue_wait = \"1h\"");
        let site = site.file("cgi-bin/echo.wasm", programs::echo(), 0o644);
        let server = site.start();
        let mut slow = slow_reader(&server);
        slow.begin_post("/cgi-bin/echo.wasm", LARGE);
        let mut writer = slow.stream.try_clone().unwrap();
        let sending = std::thread::spawn(move || {
            std::io::Write::write_all(&mut writer, &pattern(0, LARGE)).unwrap();
        });
        assert_eq!(server.get("/cgi-bin/echo.wasm").status, 200);
        sending.join().unwrap();
        let reply = slow.reply();
        assert!(reply.body == pattern(0, LARGE));
    }

    fn variables_are_those_of_every_program_byte_for_byte() {
        let server = site(&[("env.wasm", programs::environment())])
            .config("[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nenv = { OWN = \"x\" }\n")
            .start();
        let reply = server.ask(
            "GET /cgi-bin/env.wasm/%ff%20b?q HTTP/1.1\r\nHost: h\r\nX-A: \u{e4}\r\nProxy: evil\r\n\r\n",
        );
        let has = |pair: &[u8]| reply.body.split(|&b| b == 0).any(|own| own == pair);
        for pair in [
            &b"SCRIPT_NAME=/cgi-bin/env.wasm"[..],
            b"PATH_INFO=/\xff b",
            b"QUERY_STRING=q",
            b"HTTP_X_A=\xc3\xa4",
            b"OWN=x",
            b"GATEWAY_INTERFACE=CGI/1.1",
        ] {
            assert!(
                has(pair),
                "{} in {}",
                String::from_utf8_lossy(pair),
                reply.text()
            );
        }
        assert!(!reply.text().contains("HTTP_PROXY"));
    }

    fn names_that_proxies_do_not_know_reach_no_module() {
        let server = site(&[("env.wasm", programs::environment())]).start();
        for name in crate::secrets::POSES {
            for real in ["", "X-Remote-User: ada\r\n"] {
                let reply = server.ask(format!(
                    "GET /cgi-bin/env.wasm HTTP/1.1\r\nHost: h\r\n{name}: evil\r\n{real}\r\n"
                ));
                let text = reply.text();
                assert_eq!(reply.status, 200, "{name}");
                assert!(!text.contains("evil"), "{name}: {text}");
                let has = text.contains("HTTP_X_REMOTE_USER");
                assert_eq!(has, !real.is_empty(), "{name}: {text}");
            }
        }
    }

    fn sixty_four_megabytes_pass_through_with_flat_memory() {
        const PIECE: usize = 1 << 20;
        let server = site(&[("echo.wasm", programs::echo())]).start();
        assert_eq!(server.get("/cgi-bin/echo.wasm").status, 200);
        let worker = worker(&server);
        let mut client = server.connect();
        let mut writer = client.stream.try_clone().unwrap();
        client.begin_post("/cgi-bin/echo.wasm", 64 * PIECE);
        let thread = std::thread::spawn(move || {
            for n in 0..64_u8 {
                std::io::Write::write_all(&mut writer, &vec![n; PIECE]).unwrap();
            }
        });
        let reply = client.reply();
        thread.join().unwrap();
        assert_eq!((reply.status, reply.body.len()), (200, 64 * PIECE));
        let same = |(n, piece): (usize, &[u8])| piece.iter().all(|&b| usize::from(b) == n);
        assert!(reply.body.chunks(PIECE).enumerate().all(same));
        for pid in [worker, server.pid()] {
            let peak = process::memory(pid, "VmHWM");
            assert!(peak < 150 << 20, "{peak} bytes");
        }
    }

    fn a_thousand_at_once() {
        let server =
            site(&[("a.wasm", programs::hello())]).config("queue = 1000\nqueue_wait = \"10m\"");
        let server = server.start();
        let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(|c| c.get("/cgi-bin/a.wasm"));
        for client in &mut clients {
            let reply = client.reply();
            assert_eq!((reply.status, reply.text()), (200, "yes\n".into()));
        }
    }

    /// A connection to the worker serves requests of different clients, one after the other.
    fn a_body_that_is_not_read_is_nobody_elses() {
        let server = site(&[("a.wasm", programs::hello()), ("b.wasm", programs::echo())]).start();
        let ask = |target: &str, body: &[u8]| {
            let mut client = server.connect();
            client.post(target, body);
            client.reply().body
        };
        for length in [1, 7, 8, 5_000, 70_000] {
            for n in 0..5 {
                let (other, own) = (vec![b'x'; length], vec![b'0' + n; length]);
                assert_eq!(ask("/cgi-bin/a.wasm", &other), b"yes\n", "{length}");
                assert!(ask("/cgi-bin/b.wasm", &own) == own, "{length}");
                assert_eq!(server.get("/cgi-bin/b.wasm").text(), "");
            }
        }
    }

    fn a_guest_never_sees_the_end_of_a_body_that_was_broken_off() {
        for run_to_completion in [false, true] {
            let reads = programs::says_at_the_end("all read\n");
            let server = site(&[("a.wasm", reads), ("b.wasm", programs::hello())])
                .config("max_running = 1")
                .defaults(&format!("run_to_completion = {run_to_completion}"))
                .start();
            let mut client = server.connect();
            client.begin_post("/cgi-bin/a.wasm", 100_000);
            client.send([b'x'; 70_000]);
            wait_until("its first word", || server.errors().contains("begun"));
            client.reset();
            // The first module holds the only permit until it has ended.
            assert_eq!(server.get("/cgi-bin/b.wasm").text(), "yes\n");
            assert!(!server.errors().contains("all read"));
        }
    }

    fn its_exit_status_is_logged() {
        let exits = programs::command("(call $head) (call $exit (i32.const 7))", "");
        let server = site(&[("a.wasm", exits)]).start();
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
        eventually("its line", || {
            let lines = server.access();
            lines
                .iter()
                .find(|l| l["target"] == "/cgi-bin/a.wasm" && l["exit"] == 7)
                .cloned()
        });
    }

    fn folders_are_seen_as_configured_and_nothing_beside_them() {
        let names = [
            ("in.wasm", "note", "yes\n"),
            ("up.wasm", "../galgo.toml", "no\n"),
            ("absolute.wasm", "/etc/passwd", "no\n"),
            ("link.wasm", "out", "no\n"),
            ("updown.wasm", "../data/../galgo.toml", "no\n"),
        ];
        let modules: Vec<_> = names
            .iter()
            .map(|(n, path, _)| (*n, programs::opens(path)))
            .collect();
        let site = site(&modules).file("data/note", "x", 0o644).config(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\npreopen = { \"/data\" = \"data\" }\n",
        );
        std::os::unix::fs::symlink("/etc/passwd", site.path("data/out")).unwrap();
        let server = site.start();
        for (name, path, want) in names {
            assert_eq!(
                server.get(&format!("/cgi-bin/{name}")).text(),
                want,
                "{path}"
            );
        }
    }

    fn nothing_is_left_for_the_next_instance() {
        let looks = |more: &str| {
            programs::command(
                "(call $head) (call $verdict (i64.eqz (i64.load (i32.const 70000))))
             (i64.store (i32.const 70000) (i64.const -1))
             (memory.fill (i32.const 80000) (i32.const 7) (i32.const 30000))
             (drop (memory.grow (i32.const 10)))
             (call $verdict (i64.eqz (i64.load (i32.const 700000))))
             (i64.store (i32.const 700000) (i64.const -1))",
                more,
            )
        };
        let server = site(&[("a.wasm", looks("")), ("b.wasm", looks("(func)"))]).start();
        for _ in 0..50 {
            // Slots of the pool also change between modules.
            for name in ["a.wasm", "b.wasm"] {
                let reply = server.get(&format!("/cgi-bin/{name}"));
                assert_eq!(reply.text(), "yes\nyes\n");
            }
        }
    }

    fn the_worker_has_no_privileges() {
        let server = site(&[("a.wasm", programs::hello())]).start();
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
        let status = fs::read_to_string(format!("/proc/{}/status", worker(&server))).unwrap();
        let has = |line: &str| status.lines().any(|l| l == line);
        assert!(has("NoNewPrivs:\t1") && has("Seccomp:\t2"), "{status}");
        let limits = fs::read_to_string(format!("/proc/{}/limits", worker(&server))).unwrap();
        let core = limits.lines().find(|l| l.starts_with("Max core file size"));
        let zeros = core.unwrap().split_whitespace().filter(|w| *w == "0");
        assert_eq!(zeros.count(), 2, "{limits}");
        let open = fs::read_dir(format!("/proc/{}/fd", worker(&server))).unwrap();
        let links = open.filter_map(|e| fs::read_link(e.unwrap().path()).ok());
        let files: Vec<_> = links
            .filter(|l| l.starts_with(server.site.folder()))
            .collect();
        let own = |l: &std::path::PathBuf| l.ends_with("stderr");
        assert!(files.iter().all(own), "{files:?}");
    }

    fn a_wcgi_file_is_never_served_as_a_file() {
        let server = site(&[])
            .file("public/a.wcgi", programs::hello(), 0o644)
            .start();
        assert_eq!(server.get("/a.wcgi").status, 403);
    }
}
