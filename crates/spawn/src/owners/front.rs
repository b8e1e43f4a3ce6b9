//! The server's side: who starts programs of other users, and such a program.

use super::{
    cgroups::are_delegated,
    known::{HelperKey, HelperNeed, KnownHelpers},
    link::{NotDone, SpawnerLink},
    remit::Remit,
    warm::under_way::TemplateUnderWay,
};
use crate::{
    Child, Direct, EnvBlock, FailedLaunch, Launch, Limits, NamelessListener, Sandbox, Start,
    StartError, StartStage,
    remote::{
        child::RemoteChild,
        connection::{HelperLink, ProgramConnection, most_of_one},
        deadline::{ANSWERS_WITHIN, Deadline},
        message::{HelperOrder, Order, pair},
        template_message::TemplateOrder,
    },
    template::Uses,
};
use rustix::io::Errno;
use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
    time::Duration,
};

/// Starts programs as other users: asks the spawner for helpers, and helpers for programs.
#[derive(Debug)]
pub struct Owners {
    spawner: SpawnerLink,
    /// The first helper of these is being made: others wait for that.
    making: Mutex<HashSet<HelperKey>>,
    made: Condvar,
    helpers: Mutex<KnownHelpers>,
    /// Helpers of one remit and user, at most.
    of_one: usize,
    /// Connections without a program, of all helpers.
    idle: Arc<AtomicUsize>,
}

