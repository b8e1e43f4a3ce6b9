//! Real processes: what a program finds when it starts, and what is left when it is gone.
use galgo_spawn::*;
use std::{ffi::CString, fs::File, io::Read, os::fd::AsFd};

#[test]
fn first() {
    let mut sp = Spawner::direct().unwrap();
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .unwrap();
    let (mut r, w) = std::io::pipe().unwrap();
    let mut env = EnvBlock::default();
    env.put(b"A", b"b c");
    let c = |s: &str| CString::new(s).unwrap();
    let args = [
        c("sh"),
        c("-c"),
        c("echo $A; pwd; ls -l /proc/self/fd; cat /proc/self/status; exit 3"),
    ];
    let mut child = sp
        .start(&Start {
            path: &c("/bin/sh"),
            args: &args,
            env: &env,
            dir: &c("/tmp"),
            stdio: [null.as_fd(), w.as_fd(), null.as_fd()],
            limits: Limits::default(),
            no_new_privs: true,
        })
        .unwrap();
    drop(w);
    let mut s = String::new();
    r.read_to_string(&mut s).unwrap();
    println!("{s}");
    println!("{:?}", child.wait());
}
