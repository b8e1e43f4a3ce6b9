//! The state in which a program starts.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::{EnvBlock, Limits, STRING_MAX, Sandbox, Spawner, Start, StartStage, Status};
use scene::{Scene, c};
use std::{
    fs::{self, File, Permissions},
    io::Read,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    thread,
};

#[test]
fn only_0_1_and_2_reach_a_program() {
    let mut scene = Scene::new();
    let file = File::open("/dev/null").unwrap();
    let open: Vec<OwnedFd> = (0..1000)
        .map(|_| {
            // SAFETY: dup makes a new descriptor, here on purpose without O_CLOEXEC.
            unsafe { OwnedFd::from_raw_fd(libc::dup(file.as_raw_fd())) }
        })
        .collect();
    let most = open.iter().map(AsRawFd::as_raw_fd).max().unwrap();
    assert!(most >= 1000);
    // A spawner that was made late has high descriptor numbers. It is slower, but not wrong.
    for mut scene in [Scene::new(), std::mem::replace(&mut scene, Scene::new())] {
        let list = format!(
            "n=0; while [ $n -lt {} ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n+1)); done",
            most + 50
        );
        assert_eq!(scene.text("/bin/sh", &["sh", "-c", &list]), "0\n1\n2\n");
    }
}

#[test]
fn the_servers_own_0_1_and_2_may_be_handed_over_in_any_order() {
    let mut spawner = Spawner::direct().unwrap();
    let (mut out, theirs) = std::io::pipe().unwrap();
    let (stdin, stderr) = (std::io::stdin(), std::io::stderr());
    let env = EnvBlock::default();
    let args = ["readlink", "/proc/self/fd/0", "/proc/self/fd/2"].map(c);
    let start = Start {
        path: &c("/usr/bin/readlink"),
        args: &args,
        env: &env,
        dir: &c("/"),
        stdio: [stderr.as_fd(), theirs.as_fd(), stdin.as_fd()],
        more: &[],
        limits: Limits::default(),
        no_new_privs: false,
        sandbox: Sandbox::Standard,
    };
    let mut child = spawner.start_program(&start).unwrap();
    drop(theirs);
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let ours = |n| {
        fs::read_link(format!("/proc/self/fd/{n}"))
            .unwrap()
            .display()
            .to_string()
    };
    assert_eq!(text, format!("{}\n{}\n", ours(2), ours(0)));
    assert!(child.wait().unwrap().status.success());
}

#[test]
fn the_environment_is_the_block_byte_for_byte() {
    let mut scene = Scene::new();
    scene.env = EnvBlock::default();
    assert_eq!(
        scene.output("/bin/cat", &["cat", "/proc/self/environ"]).0,
        b""
    );
    scene.env.set_variable(b"EMPTY", b"");
    scene
        .env
        .set_variable(b"NAME with spaces", b"a=b\n\xff\x01");
    scene.env.set_variable(b"LONG", &[b'x'; STRING_MAX - 6]);
    let (bytes, _) = scene.output("/bin/cat", &["cat", "/proc/self/environ"]);
    let mut expected = b"EMPTY=\0NAME with spaces=a=b\n\xff\x01\0LONG=".to_vec();
    expected.extend([b'x'; STRING_MAX - 6]);
    expected.push(0);
    assert!(
        bytes == expected,
        "{} bytes, not {}",
        bytes.len(),
        expected.len()
    );
}

#[test]
fn arguments_are_passed_as_they_are() {
    let mut scene = Scene::new();
    let (bytes, _) = scene.output(
        "/bin/cat",
        &["./own name", "/proc/self/cmdline", "--", "/dev/null"],
    );
    assert_eq!(bytes, b"./own name\0/proc/self/cmdline\0--\0/dev/null\0");
}

#[test]
fn the_working_directory_is_the_programs_alone() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    let before = std::env::current_dir().unwrap();
    let mut scene = Scene::new();
    scene.dir = c(&real);
    let cwd = scene.text("/usr/bin/readlink", &["readlink", "/proc/self/cwd"]);
    assert_eq!(cwd.trim_end(), real.to_str().unwrap());
    assert_eq!(std::env::current_dir().unwrap(), before);
}

