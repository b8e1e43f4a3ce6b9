//! What may be started as another user.

use super::{
    checks::{CheckFailure, Denied, Layout, OwnedBy, PROGRAMS, denied, host_folder, may_run},
    link::NotDone,
};
use crate::{
    EnvBlock, Limits, Sandbox,
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

/// No programs run as these, only because their files belong to them: users that systemd makes up while a service runs (DynamicUser), and nobody,
/// to whom the files of all unknown users belong (user_namespaces(7), NFS).
const OF_THE_SYSTEM: RangeInclusive<u32> = 61_184..=65_535;

/// Whom the programs of a route run as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunsAs {
    /// This user; programs and their folders belong to it or to root. Its groups are looked for when a helper is made.
    User(User),
    /// The server's own user, for a sandbox that only a helper can make: files may belong to anybody.
    Server(Identity),
    /// The owner of the program's file: a user that the system knows.
    Owner {
        /// The lowest user id.
        min_uid: u32,
        /// The lowest id of the user's own group.
        min_gid: u32,
        /// The server's own user, whatever its id is; 0: none.
        server: u32,
    },
}

impl RunsAs {
    /// Whose programs and folders may be.
    pub fn owned_by(&self) -> OwnedBy {
        match self {
            Self::Server(_) => OwnedBy::Anybody,
            Self::User(_) => OwnedBy::UserOrRoot,
            Self::Owner { .. } => OwnedBy::User,
        }
    }
}

/// What the worker of a route's modules is told, and sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleTerms {
    /// The server's build, which that of the worker's program is to be: its last argument.
    pub build: String,
    /// What it reads at its start, from its descriptor 4.
    pub setup: Vec<u8>,
    /// Folders that modules may read: what a strict sandbox leaves to the worker beside what programs have.
    pub read: Vec<PathBuf>,
    /// Those that they may change, too.
    pub write: Vec<PathBuf>,
}

/// The programs of one route, or the one program that is its worker, and how they are started.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// The folder, or the one program, absolute.
    pub path: PathBuf,
    /// What that folder is.
    pub layout: Layout,
    /// Programs that run files by their ending.
    pub interpreters: Arc<Vec<(String, PathBuf)>>,
    /// Names of the variables that may be set beside `HTTP_*`.
    pub variables: Vec<String>,
    /// Variables that have these values, whatever the server says.
    pub constants: Vec<(String, String)>,
    /// Words of a query become arguments.
    pub query_args: bool,
    /// The arguments of a worker: one program that stays, and takes connections from its standard input. Nothing of its
    /// start is the server's to say. `None`: each start is a request's.
    pub worker: Option<Vec<String>>,
    /// Programs may be kept loaded: the variables that they find then, beside the constants. `None`: they start cold.
    pub warm: Option<Vec<(String, String)>>,
    /// What the worker of its modules is told; `None`: it runs none.
    pub modules: Option<ModuleTerms>,
    /// Resource limits.
    pub limits: Limits,
    /// File mode creation mask.
    pub umask: u32,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// What programs are kept from.
    pub sandbox: Sandbox,
    /// What a strict sandbox leaves to them.
    pub strict: Option<Arc<Confinement>>,
    /// Whom they run as.
    pub runs_as: RunsAs,
    /// The supplementary groups that they keep, if their user is a member.
    pub groups: Vec<u32>,
}

/// What a helper may start: what server and spawner have each read in the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Remit {
    pub(super) terms: Terms,
    digest: u64,
    /// Of a host: the digest of the remit that it was made of, and the host's name.
    of: Option<(u64, String)>,
}

impl Remit {
    /// Of these terms.
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

    /// The same, but for the folders of hosts: what is started is started by the remit of one of them.
    pub fn of_hosts(&self) -> Self {
        Self::new(Terms {
            layout: Layout::Hosts,
            ..self.terms.clone()
        })
    }

