//! Loads a program's templates and looks after them, outside of requests. Each requested program has one keeper task.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use galgo_io::{off_loop::off_loop, sock::register, tick};
use galgo_service::{log::Level, phase::Phase};
use galgo_spawn::{
    inspect,
    owners::TemplateOrder,
    template::{
        LoadFailure, LoadedTemplate, NoTemplate, Template, TemplateKind, UNHEARD, Uses, dates,
    },
};
use tokio::io::Interest;

use super::{
    order::{KeeperTask, LoadOrder},
    registry::Warm,
    setup::TemplateSetup,
    streams::Streams,
};
use crate::{owners, resources::Resources, warm::warm_program::WarmProgram};

/// Longer than a tick of the clock that dates files.
const SETTLED: Duration = Duration::from_millis(20);

/// Once a script of a PHP program has changed, only scripts whose last change is this long ago are compiled ahead.
const RESTED: Duration = Duration::from_secs(60);

/// Reason for a program that is not started again without a request.
const UNPROVEN: &str = "did not stop before its first line, and may have run to its end";

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
        let Some(watch) = &warm.watch else {
            continue;
        };
        watch.unheard.look_at_mounts();
        if !watch.unheard.is_due(program) {
            continue;
        }
        let (of, files) = (program.clone(), warm.clone());
        let looks = off_loop("stat", move || {
            let watch = files.watch.as_ref();
            watch.is_some_and(|watch| watch.unheard.has_changed(&of))
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
    let loaded = match load_once(resources, warm, program, setup, order).await {
        // A file written just before the load looks the same as a file changed during the load: the second try tells.
        Err(e) if e.reason == NoTemplate::Changed => {
            tokio::time::sleep(SETTLED).await;
            load_once(resources, warm, program, setup, order).await
        }
        loaded => loaded,
    };
    let (template, loaded) = match loaded {
        Ok(loaded) => loaded,
        Err(LoadFailure { reason, words }) => match reason {
            NoTemplate::Unfit => return program.unfit(order, &words, false),
            NoTemplate::Ended if program.unlearned(order, "does not load") => return,
            _ => return program.failed(&words),
        },
    };
    if let Some(why) = &loaded.obstacle {
        let parks = order.uses == Uses::Many && template.kind().can_park();
        if parks || !program.unlearned(order, why) {
            program.unfit(order, why, parks);
        }
        return;
    }
    room.holds(loaded.memory);
    if order.first {
        let held = warm.bounds.held(&resources.templates());
        log_loaded(program, order.uses, began, loaded.memory, &held);
    }
    program.add(template, loaded, room, order);
}

fn log_loaded(program: &WarmProgram, uses: Uses, began: Instant, memory: u64, held: &str) {
    let done = match uses {
        Uses::Many => "loaded",
        Uses::Once => "parked",
    };
    let words = format!(
        "{done} for warm starts in {} ms, {} KiB; {held}",
        began.elapsed().as_millis(),
        memory >> 10,
    );
    program.log.write(Level::Info, &program.name, &words);
}

/// Starts a template, and waits until it has stopped. Watches the template's files, unless a helper watches them. If the program
/// has read or printed something meanwhile, that is an obstacle.
async fn load_once(
    resources: &Rc<Resources>,
    warm: &Arc<Warm>,
    program: &Arc<WarmProgram>,
    setup: &TemplateSetup,
    order: &LoadOrder,
) -> Result<(Template, LoadedTemplate), LoadFailure> {
    let (streams, mut said) = Streams::new()?;
    let since = dates::file_time_now();
    let mut template = start_template(resources, setup, order, streams.stdio()).await?;
    drop(streams);
    let stopped = wait_until_stopped(resources, &mut template, order.proven);
    let stopped = match tokio::time::timeout(setup.patience(), stopped).await {
        Ok(stopped) => stopped,
        Err(_late) => Err(LoadFailure::new(
            NoTemplate::Ended,
            "it did not reach its first line within first_byte_timeout",
        )),
    };
    let is_held = order.proven || template.is_holding();
    let mut loaded = stopped.map_err(|e| match e.reason {
        // Nothing proves that the program itself did not run instead.
        NoTemplate::Ended if !is_held => LoadFailure::new(NoTemplate::Unfit, UNPROVEN),
        NoTemplate::Ended if e.words.is_empty() => LoadFailure::new(e.reason, said.at_the_end()),
        _ => e,
    })?;
    if setup.as_user.is_none() {
        // An unfit template is watched as well: with another module, the program may become fit.
        loaded = watch_files(warm, program, setup, loaded, since).await?;
    }
    if loaded.obstacle.is_none() {
        loaded.obstacle = said.obstacle().map(str::to_owned);
    }
    if order.first && loaded.obstacle.is_none() {
        warn(resources, program, &said.errors());
    }
    Ok((template, loaded))
}

/// Starts a template in this server, or has the helper of the program's user start it.
async fn start_template(
    resources: &Resources,
    setup: &TemplateSetup,
    order: &LoadOrder,
    stdio: [BorrowedFd<'_>; 3],
) -> Result<Template, LoadFailure> {
    if let Some(user) = &setup.as_user {
        let asked = TemplateOrder {
            program: user.program.clone(),
            uses: order.uses,
            modules: order.learned.clone(),
            since: order.since,
        };
        return owners::load_template(user, &asked, stdio).await;
    }
    let (kind, modules) = examine_program(setup, order).await?;
    let (args, env) = (setup.args.clone(), setup.env.clone());
    let launch = setup.options.make_launch(args, env, setup.dir.clone());
    let spawner = &mut resources.spawner.borrow_mut();
    let started = Template::start(spawner, launch, stdio, kind, order.uses, &modules);
    Ok(started?)
}

/// Determines the program's kind, and which learned modules may be loaded ahead of requests. Reading the program's file may take
/// as long as executing it.
async fn examine_program(
    setup: &TemplateSetup,
    order: &LoadOrder,
) -> Result<(TemplateKind, Vec<u8>), LoadFailure> {
    let (interpreter, file) = (setup.interpreter.clone(), setup.file.clone());
    let (search, learned) = (order.search.clone(), order.learned.clone());
    let (mut since, has_changed) = (order.since, order.revision.changes > 0);
    let looks = off_loop("look", move || {
        let kind = inspect::find_kind(&file, interpreter.as_deref())?;
        // Some applications rewrite scripts as data from time to time. Each rewrite would end a template that has compiled them.
        if kind == TemplateKind::Php && has_changed {
            since = since.min(dates::file_time_now().saturating_sub(RESTED));
        }
        Ok((kind, search.trusted_names(kind, &learned, since)))
    });
    match tokio::time::timeout(setup.patience(), looks).await {
        Ok(looked) => looked?,
        Err(_late) => Err(LoadFailure::not_now(
            "its file was not read within first_byte_timeout",
        )),
    }
}

/// Logs the lines that a program wrote to its standard error while it was loaded.
fn warn(resources: &Resources, program: &WarmProgram, warnings: &str) {
    let log = &resources.errors;
    for line in warnings.lines().filter(|l| !l.trim().is_empty()) {
        let words = format!("standard error while loading: {line}");
        log.write(Level::Warn, &program.name, &words);
    }
}

async fn wait_until_stopped(
    resources: &Resources,
    template: &mut Template,
    proven: bool,
) -> Result<LoadedTemplate, LoadFailure> {
    // If nothing is proven yet, a program that cannot be watched may run to its end.
    let reason = if proven {
        NoTemplate::NotNow
    } else {
        NoTemplate::Ended
    };
    let watched = register(template.as_fd().as_raw_fd(), Interest::READABLE)
        .map_err(|e| LoadFailure::new(reason, e.to_string()))?;
    let has_begun = |template: &Template| template.has_begun(&mut resources.spawner.borrow_mut());
    let mut begun = has_begun(template)?;
    loop {
        let mut guard = tokio::select! {
            guard = watched.readable() => guard?,
            // Nothing else tells that the template could not be executed.
            () = tick::next(), if !begun => {
                begun = has_begun(template)?;
                continue;
            }
        };
        // A message shows that the template was executed. Asking the spawner closes the server's copies of the template's
        // pipe ends.
        begun = begun || has_begun(template)?;
        if let Some(loaded) = template.loaded()? {
            return Ok(loaded);
        }
        guard.clear_ready();
    }
}

/// Watches the files that were loaded, and makes sure that none changed before it was watched. This runs off the event loop,
/// because the files may be many, and on any file system.
async fn watch_files(
    warm: &Arc<Warm>,
    program: &Arc<WarmProgram>,
    setup: &TemplateSetup,
    loaded: LoadedTemplate,
    since: Duration,
) -> Result<LoadedTemplate, LoadFailure> {
    let (warm, program, own) = (warm.clone(), program.clone(), setup.file.clone());
    let looks = off_loop("watch", move || {
        if let Some(watch) = &warm.watch {
            watch.watch_template(&loaded, &program, &own, since)?;
        }
        Ok(loaded)
    });
    looks.await?
}
