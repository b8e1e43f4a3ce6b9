//! The terms for starting programs as another user.

use super::{
    checks::{
        CheckFailure, Denied, Layout, OwnedBy, PROGRAMS, PUBLIC, ProgramFolder, denied,
        host_folder, may_run,
    },
    link::NotDone,
};
use crate::{
    EnvBlock, Limits, Sandbox,
    glob::Glob,
    host_name::is_host,
    identity::{self, Identity, IdentityError, User},
    sandbox::{Confinement, kernel},
};
use std::{
    ffi::CStr,
    hash::{DefaultHasher, Hash, Hasher},
    ops::RangeInclusive,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Name of the worker in an order to a helper. No program has this path.
pub const MODULES: &str = "modules";

/// User ids that no program runs as merely because its file belongs to them. systemd allocates some of them while a service
/// runs (DynamicUser). `nobody`, 65534, owns the files of all unknown users (user_namespaces(7), NFS).
const OF_THE_SYSTEM: RangeInclusive<u32> = 61_184..=65_535;

/// The user that the programs of a route run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunsAs {
    /// This user; programs and their folders belong to it or to root. The user's groups are looked up when a helper is made.
    User(User),
    /// The server's own user, for a sandbox that only a helper can make. The files may belong to any user.
    Server(Identity),
    /// The owner of the program's file. The system must know this user.
    Owner {
        /// The lowest permitted user id.
        min_uid: u32,
        /// The lowest permitted id of the user's own group.
        min_gid: u32,
        /// The server's own user, which is allowed whatever its id is; 0: no exception.
        server: u32,
    },
}

impl RunsAs {
    /// Returns the rule for the owners of programs and folders.
    pub fn owned_by(&self) -> OwnedBy {
        match self {
            Self::Server(_) => OwnedBy::Anybody,
            Self::User(_) => OwnedBy::UserOrRoot,
            Self::Owner { .. } => OwnedBy::User,
        }
    }
}

/// The settings of the worker of a route's modules, and the folders that the worker sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleTerms {
    /// The server's build, passed as the worker's last argument. The worker's program must be of the same build.
    pub build: String,
    /// Data that the worker reads from its descriptor 4 at its start.
    pub setup: Vec<u8>,
    /// Folders that modules may read. A strict sandbox grants them to the worker in addition to the programs' folders.
    pub read: Vec<PathBuf>,
    /// Folders that modules may also change.
    pub write: Vec<PathBuf>,
}

/// The programs of one route, or the single program of its worker, and the settings for their start.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// The absolute path of the folder, or of the single program.
    pub path: PathBuf,
    /// The kind of that folder.
    pub layout: Layout,
    /// Patterns for the names of programs. Empty: all files of the folder may be started.
    pub names: Vec<Glob>,
    /// Programs that run files, by file name extension.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
    /// Names of variables that the server may set in addition to `HTTP_*`.
    pub variables: Vec<String>,
    /// Variables with fixed values, which override the server's.
    pub constants: Vec<(String, String)>,
    /// The words of a query string become arguments of the program.
    pub query_args: bool,
    /// The arguments of a worker: one program that stays, and accepts connections on its standard input. The server cannot
    /// change anything about its start. `None`: each start serves one request.
    pub worker: Option<Vec<String>>,
    /// Variables for programs that are kept loaded, in addition to the constants. `None`: programs always start cold.
    pub warm: Option<Vec<(String, String)>>,
    /// The settings of the route's module worker; `None`: the route runs no modules.
    pub modules: Option<ModuleTerms>,
    /// Resource limits.
    pub limits: Limits,
    /// File mode creation mask.
    pub umask: u32,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// The sandbox that programs run in.
    pub sandbox: Sandbox,
    /// The access that a strict sandbox leaves to programs.
    pub strict: Option<Arc<Confinement>>,
    /// The user that programs run as.
    pub runs_as: RunsAs,
    /// The supplementary groups that programs keep, if their user is a member.
    pub groups: Vec<u32>,
}

/// The permission of a helper to start programs. Server and spawner each read it in the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Remit {
    pub(crate) terms: Terms,
    digest: u64,
    /// For the remit of one host: the digest of the remit that it was derived from, and the host's name.
    of: Option<(u64, String)>,
}

impl Remit {
    /// Creates the remit for these terms.
    pub fn new(terms: Terms) -> Self {
        let mut hasher = DefaultHasher::new();
        format!("{terms:?}").hash(&mut hasher);
        let digest = hasher.finish();
        Self {
            terms,
            digest,
            of: None,
        }
    }

    /// Returns the same remit for the folder that holds the hosts' folders. Programs are started only by the remit of one host.
    pub fn for_hosts_folder(&self) -> Self {
        Self::new(Terms {
            layout: Layout::Hosts,
            ..self.terms.clone()
        })
    }

