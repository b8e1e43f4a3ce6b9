//! The workers of upstreams, all of them on one thread: there is one once there are workers, and it ends after all
//! requests have.

use std::{cell::RefCell, io, rc::Rc, sync::Arc, thread::JoinHandle};

use galgo_spawn::{Direct, Outside, Spawner};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::{JoinSet, LocalSet},
};

use super::{
    supervisor::{Supervisor, TERM},
    worker_pool::WorkerPool,
};

/// The thread that watches all workers, once there are any; dropping it ends them.
#[derive(Debug)]
pub struct WorkersThread {
    end: watch::Sender<bool>,
    outside: Arc<Outside>,
    state: ThreadState,
}

#[derive(Debug)]
enum ThreadState {
    /// There has been no worker. The spawner was made early, while descriptor numbers were low.
    Idle(Option<Direct>),
    Runs {
        pools: mpsc::UnboundedSender<WorkerPool>,
        thread: JoinHandle<()>,
    },
}

impl WorkersThread {
    /// Nothing is watched yet.
    pub fn new(spawner: Direct, outside: Arc<Outside>) -> Self {
        Self {
            outside,
            end: watch::Sender::new(false),
            state: ThreadState::Idle(Some(spawner)),
        }
    }

    /// Prepares to start workers.
    ///
    /// # Errors
    /// There is no thread to watch them.
    pub fn prepare(&mut self) -> io::Result<()> {
        let ThreadState::Idle(spawner) = &mut self.state else {
            return Ok(());
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (pools, new) = mpsc::unbounded_channel();
        // Where there was no thread to be had, the next try needs another.
        let direct = spawner.take().map_or_else(Direct::new, Ok)?;
        let mut spawner = Spawner::new(direct, self.outside.clone());
        // A server that is killed cannot end them. The thread outlives them.
        spawner.set_orphaned(Some(TERM));
        let ended = self.end.subscribe();
        let thread = std::thread::Builder::new()
            .name("workers".into())
            .spawn(move || {
                runtime.block_on(LocalSet::new().run_until(supervisors(new, spawner, ended)))
            })?;
        self.state = ThreadState::Runs { pools, thread };
        Ok(())
    }

    /// Ends all workers, and waits until they have ended.
    pub fn end(&mut self) {
        self.end.send_replace(true);
        let state = std::mem::replace(&mut self.state, ThreadState::Idle(None));
        if let ThreadState::Runs { pools, thread } = state {
            drop(pools);
            let _ = thread.join();
        }
    }

    /// Starts the workers of a pool; there is a thread for them, or they are not started.
    pub fn start(&self, pool: WorkerPool) {
        if let ThreadState::Runs { pools, .. } = &self.state {
            let _ = pools.send(pool);
        }
    }
}

/// Keeps the workers of all pools, until there are none and no pool comes any more.
async fn supervisors(
    mut pools: mpsc::UnboundedReceiver<WorkerPool>,
    spawner: Spawner,
    ended: watch::Receiver<bool>,
) {
    let spawner = Rc::new(RefCell::new(spawner));
    let mut supervisors = JoinSet::new();
    loop {
        tokio::select! {
            pool = pools.recv() => match pool {
                Some(pool) => supervise(&mut supervisors, pool, &spawner, &ended),
                None => break,
            },
            Some(_) = supervisors.join_next() => {}
        }
    }
    while supervisors.join_next().await.is_some() {}
}

/// A supervisor for each slot of a pool.
fn supervise(
    supervisors: &mut JoinSet<()>,
    pool: WorkerPool,
    spawner: &Rc<RefCell<Spawner>>,
    ended: &watch::Receiver<bool>,
) {
    let pool = Rc::new(pool);
    let replacing = Arc::new(Semaphore::new(1));
    for slot in 0..pool.slots.slots.len() {
        let supervisor = Supervisor {
            renew: pool.renew.clone(),
            pool: pool.clone(),
            slot,
            spawner: spawner.clone(),
            ended: ended.clone(),
            replacing: replacing.clone(),
        };
        supervisors.spawn_local(supervisor.keep());
    }
}

impl Drop for WorkersThread {
    fn drop(&mut self) {
        self.end();
    }
}
