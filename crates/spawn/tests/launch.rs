//! Starts without waiting for their outcome. This is a single test because it counts descriptors and children of the
//! whole process.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::{
    Child, EnvBlock, FailedLaunch, Launch, LaunchOutcome, Limits, Priority, Sandbox, Spawner,
    StartStage, Status,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use scene::c;
use std::{
    fs::{self, File, OpenOptions},
    io::{PipeReader, Read},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::PermissionsExt,
    },
};

struct Field {
    spawner: Spawner,
    null: File,
}

struct Launched {
    child: Child,
    stdout: PipeReader,
}

fn launch(args: &[&str]) -> Launch {
    let mut env = EnvBlock::default();
    env.set_variable(b"PATH", b"/usr/bin:/bin");
    Launch {
        path: None,
        args: args.iter().map(c).collect(),
        env,
        dir: c("/"),
        limits: Limits::default(),
        no_new_privs: true,
        sandbox: Sandbox::Standard,
        more: Vec::new(),
        knocks: true,
        priority: Priority::Normal,
    }
}

impl Field {
    fn new() -> Self {
        Self {
            spawner: Spawner::direct().unwrap(),
            null: {
                let mut null = File::options();
                null.read(true).write(true);
                null
            }
            .open("/dev/null")
            .unwrap(),
        }
    }

    fn launch(&mut self, launch: Launch) -> Launched {
        let (stdout, theirs) = std::io::pipe().unwrap();
        let stdio = [self.null.as_fd(), theirs.as_fd(), self.null.as_fd()];
        let child = self.spawner.launch(launch, stdio).unwrap();
        Launched { child, stdout }
    }

    /// Returns the outcome as soon as it is known. It waits for the child's exit or its output, not for a time.
    fn outcome(&mut self, launched: &Launched) -> Result<(), Box<FailedLaunch>> {
        loop {
            match self.spawner.outcome(&launched.child) {
                LaunchOutcome::Started => return Ok(()),
                LaunchOutcome::Failed(failed) => return Err(failed),
                LaunchOutcome::UnderWay => {
                    let fds = [launched.child.as_fd(), launched.stdout.as_fd()];
                    poll(
                        &mut fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
                        None,
                    )
                    .unwrap();
                }
            }
        }
    }

    fn text(&mut self, args: &[&str]) -> (String, Status) {
        let mut launched = self.launch(launch(args));
        self.outcome(&launched).unwrap();
        let mut text = String::new();
        // The read ends only if no process here holds the other end any more.
        launched.stdout.read_to_string(&mut text).unwrap();
        (text, launched.child.wait().unwrap().status)
    }

    fn failure(&mut self, launch: Launch) -> (Box<FailedLaunch>, Status) {
        let mut launched = self.launch(launch);
        let failed = self.outcome(&launched).unwrap_err();
        // The failure is reported once. The next start is not blamed for it.
        assert!(matches!(
            self.spawner.outcome(&launched.child),
            LaunchOutcome::Started
        ));
        let mut knocked = Vec::new();
        launched.stdout.read_to_end(&mut knocked).unwrap();
        assert_eq!(knocked, [0]);
        (failed, launched.child.wait().unwrap().status)
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn has_children() -> bool {
    // SAFETY: waitpid allows a null status.
    let ret = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    ret >= 0
}

fn a_program_finds_what_one_that_was_waited_for_finds(field: &mut Field) {
    let list = "echo $(ls /proc/$$/fd) $(cut -d' ' -f5 /proc/$$/stat) $$; echo $PATH; pwd; exit 3";
    let (text, status) = field.text(&["/bin/sh", "-c", list]);
    let lines: Vec<&str> = text.lines().collect();
    let words: Vec<&str> = lines[0].split(' ').collect();
    assert_eq!(words[..3], ["0", "1", "2"], "{text}");
    assert_eq!(
        words[words.len() - 2],
        words[words.len() - 1],
        "it leads a group: {text}"
    );
    assert_eq!(lines[1..], ["/usr/bin:/bin", "/"]);
    assert_eq!(status, Status::Code(3));
}

fn failures_are_told_apart_and_can_be_tried_again(field: &mut Field) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let lost = file("lost", "#!/nonexistent/sh\n", 0o755);
    let shut = file("shut", "#!/bin/sh\n", 0o644);
    let text = file("text", "echo\n", 0o755);
    for (path, errno) in [
        (lost.as_str(), libc::ENOENT),
        ("/nonexistent", libc::ENOENT),
        (&shut, libc::EACCES),
        (&text, libc::ENOEXEC),
    ] {
        let (failed, status) = field.failure(launch(&[path]));
        assert_eq!(failed.error.stage, StartStage::Exec, "{path}");
        assert_eq!(failed.error.source.raw_os_error(), Some(errno), "{path}");
        assert_eq!(status, Status::Code(127));
    }
    let nowhere = Launch {
        dir: c("/nonexistent"),
        ..launch(&["/bin/true"])
    };
    assert_eq!(field.failure(nowhere).0.error.stage, StartStage::Chdir);

    let busy = file("busy", "#!/bin/sh\necho \"$1\"\n", 0o755);
    let writer = OpenOptions::new().append(true).open(&busy).unwrap();
    let (failed, _) = field.failure(launch(&[&busy, "again"]));
    assert!(failed.error.is_busy(), "{}", failed.error);
    drop(writer);
    let mut again = field.launch(failed.launch);
    field.outcome(&again).unwrap();
    let mut text = String::new();
    again.stdout.read_to_string(&mut text).unwrap();
    assert_eq!(text, "again\n");
    again.child.wait().unwrap();
}

/// There are more launches than stacks for them. The surplus launches wait for a stack.
fn many_under_way_do_not_disturb_each_other(field: &mut Field) {
    for _ in 0..50 {
        let mut all: Vec<_> = (0..12)
            .map(|n| (n, field.launch(launch(&["/bin/echo", &n.to_string()]))))
            .collect();
        for (n, launched) in &mut all {
            field.outcome(launched).unwrap();
            let mut text = String::new();
            launched.stdout.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("{n}\n"));
            assert!(launched.child.wait().unwrap().status.success());
        }
    }
}