    /// Derives the remit for one host's programs: `HOST/cgi-bin` in the [folder of hosts](Self::for_hosts_folder), or those among
    /// the files in `HOST/public` if the terms have names. `modules` adapts the
    /// settings of the module worker to that folder. Returns `None` if this remit is not for folders of hosts, or `host` is no
    /// host name.
    pub fn derive_for_host(
        &self,
        host: &str,
        modules: impl FnOnce(&ModuleTerms, &Path) -> ModuleTerms,
    ) -> Option<Self> {
        if self.terms.layout != Layout::Hosts || !is_host(host) {
            return None;
        }
        let folder = match self.terms.names[..] {
            [] => PROGRAMS,
            _ => PUBLIC,
        };
        let path = self.terms.path.join(host).join(folder);
        let own = Self::new(Terms {
            modules: self.terms.modules.as_ref().map(|m| modules(m, &path)),
            path,
            layout: Layout::Host,
            ..self.terms.clone()
        });
        Some(Self {
            of: Some((self.digest, host.to_owned())),
            ..own
        })
    }

    /// Returns the name that the spawner knows this remit by: the digest of the configured remit, and the host's name. Without
    /// a host the name is empty.
    pub(crate) fn spawner_key(&self) -> (u64, &str) {
        let of = self.of.as_ref().map(|(digest, host)| (*digest, &**host));
        of.unwrap_or((self.digest, ""))
    }

    /// Returns the folder or program as configured. For a host's remit, resolves links first.
    ///
    /// # Errors
    /// The host's folder is missing, or leads elsewhere.
    pub(crate) fn resolve_folder(&self) -> Result<PathBuf, Denied> {
        let root = &self.terms.path;
        match self.terms.layout {
            Layout::Named => Ok(root.clone()),
            Layout::Hosts => Err(denied(root, CheckFailure::NoHost)),
            Layout::Host => {
                host_folder(root, self.terms.runs_as.owned_by()).map(|(_, folder)| folder)
            }
        }
    }

    /// Returns the name of the remit between processes of the same binary. Other terms give another digest.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Whether its helpers number processes themselves, each helper in its own PID namespace.
    pub(crate) fn has_own_ids(&self) -> bool {
        self.terms.strict.is_some() && kernel().namespaces
    }

    /// Returns the user that the programs run as.
    pub fn runs_as(&self) -> &RunsAs {
        &self.terms.runs_as
    }

    /// Whether the programs run as another user than the server.
    pub fn runs_as_others(&self) -> bool {
        !matches!(self.terms.runs_as, RunsAs::Server(_))
    }

    /// Checks that `program` may run as the user `uid`. Returns the path with links resolved.
    ///
    /// # Errors
    /// The program may not run as that user.
    pub fn check_program(&self, program: &Path, uid: u32) -> Result<PathBuf, Denied> {
        let interpreter = self.interpreter(program.as_os_str().as_bytes());
        self.may_run(program, uid, interpreter.is_some())
    }

    /// Returns the identity that a helper assumes for the user `uid`, if the route allows this user. Asks the name service.
    ///
    /// # Errors
    /// No program of this route runs as that user, or the name service does not answer. The error holds a sentence for the log.
    pub fn resolve_identity(&self, uid: u32) -> Result<Identity, NotDone> {
        let mut identity = self.resolve_member(uid)?;
        identity.keep_groups(&self.terms.groups);
        Ok(identity)
    }

    /// Returns the identity with all groups of the user.
    fn resolve_member(&self, uid: u32) -> Result<Identity, NotDone> {
        let denied = |why: String| Err(NotDone::Denied(why));
        let (min_uid, min_gid, server) = match &self.terms.runs_as {
            RunsAs::User(user) if user.uid == uid => return refuse_root_group(user.identity()),
            RunsAs::Server(user) if user.uid == uid => return Ok(user.clone()),
            RunsAs::User(_) | RunsAs::Server(_) => {
                return denied(format!("no program of this route runs as the user {uid}"));
            }
            RunsAs::Owner {
                min_uid,
                min_gid,
                server,
            } => (*min_uid, *min_gid, *server),
        };
        if OF_THE_SYSTEM.contains(&uid) && uid != server {
            return denied(format!(
                "it belongs to the user {uid}, which is nobody or a dynamic user of systemd: chown it to an account"
            ));
        }
        if uid == 0 || uid < min_uid {
            return denied(format!(
                "it belongs to the user {uid}, but programs run as their owner only from min_uid = {min_uid} on"
            ));
        }
        let user = identity::resolve_uid(uid).map_err(|e| match e {
            // The name service has not answered, so nothing is known of the user.
            IdentityError::System(..) => NotDone::NotNow(format!("the name service: {e}")),
            e => NotDone::Denied(format!("its owner: {e}")),
        })?;
        match user.gid {
            0 => denied(format!(
                "its owner, the user {uid}, is in the group of root, but galgo runs no program in that group: usermod -g"
            )),
            gid if gid < min_gid => denied(format!(
                "its owner, the user {uid}, is in the group {gid}, but programs run as their owner only from min_gid = {min_gid} on"
            )),
            _ => refuse_root_group(user),
        }
    }

