//! Compiles modules, off every request's way. A process compiles each module: it gets the module as its standard input
//! and can do nothing but answer.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use galgo_spawn::{FileId, Spawner, Status, lock::lock};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, fstat},
    pipe::{PipeFlags, pipe_with},
};

use super::prune;
use crate::{
    code,
    host::{self, Beside, HostProgram},
    module::{self, ModuleInfo},
    no_code::{ModuleFault, NoCode, is_shortage},
    runtime::runtime_state::{CompileJob, Jobs, Runtime, TemporaryCache},
    wire::{Message, ModuleDigest, read_text},
};

/// Number of threads that have modules compiled: each compiling process uses all processors.
const THREADS: usize = 2;
/// A thread that reads a module for this long hangs, maybe for ever: another thread takes its place, for modules on other file
/// systems.
pub(super) const SLOW: Duration = Duration::from_secs(2);
/// Threads that may hang so.
const MOST_SLOW: usize = 64;
/// Longest time for a compilation, including the wait for the processors.
const PATIENCE: i64 = 2 * host::CPU.cast_signed();
/// Limit of bytes in a message about a faulty module.
const WORDS: u64 = 4 << 10;
/// A file that changed this recently may change again without a new time stamp (the kernel's tick is at most 4 ms).
const SETTLE: Duration = Duration::from_millis(8);

/// Compiles a waiting module next, because a request waits for it. No request waits for modules that a search has
/// found.
pub(super) fn hurry(runtime: &Arc<Runtime>, file: &Path) {
    let mut jobs = lock(&runtime.jobs);
    let at = jobs.waiting.iter().position(|job| job.file == file);
    if let Some(job) = at.and_then(|at| jobs.waiting.remove(at)) {
        jobs.waiting.push_front(job);
        start_thread(runtime, jobs);
    }
}

impl Jobs {
    /// Counts the threads that hang. `device`: only those on this file system.
    fn count_slow(&self, device: Option<i64>) -> usize {
        let is_slow = |(on, since): &&(i64, Instant)| {
            since.elapsed() >= SLOW && device.is_none_or(|device| device == *on)
        };
        self.reads.iter().filter(is_slow).count()
    }

    fn begin_read(&mut self, job: &CompileJob) -> (i64, Instant) {
        let read = (job.id.device(), Instant::now());
        self.reads.push(read);
        read
    }

    fn end_read(&mut self, read: (i64, Instant)) {
        let at = self.reads.iter().position(|other| *other == read);
        at.map(|at| self.reads.swap_remove(at));
    }
}

/// Compiles a module. A thread lives as long as there are jobs: an idle server keeps neither a thread nor its memory.
pub(super) fn compile(runtime: &Arc<Runtime>, job: CompileJob) {
    let mut jobs = lock(&runtime.jobs);
    jobs.waiting.push_back(job);
    start_thread(runtime, jobs);
}

fn start_thread(runtime: &Arc<Runtime>, mut jobs: MutexGuard<'_, Jobs>) {
    let slow = jobs.count_slow(None);
    if jobs.threads >= THREADS + slow.min(MOST_SLOW) {
        return;
    }
    let theirs = runtime.clone();
    let thread = thread::Builder::new().name("compile".into());
    match thread.spawn(move || work(&theirs)) {
        Ok(_) => jobs.threads += 1,
        // The other threads get to the job.
        Err(_) if jobs.threads > 0 => {}
        Err(e) => {
            let given_up = std::mem::take(&mut jobs.waiting);
            drop(jobs);
            for job in given_up {
                let wrong = NoCode::from_io_error("no thread to compile it", &e);
                report(runtime, &job.file, job.id, &Err(wrong));
            }
        }
    }
}

fn work(runtime: &Arc<Runtime>) {
    let mut spawner = None;
    loop {
        let mut jobs = lock(&runtime.jobs);
        // If this thread was slow, another has taken its place. Modules on a file system that hangs wait for the thread there.
        let is_extra = jobs.threads > THREADS + jobs.count_slow(None);
        let answers = |job: &CompileJob| jobs.count_slow(Some(job.id.device())) == 0;
        let next = jobs.waiting.iter().position(answers).filter(|_| !is_extra);
        let Some(job) = next.and_then(|at| jobs.waiting.remove(at)) else {
            jobs.threads -= 1;
            return;
        };
        let mut read = jobs.begin_read(&job);
        drop(jobs);
        let made = |file: &File, known: &_| {
            lock(&runtime.jobs).end_read(read);
            let made = made(runtime, known, file, &mut spawner);
            read = lock(&runtime.jobs).begin_read(&job);
            made
        };
        let (id, made) = settled(&job.file, made);
        lock(&runtime.jobs).end_read(read);
        report(runtime, &job.file, id.unwrap_or(job.id), &made);
    }
}

