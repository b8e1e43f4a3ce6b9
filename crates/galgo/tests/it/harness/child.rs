//! The program in the cgi-bin. Its query is a list of steps, `verb` or `verb=argument`, separated by
//! `&`, the argument percent-encoded ([`encode`](super::encode)):
//!
//! | step | does |
//! |---|---|
//! | `head` | prints a Content-Type and the empty line |
//! | `out=TEXT`, `err=TEXT` | prints TEXT |
//! | `fill=N`, `errfill=N` | prints N bytes of the pattern `0123456789` |
//! | `errlines=N` | prints N numbered lines on standard error |
//! | `fields=N` | prints N header fields |
//! | `ones=N` | prints N bytes in N writes |
//! | `endless` | prints for ever |
//! | `echo` | copies its input to its output, as it comes |
//! | `count` | reads its input to the end, prints its length |
//! | `take=N` | reads N bytes of input |
//! | `slowly` | reads its input to the end a byte at a time, prints its length |
//! | `close=N` | closes its standard input, output or error (N is 0, 1 or 2) |
//! | `touch=NAME`, `await=NAME` | makes a mark, waits for one ([`Server::mark`](super::Server::mark)) |
//! | `pause=N` | does nothing for N milliseconds |
//! | `alone` | dies if another program is in this step at the same time |
//! | `hang` | does nothing, for ever |
//! | `deaf` | ignores TERM from here on |
//! | `last=NAME` | on TERM makes a mark and exits with status 0 |
//! | `bg=STEPS` | starts itself with other steps in the background |
//! | `die=N` | dies of signal N |
//! | `exit=N` | exits with status N |
//! | `env`, `args`, `cwd`, `fds`, `limits` | prints these, one a line |
//! | `eat=N` | takes N bytes of memory, prints `ate` |
//! | `files=N`, `spawn=N` | opens N files, starts N processes that hang; prints how many succeeded |
//! | `write=N` | writes a file of N bytes, prints `wrote` |

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::PathBuf,
    process::{Command, ExitCode},
    time::Duration,
};

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// Runs the steps of the query.
pub fn main() -> ExitCode {
    let query = env::var("QUERY_STRING").unwrap_or_default();
    for step in query.split('&').filter(|s| !s.is_empty()) {
        let (verb, argument) = step.split_once('=').unwrap_or((step, ""));
        // The reader of our output may be gone, as for any program.
        if run(verb, &decode(argument)).is_err() {
            return ExitCode::from(74);
        }
    }
    ExitCode::SUCCESS
}

fn run(verb: &str, argument: &[u8]) -> io::Result<()> {
    let text = String::from_utf8_lossy(argument).into_owned();
    let number: usize = text.parse().unwrap_or_default();
    match verb {
        "head" => out(b"Content-Type: text/plain\n\n"),
        "out" => out(argument),
        "err" => write(io::stderr(), argument),
        "fill" => fill(io::stdout(), number),
        "errfill" => fill(io::stderr(), number),
        "errlines" => {
            (0..number).try_for_each(|i| write(io::stderr(), format!("line {i}\n").as_bytes()))
        }
        "fields" => (0..number).try_for_each(|i| out(format!("X-{i}: {i}\n").as_bytes())),
        "ones" => pattern(0, number).chunks(1).try_for_each(out),
        "endless" => fill(io::stdout(), usize::MAX),
        "echo" => input(64 << 10, out).map(drop),
        "count" => out(input(64 << 10, |_| Ok(()))?.to_string().as_bytes()),
        "slowly" => out(input(1, |_| Ok(()))?.to_string().as_bytes()),
        "take" => (0..number).try_for_each(|_| read(1).map(drop)),
        "close" => close(number),
        "touch" => File::create(mark(&text)).map(drop),
        "await" => {
            while !mark(&text).exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        }
        "pause" => {
            std::thread::sleep(Duration::from_millis(number as u64));
            Ok(())
        }
        "burn" => {
            while processor() < Duration::from_millis(number as u64) {}
            Ok(())
        }
        "alone" => {
            File::create_new(mark("alone"))?;
            std::thread::sleep(Duration::from_micros(200));
            std::fs::remove_file(mark("alone"))
        }
        "hang" => loop {
            std::thread::park();
        },
        "deaf" => on_term(None),
        "last" => on_term(Some(mark(&text))),
        "bg" => background(&text).map(drop),
        // The handler of SIGSEGV that the standard library installs takes the first signal.
        "die" => loop {
            kill_process(getpid(), Signal::from_named_raw(number as i32).unwrap())?;
        },
        "exit" => std::process::exit(number as i32),
        _ => shows_or_takes(verb, number),
    }
}

