//! The workers of upstreams, all of them on one thread: there is one once there are workers, and it ends after all
//! requests have.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{Arc, Weak},
    thread::JoinHandle,
};

use galgo_spawn::Direct;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::{JoinSet, LocalSet},
};

use super::{
    Upstream,
    slots::Slots,
    workers::{Post, TERM},
};
use crate::{
    config::{self, Config},
    log::ErrorLog,
};

/// What the workers of one route are started with.
#[derive(Debug)]
pub struct Crew {
    /// Gone once nobody asks it any more.
    pub(super) upstream: Weak<Upstream>,
    pub(super) slots: Arc<Slots>,
    renew: watch::Receiver<()>,
    pub(super) options: config::CgiOptions,
    pub(super) env: Vec<(String, String)>,
    pub(super) path: String,
    pub(super) umask: u32,
    pub(super) log: ErrorLog,
}

impl Crew {
    /// The workers of `upstream`, as `up` of `config` has them; `None` where it has none.
    pub fn of(
        upstream: &Arc<Upstream>,
        up: &config::Upstream,
        config: &Config,
        log: &ErrorLog,
    ) -> Option<Self> {
        let (slots, renew) = upstream.slots()?;
        Some(Self {
            upstream: Arc::downgrade(upstream),
            slots: slots.clone(),
            renew,
            options: up.options.clone(),
            env: up.env.clone(),
            path: config.path.clone(),
            umask: config.umask,
            log: log.clone(),
        })
    }
}

/// The thread that watches all workers, once there are any; dropping it ends them.
#[derive(Debug)]
pub struct Watch {
    end: watch::Sender<bool>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// There has been no worker. The spawner was made early, while descriptor numbers were low.
    Idle(Option<Direct>),
    Runs {
        crews: mpsc::UnboundedSender<Crew>,
        thread: JoinHandle<()>,
    },
}

impl Watch {
    /// Nothing is watched yet.
    pub fn new(spawner: Direct) -> Self {
        Self {
            end: watch::Sender::new(false),
            state: State::Idle(Some(spawner)),
        }
    }

    /// Prepares to start workers.
    ///
    /// # Errors
    /// There is no thread to watch them.
    pub fn prepare(&mut self) -> io::Result<()> {
        let State::Idle(spawner) = &mut self.state else {
            return Ok(());
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (crews, new) = mpsc::unbounded_channel();
        // Where there was no thread to be had, the next try needs another.
        let mut spawner = spawner.take().map_or_else(Direct::new, Ok)?;
        // A server that is killed cannot end them, and nobody else would. The thread outlives them.
        spawner.set_orphaned(Some(TERM));
        let ended = self.end.subscribe();
        let thread = std::thread::Builder::new()
            .name("workers".into())
            .spawn(move || {
                runtime.block_on(LocalSet::new().run_until(posts(new, spawner, ended)))
            })?;
        self.state = State::Runs { crews, thread };
        Ok(())
    }

    /// Starts the workers of a crew; there is a thread for them, or they are not started.
    pub fn start(&self, crew: Crew) {
        if let State::Runs { crews, .. } = &self.state {
            let _ = crews.send(crew);
        }
    }
}

/// Keeps the workers of all crews, until there are none and no crew comes any more.
async fn posts(
    mut crews: mpsc::UnboundedReceiver<Crew>,
    spawner: Direct,
    ended: watch::Receiver<bool>,
) {
    let spawner = Rc::new(RefCell::new(spawner));
    let mut posts = JoinSet::new();
    loop {
        tokio::select! {
            crew = crews.recv() => match crew {
                Some(crew) => man(&mut posts, crew, &spawner, &ended),
                None => break,
            },
            Some(_) = posts.join_next() => {}
        }
    }
    while posts.join_next().await.is_some() {}
}

/// A post for each place of a crew.
fn man(
    posts: &mut JoinSet<()>,
    crew: Crew,
    spawner: &Rc<RefCell<Direct>>,
    ended: &watch::Receiver<bool>,
) {
    let crew = Rc::new(crew);
    let turn = Arc::new(Semaphore::new(1));
    for slot in 0..crew.slots.slots.len() {
        let post = Post {
            renew: crew.renew.clone(),
            crew: crew.clone(),
            slot,
            spawner: spawner.clone(),
            ended: ended.clone(),
            turn: turn.clone(),
        };
        posts.spawn_local(post.keep());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.send_replace(true);
        let state = std::mem::replace(&mut self.state, State::Idle(None));
        if let State::Runs { crews, thread } = state {
            drop(crews);
            let _ = thread.join();
        }
    }
}
