//! The binary itself, started by hand. That this package has such tests is why cargo builds the binary for those of the
//! whole workspace, beside galgo's, where these look for it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    io::Write,
    os::unix::process::CommandExt,
    process::{Command, Output, Stdio},
};

use galgo_wasm::host::version;
use rustix::process::geteuid;

const HOST: &str = env!("CARGO_BIN_EXE_galgo-wasm");

fn given(mut command: Command, input: &[u8]) -> Output {
    let mut process = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that has ended reads nothing.
    let _ = process.stdin.take().unwrap().write_all(input);
    process.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The process that compiles, which may have one thread.
#[test]
fn without_threads_a_module_is_compiled_by_one() {
    let mut command = Command::new("prlimit");
    command.args(["--nproc=1", HOST, "compile"]);
    if geteuid().is_root() {
        // Nobody else's.
        command.uid(1 << 30 | std::process::id()).gid(65534);
    }
    let module = wat::parse_str("(module (func (export \"_start\")))").unwrap();
    let output = given(command, &module);
    assert!(output.status.success(), "{}", said(&output));
    assert!(output.stdout.starts_with(b"galgo wasm code\n"));
}

#[test]
fn it_says_which_build_it_is() {
    let mut command = Command::new(HOST);
    command.args(["engine", "9.9.9-0"]);
    let output = given(command, b"");
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with(&format!("{}\nwasmtime-", version())),
        "{text}"
    );
}

#[test]
fn a_server_of_another_build_is_told() {
    for command in ["compile", "worker"] {
        let mut process = Command::new(HOST);
        process.args([command, "9.9.9-0"]);
        let output = given(process, b"");
        let said = said(&output);
        assert!(!output.status.success());
        assert!(
            said.contains("galgo is 9.9.9-0") && said.contains(&version()),
            "{said}"
        );
    }
}

#[test]
fn a_person_is_told_who_starts_it() {
    let output = given(Command::new(HOST), b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("galgo starts it"));
}
