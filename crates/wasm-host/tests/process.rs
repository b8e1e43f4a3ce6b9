//! Tests of the binary itself, started by hand. Because this package has such tests, cargo builds the binary for the
//! tests of the whole workspace. It puts the binary beside galgo's, and those tests look for it there.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{os::unix::process::CommandExt, process::Command};

use galgo_testkit::{Done, is_root};
use galgo_wasm::host::version;

const HOST: &str = env!("CARGO_BIN_EXE_galgo-wasm");

/// The compiling process may have only one thread.
#[test]
fn without_threads_a_module_is_compiled_by_one() {
    let mut command = Command::new("prlimit");
    command.args(["--nproc=1", HOST, "compile"]);
    if is_root() {
        // No other process has this user id, so the limit counts only this process.
        command.uid(1 << 30 | std::process::id()).gid(65534);
    }
    let module = wat::parse_str("(module (func (export \"_start\")))").unwrap();
    let done = Done::of(&mut command, &module);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(done.out.starts_with("galgo wasm code\n"));
}

#[test]
fn it_says_which_build_it_is() {
    let mut command = Command::new(HOST);
    command.args(["engine", "9.9.9-0"]);
    let done = Done::of(&mut command, b"");
    assert_eq!(done.code, 0, "{}", done.err);
    let begins = format!("{}\nwasmtime-", version());
    assert!(done.out.starts_with(&begins), "{}", done.out);
}

#[test]
fn a_server_of_another_build_is_told() {
    for command in ["compile", "worker"] {
        let mut process = Command::new(HOST);
        process.args([command, "9.9.9-0"]);
        let Done { code, err, .. } = Done::of(&mut process, b"");
        assert_ne!(code, 0);
        assert!(
            err.contains("galgo is 9.9.9-0") && err.contains(&version()),
            "{err}"
        );
    }
}

#[test]
fn a_person_is_told_who_starts_it() {
    let done = Done::of(&mut Command::new(HOST), b"");
    assert_eq!(done.code, 2);
    assert!(done.err.contains("galgo starts it"));
}
