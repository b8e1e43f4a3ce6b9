//! Starts while a filter of system calls refuses clone3, as in containers.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::{Launch, LaunchOutcome, Limits, Priority, Sandbox, Spawner, StartStage};
use scene::{Scene, c};
use std::{
    fs::{self, File},
    io::Read,
    os::fd::AsFd,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// Makes clone3 fail with `errno` in this thread from now on.
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
    // SAFETY: prctl takes numbers, and a filter that stays valid for the call; the kernel copies
    // the filter.
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

/// Returns the blocked signals of this thread.
fn blocked() -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("SigBlk")).unwrap();
    line.to_owned()
}

fn both_ways_of_starting() {
    let before = blocked();
    let mut scene = Scene::new();
    // Descriptor 3 is the folder that ls itself has open.
    let show = "grep -E '^Sig(Blk|Ign)|NoNewPrivs' /proc/self/status; ls /proc/self/fd";
    let wanted =
        "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nNoNewPrivs:\t1\n0\n1\n2\n3\n";
    assert_eq!(scene.text("/bin/sh", &["sh", "-c", show]), wanted);

    let launch = |path: &str| Launch {
        path: None,
        args: [path, "-c", show].map(c).into(),
        env: scene.env.clone(),
        dir: c("/"),
        limits: Limits::default(),
        no_new_privs: true,
        sandbox: Sandbox::Standard,
        more: Vec::new(),
        knocks: false,
        priority: Priority::Normal,
    };
    let (program, none) = (launch("/bin/sh"), launch("/no/such"));
    let null = File::open("/dev/null").unwrap();
    let (mut stdout, theirs) = std::io::pipe().unwrap();
    let stdio = || [null.as_fd(), theirs.as_fd(), null.as_fd()];
    let mut failing = scene.spawner.launch(none, stdio()).unwrap();
    failing.wait().unwrap();
    match scene.spawner.outcome(&failing) {
        LaunchOutcome::Failed(failed) => assert_eq!(failed.error.stage, StartStage::Exec),
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
            // SAFETY: ignoring a signal runs no code. A started program must not inherit the
            // ignored signal.
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

#[test]
fn a_thread_that_leaves_signals_to_others_starts_programs_that_block_none() {
    thread::spawn(|| {
        galgo_spawn::leave_signals_to_others();
        assert_ne!(blocked(), "SigBlk:\t0000000000000000");
        both_ways_of_starting();
    })
    .join()
    .unwrap();
}

/// Number of times that this process's signal handler has run.
static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handled(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// The child runs in this process's memory until it executes its program.
#[test]
fn a_child_that_is_signalled_on_its_way_runs_no_handler_of_this_process() {
    let many = || {
        let scene = Scene::new();
        let mut spawner = Spawner::direct().unwrap();
        let null = File::open("/dev/null").unwrap();
        for _ in 0..300 {
            let launch = Launch {
                path: None,
                args: vec![c("/bin/true")],
                env: scene.env.clone(),
                dir: c("/"),
                limits: Limits::default(),
                no_new_privs: true,
                sandbox: Sandbox::Standard,
                more: Vec::new(),
                knocks: false,
                priority: Priority::Normal,
            };
            let mut child = spawner.launch(launch, [null.as_fd(); 3]).unwrap();
            for _ in 0..20 {
                let _ = child.signal_group(libc::SIGUSR2);
            }
            child.wait().unwrap();
        }
    };
    // SAFETY: the handler only touches an atomic.
    unsafe {
        let handler = handled as extern "C" fn(libc::c_int) as libc::sighandler_t;
        libc::signal(libc::SIGUSR2, handler);
    }
    thread::spawn(many).join().unwrap();
    thread::spawn(move || {
        galgo_spawn::leave_signals_to_others();
        many();
    })
    .join()
    .unwrap();
    assert_eq!(HANDLED.load(Ordering::Relaxed), 0);
}
