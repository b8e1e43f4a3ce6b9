//! Has helpers start programs that run as another user than the server, or in a sandbox that only a helper can make.

use std::{
    cell::RefCell,
    ffi::CString,
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use galgo_io::{off_loop::off_loop, sock::register};
use galgo_service::fault::Fault;
use galgo_spawn::{
    Child, FailedLaunch, Launch, LaunchOutcome, Spawner, StartError, StartStage,
    owners::{ANSWERS_WITHIN, Deadline, HelperNeed, NotDone, Owners, Remit, TemplateOrder},
    template::{LoadFailure, Template},
};
use tokio::{io::Interest, time::timeout};

use crate::program_settings::CgiOptions;

/// Limit of the helpers that may die, one after the other, before a helper has taken a start.
const HELPERS: u32 = 3;

/// Pause before a busy helper is asked again.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Interval of asking a helper whose report cannot be watched for.
const ASK: Duration = Duration::from_millis(100);

/// Returns the time limit for the spawner and a helper, for a request whose start has been `tried` for that long. A tenth
/// of `first_byte_timeout` is left, because a later error would not name the cause.
pub(crate) fn deadline(options: &CgiOptions, tried: Duration) -> Deadline {
    let first = options.first_byte_timeout;
    let most = (first - first / 10).saturating_sub(tried);
    Deadline::within(most.min(ANSWERS_WITHIN))
}

/// Has a helper start a program as the user `uid`, without waiting until it runs. Makes the helper if there is none.
pub(crate) async fn launch(
    owners: &Arc<Owners>,
    remit: &Arc<Remit>,
    uid: u32,
    mut launch: Launch,
    stdio: [BorrowedFd<'_>; 3],
    by: Deadline,
) -> Result<Child, Box<FailedLaunch>> {
    let mut helpers = 0;
    loop {
        match owners.helper_need(remit, uid) {
            HelperNeed::First => {
                helpers += 1;
                let made = make_helper(owners, remit, uid, HelperNeed::First, by).await;
                if let Err(not) = made
                    && (not != NotDone::Ended || helpers == HELPERS)
                {
                    let error = start_error(not);
                    return Err(Box::new(FailedLaunch { error, launch }));
                }
            }
            // If the extra helper cannot be made, the existing helpers do the work.
            need @ HelperNeed::Another => {
                let (owners, remit) = (owners.clone(), remit.clone());
                let made = async move { make_helper(&owners, &remit, uid, need, by).await };
                tokio::task::spawn_local(made);
            }
            HelperNeed::Enough => {}
        }
        let failed = match owners.launch(remit, uid, launch, stdio, by) {
            Ok(child) => return Ok(child),
            Err(failed) => failed,
        };
        let is_full = failed.error.source.kind() == io::ErrorKind::WouldBlock;
        match failed.error.stage {
            StartStage::Helper if helpers < HELPERS => {}
            StartStage::Clone if is_full && !by.has_passed() => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            StartStage::Clone if is_full => {
                let error = silent_helper(uid);
                return Err(Box::new(FailedLaunch { error, ..*failed }));
            }
            _ => return Err(failed),
        }
        launch = failed.launch;
    }
}

/// A program that a helper starts.
#[derive(Debug)]
pub struct AsUser {
    /// The access to helpers.
    pub owners: Arc<Owners>,
    /// The grant of the program's route.
    pub remit: Arc<Remit>,
    /// The user that the program runs as.
    pub uid: u32,
    /// The path of the program's file, as a request names it.
    pub program: CString,
}

/// Has a helper load a program for warm starts. Makes the helper if there is none.
///
/// # Errors
/// A later try may succeed.
pub(crate) async fn load_template(
    user: &AsUser,
    order: &TemplateOrder,
    stdio: [BorrowedFd<'_>; 3],
) -> Result<Template, LoadFailure> {
    let AsUser {
        owners, remit, uid, ..
    } = user;
    let by = Deadline::within(ANSWERS_WITHIN);
    let mut helpers = 0;
    loop {
        if !owners.has_helper(remit, *uid) {
            helpers += 1;
            let made = make_helper(owners, remit, *uid, HelperNeed::First, by).await;
            made.map_err(LoadFailure::not_now)?;
        }
        match owners.load_template(remit, *uid, order, stdio) {
            Err(e) if e.stage == StartStage::Helper && helpers < HELPERS => {}
            started => return Ok(started?),
        }
    }
}

async fn make_helper(
    owners: &Arc<Owners>,
    remit: &Arc<Remit>,
    uid: u32,
    need: HelperNeed,
    by: Deadline,
) -> Result<(), NotDone> {
    let (owners, remit) = (owners.clone(), remit.clone());
    let makes = move || owners.make_helper(&remit, uid, need, by);
    let made = off_loop("helper", makes).await;
    made.unwrap_or_else(|e| {
        Err(NotDone::NotNow(format!(
            "no thread to ask for a helper: {e}"
        )))
    })
}

/// Starts a program as [`launch`] does, and waits until it runs, for at most [`ANSWERS_WITHIN`].
pub(crate) async fn start_program(
    owners: &Arc<Owners>,
    (remit, uid): (&Arc<Remit>, u32),
    mut program: Launch,
    stdio: [BorrowedFd<'_>; 3],
    spawner: &RefCell<Spawner>,
) -> Result<Child, StartError> {
    let by = Deadline::within(ANSWERS_WITHIN);
    let mut tries = 0;
    loop {
        let launched = launch(owners, remit, uid, program, stdio, by).await;
        let child = launched.map_err(|failed| failed.error)?;
        let begun = timeout(by.time_left(), outcome(&child, spawner)).await;
        match begun.map_err(|_late| silent_helper(uid))? {
            None => return Ok(child),
            Some(failed) if failed.error.is_busy() && tries < HELPERS => {
                tries += 1;
                program = failed.launch;
            }
            Some(failed) => return Err(failed.error),
        }
    }
}

/// Waits until a program runs. Returns the failure if it was not started.
async fn outcome(child: &Child, spawner: &RefCell<Spawner>) -> Option<Box<FailedLaunch>> {
    let reports = register(child.as_raw_fd(), Interest::READABLE).ok();
    let reported = async || match &reports {
        Some(fd) => {
            if let Ok(mut ready) = fd.readable().await {
                ready.clear_ready();
            }
        }
        None => std::future::pending().await,
    };
    loop {
        let outcome = spawner.borrow_mut().outcome(child);
        match outcome {
            LaunchOutcome::Started => return None,
            LaunchOutcome::Failed(failed) => return Some(failed),
            LaunchOutcome::UnderWay => drop(timeout(ASK, reported()).await),
        }
    }
}

/// Returns the failure of a start that is not allowed.
pub(crate) fn denied_start(launch: Launch, why: String) -> Box<FailedLaunch> {
    let error = start_error(NotDone::Denied(why));
    Box::new(FailedLaunch { error, launch })
}

fn start_error(not: NotDone) -> StartError {
    let (stage, kind) = match not {
        NotDone::Denied(_) => (StartStage::Denied, io::ErrorKind::Other),
        NotDone::NotNow(_) => (StartStage::Helper, io::ErrorKind::TimedOut),
        NotDone::Ended => (StartStage::Helper, io::ErrorKind::NotConnected),
    };
    StartError {
        stage,
        source: io::Error::new(kind, not.to_string()),
    }
}

/// Returns the error for a helper that has reported nothing about a start.
pub(crate) fn silent_helper(uid: u32) -> StartError {
    start_error(NotDone::NotNow(format!(
        "the helper that starts programs as the user {uid} does not answer: it is stopped, or waits for a file system that hangs"
    )))
}

/// Returns the fault of a request whose program has no helper.
pub(crate) fn helper_fault(e: &StartError) -> Fault {
    match e.source.kind() {
        io::ErrorKind::TimedOut => Fault::Stalled(e.source.to_string()),
        _ => Fault::Script("the helper that starts this program as its user has ended".into()),
    }
}
