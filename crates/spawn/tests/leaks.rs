//! Counts the descriptors and children that a thousand starts leave behind in the server. This is a
//! single test because it counts descriptors and children of the whole process.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::Status;
use scene::{Scene, c};
use std::fs;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn has_children() -> bool {
    // SAFETY: waitpid allows a null status.
    let ret = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) };
    ret >= 0
}

#[test]
fn starts_and_failures_leave_neither_descriptors_nor_zombies() {
    // If the server inherited this setting from its parent, the kernel would drop every exit
    // status.
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let none = descriptors();
    let mut scene = Scene::new();
    let before = descriptors();
    for n in 0..1000 {
        match n % 4 {
            0 => drop(scene.start("/nonexistent", &["x"]).map(|_| ()).unwrap_err()),
            1 => {
                scene.dir = c("/nonexistent");
                drop(scene.start("/bin/true", &["true"]).map(|_| ()).unwrap_err());
                scene.dir = c("/");
            }
            code => {
                let mut running = scene.sh(&format!("exit {code}"));
                assert_eq!(running.child.wait().unwrap().status, Status::Code(code));
            }
        }
    }
    assert_eq!(descriptors(), before);
    assert!(!has_children());
    drop(scene);
    assert_eq!(descriptors(), none);
}
