//! Loads a program's templates and looks after them, outside of requests. Each requested program has one keeper task.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use galgo_io::{off_loop::off_loop, sock::register, tick};
use galgo_service::{log::Level, phase::Phase};
use galgo_spawn::{
    inspect,
    owners::StoppedTemplate,
    template::{FileWatch, LoadedTemplate, Template, TemplateKind, Unfit, Unwatched, Uses, dates},
};
use tokio::io::Interest;

use super::{
    failure::{TemplateFailure, UNPROVEN},
    order::{KeeperTask, LoadOrder},
    owned,
    program::WarmProgram,
    registry::Warm,
    setup::TemplateSetup,
    streams::{Said, Streams},
};
use crate::resources::Resources;

/// Longer than a tick of the clock that dates files.
const SETTLED: Duration = Duration::from_millis(20);

/// Interval between checks of files that may change without an event.
const UNHEARD: Duration = Duration::from_secs(1);

/// Once a script of a PHP program has changed, only scripts whose last change is this long ago are compiled ahead.
const RESTED: Duration = Duration::from_secs(60);

/// Starts the task that looks after the templates of `program` until the program was not requested for a long time.
pub(super) fn start(
    resources: &Rc<Resources>,
    warm: &Arc<Warm>,
    program: &Arc<WarmProgram>,
    setup: TemplateSetup,
) {
    let (resources, warm, program) = (resources.clone(), warm.clone(), program.clone());
    tokio::task::spawn_local(async move {
        let mut phase = resources.phase.clone();
        let keeps = async {
            loop {
                match program.work(resources.templates().idle) {
                    KeeperTask::Load(order) => {
                        load(&resources, &warm, &program, &setup, &order).await
                    }
                    KeeperTask::Wait(pause) => {
                        // `work` looks at everything again, whether this wait ended early or not.
                        let _ = tokio::time::timeout(pause, program.wake.notified()).await;
                    }
                    KeeperTask::Over => return,
                }
            }
        };
        // A server that drains waits for its tasks, and loads nothing.
        tokio::select! {
            biased;
            Ok(_) = phase.wait_for(|p| *p != Phase::Serving) => program.keeper_ended(),
            () = keeps => {}
            () = look_at_unheard(&warm, &program) => {}
        }
    });
}

/// Looks each second at files that may change without an event. Never ends. If the file system does not answer in time, the
/// files count as changed, because nothing shows that they are the same. A cold start waits for that file system as well.
async fn look_at_unheard(warm: &Arc<Warm>, program: &Arc<WarmProgram>) {
    loop {
        tokio::time::sleep(UNHEARD).await;
        let is_due = |watch: &FileWatch<WarmProgram>| watch.is_due(program);
        if !warm.watch.as_ref().is_some_and(is_due) {
            continue;
        }
        let (of, files) = (program.clone(), warm.clone());
        let looks = off_loop("stat", move || {
            let watch = files.watch.as_ref();
            watch.is_some_and(|watch| watch.has_changed(&of))
        });
        let changed = tokio::time::timeout(UNHEARD, looks).await;
        if !matches!(changed, Ok(Ok(false))) {
            program.retire_changed();
        }
    }
}

