//! Where clone3 is kept away by a filter of system calls, as in containers.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::{Launch, LaunchOutcome, Limits, Stage};
use scene::{Scene, c};
use std::{
    fs::{self, File},
    io::Read,
    os::fd::AsFd,
    thread,
};

/// From here on clone3 is answered with `errno` in this thread.
fn no_clone3(errno: u32) {
    let code = |op: u32| u16::try_from(op).unwrap();
    let step = |op, jt, jf, k| libc::sock_filter {
        code: code(op),
        jt,
        jf,
        k,
    };
    let filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            u32::try_from(libc::SYS_clone3).unwrap(),
        ),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: numbers, and a filter that lives on; the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
        assert_eq!(libc::syscall(libc::SYS_clone3, 0, 0), -1);
    }
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        i32::try_from(errno).ok()
    );
}

/// Blocked signals of this thread.
fn blocked() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("SigBlk")).unwrap();
    line.to_owned()
}

fn both_ways_of_starting() {
    let before = blocked();
    let mut scene = Scene::new();
    // 3 is the folder that ls itself reads.
    let show = "grep -E '^Sig(Blk|Ign)|NoNewPrivs' /proc/self/status; ls /proc/self/fd";
    let wanted =
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nNoNewPrivs:\t1\n0\n1\n2\n3\n";
    assert_eq!(scene.text("/bin/sh", &["sh", "-c", show]), wanted);

    let launch = |path: &str| Launch {
        args: [path, "-c", show].map(c).into(),
        env: scene.env.clone(),
        dir: c("/"),
        limits: Limits::default(),
        no_new_privs: true,
        more: Vec::new(),
        knocks: false,
    };
    let (program, none) = (launch("/bin/sh"), launch("/no/such"));
    let null = File::open("/dev/null").unwrap();
    let (mut stdout, theirs) = std::io::pipe().unwrap();
    let stdio = || [null.as_fd(), theirs.as_fd(), null.as_fd()];
    let mut failing = scene.spawner.launch(none, stdio()).unwrap();
    failing.wait().unwrap();
    match scene.spawner.outcome(&failing) {
        LaunchOutcome::Failed(failed) => assert_eq!(failed.error.stage, Stage::Exec),
        other => panic!("{other:?}"),
    }
    let mut child = scene.spawner.launch(program, stdio()).unwrap();
    drop(theirs);
    assert!(child.wait().unwrap().status.success());
    assert!(matches!(
        scene.spawner.outcome(&child),
        LaunchOutcome::Started
    ));
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    assert_eq!(text, wanted);
    assert_eq!(blocked(), before);
}

#[test]
fn programs_are_started_by_clone() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        thread::spawn(move || {
            // SAFETY: no code runs for it. A program must not be born with it.
            unsafe {
                libc::signal(libc::SIGUSR1, libc::SIG_IGN);
            }
            no_clone3(errno.unsigned_abs());
            both_ways_of_starting();
        })
        .join()
        .unwrap();
    }
}
