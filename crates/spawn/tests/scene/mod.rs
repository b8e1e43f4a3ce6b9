//! A spawner with the settings that most tests give to a program.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)] // each test binary uses a part

pub mod warm;

use galgo_spawn::{Child, EnvBlock, Exit, Limits, Sandbox, Spawner, Start, StartError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    ffi::CString,
    fs::File,
    io::{PipeReader, PipeWriter, Read},
    os::fd::AsFd,
    path::Path,
};

pub struct Scene {
    pub spawner: Spawner,
    pub env: EnvBlock,
    pub dir: CString,
    pub limits: Limits,
    pub no_new_privs: bool,
}

pub struct RunningChild {
    pub child: Child,
    pub stdin: PipeWriter,
    pub stdout: PipeReader,
}

pub fn c(s: impl AsRef<Path>) -> CString {
    CString::new(s.as_ref().as_os_str().as_encoded_bytes()).unwrap()
}

impl Scene {
    pub fn new() -> Self {
        let mut env = EnvBlock::default();
        env.set_variable(b"PATH", b"/usr/bin:/bin");
        Self {
            spawner: Spawner::direct().unwrap(),
            env,
            dir: c("/"),
            limits: Limits::default(),
            no_new_privs: true,
        }
    }

    pub fn start(
        &mut self,
        path: impl AsRef<Path>,
        args: &[&str],
    ) -> Result<RunningChild, StartError> {
        let (theirs_in, stdin) = std::io::pipe().unwrap();
        let (stdout, theirs_out) = std::io::pipe().unwrap();
        let null = File::options().write(true).open("/dev/null").unwrap();
        let args: Vec<CString> = args.iter().map(c).collect();
        let child = self.spawner.start_program(&Start {
            path: &c(path),
            args: &args,
            env: &self.env,
            dir: &self.dir,
            stdio: [theirs_in.as_fd(), theirs_out.as_fd(), null.as_fd()],
            more: &[],
            limits: self.limits,
            no_new_privs: self.no_new_privs,
            sandbox: Sandbox::Standard,
        })?;
        Ok(RunningChild {
            child,
            stdin,
            stdout,
        })
    }

    pub fn sh(&mut self, script: &str) -> RunningChild {
        self.start("/bin/sh", &["sh", "-c", script]).unwrap()
    }

    /// Runs a program to its end. Returns its output and its exit.
    pub fn output(&mut self, path: &str, args: &[&str]) -> (Vec<u8>, Exit) {
        let mut running = self.start(path, args).unwrap();
        let mut out = Vec::new();
        running.stdout.read_to_end(&mut out).unwrap();
        (out, running.child.wait().unwrap())
    }

    pub fn text(&mut self, path: &str, args: &[&str]) -> String {
        String::from_utf8(self.output(path, args).0).unwrap()
    }
}

impl RunningChild {
    pub fn line(&mut self) -> String {
        let (mut line, mut byte) = (String::new(), [0]);
        while self.stdout.read(&mut byte).unwrap() == 1 && byte != [b'\n'] {
            line.push(byte[0] as char);
        }
        line
    }
}

/// Whether the process of this pidfd ends, or has data to read. Even on the slowest machine 180 seconds
/// suffice.
pub fn ends(pidfd: impl AsFd) -> bool {
    is_ready(pidfd, 180)
}

/// Whether the process has ended by now.
pub fn has_ended(pidfd: impl AsFd) -> bool {
    is_ready(pidfd, 0)
}

fn is_ready(fd: impl AsFd, seconds: i64) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let within = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&within)).unwrap() == 1
}