async fn load(
    resources: &Rc<Resources>,
    warm: &Arc<Warm>,
    program: &Arc<WarmProgram>,
    setup: &TemplateSetup,
    order: &LoadOrder,
) {
    let began = Instant::now();
    let room = warm.room(program, &resources.templates());
    let Some(mut room) = room else {
        return program.crowded();
    };
    let loaded = match stop(resources, warm, program, setup, order).await {
        // A file written just before the load looks the same as a file changed during the load: the second try tells.
        Err(TemplateFailure::Changed(_)) => {
            tokio::time::sleep(SETTLED).await;
            stop(resources, warm, program, setup, order).await
        }
        stopped => stopped,
    };
    match loaded {
        Ok(stopped) => {
            let memory = stopped.loaded.memory;
            room.holds(memory);
            if order.first {
                let done = match order.uses {
                    Uses::Many => "loaded",
                    Uses::Once => "parked",
                };
                let words = format!(
                    "{done} for warm starts in {} ms, {} KiB; {}",
                    began.elapsed().as_millis(),
                    memory >> 10,
                    warm.bounds.held(&resources.templates())
                );
                program.log.write(Level::Info, &program.name, &words);
            }
            program.add(stopped, room, order);
        }
        Err(TemplateFailure::Cold(why)) => program.unfit(order, &why, false),
        Err(TemplateFailure::Unfit { why, parks }) => {
            let parks = order.uses == Uses::Many && parks;
            if parks || !program.unlearned(order, &why) {
                program.unfit(order, &why, parks);
            }
        }
        Err(TemplateFailure::Ended(why)) => {
            if !program.unlearned(order, "does not load") {
                program.failed(&why);
            }
        }
        Err(TemplateFailure::NotNow(why) | TemplateFailure::Changed(why)) => program.failed(&why),
    }
}

/// Finds out the program's kind. Reading its file may take as long as executing it.
async fn kind(setup: &TemplateSetup) -> Result<TemplateKind, TemplateFailure> {
    let (interpreter, file) = (setup.interpreter.clone(), setup.file.clone());
    let looks = off_loop("look", move || match &interpreter {
        Some(interpreter) => inspect::kind_by_interpreter(interpreter),
        None => inspect::detect_kind(&file),
    });
    match tokio::time::timeout(setup.patience(), looks).await {
        Ok(looked) => looked?.map_err(|Unfit { why, passes }| {
            if passes {
                TemplateFailure::NotNow(format!("it {why}"))
            } else {
                TemplateFailure::Cold(why)
            }
        }),
        Err(_late) => Err(TemplateFailure::NotNow(
            "its file was not read within first_byte_timeout".into(),
        )),
    }
}

/// Has a template started and waits until the template has stopped.
async fn stop(
    resources: &Rc<Resources>,
    warm: &Arc<Warm>,
    program: &Arc<WarmProgram>,
    setup: &TemplateSetup,
    order: &LoadOrder,
) -> Result<StoppedTemplate, TemplateFailure> {
    let (streams, mut said) = Streams::new()?;
    let stopped = match &setup.as_user {
        Some(user) => owned::stop(user, setup, streams, &mut said, order).await?,
        None => {
            let since = dates::file_time_now();
            let (template, loaded) = own(resources, setup, streams, &mut said, order).await?;
            // An unfit template is watched as well: with another module, the program may become fit.
            let loaded = unchanged(warm, program, setup, loaded, since).await?;
            StoppedTemplate {
                template,
                loaded,
                knows: true,
            }
        }
    };
    let obstacle = stopped.loaded.obstacle.clone();
    let mut printed = || !said.output().is_empty();
    let why = obstacle.or_else(|| printed().then(|| "prints while loading".into()));
    if let Some(why) = why {
        let parks = stopped.template.kind().can_park();
        return Err(TemplateFailure::Unfit { why, parks });
    }
    if order.first {
        warn(resources, program, &said.errors());
    }
    Ok(stopped)
}

