//! The server's side: starts programs of other users by way of helpers.

use super::{
    cgroups::are_delegated,
    known::{HelperKey, HelperNeed, KnownHelpers},
    link::{NotDone, SpawnerLink},
    remit::Remit,
};
use crate::{
    Child, Direct, EnvBlock, FailedLaunch, Launch, Limits, NamelessListener, Sandbox, Start,
    StartError, StartStage,
    remote::{
        child::RemoteChild,
        connection::{HelperLink, ProgramConnection, max_helpers_per_user},
        deadline::{ANSWERS_WITHIN, Deadline},
        message::{HelperOrder, Order, socket_pair},
        template::RemoteTemplate,
        template_message::TemplateOrder,
    },
    template::Template,
};
use rustix::io::Errno;
use std::{
    collections::HashSet,
    ffi::CString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
};

/// Starts programs as other users. Asks the spawner for helpers, and helpers for programs.
#[derive(Debug)]
pub struct Owners {
    spawner: SpawnerLink,
    /// Keys whose first helper is being made. Other requests with the same key wait for this helper.
    making: Mutex<HashSet<HelperKey>>,
    made: Condvar,
    helpers: Mutex<KnownHelpers>,
    /// Limit of helpers for one remit and user.
    of_one: usize,
    /// Connections without a program, counted over all helpers.
    idle: Arc<AtomicUsize>,
}

