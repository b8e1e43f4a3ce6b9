//! Properties that a child is given: its standard input, whatever kind of file it is, and its
//! priority.

use super::{first_line, with_modules};
use crate::scene::warm::Warm;
use galgo_spawn::{EnvBlock, Priority, template::ChildRequest};
use galgo_testkit::file::script;
use std::{
    fs,
    io::Read,
    os::fd::AsFd,
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn a_stream_that_a_module_holds_stays_the_one_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let holds = [
        ("STDIN", "sys.stdin", "held.STDIN is sys.stdin"),
        (
            "BUFFER",
            "sys.stdin.buffer",
            "held.BUFFER is sys.stdin.buffer",
        ),
    ];
    for (name, value, question) in holds {
        fs::write(
            folder.path().join("held.py"),
            format!("import sys\n{name} = {value}\n"),
        )
        .unwrap();
        let text = format!(
            "import held, sys\nprint({question}, sys.stdin is sys.__stdin__, sys.stdin.seekable(), sys.stdin.read())\n"
        );
        let warm = with_modules(folder.path(), &text, "held");
        assert_eq!(warm.loaded.obstacle, None);
        let path = folder.path().join("program.py");
        assert_eq!(
            told_without_input(&warm),
            cold_without_input(&path),
            "{name}"
        );
    }
}

fn cold_without_input(path: &Path) -> String {
    let output = Command::new(path).stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn told_without_input(warm: &Warm) -> String {
    answer_to(warm, &fs::File::open("/dev/null").unwrap())
}

/// Returns the output of a child with this standard input.
fn answer_to(warm: &Warm, stdin: &fs::File) -> String {
    answer_with(Priority::Normal, warm, stdin)
}

fn answer_with(priority: Priority, warm: &Warm, stdin: &fs::File) -> String {
    let (mut stdout, theirs_out) = std::io::pipe().unwrap();
    let request = ChildRequest {
        program: c"",
        env: &EnvBlock::default(),
        dir: None,
        stdio: [stdin.as_fd(), theirs_out.as_fd(), theirs_out.as_fd()],
        cpu: None,
        priority,
        patience: std::time::Duration::from_secs(60),
        learn: false,
    };
    let mut running = warm.prefork().give_request(&request).unwrap();
    drop(theirs_out);
    let mut out = Vec::new();
    stdout.read_to_end(&mut out).unwrap();
    running.child.wait().unwrap();
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn a_child_has_its_priority_before_its_request() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import os\nprint(os.sched_getscheduler(0) == os.SCHED_IDLE, end='')\n";
    let path = script(folder.path(), "program.py", &(first_line("") + text));
    let warm = Warm::load(&path);
    let null = fs::File::open("/dev/null").unwrap();
    for (priority, idle) in [(Priority::Normal, "False"), (Priority::Idle, "True")] {
        assert_eq!(answer_with(priority, &warm, &null), idle, "{priority:?}");
    }
}

#[test]
fn standard_input_of_any_kind_is_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import sys, os\ni = sys.stdin\nprint(i.seekable(), i.buffer.seekable(), i.buffer.raw.seekable(), i, i.buffer.raw)\n\
                print(ascii(i.readline()), i.seekable() and i.buffer.tell(), i.buffer.raw.seekable(), ascii(i.read()))\n\
                print(i.seekable() and i.seek(0), ascii(i.read(3)), i.mode, vars(i), vars(i.buffer.raw), i.isatty())\n";
    let path = script(folder.path(), "program.py", &(first_line("") + text));
    let data = folder.path().join("body");
    fs::write(&data, "first line\nsecond line\n".repeat(50)).unwrap();
    let warm = Warm::load(&path);
    for input in [data.as_path(), Path::new("/dev/null")] {
        let file = || fs::File::open(input).unwrap();
        let expected = Command::new(&path).stdin(file()).output().unwrap();
        let out = answer_to(&warm, &file());
        let expected = String::from_utf8_lossy(&expected.stdout);
        assert_eq!(out, expected, "{}", input.display());
    }
}
