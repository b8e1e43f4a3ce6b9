//! The program that compiles and runs modules, `galgo-wasm`: finding it, checking it, starting it.
//!
//! The program is in the folder of the server's own executable. The server opens that folder once, at the start, and the program
//! when it is first needed. A program that is installed there later is for the next server. The server executes the program only
//! if each user that can change it can change the server's executable, too. It uses the program only if both were built together.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
};

use galgo_spawn::{
    Child, EnvBlock, FileId, Limits, Sandbox, Spawner, Start, StartError, lock::lock,
};
use rustix::{
    fs::{FileType, Mode, OFlags, Stat, fstat, open, openat},
    io::Errno,
};

use crate::no_code::{ModuleFault, NoCode};

/// The name of the program.
pub const NAME: &CStr = c"galgo-wasm";
/// First argument of the program: compile standard input to standard output.
pub const COMPILE: &str = "compile";
/// First argument of the program: run instances.
pub const WORKER: &str = "worker";
/// First argument of the program: keep a worker of a user's own modules, and compile them for it.
pub const MODULES: &str = galgo_spawn::owners::MODULES;
/// First argument of the program: be that worker.
pub const OWN_WORKER: &str = "own-worker";
/// First argument of the program: print an [`format_answer`].
pub const ENGINE: &str = "engine";

/// Limit of processor time for one compilation, over all its threads, in seconds.
pub const CPU: u64 = 120;

/// The first words of a message about a module that needs the program.
const NEEDS: &str = "it is a WebAssembly module and needs galgo-wasm";

/// Names the builds that understand each other: the version, and a digest of the sources on which both must agree.
pub fn version() -> String {
    format!("{}-{PROTOCOL:08x}", env!("CARGO_PKG_VERSION"))
}

/// A digest of the sources that define messages and stored data: it changes when they change.
const PROTOCOL: u32 = fnv1a_hash(
    include_bytes!("wire.rs"),
    fnv1a_hash(include_bytes!("code.rs"), 0x811c_9dc5),
);

