//! The end of a program, and the leftovers.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::Status;
use rustix::process::{
    Pid, PidfdFlags, WaitId, WaitIdOptions, WaitOptions, pidfd_open, waitid, waitpid,
};
use scene::{Scene, ends, has_ended};
use std::{
    io::{Read, Write},
    os::fd::{AsFd, OwnedFd},
};

fn pidfd(pid: &str) -> OwnedFd {
    pidfd_open(
        Pid::from_raw(pid.parse().unwrap()).unwrap(),
        PidfdFlags::empty(),
    )
    .unwrap()
}

#[test]
fn codes_and_signals_are_told_apart() {
    let mut scene = Scene::new();
    for (script, status) in [
        ("exit 0", Status::Code(0)),
        ("exit 1", Status::Code(1)),
        ("exit 255", Status::Code(255)),
        ("exit 127", Status::Code(127)),
        ("kill -SEGV $$", Status::Signal(libc::SIGSEGV)),
        ("kill -KILL $$", Status::Signal(libc::SIGKILL)),
        ("kill -PIPE $$", Status::Signal(libc::SIGPIPE)),
        ("kill -HUP $$", Status::Signal(libc::SIGHUP)),
    ] {
        let mut running = scene.sh(script);
        assert_eq!(running.child.wait().unwrap().status, status, "{script}");
        assert_eq!(
            running.child.try_wait().unwrap().unwrap().status,
            status,
            "asked again"
        );
        assert!(running.child.has_exited().unwrap());
    }
}

#[test]
fn a_running_program_has_no_exit_yet() {
    let mut scene = Scene::new();
    let mut running = scene.sh("read x; exit 4");
    assert_eq!(running.child.try_wait().unwrap(), None);
    assert!(!running.child.has_exited().unwrap());
    assert!(!running.child.is_exiting());
    running.stdin.write_all(b"\n").unwrap();
    assert!(ends(&running.child));
    assert!(running.child.has_exited().unwrap());
    assert!(running.child.is_exiting());
    assert_eq!(
        running.child.try_wait().unwrap().unwrap().status,
        Status::Code(4)
    );
    assert!(!running.child.is_exiting(), "its number may be another's");
}

#[test]
fn what_a_program_used_is_counted() {
    let mut running = Scene::new().sh("n=0; while [ $n -lt 100000 ]; do n=$((n+1)); done");
    let exit = running.child.wait().unwrap();
    assert!((exit.user + exit.system).as_micros() > 1000, "{exit:?}");
    assert!(exit.max_rss > 100_000, "{exit:?}");
    assert!(exit.max_rss < 1 << 32, "bytes, once: {exit:?}");
}

/// A shell whose child survives TERM; both hold the pipe open.
const STUBBORN: &str = "trap '' TERM; sleep 1000 & echo $!; wait";

#[test]
fn dropping_a_child_ends_its_whole_group() {
    let mut scene = Scene::new();
    let mut running = scene.sh(STUBBORN);
    let grandchild = pidfd(&running.line());
    let leader = running.child.as_fd().try_clone_to_owned().unwrap();
    running.child.signal_group(libc::SIGTERM).unwrap();
    assert!(!has_ended(&grandchild));
    drop(running.child);
    assert!(ends(&grandchild) && ends(&leader));
    let mut rest = String::new();
    running.stdout.read_to_string(&mut rest).unwrap();
}

#[test]
fn a_dropped_child_is_reaped() {
    let mut scene = Scene::new();
    let running = scene.sh("exec sleep 1000");
    let pid = Pid::from_raw(running.child.pid()).unwrap();
    drop(running.child);
    // A zombie stays until the reaper reaps it. From then on waitid(2) fails with ECHILD.
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(pid), look).is_ok() {
        std::thread::yield_now();
    }
}

#[test]
fn a_term_reaches_everyone_in_the_group() {
    let mut scene = Scene::new();
    let mut running = scene.sh("sleep 1000 & echo $!; wait");
    let grandchild = pidfd(&running.line());
    running.child.signal_group(libc::SIGTERM).unwrap();
    assert!(ends(&grandchild));
    assert_eq!(
        running.child.wait().unwrap().status,
        Status::Signal(libc::SIGTERM)
    );
    let e = running.child.signal_group(libc::SIGTERM).unwrap_err();
    assert_eq!(
        e.raw_os_error(),
        Some(libc::ESRCH),
        "its number may be somebody else's now"
    );
}

#[test]
fn reaping_ends_what_the_leader_left_behind() {
    let mut scene = Scene::new();
    let mut running = scene.sh("sleep 1000 & echo $!; exit 5");
    let grandchild = pidfd(&running.line());
    assert!(ends(&running.child));
    assert!(running.child.has_exited().unwrap());
    assert!(!has_ended(&grandchild), "asking alone ends nothing");
    assert_eq!(
        running.child.try_wait().unwrap().unwrap().status,
        Status::Code(5)
    );
    assert!(ends(&grandchild));
}

#[test]
fn a_stopped_program_can_be_ended() {
    let mut scene = Scene::new();
    let running = scene.sh("kill -STOP $$; echo never");
    let pid = Pid::from_raw(running.child.pid()).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped());
    let leader = running.child.as_fd().try_clone_to_owned().unwrap();
    drop(running.child);
    assert!(ends(&leader));
}
