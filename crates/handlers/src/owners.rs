//! Programs that run as another user than the server, or in a sandbox that only a helper can make: a helper starts them.

use std::{
    cell::RefCell,
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use galgo_spawn::{
    Child, FailedLaunch, Launch, LaunchOutcome, Spawner, StartError, StartStage,
    owners::{HelperNeed, Owners, Remit, TemplateUnderWay},
    template::Uses,
};
use tokio::{io::Interest, time::timeout};

use crate::{off_loop::off_loop, sock::register, warm::setup::AsUser};

/// Helpers that may be gone, one after the other, before one has taken a start.
const HELPERS: u32 = 3;

/// A helper that has many starts to do is asked again this often, this far apart.
const FULL_TRIES: u32 = 2000;
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// A helper whose report cannot be watched for is asked this often.
const ASK: Duration = Duration::from_millis(100);

/// Has a helper start a program as the user `uid`, without waiting until it runs; the helper is made where there is none.
pub(crate) async fn launch(
    owners: &Arc<Owners>,
    remit: &Arc<Remit>,
    uid: u32,
    mut launch: Launch,
    stdio: [BorrowedFd<'_>; 3],
) -> Result<Child, Box<FailedLaunch>> {
    let (mut helpers, mut full) = (0, 0);
    loop {
        match owners.need(remit, uid) {
            HelperNeed::First => {
                helpers += 1;
                if let Err(why) = make_helper(owners, remit, uid, HelperNeed::First).await {
                    return Err(denied(launch, why));
                }
            }
            // Without it those that there are do the work.
            need @ HelperNeed::Another => {
                let (owners, remit) = (owners.clone(), remit.clone());
                let made = async move { make_helper(&owners, &remit, uid, need).await };
                tokio::task::spawn_local(made);
            }
            HelperNeed::Enough => {}
        }
        let failed = match owners.launch(remit, uid, launch, stdio) {
            Ok(child) => return Ok(child),
            Err(failed) => failed,
        };
        let is_full = failed.error.source.kind() == io::ErrorKind::WouldBlock;
        match failed.error.stage {
            StartStage::Helper if helpers < HELPERS => {}
            StartStage::Clone if is_full && full < FULL_TRIES => {
                full += 1;
                tokio::time::sleep(FULL_PAUSE).await;
            }
            _ => return Err(failed),
        }
        launch = failed.launch;
    }
}

/// Has a helper load a program for warm starts; the helper is made where there is none.
///
/// # Errors
/// In words: not now.
pub(crate) async fn load(
    user: &AsUser,
    uses: Uses,
    learned: (&[u8], Duration),
    stdio: [BorrowedFd<'_>; 3],
) -> Result<TemplateUnderWay, String> {
    let AsUser {
        owners,
        remit,
        uid,
        program,
    } = user;
    let mut helpers = 0;
    loop {
        if !owners.has_helper(remit, *uid) {
            helpers += 1;
            make_helper(owners, remit, *uid, HelperNeed::First).await?;
        }
        match owners.load(remit, *uid, (program, uses), learned, stdio) {
            Ok(under_way) => return Ok(under_way),
            Err(e) if e.stage == StartStage::Helper && helpers < HELPERS => {}
            Err(e) => return Err(e.to_string()),
        }
    }
}

async fn make_helper(
    owners: &Arc<Owners>,
    remit: &Arc<Remit>,
    uid: u32,
    need: HelperNeed,
) -> Result<(), String> {
    let (owners, remit) = (owners.clone(), remit.clone());
    let made = off_loop("helper", move || owners.make_helper(&remit, uid, need)).await;
    made.unwrap_or_else(|e| Err(e.to_string()))
}

/// As [`launch`], and waits until the program runs.
pub(crate) async fn start(
    owners: &Arc<Owners>,
    (remit, uid): (&Arc<Remit>, u32),
    mut program: Launch,
    stdio: [BorrowedFd<'_>; 3],
    spawner: &RefCell<Spawner>,
) -> Result<Child, StartError> {
    let mut tries = 0;
    loop {
        let launched = launch(owners, remit, uid, program, stdio).await;
        let child = launched.map_err(|failed| failed.error)?;
        match outcome(&child, spawner).await {
            None => return Ok(child),
            Some(failed) if failed.error.is_busy() && tries < HELPERS => {
                tries += 1;
                program = failed.launch;
            }
            Some(failed) => return Err(failed.error),
        }
    }
}

/// Waits until a program runs; or why it was not started.
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

/// A start that may not be.
pub(crate) fn denied(launch: Launch, why: String) -> Box<FailedLaunch> {
    let error = StartError {
        stage: StartStage::Denied,
        source: io::Error::other(why),
    };
    Box::new(FailedLaunch { error, launch })
}