    /// Returns the interpreter for a file with this name.
    pub(crate) fn interpreter(&self, program: &[u8]) -> Option<&Path> {
        let mut all = self.terms.interpreters.iter();
        let found = all.find(|(ending, _)| program.ends_with(ending.as_bytes()));
        found.map(|(_, interpreter)| interpreter.as_path())
    }

    /// Whether `interpreter` runs `script`.
    pub(crate) fn is_run_by(&self, script: &CStr, interpreter: &CStr) -> bool {
        let runs = self.interpreter(script.to_bytes());
        runs.is_some_and(|path| path.as_os_str().as_bytes() == interpreter.to_bytes())
    }

    /// Checks that `module` may run as the user `uid`. Returns the path with links resolved.
    ///
    /// # Errors
    /// The module may not run as that user.
    pub fn check_module(&self, module: &Path, uid: u32) -> Result<PathBuf, Denied> {
        self.may_run(module, uid, true)
    }

    fn may_run(&self, program: &Path, uid: u32, interpreted: bool) -> Result<PathBuf, Denied> {
        let folder = ProgramFolder {
            root: &self.terms.path,
            layout: self.terms.layout,
            names: &self.terms.names,
        };
        let owner = self.terms.runs_as.owned_by();
        may_run(folder, program, uid, owner, interpreted)
    }

    /// Returns the user for a program whose file belongs to `owner`.
    pub fn user_for_owner(&self, owner: u32) -> u32 {
        match &self.terms.runs_as {
            RunsAs::User(user) => user.uid,
            RunsAs::Server(user) => user.uid,
            RunsAs::Owner { .. } => owner,
        }
    }

    /// Returns a program's environment: the variables that were sent, and the constants of the route, which override them.
    ///
    /// # Errors
    /// The name of the first variable that may not be set.
    pub(crate) fn build_environment(&self, sent: &EnvBlock) -> Result<EnvBlock, Vec<u8>> {
        let constants = &self.terms.constants;
        let is_constant = |name: &[u8]| constants.iter().any(|(c, _)| c.as_bytes() == name);
        let is_named = |name: &[u8]| self.terms.variables.iter().any(|v| v.as_bytes() == name);
        let may_be = |name: &[u8]| is_header_variable(name) || is_named(name) || is_constant(name);
        let mut names = sent.iter().map(|(name, _)| name);
        if let Some(name) = names.find(|name| !may_be(name)) {
            return Err(name.to_owned());
        }
        let mut env = sent.clone();
        for (name, value) in constants {
            env.set_variable(name.as_bytes(), value.as_bytes());
        }
        Ok(env)
    }

    /// Returns the environment for programs that are loaded before there is a request; `None` if the route loads none.
    pub(crate) fn template_environment(&self) -> Option<EnvBlock> {
        let own = self.terms.warm.as_ref()?;
        let mut env = EnvBlock::default();
        for (name, value) in self.terms.constants.iter().chain(own) {
            env.set_variable(name.as_bytes(), value.as_bytes());
        }
        Some(env)
    }
}

/// Accepts the user unless root's group is among its groups. The user's own group is not checked here.
fn refuse_root_group(user: Identity) -> Result<Identity, NotDone> {
    if user.groups.contains(&0) {
        Err(NotDone::Denied(format!(
            "the user {} is a member of the group of root, but galgo runs no program in that group: gpasswd -d",
            user.uid
        )))
    } else {
        Ok(user)
    }
}

/// Whether `name` is a variable that a request header field can set.
fn is_header_variable(name: &[u8]) -> bool {
    let letter = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
    name.strip_prefix(b"HTTP_")
        .is_some_and(|n| n != b"PROXY" && n.iter().all(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_member_of_the_group_of_root_runs_programs() {
        let user = |groups: &[u32]| Identity {
            uid: 1000,
            gid: 1000,
            groups: groups.to_vec(),
            home: PathBuf::from("/"),
        };
        assert!(refuse_root_group(user(&[1000, 27])).is_ok());
        let why = refuse_root_group(user(&[1000, 0])).unwrap_err().to_string();
        assert!(
            why.contains("the user 1000 is a member of the group of root"),
            "{why}"
        );
    }
}