fn status(scene: &mut Scene, key: &str) -> String {
    let text = scene.text("/bin/cat", &["cat", "/proc/self/status"]);
    let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn no_signal_is_ignored_or_blocked() {
    // SAFETY: ignoring signals runs no code; nothing in this test binary relies on these two.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
    }
    let mut scene = Scene::new();
    // SAFETY: the set is on this stack, and only the mask of this thread changes.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
    let own = fs::read_to_string("/proc/thread-self/status").unwrap();
    let own = |key| {
        own.lines()
            .find(|l: &&str| l.starts_with(key))
            .unwrap()
            .to_owned()
    };
    assert_ne!(own("SigIgn"), "SigIgn:\t0000000000000000");
    assert_ne!(own("SigBlk"), "SigBlk:\t0000000000000000");
    for key in ["SigBlk", "SigIgn", "SigCgt"] {
        assert_eq!(status(&mut scene, key), "0000000000000000", "{key}");
    }
}

#[test]
fn no_new_privs_as_asked() {
    let mut scene = Scene::new();
    assert_eq!(status(&mut scene, "NoNewPrivs"), "1");
    scene.no_new_privs = false;
    assert_eq!(status(&mut scene, "NoNewPrivs"), "0");
}

#[test]
fn umask_as_asked() {
    let mut scene = Scene::new();
    let own = status(&mut scene, "Umask");
    scene.spawner.set_umask(Some(0o137));
    assert_eq!(status(&mut scene, "Umask"), "0137");
    scene.spawner.set_umask(None);
    assert_eq!(status(&mut scene, "Umask"), own);
}

#[test]
fn the_process_leads_its_own_group() {
    let mut scene = Scene::new();
    let mut running = scene.sh("cut -d' ' -f5 /proc/$$/stat; read x");
    assert_eq!(running.line(), running.child.pid().to_string());
}

fn limit(text: &str, name: &str) -> (String, String) {
    let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    let mut words = line.split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn limits_as_asked_and_no_core() {
    let mut scene = Scene::new();
    let own = fs::read_to_string("/proc/self/limits").unwrap();
    let plain = scene.text("/bin/cat", &["cat", "/proc/self/limits"]);
    assert_eq!(
        limit(&plain, "Max core file size"),
        ("0".into(), "0".into())
    );
    assert_eq!(
        limit(&plain, "Max open files"),
        limit(&own, "Max open files")
    );
    scene.limits = Limits {
        cpu_percent: None,
        may_stay: false,
        is_worker: false,
        cpu: Some(7),
        memory: Some(1 << 30),
        file_size: Some(12345),
        open_files: Some(77),
        processes: Some(5000),
    };
    let text = scene.text("/bin/cat", &["cat", "/proc/self/limits"]);
    for (name, soft, hard) in [
        ("Max cpu time", "7", "8"),
        ("Max address space", "1073741824", "1073741824"),
        ("Max file size", "12345", "12345"),
        ("Max open files", "77", "77"),
        ("Max processes", "5000", "5000"),
        ("Max core file size", "0", "0"),
    ] {
        assert_eq!(limit(&text, name), (soft.into(), hard.into()), "{name}");
    }
}

#[test]
fn a_limit_above_the_servers_own_becomes_the_servers_own() {
    let mut scene = Scene::new();
    scene.limits.open_files = Some(u64::MAX / 2); // more than the kernel gives even to root
    let text = scene.text("/bin/cat", &["cat", "/proc/self/limits"]);
    let own = fs::read_to_string("/proc/self/limits").unwrap();
    let (_, hard) = limit(&own, "Max open files");
    assert_eq!(limit(&text, "Max open files"), (hard.clone(), hard));
}

#[test]
fn the_cpu_limit_names_itself() {
    let mut scene = Scene::new();
    scene.limits.cpu = Some(1);
    let mut running = scene.sh("while :; do :; done");
    assert_eq!(
        running.child.wait().unwrap().status,
        Status::Signal(libc::SIGXCPU)
    );
}

#[test]
fn a_failure_names_its_stage() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    };
    let plain = file("plain", 0o644, b"#!/bin/sh\n");
    let text = file("text", 0o755, b"echo no first line\n");
    let lost = file("lost", 0o755, b"#!/nonexistent/interpreter\n");
    let busy = file("busy", 0o755, b"#!/bin/sh\n");
    let _writer = File::options().append(true).open(&busy).unwrap();
    for (path, errno) in [
        (dir.path().join("missing"), libc::ENOENT),
        (plain, libc::EACCES),
        (text, libc::ENOEXEC),
        (lost, libc::ENOENT),
        (busy, libc::ETXTBSY),
        (dir.path().to_owned(), libc::EACCES),
    ] {
        let mut scene = Scene::new();
        // For a moment, a child of another test may still hold the file open for writing.
        let e = loop {
            let e = scene.start(&path, &["x"]).map(|_| ()).unwrap_err();
            if !e.is_busy() || errno == libc::ETXTBSY {
                break e;
            }
        };
        assert_eq!(
            (e.stage, e.source.raw_os_error()),
            (StartStage::Exec, Some(errno)),
            "{path:?}"
        );
        assert_eq!(e.is_busy(), errno == libc::ETXTBSY);
        // The spawner works as before.
        assert_eq!(scene.text("/bin/echo", &["echo", "on"]), "on\n");
    }
}

