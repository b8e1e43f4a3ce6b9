//! Commands that end, and programs that run beside the server.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait::{LONG, wait_until};

/// Output of a command, and its status.
#[derive(Debug)]
pub struct Done {
    /// Exit status; -1 if a signal ended the command.
    pub code: i32,
    /// Standard output of the command.
    pub out: String,
    /// Standard error of the command.
    pub err: String,
}

impl Done {
    /// Runs a command with `input` on its standard input.
    #[track_caller]
    pub fn of(command: &mut Command, input: &[u8]) -> Self {
        let stdin = match input {
            b"" => Stdio::null(),
            _ => Stdio::piped(),
        };
        let command = command.stdin(stdin).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (pid, stdin) = (Pid::from_child(&child), child.stdin.take());
        let ((tell, told), input) = (mpsc::channel(), input.to_vec());
        // If the command ends early, this write fails; that is fine.
        thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
        thread::spawn(move || tell.send(child.wait_with_output()));
        let done = told.recv_timeout(LONG);
        if done.is_err() {
            let _ = kill_process(pid, Signal::KILL);
        }
        done.expect("it has to end").unwrap().into()
    }

    /// Asserts that the standard output holds `words`.
    #[track_caller]
    pub fn has_out(&self, words: impl AsRef<str>) {
        assert!(
            self.out.contains(words.as_ref()),
            "{}{}",
            self.out,
            self.err
        );
    }

    /// Asserts that the standard error holds `words`.
    #[track_caller]
    pub fn has_err(&self, words: impl AsRef<str>) {
        assert!(
            self.err.contains(words.as_ref()),
            "{}{}",
            self.out,
            self.err
        );
    }
}

impl From<Output> for Done {
    fn from(o: Output) -> Self {
        Self {
            code: o.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&o.stdout).into_owned(),
            err: String::from_utf8_lossy(&o.stderr).into_owned(),
        }
    }
}

/// Another server beside galgo: nginx, php-fpm, an application. Dropping this sends TERM to the server and waits until it
/// has ended. If the server has a group of its own (`Command::process_group`), the group gets TERM.
#[derive(Debug)]
pub struct Beside(Child);

impl Beside {
    /// Starts the server. `ready` returns true once it serves.
    #[track_caller]
    pub fn start(command: &mut Command, mut ready: impl FnMut() -> bool) -> Self {
        let mut own = Self(command.stdin(Stdio::null()).spawn().unwrap());
        wait_until("the program beside the server serves", || {
            assert!(own.0.try_wait().unwrap().is_none(), "it ended: {command:?}");
            ready()
        });
        own
    }

    /// Starts the server. It is ready once it takes connections at `socket`.
    #[track_caller]
    pub fn at(command: &mut Command, socket: &Path) -> Self {
        Self::start(command, || UnixStream::connect(socket).is_ok())
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.0);
        // This fails unless the process leads a group.
        if kill_process_group(pid, Signal::TERM).is_err() {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
