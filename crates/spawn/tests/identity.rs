//! Tests of becoming another user. This changes the whole process, so each attempt is a process of
//! its own: this test binary, started to run a single ignored test.
#![allow(clippy::unwrap_used)]

use galgo_spawn::identity::{IdentityError, effective_uid, resolve_identity};
use std::{fs, os::unix::process::CommandExt, process::Command};

/// Runs an ignored test, with these secure bits from its first thread on.
fn again(test: &str, secure_bits: libc::c_ulong) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    // SAFETY: a single system call on numbers, between fork and exec.
    unsafe {
        command.pre_exec(
            move || match libc::prctl(libc::PR_SET_SECUREBITS, secure_bits) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
}

/// Only root can show this. Without root the test fails rather than passing without a proof.
#[test]
fn root_becomes_nobody_for_good() {
    assert_eq!(effective_uid(), 0, "this test needs root");
    again("inner_nobody_for_good", 0);
}

#[test]
#[ignore = "run by root_becomes_nobody_for_good, in a process of its own"]
fn inner_nobody_for_good() {
    let nobody = resolve_identity("nobody", Some("daemon")).unwrap();
    nobody.assume().unwrap();
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = |key| {
        status
            .lines()
            .find_map(|l| l.strip_prefix(key))
            .unwrap()
            .trim()
            .to_owned()
    };
    let id = nobody.uid.to_string();
    assert_eq!(line("Uid:"), [id.as_str(); 4].join("\t"));
    assert_eq!(line("Gid:"), "1\t1\t1\t1");
    assert_eq!(line("Groups:"), "1");
    assert_eq!(line("CapEff:"), "0000000000000000");
    assert_eq!(line("CapPrm:"), "0000000000000000");
    // SAFETY: setuid takes only a number.
    assert_eq!(unsafe { libc::setuid(0) }, -1);
    // Becoming the same user again is not an error; becoming another user is.
    nobody.assume().unwrap();
    let other = resolve_identity("daemon", None).unwrap();
    assert!(matches!(
        other.assume(),
        Err(IdentityError::System("setresuid" | "setresgid", _))
    ));
}

#[test]
fn a_way_back_to_root_is_noticed() {
    assert_eq!(effective_uid(), 0, "this test needs root");
    // Keeping capabilities over the change of user is a way back to root.
    again("inner_way_back", 1 << 2); // SECBIT_NO_SETUID_FIXUP
}

#[test]
#[ignore = "run by a_way_back_to_root_is_noticed, in a process of its own"]
fn inner_way_back() {
    let nobody = resolve_identity("nobody", None).unwrap();
    assert!(matches!(nobody.assume(), Err(IdentityError::Regained(_))));
}

#[test]
fn root_keeps_ids_apart_for_good() {
    assert_eq!(effective_uid(), 0, "this test needs root");
    again("inner_apart", 0);
}

#[test]
#[ignore = "run by root_keeps_ids_apart_for_good, in a process of its own"]
fn inner_apart() {
    let nobody = resolve_identity("nobody", None).unwrap();
    nobody.assume_apart().unwrap();
    let ids = || {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("Uid:"));
        let ids = line.unwrap().split_whitespace().map(str::parse);
        ids.collect::<Result<Vec<u32>, _>>().unwrap()
    };
    let (user, own) = (nobody.uid, 0x7000_0000 + nobody.uid);
    assert_eq!(ids(), [own, own, user, user]);
    assert_eq!(effective_uid(), user, "what it opens files as");
    // A thread inherits all these ids.
    std::thread::spawn(move || assert_eq!(ids(), [own, own, user, user]))
        .join()
        .unwrap();
    // SAFETY: setuid takes only a number.
    assert_eq!(unsafe { libc::setuid(0) }, -1);
}