/// The hash FNV-1a.
const fn fnv1a_hash(bytes: &[u8], mut sum: u32) -> u32 {
    let mut at = 0;
    while at < bytes.len() {
        sum = (sum ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    sum
}

/// Returns the program's answer to a question for its engine: its [`version`], and a name that engines with interchangeable code
/// share.
pub fn format_answer(engine: &str) -> String {
    format!("{}\n{engine}\n", version())
}

/// Splits an [`format_answer`] into its two parts; `None`: the text is no answer.
fn parse_answer(said: &str) -> Option<(&str, &str)> {
    let (version, engine) = said.strip_suffix('\n')?.split_once('\n')?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let word = |text: &str| (1..=64).contains(&text.len()) && text.bytes().all(plain);
    (word(version) && word(engine)).then_some((version, engine))
}

/// The folder of the running executable, and the program in it.
#[derive(Debug)]
pub struct Beside {
    folder: Result<OwnedFd, Errno>,
    path: PathBuf,
    /// The users that can change the executable.
    own: Writers,
    host: OnceLock<HostProgram>,
    /// A file that does not fit, and why: it is not asked again while it is the same file.
    unfit: Mutex<Option<(FileId, String)>>,
}

/// A `galgo-wasm` that fits.
#[derive(Debug)]
pub struct HostProgram {
    file: OwnedFd,
    engine: String,
}

/// The users, besides root, that can change a file; by default none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Writers {
    owner: u32,
    group: Option<u32>,
    others: bool,
}

impl Writers {
    fn from_stat(stat: &Stat) -> Self {
        Self {
            owner: stat.st_uid,
            group: (stat.st_mode & 0o020 != 0).then_some(stat.st_gid),
            others: stat.st_mode & 0o002 != 0,
        }
    }

    /// Whether all these users can change another file, too.
    fn are_among(self, other: Self) -> bool {
        let owner = self.owner == 0 || self.owner == other.owner;
        let group = self.group.is_none() || self.group == other.group;
        other.others || owner && group && !self.others
    }
}

impl Beside {
    /// Looks in the folder of this very program.
    pub fn next_to_executable() -> Self {
        let own = rustix::fs::stat("/proc/self/exe").map(|stat| Writers::from_stat(&stat));
        // If the executable is replaced while it runs, the kernel appends text to its name, but the folder is the same.
        let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let folder = exe.parent().unwrap_or(Path::new("/"));
        // If its owner is unknown, only root may have written the program.
        Self::in_folder(folder, own.unwrap_or_default())
    }

    fn in_folder(path: &Path, own: Writers) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self {
            folder: open(path, flags, Mode::empty()),
            path: path.to_owned(),
            own,
            host: OnceLock::new(),
            unfit: Mutex::default(),
        }
    }

    /// Explains why no module can be run at this moment, in words about the module, as far as that is known without asking the
    /// program.
    pub fn explain_missing(&self) -> Option<String> {
        match self.host.get() {
            Some(_) => None,
            None => self.open_candidate().err(),
        }
    }

    /// Opens the program in our folder, for a helper to execute.
    ///
    /// # Errors
    /// There is no program that may be executed, in words about a module.
    pub fn open_program(&self) -> Result<OwnedFd, String> {
        self.open_candidate().map(|(file, _)| file)
    }

    pub(crate) fn known_program(&self) -> Option<&HostProgram> {
        self.host.get()
    }

    /// Opens the program in our folder, before it is asked for its version.
    fn open_candidate(&self) -> Result<(OwnedFd, FileId), String> {
        let at = self.path.display();
        let cannot = |e: &Errno| format!("{NEEDS}, but galgo-wasm in {at} cannot be opened: {e}");
        let folder = self.folder.as_ref().map_err(cannot)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(folder, NAME, flags, Mode::empty()).map_err(|e| match e {
            Errno::NOENT => format!("{NEEDS}, which is not beside galgo ({at})"),
            e => cannot(&e),
        })?;
        let stat = fstat(&file).map_err(|e| cannot(&e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(format!("{NEEDS}, but galgo-wasm in {at} is not a file"));
        }
        if !Writers::from_stat(&stat).are_among(self.own) {
            return Err(format!(
                "{NEEDS}, but users who cannot change galgo can change galgo-wasm in {at}: give both the same \
                 owner and mode"
            ));
        }
        let id = FileId::from_stat(&stat);
        match lock(&self.unfit).as_ref().filter(|(of, _)| *of == id) {
            Some((_, why)) => Err(why.clone()),
            None => Ok((file, id)),
        }
    }

    /// Returns the program. If it has not yet been asked for its version and engine, `ask` does that.
    ///
    /// # Errors
    /// The error of `ask`; or no program fits, in words about the module.
    pub(crate) fn verify_program(
        &self,
        ask: impl FnOnce(&HostProgram) -> Result<String, NoCode>,
    ) -> Result<&HostProgram, NoCode> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let unfit = |why| NoCode::new(ModuleFault::Host, why);
        let (file, id) = self.open_candidate().map_err(unfit)?;
        let engine = String::new();
        let asked = HostProgram { file, engine };
        let said = ask(&asked)?;
        match parse_answer(&said) {
            Some((its, engine)) if its == version() => Ok(self.host.get_or_init(|| HostProgram {
                engine: engine.to_owned(),
                ..asked
            })),
            other => {
                let why = self.describe_stranger(other.map(|(its, _)| its));
                *lock(&self.unfit) = Some((id, why.clone()));
                Err(unfit(why))
            }
        }
    }

    /// Describes a program of another build.
    fn describe_stranger(&self, its: Option<&str>) -> String {
        let (at, own) = (self.path.display(), version());
        match its {
            Some(its) => format!(
                "{NEEDS} {own}, but galgo-wasm in {at} is {its}: build and install both together"
            ),
            None => format!("{NEEDS} {own}, but galgo-wasm in {at} is another program"),
        }
    }
}