/// Returns the processor time that this process has used.
fn processor() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.try_into().unwrap()
}

fn shows_or_takes(verb: &str, number: usize) -> io::Result<()> {
    match verb {
        "env" => list(env::vars_os().map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        })),
        "args" => list(env::args_os()),
        "cwd" => list([env::current_dir()?.into_os_string()]),
        "fds" => list([fds()?.into()]),
        "limits" => out(&std::fs::read("/proc/self/limits")?),
        "eat" => {
            // Zeros would get no memory from the kernel until they are touched.
            let all = vec![1_u8; number];
            out(if all.len() == number { b"ate" } else { b"" })
        }
        "files" => {
            let open: Vec<_> = (0..number)
                .map_while(|_| File::open("/dev/null").ok())
                .collect();
            out(open.len().to_string().as_bytes())
        }
        "spawn" => {
            let all: Vec<_> = (0..number).map_while(|_| background("hang").ok()).collect();
            out(all.len().to_string().as_bytes())
        }
        "write" => {
            let mut file = File::create(mark("large"))?;
            for _ in 0..number / 10_000 {
                file.write_all(&pattern(0, 10_000))?;
            }
            out(b"wrote")
        }
        _ => panic!("no such step: {verb}"),
    }
}

/// Returns the bytes `at..at + n` of the pattern that `fill` prints.
pub fn pattern(at: usize, n: usize) -> Vec<u8> {
    (at..at + n).map(|i| b'0' + (i % 10) as u8).collect()
}

/// Percent-decodes.
fn decode(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::new();
    while let Some(b) = bytes.next() {
        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
        decoded.push(match b {
            b'%' => {
                let value = (digit(bytes.next()).unwrap() << 4) | digit(bytes.next()).unwrap();
                value as u8
            }
            b => b,
        });
    }
    decoded
}

// The library's streams keep buffers and hide EBADF, so each read and write here is a system call.

fn write(to: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = rustix::io::write(&to, bytes)?;
        bytes = &bytes[n..];
    }
    Ok(())
}

fn out(bytes: &[u8]) -> io::Result<()> {
    write(io::stdout(), bytes)
}

fn read(most: usize) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; most];
    let n = rustix::io::read(io::stdin(), &mut buf[..])?;
    buf.truncate(n);
    Ok(buf)
}

/// Reads the input to its end in pieces, and returns its length.
fn input(piece: usize, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<usize> {
    let mut all = 0;
    loop {
        let got = read(piece)?;
        if got.is_empty() {
            return Ok(all);
        }
        each(&got)?;
        all += got.len();
    }
}

fn fill(to: impl AsFd, n: usize) -> io::Result<()> {
    let block = pattern(0, 100_000);
    let mut left = n;
    while left > 0 {
        let piece = left.min(block.len());
        write(&to, &block[..piece])?;
        left -= piece;
    }
    Ok(())
}

fn list(lines: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    for mut line in lines {
        line.push("\n");
        out(line.as_bytes())?;
    }
    Ok(())
}

/// Replaces a standard stream by /dev/null. The server sees a closed descriptor, but the next file does not get its number.
fn close(fd: usize) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    match fd {
        0 => rustix::stdio::dup2_stdin(null)?,
        1 => rustix::stdio::dup2_stdout(null)?,
        _ => rustix::stdio::dup2_stderr(null)?,
    }
    Ok(())
}

fn mark(name: &str) -> PathBuf {
    // The working directory is the folder of the program.
    PathBuf::from("../marks").join(name)
}

/// Catches TERM for good: to ignore it, or to leave a mark and exit.
fn on_term(mark: Option<PathBuf>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut term = runtime.block_on(async { signal(SignalKind::terminate()) })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            while term.recv().await.is_some() {
                if let Some(mark) = &mark {
                    let _ = File::create(mark);
                    std::process::exit(0);
                }
            }
        });
    });
    Ok(())
}

fn background(steps: &str) -> io::Result<std::process::Child> {
    Command::new(env::current_exe()?)
        .env("QUERY_STRING", steps)
        .spawn()
}

/// Lists the numbers of the open descriptors, except the descriptor that is used for the list.
fn fds() -> io::Result<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if !target.to_string_lossy().ends_with("/fd") {
            all.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    all.sort();
    Ok(all.join(" "))
}