#[test]
fn a_missing_working_directory_is_told_from_a_missing_program() {
    let mut scene = Scene::new();
    scene.dir = c("/nonexistent");
    let e = scene.start("/bin/sh", &["sh"]).map(|_| ()).unwrap_err();
    assert_eq!(
        (e.stage, e.source.raw_os_error()),
        (StartStage::Chdir, Some(libc::ENOENT))
    );
}

#[test]
fn what_execve_cannot_take_is_named_before() {
    let mut scene = Scene::new();
    scene
        .env
        .set_variable(b"HTTP_COOKIE", &vec![b'x'; STRING_MAX]);
    let e = scene.start("/bin/true", &["true"]).map(|_| ()).unwrap_err();
    assert_eq!(e.stage, StartStage::Environment);
    assert!(e.to_string().contains("HTTP_COOKIE"), "{e}");

    let mut scene = Scene::new();
    for n in 0..64 {
        scene
            .env
            .set_variable(format!("V{n}").as_bytes(), &vec![b'x'; STRING_MAX - 10]);
    }
    let e = scene.start("/bin/true", &["true"]).map(|_| ()).unwrap_err();
    assert_eq!(e.stage, StartStage::Environment, "{e}");

    let long = "x".repeat(STRING_MAX);
    let e = Scene::new()
        .start("/bin/true", &["true", &long])
        .map(|_| ())
        .unwrap_err();
    assert_eq!(e.stage, StartStage::Environment, "{e}");
}

#[test]
fn the_largest_environment_that_fits_starts() {
    let mut scene = Scene::new();
    let mut n = 0;
    loop {
        let mut more = scene.env.clone();
        more.set_variable(format!("V{n}").as_bytes(), &[b'x'; 100_000]);
        n += 1;
        let last = std::mem::replace(&mut scene.env, more);
        match scene.start("/bin/true", &["true"]) {
            Ok(mut running) => assert!(running.child.wait().unwrap().status.success()),
            // The kernel's own E2BIG never occurs.
            Err(e) => {
                assert_eq!(e.stage, StartStage::Environment, "{e}");
                assert!(last.exec_size() > 1 << 20, "{n}");
                break;
            }
        }
    }
}

#[test]
fn threads_with_a_spawner_each_do_not_meet() {
    thread::scope(|scope| {
        for t in 0..2 {
            scope.spawn(move || {
                let mut scene = Scene::new();
                for batch in 0..25 {
                    let word = |n: i32| format!("{t}.{batch}.{n}");
                    let mut running: Vec<_> = (0..20)
                        .map(|n| scene.start("/bin/echo", &["echo", &word(n)]).unwrap())
                        .collect();
                    for (n, running) in (0..20).zip(&mut running) {
                        let mut text = String::new();
                        running.stdout.read_to_string(&mut text).unwrap();
                        assert_eq!(text, word(n) + "\n");
                        assert_eq!(running.child.wait().unwrap().status, Status::Code(0));
                    }
                }
            });
        }
    });
}