impl HostProgram {
    /// Returns this program itself, by the descriptor that was executed.
    pub fn from_executable(file: OwnedFd) -> Self {
        let engine = String::new();
        Self { file, engine }
    }

    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// Executes the program with `command`, and gives it nothing else of ours.
    pub(crate) fn start_command(
        &self,
        spawner: &mut Spawner,
        command: &str,
        stdio: [BorrowedFd<'_>; 3],
        more: Option<BorrowedFd<'_>>,
    ) -> Result<Child, StartError> {
        let file = self.file.as_fd();
        let more: Vec<_> = std::iter::once(file).chain(more).collect();
        let text = |s: &str| CString::new(s).unwrap_or_default();
        spawner.leave_domain_to_programs();
        spawner.start_program(&Start {
            // The first descriptor after the standard ones: the file that was checked, even if another has its name by now.
            more: &more,
            path: &text("/proc/self/fd/3"),
            args: &[NAME.to_owned(), text(command), text(&version())],
            env: &environment(),
            dir: &text("/"),
            stdio,
            limits: Limits {
                is_worker: true,
                ..Limits::default()
            },
            no_new_privs: true,
            sandbox: Sandbox::Standard,
        })
    }
}

/// Returns the variables of galgo-wasm. Each name server is asked once, for 2 s at first (resolv.conf(5)), because the threads that
/// look names up are few.
fn environment() -> EnvBlock {
    let mut env = EnvBlock::default();
    env.set_variable(b"RES_OPTIONS", b"timeout:2 attempts:1");
    env
}

/// Explains, in the program itself, why a server of the version in the arguments must not start it.
pub fn version_objection(server: Option<&str>) -> Option<String> {
    let (server, own) = (server?, version());
    (server != own).then(|| {
        format!("this is galgo-wasm {own}, and galgo is {server}: build and install both together")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    fn writers(mode: u32, owner: u32, group: u32) -> Writers {
        Writers {
            owner,
            group: (mode & 0o020 != 0).then_some(group),
            others: mode & 0o002 != 0,
        }
    }

    #[test]
    fn only_those_who_can_change_the_server_may_change_it() {
        let root = writers(0o755, 0, 0);
        let ada = writers(0o755, 7, 7);
        let shared = writers(0o775, 7, 8);
        let everybody = writers(0o777, 0, 0);
        for (host, own, fine) in [
            (root, root, true),
            (root, ada, true),
            (ada, root, false),
            (ada, ada, true),
            (writers(0o755, 9, 9), ada, false),
            (shared, shared, true),
            (ada, shared, true),
            (shared, ada, false),
            (writers(0o775, 7, 9), shared, false),
            (everybody, root, false),
            (ada, everybody, true),
        ] {
            assert_eq!(host.are_among(own), fine, "{host:?} {own:?}");
        }
    }

    fn refused(beside: &Beside, says: &str) -> String {
        match beside.verify_program(|_| Ok(says.to_owned())) {
            Err(refused) => refused.words,
            Ok(_) => panic!("{says:?} fits"),
        }
    }

    fn beside(folder: &Path) -> Beside {
        let mine = Writers {
            owner: rustix::process::geteuid().as_raw(),
            group: None,
            others: false,
        };
        Beside::in_folder(folder, mine)
    }

    #[test]
    fn it_is_found_once_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let beside = beside(folder.path());
        let why = beside.explain_missing().unwrap();
        let at = folder.path().display();
        let want = format!(
            "it is a WebAssembly module and needs galgo-wasm, which is not beside galgo ({at})"
        );
        assert_eq!(why, want);
        let program = folder.path().join("galgo-wasm");
        symlink("/bin/true", &program).unwrap();
        assert!(beside.explain_missing().unwrap().ends_with("is not a file"));
        fs::remove_file(&program).unwrap();
        fs::write(&program, "").unwrap();
        let mode = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        assert!(
            beside
                .explain_missing()
                .unwrap()
                .contains("users who cannot change galgo can change")
        );
        mode(0o755);
        assert_eq!(beside.explain_missing(), None);
        let asked = beside.verify_program(|_| Ok(format_answer("engine-1")));
        assert!(asked.is_ok_and(|host| host.engine() == "engine-1"));
        // A program that replaces it is for another server.
        fs::remove_file(&program).unwrap();
        assert_eq!(beside.explain_missing(), None);
        assert!(beside.known_program().is_some());
    }

    #[test]
    fn one_of_another_build_is_refused_until_another_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("galgo-wasm");
        fs::write(&program, "a").unwrap();
        let beside = beside(folder.path());
        assert!(refused(&beside, "9.9.9-0\nengine\n").contains("is 9.9.9-0: build"));
        assert!(beside.explain_missing().unwrap().contains("9.9.9-0"));
        fs::write(&program, "another").unwrap();
        assert_eq!(beside.explain_missing(), None);
        for says in ["", "usage", "1\n2\n3\n", "1\n\n", "a b\nc\n", "1\n2"] {
            assert!(
                refused(&beside, says).ends_with("is another program"),
                "{says}"
            );
            fs::remove_file(&program).unwrap();
            fs::write(&program, says.repeat(2)).unwrap();
        }
        assert!(version_objection(Some("9")).is_some_and(|words| words.contains(&version())));
        assert_eq!(version_objection(Some(&version())), None);
        assert_eq!(version_objection(None), None);
    }
}
