//! Templates that a helper loads, for programs that run as another user or in a strict sandbox. The helper knows how each
//! program is started and of what kind it is, and watches the files that its template was made from.

use std::os::fd::{AsFd, AsRawFd};

use galgo_io::sock::register;
use galgo_spawn::owners::{NoTemplate, StoppedTemplate, TemplateStop, TemplateUnderWay};
use tokio::io::Interest;

use super::{
    failure::{TemplateFailure, UNPROVEN},
    order::LoadOrder,
    setup::TemplateSetup,
    streams::{Said, Streams},
};
use crate::owners::{self, AsUser};

/// Has a helper load a template, and waits until the template has stopped.
pub(super) async fn stop(
    user: &AsUser,
    setup: &TemplateSetup,
    streams: Streams,
    said: &mut Said,
    order: &LoadOrder,
) -> Result<StoppedTemplate, TemplateFailure> {
    let learned = (&order.learned[..], order.since);
    let load = owners::load_template(user, order.uses, learned, streams.stdio());
    let mut under_way = load.await.map_err(TemplateFailure::NotNow)?;
    drop(streams);
    let stopped = tokio::time::timeout(setup.patience(), stopped(&mut under_way)).await;
    let held = order.proven || under_way.holds();
    let stop = match stopped {
        Ok(Ok(stop)) => stop,
        Ok(Err((NoTemplate::Unfit, why))) => return Err(TemplateFailure::Cold(why)),
        Ok(Err((NoTemplate::NotNow, why))) => return Err(TemplateFailure::NotNow(why)),
        Ok(Err((NoTemplate::Changed, why))) => return Err(TemplateFailure::Changed(why)),
        // Nothing proves that the program itself did not run instead.
        Ok(Err(_)) | Err(_) if !held => return Err(TemplateFailure::Cold(UNPROVEN.into())),
        Ok(Err((NoTemplate::Ended, why))) => {
            let why = Some(why).filter(|why| !why.is_empty());
            return Err(TemplateFailure::Ended(
                why.unwrap_or_else(|| said.at_the_end()),
            ));
        }
        Err(_late) => return Err(TemplateFailure::late()),
    };
    let stopped = under_way.stopped(stop);
    stopped.ok_or_else(|| TemplateFailure::NotNow("its helper has told nothing of it".into()))
}

async fn stopped(under_way: &mut TemplateUnderWay) -> Result<TemplateStop, (NoTemplate, String)> {
    let io = |e: std::io::Error| (NoTemplate::NotNow, e.to_string());
    let watched = register(under_way.as_fd().as_raw_fd(), Interest::READABLE).map_err(io)?;
    loop {
        let mut guard = watched.readable().await.map_err(io)?;
        if let Some(stop) = under_way.progress()? {
            return Ok(stop);
        }
        guard.clear_ready();
    }
}