/// Reports the result for a file to the worker, the operator and the waiting requests.
fn report(runtime: &Arc<Runtime>, file: &Path, id: FileId, made: &Result<ModuleDigest, NoCode>) {
    let (unused, waiting) = lock(&runtime.modules).done(file, id, made);
    if let Ok(key) = made {
        runtime.has_cache();
        runtime.tell(&Message::Load(*key));
    }
    if let Some(key) = unused {
        runtime.tell(&Message::Forget(key));
    }
    if let Err(wrong) = made {
        runtime.say(&format!("{}: {}", file.display(), wrong.words));
    }
    for one in waiting {
        // The request may have gone meanwhile.
        let _ = one.send(made.clone());
    }
}

/// Applies `make` to a module. Returns the result, and the identity of the file then (`None`: there is no file). If the
/// file has changed meanwhile, starts again.
pub(super) fn settled<T>(
    path: &Path,
    mut make: impl FnMut(&File, &ModuleInfo) -> Result<T, NoCode>,
) -> (Option<FileId>, Result<T, NoCode>) {
    loop {
        let (file, id) = match opened(path) {
            Ok(opened) => opened,
            Err(e) => return (None, Err(NoCode::from_io_error("it cannot be opened", &e))),
        };
        let fresh = settles_in(id).is_some();
        let known = match module::inspect_module(&file) {
            Ok(known) => known,
            Err(e) => {
                let wrong = NoCode::module_fault(format!("it cannot be read: {e}"));
                return (Some(id), Err(wrong));
            }
        };
        // A recently changed file is compiled at once, and checked again when its time stamp can be trusted. So a
        // request for a new file waits only for its compilation.
        let made = match known.wrong {
            Some(wrong) => Err(NoCode::module_fault(wrong)),
            None => make(&file, &known),
        };
        if !fresh || is_still(path, id, &known) {
            return (Some(id), made);
        }
    }
}

fn opened(path: &Path) -> io::Result<(File, FileId)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    let id = FileId::from_stat(&fstat(&fd)?);
    Ok((fd.into(), id))
}

/// Returns the time until a file's last change is old enough; `None`: it is.
fn settles_in(id: FileId) -> Option<Duration> {
    let (seconds, nanos) = id.change_time();
    let changed = Duration::new(seconds.unsigned_abs(), u32::try_from(nanos).unwrap_or(0));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    SETTLE
        .checked_sub(now.checked_sub(changed)?)
        .filter(|rest| !rest.is_zero())
}

/// Whether a file that was read soon after a change has not changed since. Waits until its time stamp would show a
/// change, and compares.
fn is_still(path: &Path, id: FileId, known: &ModuleInfo) -> bool {
    if let Some(rest) = settles_in(id) {
        thread::sleep(rest);
    }
    opened(path).is_ok_and(|(file, now)| {
        now == id && module::inspect_module(file).is_ok_and(|again| again == *known)
    })
}

fn made(
    runtime: &Arc<Runtime>,
    known: &ModuleInfo,
    file: &File,
    spawner: &mut Option<Spawner>,
) -> Result<ModuleDigest, NoCode> {
    let key = known.key;
    let host = found(&runtime.settings.beside, spawner)?;
    // The worker is up when there is code. If there is no thread for the start, the next request gets an error.
    let _ = runtime.start();
    let tag = host.engine();
    let cache = &runtime.cache();
    if code::check_cache_path(cache).is_ok() && code::has_entry(cache, &key, tag) {
        prune::touch(&code::entry_path(cache, &key, tag));
        return Ok(key);
    }
    let begun = code::create_cache(cache).and_then(|()| draft(cache));
    let (draft, to) = match begun {
        Ok(begun) => begun,
        Err(e) => elsewhere(runtime, cache, &e)?,
    };
    let cache = &runtime.cache();
    let cannot =
        |e: io::Error| NoCode::from_io_error(&format!("the cache {}", cache.display()), &e);
    let done = compiled(host, file, &to, spawner)
        .and_then(|()| fs::rename(&draft, code::entry_path(cache, &key, tag)).map_err(cannot));
    match done {
        Ok(()) => prune::prune(cache),
        Err(_) => drop(fs::remove_file(&draft)),
    }
    // A second look, because the file may have changed since we read it. The process is not to be trusted with more
    // than code.
    done.and_then(|()| {
        if code::has_entry(cache, &key, tag) {
            Ok(key)
        } else {
            Err(NoCode::server_fault("it changed while it was compiled"))
        }
    })
}