/// A file with a lease (fcntl(2)). A process that executes the file waits until the lease is given up, as on a file
/// system that does not respond.
struct Leased(File);

impl Leased {
    fn new(path: &std::path::Path) -> Self {
        let file = File::open(path).unwrap();
        // SAFETY: these calls take only numbers. The signal about a waiting process is not wanted.
        unsafe {
            libc::signal(libc::SIGIO, libc::SIG_IGN);
            let done = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK);
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        Self(file)
    }
}

fn an_execve_that_takes_long_keeps_nobody(field: &mut Field) {
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("slow");
    fs::copy("/bin/echo", &slow).unwrap();
    let slow_start = || launch(&[slow.to_str().unwrap(), "late"]);
    let lease = Leased::new(&slow);
    let mut late = field.launch(slow_start());
    for _ in 0..3 {
        let dropped = field.launch(slow_start());
        assert!(matches!(
            field.spawner.outcome(&dropped.child),
            LaunchOutcome::UnderWay
        ));
        assert!(field.text(&["/bin/true"]).1.success());
        let Launched { child, mut stdout } = dropped;
        drop(child);
        // The child is ended at any stage of its start. Once its stack is taken back, the pipe has no other end.
        while stdout_is_open(&stdout) {
            let _ = field.text(&["/bin/true"]);
        }
        assert_eq!(stdout.read(&mut [0]).unwrap(), 0);
    }
    assert!(matches!(
        field.spawner.outcome(&late.child),
        LaunchOutcome::UnderWay
    ));
    assert_eq!(late.child.try_wait().unwrap(), None);
    drop(lease.0);
    field.outcome(&late).unwrap();
    let mut text = String::new();
    late.stdout.read_to_string(&mut text).unwrap();
    assert_eq!(text, "late\n");
    assert!(late.child.wait().unwrap().status.success());
}

fn stdout_is_open(stdout: &PipeReader) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&now)).unwrap() == 0
}

#[test]
fn starts_that_nobody_waits_for() {
    let none = descriptors();
    let mut field = Field::new();
    let before = descriptors();
    a_program_finds_what_one_that_was_waited_for_finds(&mut field);
    failures_are_told_apart_and_can_be_tried_again(&mut field);
    many_under_way_do_not_disturb_each_other(&mut field);
    for n in 0..10_000 {
        match n % 100 {
            0 => drop(field.failure(launch(&["/nonexistent"]))),
            _ => assert!(field.text(&["/bin/true"]).1.success()),
        }
    }
    assert_eq!(descriptors(), before);
    assert!(!has_children());
    drop(field);
    assert_eq!(descriptors(), none);
    // Here children are dropped before they have ended, so the reaper has a descriptor of its own.
    an_execve_that_takes_long_keeps_nobody(&mut Field::new());
}