impl Owners {
    /// Starts the spawner, by this program itself with `args` and this process's variables, `more` among them, and waits for
    /// nothing: its process, and what asks it.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(
        direct: &mut Direct,
        args: &[CString],
        more: &[(&str, &[u8])],
    ) -> io::Result<(Child, Self)> {
        let (ours, theirs) = pair()?;
        let mut env = EnvBlock::default();
        // It reads the configuration as the server does, which may name variables and stand on them.
        for (name, value) in std::env::vars_os() {
            env.put(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in more {
            env.put(name.as_bytes(), value);
        }
        let here = std::env::current_dir()?.into_os_string();
        // When the server has gone it ends what is left, and then itself.
        direct.set_orphaned(None);
        let child = direct.start(&Start {
            path: &c"/proc/self/exe".to_owned(),
            args,
            env: &env,
            dir: &CString::new(here.into_vec())?,
            // Those of the server: one that takes its place is given them.
            stdio: [
                io::stdin().as_fd(),
                io::stdout().as_fd(),
                io::stderr().as_fd(),
            ],
            more: &[theirs.as_fd()],
            limits: Limits {
                may_stay: true,
                ..Limits::default()
            },
            no_new_privs: false,
            sandbox: Sandbox::Off,
        });
        let child = child.map_err(|e| io::Error::other(e.to_string()))?;
        let owners = Self {
            spawner: SpawnerLink::new(ours),
            making: Mutex::default(),
            made: Condvar::new(),
            helpers: Mutex::default(),
            of_one: most_of_one(),
            idle: Arc::default(),
        };
        Ok((child, owners))
    }

    /// Has the spawner read the configuration again. Blocks for [`ANSWERS_WITHIN`] at most.
    ///
    /// # Errors
    /// It cannot be used, or the spawner does not answer, in words.
    pub fn reload(&self) -> Result<(), String> {
        self.order(Order::Reload).map(drop)
    }

    /// The spawner's answer: descriptors, or words.
    pub(super) fn order(&self, order: Order<'_>) -> Result<Vec<OwnedFd>, String> {
        let ordered = self.spawner.order(order, Deadline::within(ANSWERS_WITHIN));
        ordered.map_err(|e| e.to_string())
    }

    /// Whether there is a helper already, as far as is known.
    pub fn has_helper(&self, remit: &Remit, uid: u32) -> bool {
        self.helpers().has((remit.digest(), uid))
    }

    /// Whether the programs of a user want a helper that is still to be made.
    pub fn need(&self, remit: &Remit, uid: u32) -> HelperNeed {
        // RLIMIT_NPROC counts helpers, too: with another one there would be room for fewer programs.
        let counted = remit.terms.limits.processes.is_some() && !are_delegated();
        let most = if counted { 1 } else { self.of_one };
        self.helpers().need((remit.digest(), uid), most)
    }

    /// Has the spawner make the first helper of a user, unless there is one by now, or another one. Blocks for some
    /// milliseconds, until `by` at most.
    ///
    /// # Errors
    /// It was not made.
    pub fn make_helper(
        &self,
        remit: &Remit,
        uid: u32,
        need: HelperNeed,
        by: Deadline,
    ) -> Result<(), NotDone> {
        let key = (remit.digest(), uid);
        if need == HelperNeed::Another {
            return self.add_helper(remit, uid, by);
        }
        let mut making = self.making();
        while making.contains(&key) && !by.has_passed() {
            let woken = self.made.wait_timeout(making, by.left());
            making = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.has_helper(remit, uid) {
            return Ok(());
        }
        let is_first = making.insert(key);
        drop(making);
        let added = self.add_helper(remit, uid, by);
        if is_first {
            self.making().remove(&key);
            self.made.notify_all();
        }
        added
    }

    fn add_helper(&self, remit: &Remit, uid: u32, by: Deadline) -> Result<(), NotDone> {
        let key = (remit.digest(), uid);
        let (digest, host) = remit.asked_by();
        let made = self.spawner.order(Order::Helper { digest, uid, host }, by);
        let helper = made.and_then(|mut sent| {
            let lacks = || NotDone::NotNow("the spawner has sent no helper".into());
            sent.pop().ok_or_else(lacks)
        });
        let helper = helper?;
        self.forget_those_that_left();
        let helper = HelperLink::new(helper, &self.idle);
        let leave = self.helpers().add(key, helper);
        // Closed without the lock, for which event loops wait.
        drop(leave);
        Ok(())
    }

    /// No request may ever ask for their users again.
    fn forget_those_that_left(&self) {
        let known = self.helpers().list();
        let gone: Vec<_> = known.into_iter().filter(|(_, h)| h.is_over()).collect();
        let mut helpers = self.helpers();
        gone.iter()
            .for_each(|(key, helper)| helpers.forget(*key, helper));
        drop(helpers);
    }

    /// Has the spawner make a listener for a worker: one that this process made could be reached by other programs of its
    /// user, as long as it has a name. Blocks for a moment, [`ANSWERS_WITHIN`] at most.
    ///
    /// # Errors
    /// It does not, in words.
    pub fn make_listener(&self) -> Result<NamelessListener, String> {
        let made = <[OwnedFd; 2]>::try_from(self.order(Order::Listener)?);
        let [listener, file] = made.map_err(|_| "the spawner has sent no socket")?;
        Ok(NamelessListener { listener, file })
    }

    /// Starts a program as the user `uid`, without waiting until it runs: a helper that comes to it after `by` does not.
    ///
    /// # Errors
    /// As [`Spawner::launch`](crate::Spawner::launch). [`StartStage::Helper`]: there is no helper, or not any more.
    pub fn launch(
        &self,
        remit: &Remit,
        uid: u32,
        launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
        by: Deadline,
    ) -> Result<Child, Box<FailedLaunch>> {
        let key = (remit.digest(), uid);
        let helper = self.helpers().ask(key);
        let ask = |helper| start(helper, remit, (&launch, by), stdio);
        match helper.as_ref().map_or(Err(Errno::NOTCONN), ask) {
            Ok(connection) => Ok(Child::remote(RemoteChild::new(connection, Some(launch)))),
            Err(errno) => {
                let error = self.failed(key, helper, errno);
                Err(Box::new(FailedLaunch { error, launch }))
            }
        }
    }

    /// Why a helper was not asked. One that has gone is forgotten.
    fn failed(&self, key: HelperKey, helper: Option<Arc<HelperLink>>, errno: Errno) -> StartError {
        let stage = match errno {
            Errno::MSGSIZE => StartStage::Environment,
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => {
                if let Some(helper) = helper {
                    self.helpers().forget(key, &helper);
                }
                StartStage::Helper
            }
            Errno::MFILE | Errno::NFILE => StartStage::Descriptors,
            _ => StartStage::Clone,
        };
        StartError {
            stage,
            source: errno.into(),
        }
    }

    /// Has a helper load a program for warm starts, as the user `uid`: a parked process, or a template with those of the
    /// learned `modules`, one a line, that count as nothing changed at `since` or later does.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn load(
        &self,
        remit: &Remit,
        uid: u32,
        (program, uses): (&CStr, Uses),
        (modules, since): (&[u8], Duration),
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<TemplateUnderWay, StartError> {
        let order = TemplateOrder {
            program: program.to_owned(),
            uses,
            modules: modules.to_vec(),
            since,
        };
        let key = (remit.digest(), uid);
        let helper = self.helpers().ask_first(key);
        let ask = |helper: &Arc<HelperLink>| {
            let parts = [&[HelperOrder::TEMPLATE][..], &order.encode()];
            helper.ask(&parts, stdio)
        };
        match helper.as_ref().map_or(Err(Errno::NOTCONN), ask) {
            Ok(connection) => Ok(TemplateUnderWay::new(connection, uses)),
            Err(errno) => Err(self.failed(key, helper, errno)),
        }
    }

    fn helpers(&self) -> MutexGuard<'_, KnownHelpers> {
        self.helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn making(&self) -> MutexGuard<'_, HashSet<HelperKey>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a start to a helper; the program's connection.
fn start(
    helper: &Arc<HelperLink>,
    remit: &Remit,
    (launch, by): (&Launch, Deadline),
    stdio: [BorrowedFd<'_>; 3],
) -> Result<ProgramConnection, Errno> {
    // Which interpreter runs a program the helper knows itself.
    let args = match &launch.args[..] {
        [runs, script] if remit.is_run_by(script, runs) => &launch.args[1..],
        args => args,
    };
    let head = HelperOrder::start(args.len() - 1, launch.knocks, launch.priority, by);
    let head = head.ok_or(Errno::MSGSIZE)?;
    let mut parts = vec![&head[..]];
    parts.extend(args.iter().map(|arg| arg.as_bytes_with_nul()));
    parts.push(launch.env.bytes());
    helper.ask(&parts, stdio)
}