/// Makes a draft in this runtime's own temporary cache, because the configured one cannot be used.
fn elsewhere(
    runtime: &Runtime,
    cache: &Path,
    error: &io::Error,
) -> Result<(PathBuf, File), NoCode> {
    let failed =
        |e: io::Error| NoCode::from_io_error(&format!("the cache {}", cache.display()), &e);
    if is_shortage(error) || runtime.temporary_cache.get().is_some() {
        return Err(NoCode::from_io_error(
            &format!("the cache {}", cache.display()),
            error,
        ));
    }
    let own = TemporaryCache::make().map_err(failed)?;
    if runtime.temporary_cache.set(own).is_ok() {
        let cache = cache.display();
        runtime.say(&format!(
            "the cache {cache} cannot be used: {error}. Until a restart compiled modules are kept in a temporary folder: \
             make {cache} a folder of the server's user (chmod 700)"
        ));
    }
    draft(&runtime.cache()).map_err(failed)
}

/// Creates a file that becomes an entry once it is complete.
fn draft(cache: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = cache.join(format!("draft-{}-{number}", std::process::id()));
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)?;
    Ok((path, file))
}

/// Returns the program that compiles and runs modules. The first caller asks it for its version and engine.
fn found<'b>(beside: &'b Beside, spawner: &mut Option<Spawner>) -> Result<&'b HostProgram, NoCode> {
    beside.verify_program(|host| answer(host, spawner))
}

fn answer(host: &HostProgram, spawner: &mut Option<Spawner>) -> Result<String, NoCode> {
    let io = |e: io::Error| NoCode::from_io_error("asking galgo-wasm for its engine", &e);
    let (said, stdout) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| io(e.into()))?;
    let nothing = File::open("/dev/null").map_err(io)?;
    let asked = run(host, host::ENGINE, nothing.as_fd(), stdout.as_fd(), spawner);
    drop(stdout);
    asked.map_err(|wrong| match wrong.whose {
        ModuleFault::Module => NoCode::server_fault(wrong.words),
        _ => wrong,
    })?;
    Ok(read_text(said, WORDS))
}

pub(super) fn compiled(
    host: &HostProgram,
    module: &File,
    to: &File,
    spawner: &mut Option<Spawner>,
) -> Result<(), NoCode> {
    let cannot = |e: rustix::io::Errno| NoCode::server_fault(format!("it cannot be read: {e}"));
    rustix::fs::seek(module, rustix::fs::SeekFrom::Start(0)).map_err(cannot)?;
    run(host, host::COMPILE, module.as_fd(), to.as_fd(), spawner)
}

/// Runs a process that compiles, or might compile, to its end.
fn run(
    host: &HostProgram,
    command: &str,
    stdin: BorrowedFd<'_>,
    stdout: BorrowedFd<'_>,
    spawner: &mut Option<Spawner>,
) -> Result<(), NoCode> {
    let io = |e: io::Error| NoCode::from_io_error("starting its compilation", &e);
    let (words, stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| io(e.into()))?;
    let spawner = match spawner {
        Some(spawner) => spawner,
        None => spawner.insert(Spawner::direct().map_err(io)?),
    };
    let child = host.start_command(spawner, command, [stdin, stdout, stderr.as_fd()], None);
    let mut child = child.map_err(|e| NoCode::from_io_error(&e.stage.to_string(), &e.source))?;
    drop(stderr);
    let patience = Timespec {
        tv_sec: PATIENCE,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(&child, PollFlags::IN)];
    if !matches!(poll(&mut fds, Some(&patience)), Ok(n) if n > 0) {
        let words = format!("its compilation took more than {PATIENCE} s");
        return Err(NoCode::module_fault(words));
    }
    match child.wait().map_err(io)?.status {
        Status::Code(0) => Ok(()),
        Status::Code(_) => Err(NoCode::module_fault(read_text(words, WORDS).trim())),
        Status::Signal(n) => Err(NoCode::module_fault(format!(
            "its compilation was killed by signal {n}: it needed more time or memory than the limits \
             ({} s of processor time, 4 GiB)",
            host::CPU
        ))),
    }
}

/// Checks a module as a request for it would: compiles it, and discards the code.
///
/// # Errors
/// The problem of the module, in words.
pub fn examine(beside: &Beside, path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(|e| format!("it cannot be read: {e}"))?;
    let nowhere = File::options().write(true).open("/dev/null");
    let nowhere = nowhere.map_err(|e| format!("/dev/null: {e}"))?;
    let mut spawner = None;
    let done =
        found(beside, &mut spawner).and_then(|host| compiled(host, &file, &nowhere, &mut spawner));
    done.map_err(|wrong| wrong.words)
}