/// Starts a template in this server, without a helper, and waits until it has stopped.
async fn own(
    resources: &Rc<Resources>,
    setup: &TemplateSetup,
    streams: Streams,
    said: &mut Said,
    order: &LoadOrder,
) -> Result<(Template, LoadedTemplate), TemplateFailure> {
    let kind = kind(setup).await?;
    let modules = trusted(kind, order).await?;
    let (args, env) = (setup.args.clone(), setup.env.clone());
    let launch = setup.options.make_launch(args, env, setup.dir.clone());
    let started = {
        let spawner = &mut resources.spawner.borrow_mut();
        Template::start(spawner, launch, streams.stdio(), kind, order.uses, &modules)
    };
    let mut template = started.map_err(|e| TemplateFailure::NotNow(e.to_string()))?;
    drop(streams);
    let loaded = tokio::time::timeout(setup.patience(), stopped(resources, &mut template)).await;
    let held = order.proven || template.is_holding();
    match loaded {
        Ok(Ok(loaded)) => Ok((template, loaded)),
        // Nothing proves that the program itself did not run instead.
        Ok(Err(_)) | Err(_) if !held => Err(TemplateFailure::Cold(UNPROVEN.into())),
        // The template did not end: the server had an error while looking at it.
        Ok(Err(e)) if e.raw_os_error().is_some() => Err(e.into()),
        Ok(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Err(TemplateFailure::Ended(said.at_the_end()))
        }
        Ok(Err(e)) => Err(TemplateFailure::Ended(e.to_string())),
        Err(_late) => Err(TemplateFailure::late()),
    }
}

/// Returns the learned modules that may be loaded ahead of requests. The file system decides that, so it is asked off the
/// event loop.
async fn trusted(kind: TemplateKind, order: &LoadOrder) -> io::Result<Vec<u8>> {
    if order.learned.is_empty() {
        return Ok(Vec::new());
    }
    let (search, learned) = (order.search.clone(), order.learned.clone());
    // Some applications rewrite scripts as data from time to time. Each rewrite would end a template that has compiled them.
    let rests = kind == TemplateKind::Php && order.revision.changes > 0;
    let since = if rests {
        order
            .since
            .min(dates::file_time_now().saturating_sub(RESTED))
    } else {
        order.since
    };
    off_loop("modules", move || {
        search.trusted_names(kind, &learned, since)
    })
    .await
}

/// Logs the lines that a program wrote to its standard error while it was loaded.
fn warn(resources: &Resources, program: &WarmProgram, warnings: &str) {
    let log = &resources.errors;
    for line in warnings.lines().filter(|l| !l.trim().is_empty()) {
        let words = format!("said while it was loaded: {line}");
        log.write(Level::Warn, &program.name, &words);
    }
}

async fn stopped(resources: &Resources, template: &mut Template) -> io::Result<LoadedTemplate> {
    let raw = template.as_fd().as_raw_fd();
    let watched = register(raw, Interest::READABLE)?;
    let mut begun = false;
    loop {
        let mut guard = tokio::select! {
            guard = watched.readable() => guard?,
            // Nothing else tells that the template could not be executed.
            () = tick::next(), if !begun => {
                begun = has_begun(resources, template)?;
                continue;
            }
        };
        // A message shows that the template was executed. Asking the spawner closes the server's copies of the template's
        // pipe ends.
        begun = begun || has_begun(resources, template)?;
        if let Some(loaded) = template.loaded()? {
            return Ok(loaded);
        }
        guard.clear_ready();
    }
}

fn has_begun(resources: &Resources, template: &Template) -> io::Result<bool> {
    let begun = template.has_begun(&mut resources.spawner.borrow_mut());
    begun.map_err(io::Error::other)
}

/// Watches the files that were loaded, and makes sure that none changed before it was watched. This runs off the event loop,
/// because the files may be many, and on any file system.
async fn unchanged(
    warm: &Arc<Warm>,
    program: &Arc<WarmProgram>,
    setup: &TemplateSetup,
    loaded: LoadedTemplate,
    since: Duration,
) -> Result<LoadedTemplate, TemplateFailure> {
    let (warm, program, own) = (warm.clone(), program.clone(), setup.file.clone());
    let looks = off_loop("watch", move || {
        let kept = match &warm.watch {
            Some(watch) => watch.watch_template(&loaded, &program, &own, since),
            None => Ok(()),
        };
        match kept {
            Ok(()) => Ok(loaded),
            Err(e @ Unwatched::Unable(_)) => Err(TemplateFailure::NotNow(e.to_string())),
            Err(e @ Unwatched::Changed(_)) => Err(TemplateFailure::Changed(e.to_string())),
        }
    });
    looks.await?
}
