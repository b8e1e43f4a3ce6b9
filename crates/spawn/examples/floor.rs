//! Measures the lower bound of every figure: how many processes a second this machine starts and
//! reaps.
//!
//! `floor MODE OUTSTANDING SECONDS PROGRAM [ARGUMENT]...` keeps OUTSTANDING processes of PROGRAM
//! running from a single thread, with all three standard descriptors on /dev/null. It prints the
//! number of starts a second.
//!
//! - `bare`: vfork in its smallest form (CLONE_VM | CLONE_VFORK), `execve`, `waitid(P_ALL)`. No group,
//!   no limits, no pidfd. Every descriptor is inherited.
//! - `spawn`: the same loop through this crate. The difference is the cost of the crate's guarantees.

use galgo_spawn::{Child, EnvBlock, Limits, Sandbox, Spawner, Start};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    env,
    error::Error,
    ffi::{CString, c_char},
    fs::File,
    os::fd::{AsFd, AsRawFd},
    ptr,
    time::{Duration, Instant},
};

const USAGE: &str = "floor bare|spawn OUTSTANDING SECONDS PROGRAM [ARGUMENT]...";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [mode, outstanding, seconds, program @ ..] = &args[..] else {
        return Err(USAGE.into());
    };
    let outstanding: usize = outstanding.parse()?;
    let until = Duration::from_secs(seconds.parse()?);
    let program = program
        .iter()
        .map(|a| CString::new(a.as_str()))
        .collect::<Result<Vec<_>, _>>()?;
    if program.is_empty() || outstanding == 0 {
        return Err(USAGE.into());
    }
    let begin = Instant::now();
    let starts = match mode.as_str() {
        "bare" => bare(&program, outstanding, begin + until)?,
        "spawn" => spawn(&program, outstanding, begin + until)?,
        _ => return Err(USAGE.into()),
    };
    let rate = f64::from(starts) / begin.elapsed().as_secs_f64();
    #[allow(clippy::print_stdout)] // its purpose
    {
        println!("{mode}: {rate:.0} starts/s ({outstanding} outstanding)");
    }
    Ok(())
}

fn null() -> std::io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}

fn spawn(program: &[CString], outstanding: usize, end: Instant) -> Result<u32, Box<dyn Error>> {
    let (null, env, dir) = (null()?, EnvBlock::default(), CString::new("/")?);
    let start = Start {
        path: &program[0],
        args: program,
        env: &env,
        dir: &dir,
        stdio: [null.as_fd(); 3],
        more: &[],
        limits: Limits::default(),
        no_new_privs: true,
        sandbox: Sandbox::Standard,
    };
    let mut spawner = Spawner::direct()?;
    let mut running: Vec<Child> = Vec::new();
    let mut starts = 0;
    loop {
        let more = Instant::now() < end;
        while more && running.len() < outstanding {
            running.push(spawner.start_program(&start)?);
            starts += 1;
        }
        if running.is_empty() {
            return Ok(starts);
        }
        let mut fds: Vec<_> = running
            .iter()
            .map(|c| PollFd::new(c, PollFlags::IN))
            .collect();
        poll(&mut fds, None)?;
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        for at in (0..ready.len()).rev().filter(|&at| ready[at]) {
            running.swap_remove(at).wait()?;
        }
    }
}

fn bare(program: &[CString], outstanding: usize, end: Instant) -> Result<u32, Box<dyn Error>> {
    let null = null()?;
    for fd in 0..=2 {
        if fd != 1 {
            // SAFETY: dup2 takes only numbers.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
    // SAFETY: fcntl takes only numbers. The real standard output is needed again for the result.
    let output = unsafe { libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: dup2 takes only numbers.
    unsafe { libc::dup2(null.as_raw_fd(), 1) };
    let argv: Vec<*const c_char> = program
        .iter()
        .map(|a| a.as_ptr())
        .chain([ptr::null()])
        .collect();
    let mut stack = vec![0u128; 4096];
    let (mut running, mut starts) = (0, 0);
    loop {
        while running < outstanding && Instant::now() < end {
            vfork_exec(&mut stack, &argv)?;
            (running, starts) = (running + 1, starts + 1);
        }
        if running == 0 {
            break;
        }
        // SAFETY: a null info is allowed.
        let ret = unsafe { libc::waitid(libc::P_ALL, 0, ptr::null_mut(), libc::WEXITED) };
        if ret != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        running -= 1;
    }
    // SAFETY: dup2 takes only numbers.
    unsafe { libc::dup2(output, 1) };
    Ok(starts)
}

fn vfork_exec(stack: &mut [u128], argv: &[*const c_char]) -> std::io::Result<()> {
    extern "C" fn child(argv: *mut libc::c_void) -> libc::c_int {
        let argv: *const *const c_char = argv.cast_const().cast();
        let env: [*const c_char; 1] = [ptr::null()];
        // SAFETY: argv is a null-terminated array of strings that outlives the call: the parent is
        // suspended.
        unsafe {
            libc::execve(*argv, argv, env.as_ptr());
            libc::_exit(127)
        }
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let arg = argv.as_ptr().cast_mut().cast();
    // SAFETY: CLONE_VFORK suspends us until the child has left this memory. Meanwhile only the child
    // uses the stack, and its top is aligned as u128 is. `child` makes only system calls.
    let pid = unsafe { libc::clone(child, stack.as_mut_ptr_range().end.cast(), flags, arg) };
    if pid < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(())
    }
}
