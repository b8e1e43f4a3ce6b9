//! Runs the workers of all upstreams on one thread. The thread starts with the first workers, and ends after all requests have
//! ended.

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

/// The thread that watches all workers, once there are any. Dropping it ends the workers.
#[derive(Debug)]
pub struct WorkersThread {
    end: watch::Sender<bool>,
    outside: Arc<Outside>,
    state: ThreadState,
}

#[derive(Debug)]
enum ThreadState {
    /// No worker was started yet. The spawner was made early, while descriptor numbers were low.
    Idle(Option<Direct>),
    Runs {
        pools: mpsc::UnboundedSender<WorkerPool>,
        thread: JoinHandle<()>,
    },
}

impl WorkersThread {
    /// Prepares to watch workers, without a thread yet.
    pub fn new(spawner: Direct, outside: Arc<Outside>) -> Self {
        Self {
            outside,
            end: watch::Sender::new(false),
            state: ThreadState::Idle(Some(spawner)),
        }
    }

    /// Starts the thread, to be ready to start workers.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn prepare(&mut self) -> io::Result<()> {
        let ThreadState::Idle(spawner) = &mut self.state else {
            return Ok(());
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (pools, new) = mpsc::unbounded_channel();
        // If starting the thread failed before, this try needs another spawner.
        let direct = spawner.take().map_or_else(Direct::new, Ok)?;
        let mut spawner = Spawner::new(direct, self.outside.clone());
        // A server that is killed cannot end the workers: the kernel sends TERM when this thread ends. The thread outlives the
        // workers.
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
    pub fn terminate_workers(&mut self) {
        self.end.send_replace(true);
        let state = std::mem::replace(&mut self.state, ThreadState::Idle(None));
        if let ThreadState::Runs { pools, thread } = state {
            drop(pools);
            let _ = thread.join();
        }
    }

    /// Starts the workers of a pool, if the thread runs.
    pub fn start_workers(&self, pool: WorkerPool) {
        if let ThreadState::Runs { pools, .. } = &self.state {
            let _ = pools.send(pool);
        }
    }
}

/// Supervises the workers of all pools, until no worker is left and no pool can come.
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

/// Starts a supervisor for each slot of a pool.
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
        supervisors.spawn_local(supervisor.keep_worker());
    }
}

impl Drop for WorkersThread {
    fn drop(&mut self) {
        self.terminate_workers();
    }
}