impl Owners {
    /// Starts the spawner: this program itself with `args`, and with this process's variables and `more`. Returns its process,
    /// and the [`Owners`] that send it orders. Does not wait for the spawner.
    ///
    /// # Errors
    /// The spawner could not be started.
    pub fn start_spawner(
        direct: &mut Direct,
        args: &[CString],
        more: &[(&str, &[u8])],
    ) -> io::Result<(Child, Self)> {
        let (ours, theirs) = socket_pair()?;
        let mut env = EnvBlock::default();
        // The spawner reads the configuration like the server. The configuration may name variables and depend on them.
        for (name, value) in std::env::vars_os() {
            env.set_variable(name.as_bytes(), value.as_bytes());
        }
        for (name, value) in more {
            env.set_variable(name.as_bytes(), value);
        }
        let here = std::env::current_dir()?.into_os_string();
        // After the server's end, the spawner ends all leftover processes, and then itself.
        direct.set_orphaned(None);
        let child = direct.start_program(&Start {
            path: &c"/proc/self/exe".to_owned(),
            args,
            env: &env,
            dir: &CString::new(here.into_vec())?,
            // The spawner keeps the server's streams for a server that takes its place.
            stdio: [
                io::stdin().as_fd(),
                io::stdout().as_fd(),
                io::stderr().as_fd(),
            ],
            more: &[theirs.as_fd()],
            limits: Limits {
                may_stay: true,
                is_worker: true,
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
            of_one: max_helpers_per_user(),
            idle: Arc::default(),
        };
        Ok((child, owners))
    }

    /// Makes the spawner read the configuration again. Blocks for at most [`ANSWERS_WITHIN`].
    ///
    /// # Errors
    /// The configuration cannot be used, or the spawner does not answer. The error is a sentence for the log.
    pub fn reload(&self) -> Result<(), String> {
        self.send_order(Order::Reload).map(drop)
    }

    /// Sends an order. Returns the descriptors of the spawner's answer, or a sentence about its failure.
    pub(crate) fn send_order(&self, order: Order<'_>) -> Result<Vec<OwnedFd>, String> {
        let ordered = self
            .spawner
            .send_order(order, Deadline::within(ANSWERS_WITHIN));
        ordered.map_err(|e| e.to_string())
    }

    /// Whether a helper is known already. That helper may have left meanwhile.
    pub fn has_helper(&self, remit: &Remit, uid: u32) -> bool {
        self.lock_helpers().has_helper((remit.digest(), uid))
    }

    /// Returns whether a helper must be made for the programs of a user.
    pub fn helper_need(&self, remit: &Remit, uid: u32) -> HelperNeed {
        // RLIMIT_NPROC counts helpers, too: another helper would leave room for fewer programs.
        let counted = remit.terms.limits.processes.is_some() && !are_delegated();
        let most = if counted { 1 } else { self.of_one };
        self.lock_helpers().helper_need((remit.digest(), uid), most)
    }

    /// Makes the spawner create a helper. Does nothing if `need` is a first helper, and that exists by now. Blocks for some
    /// milliseconds, and at most until `by`.
    ///
    /// # Errors
    /// The helper was not made.
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
        let mut making = self.lock_making();
        while making.contains(&key) && !by.has_passed() {
            let woken = self.made.wait_timeout(making, by.time_left());
            making = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if self.has_helper(remit, uid) {
            return Ok(());
        }
        let is_first = making.insert(key);
        drop(making);
        let added = self.add_helper(remit, uid, by);
        if is_first {
            self.lock_making().remove(&key);
            self.made.notify_all();
        }
        added
    }

    fn add_helper(&self, remit: &Remit, uid: u32, by: Deadline) -> Result<(), NotDone> {
        let key = (remit.digest(), uid);
        let (digest, host) = remit.spawner_key();
        let made = self
            .spawner
            .send_order(Order::Helper { digest, uid, host }, by);
        let helper = made.and_then(|mut sent| {
            let lacks = || NotDone::NotNow("the spawner has sent no helper".into());
            sent.pop().ok_or_else(lacks)
        });
        let helper = helper?;
        self.forget_those_that_left();
        let helper = HelperLink::new(helper, &self.idle);
        let leave = self.lock_helpers().add_helper(key, helper);
        // Close these without holding the lock, because event loops wait for it.
        drop(leave);
        Ok(())
    }

    /// Forgets helpers that have left: there may never be another request for their users.
    fn forget_those_that_left(&self) {
        let known = self.lock_helpers().list_helpers();
        let gone: Vec<_> = known.into_iter().filter(|(_, h)| h.is_over()).collect();
        let mut helpers = self.lock_helpers();
        gone.iter()
            .for_each(|(key, helper)| helpers.forget_helper(*key, helper));
        drop(helpers);
    }

    /// Makes the spawner create a listener for a worker. While a listener made by this process had a name, other programs of
    /// the same user could reach it. Blocks for a moment, and for at most [`ANSWERS_WITHIN`].
    ///
    /// # Errors
    /// The spawner makes no listener. The error is a sentence for the log.
    pub fn make_listener(&self) -> Result<NamelessListener, String> {
        let made = <[OwnedFd; 2]>::try_from(self.send_order(Order::Listener)?);
        let [listener, file] = made.map_err(|_| "the spawner has sent no socket")?;
        Ok(NamelessListener { listener, file })
    }

    /// Starts a program as the user `uid`, without waiting until it runs. A helper that reads the order after `by` ignores it.
    ///
    /// # Errors
    /// Like [`Spawner::launch`](crate::Spawner::launch). [`StartStage::Helper`]: there is no helper, or it has gone.
    pub fn launch(
        &self,
        remit: &Remit,
        uid: u32,
        launch: Launch,
        stdio: [BorrowedFd<'_>; 3],
        by: Deadline,
    ) -> Result<Child, Box<FailedLaunch>> {
        let key = (remit.digest(), uid);
        let helper = self.lock_helpers().helper_for_start(key);
        let asked = self.send_order_to(key, helper, |helper| {
            send_start(helper, remit, (&launch, by), stdio)
        });
        match asked {
            Ok(connection) => Ok(Child::from_remote(RemoteChild::new(
                connection,
                Some(launch),
            ))),
            Err(error) => Err(Box::new(FailedLaunch { error, launch })),
        }
    }

    /// Sends an order to a helper by `ask`. Forgets a helper that has gone.
    fn send_order_to(
        &self,
        key: HelperKey,
        helper: Option<Arc<HelperLink>>,
        ask: impl FnOnce(&Arc<HelperLink>) -> Result<ProgramConnection, Errno>,
    ) -> Result<ProgramConnection, StartError> {
        let asked = helper.as_ref().map_or(Err(Errno::NOTCONN), ask);
        asked.map_err(|errno| {
            let stage = match errno {
                Errno::MSGSIZE => StartStage::Environment,
                Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => {
                    if let Some(helper) = &helper {
                        self.lock_helpers().forget_helper(key, helper);
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
        })
    }

    /// Makes a helper load a program for warm starts, as the user `uid`: a parked process, or a template with learned modules.
    ///
    /// # Errors
    /// Like [`launch`](Self::launch).
    pub fn load_template(
        &self,
        remit: &Remit,
        uid: u32,
        order: &TemplateOrder,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Template, StartError> {
        let key = (remit.digest(), uid);
        let helper = self.lock_helpers().helper_for_load(key);
        let parts = [&[HelperOrder::TEMPLATE][..], &order.encode()];
        let connection =
            self.send_order_to(key, helper, |helper| helper.send_order(&parts, stdio))?;
        Ok(Template::from_remote(RemoteTemplate::new(
            connection, order.uses,
        )))
    }

    fn lock_helpers(&self) -> MutexGuard<'_, KnownHelpers> {
        self.helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_making(&self) -> MutexGuard<'_, HashSet<HelperKey>> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a start to a helper. Returns the program's connection.
fn send_start(
    helper: &Arc<HelperLink>,
    remit: &Remit,
    (launch, by): (&Launch, Deadline),
    stdio: [BorrowedFd<'_>; 3],
) -> Result<ProgramConnection, Errno> {
    // The helper itself knows the program's interpreter.
    let args = match &launch.args[..] {
        [runs, script] if remit.is_run_by(script, runs) => &launch.args[1..],
        args => args,
    };
    let head = HelperOrder::encode_start(args.len() - 1, launch.knocks, launch.priority, by);
    let head = head.ok_or(Errno::MSGSIZE)?;
    let mut parts = vec![&head[..]];
    parts.extend(args.iter().map(|arg| arg.as_bytes_with_nul()));
    parts.push(launch.env.as_bytes());
    helper.send_order(&parts, stdio)
}