    /// That of the programs of one host: `HOST/cgi-bin` in the [folder of hosts](Self::of_hosts). `modules` says what the
    /// worker of its modules, in that folder, is told. `None`: these are not the folders of hosts, or that is no host's name.
    pub fn of_host(
        &self,
        host: &str,
        modules: impl FnOnce(&ModuleTerms, &Path) -> ModuleTerms,
    ) -> Option<Self> {
        if self.terms.layout != Layout::Hosts || !is_host(host) {
            return None;
        }
        let path = self.terms.path.join(host).join(PROGRAMS);
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

    /// What the spawner knows it by: the digest of what is configured, and the host, if it is one's; else nothing.
    pub(super) fn asked_by(&self) -> (u64, &str) {
        let of = self.of.as_ref().map(|(digest, host)| (*digest, &**host));
        of.unwrap_or((self.digest, ""))
    }

    /// Its folder, or its program, as it is configured; that of a host without links.
    ///
    /// # Errors
    /// A host's is not there, or leads to something else.
    pub(super) fn folder(&self) -> Result<PathBuf, Denied> {
        let root = &self.terms.path;
        match self.terms.layout {
            Layout::Named => Ok(root.clone()),
            Layout::Hosts => Err(denied(root, CheckFailure::NoHost)),
            Layout::Host => {
                host_folder(root, self.terms.runs_as.owned_by()).map(|(_, folder)| folder)
            }
        }
    }

    /// Names it between processes of the one binary; other terms have another.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Whether its helpers number processes themselves, in PID namespaces of their own.
    pub(super) fn has_own_ids(&self) -> bool {
        self.terms.strict.is_some() && kernel().namespaces
    }

    /// Whom the programs run as.
    pub fn runs_as(&self) -> &RunsAs {
        &self.terms.runs_as
    }

    /// Whether they run as another user than the server.
    pub fn runs_as_others(&self) -> bool {
        !matches!(self.terms.runs_as, RunsAs::Server(_))
    }

    /// Whether `program` may run as the user `uid`. Its path without links in it.
    ///
    /// # Errors
    /// It may not.
    pub fn check(&self, program: &Path, uid: u32) -> Result<PathBuf, Denied> {
        let interpreter = self.interpreter(program.as_os_str().as_bytes());
        self.may_run(program, uid, interpreter.is_some())
    }

    /// Whom a helper becomes for the user `uid`: not for everybody. Asks the name service.
    ///
    /// # Errors
    /// No program of this route runs as that user, in words; or it is not known who that is.
    pub fn identity(&self, uid: u32) -> Result<Identity, NotDone> {
        let mut identity = self.member(uid)?;
        identity.keep_groups(&self.terms.groups);
        Ok(identity)
    }

    /// The same in all groups of the user.
    fn member(&self, uid: u32) -> Result<Identity, NotDone> {
        let denied = |why: String| Err(NotDone::Denied(why));
        let (min_uid, min_gid, server) = match &self.terms.runs_as {
            RunsAs::User(user) if user.uid == uid => return without_root(user.identity()),
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
                "it belongs to the user {uid}: that is nobody, or a service's user that systemd has made up. chown it to an account"
            ));
        }
        if uid == 0 || uid < min_uid {
            return denied(format!(
                "it belongs to the user {uid}, and programs run as their owner only from min_uid = {min_uid} on"
            ));
        }
        let user = identity::by_uid(uid).map_err(|e| match e {
            // Nothing that it says.
            IdentityError::System(..) => NotDone::NotNow(format!("the name service: {e}")),
            e => NotDone::Denied(format!("its owner: {e}")),
        })?;
        match user.gid {
            0 => denied(format!(
                "its owner, the user {uid}, is in the group of root, and programs never run in that: usermod -g"
            )),
            gid if gid < min_gid => denied(format!(
                "its owner, the user {uid}, is in the group {gid}, and programs run as their owner only from min_gid = {min_gid} on"
            )),
            _ => without_root(user),
        }
    }

    /// What runs a file of that name.
    pub(super) fn interpreter(&self, program: &[u8]) -> Option<&PathBuf> {
        let mut all = self.terms.interpreters.iter();
        let found = all.find(|(ending, _)| program.ends_with(ending.as_bytes()));
        found.map(|(_, interpreter)| interpreter)
    }

    /// Whether `interpreter` runs `script`.
    pub(super) fn is_run_by(&self, script: &CStr, interpreter: &CStr) -> bool {
        let runs = self.interpreter(script.to_bytes());
        runs.is_some_and(|path| path.as_os_str().as_bytes() == interpreter.to_bytes())
    }

    /// Whether `module` may run as the user `uid`. Its path without links in it.
    ///
    /// # Errors
    /// It may not.
    pub fn check_module(&self, module: &Path, uid: u32) -> Result<PathBuf, Denied> {
        self.may_run(module, uid, true)
    }

    fn may_run(&self, program: &Path, uid: u32, interpreted: bool) -> Result<PathBuf, Denied> {
        let folder = (&*self.terms.path, self.terms.layout);
        let owner = self.terms.runs_as.owned_by();
        may_run(folder, program, uid, owner, interpreted)
    }

    /// The user that starts a program whose file belongs to `owner`.
    pub fn user(&self, owner: u32) -> u32 {
        match &self.terms.runs_as {
            RunsAs::User(user) => user.uid,
            RunsAs::Server(user) => user.uid,
            RunsAs::Owner { .. } => owner,
        }
    }

    /// The environment of a program: what was sent, where that may be set, and what is the same for all requests.
    ///
    /// # Errors
    /// The first variable that may not be set.
    pub(super) fn environment(&self, sent: &EnvBlock) -> Result<EnvBlock, Vec<u8>> {
        let constants = &self.terms.constants;
        let is_constant = |name: &[u8]| constants.iter().any(|(c, _)| c.as_bytes() == name);
        let is_named = |name: &[u8]| self.terms.variables.iter().any(|v| v.as_bytes() == name);
        let may_be = |name: &[u8]| is_field(name) || is_named(name) || is_constant(name);
        let mut names = sent.iter().map(|(name, _)| name);
        if let Some(name) = names.find(|name| !may_be(name)) {
            return Err(name.to_owned());
        }
        let mut env = sent.clone();
        for (name, value) in constants {
            env.put(name.as_bytes(), value.as_bytes());
        }
        Ok(env)
    }

    /// The environment of programs that are loaded before there is a request; `None`: none are.
    pub(super) fn template_environment(&self) -> Option<EnvBlock> {
        let own = self.terms.warm.as_ref()?;
        let mut env = EnvBlock::default();
        for (name, value) in self.terms.constants.iter().chain(own) {
            env.put(name.as_bytes(), value.as_bytes());
        }
        Some(env)
    }
}

/// Who is no member of root's group beside the own one.
fn without_root(user: Identity) -> Result<Identity, NotDone> {
    if user.groups.contains(&0) {
        Err(NotDone::Denied(format!(
            "the user {} is a member of the group of root, and programs never run in that: gpasswd -d",
            user.uid
        )))
    } else {
        Ok(user)
    }
}

/// Whether it is the name of a variable that a field of a request becomes.
fn is_field(name: &[u8]) -> bool {
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
        assert!(without_root(user(&[1000, 27])).is_ok());
        let why = without_root(user(&[1000, 0])).unwrap_err().to_string();
        assert!(
            why.contains("the user 1000 is a member of the group of root"),
            "{why}"
        );
    }
}
