//! Programs that keep running and are asked over a socket: their addresses, the limit for connections, and the connections that
//! stay open.
//!
//! | module | holds |
//! |---|---|
//! | `connect` | making a connection, within its clock |
//! | `lease` | permits and connections, for one request |
//! | `idle_pool` | connections that wait for their next request |
//! | `sending` | sending a request: variables, body, framing |
//! | `exchange` | one request and its response on one connection |
//! | `slots`, `worker_pool` | processes that galgo starts itself |
//! | `worker_start` | starting a worker, here or by a helper |
//! | `supervisor`, `supervision` | supervising the workers, and the thread for that |

pub mod exchange;
pub(crate) mod idle_pool;
mod lease;
mod sending;
mod slots;
mod supervision;
mod supervisor;
mod worker_pool;
mod worker_start;

pub use crate::connect::check_reachable;
pub use lease::{Upstream, UpstreamLease};
pub use supervision::WorkersThread;
pub use worker_pool::WorkerPool;
pub(crate) use worker_start::log_errors;
