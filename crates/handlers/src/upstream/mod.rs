//! Programs that stay and are asked over a socket: where they are, how many connections there may be, and which stay open.
//!
//! | module | holds |
//! |---|---|
//! | `connect` | making a connection, within its clock |
//! | `lease` | permits and connections, for one request |
//! | `idle_pool` | connections that wait for their next request |
//! | `sending` | the request on its way: variables, body, framing |
//! | `exchange` | one request and its response on one connection |
//! | `slots`, `worker_pool` | processes that galgo starts itself |
//! | `worker_start` | starting one of them, here or by a helper |
//! | `supervisor`, `supervision` | what keeps each of them running, and the thread it does so on |

mod connect;
pub mod exchange;
pub(crate) mod idle_pool;
mod lease;
mod sending;
mod slots;
mod supervision;
mod supervisor;
mod worker_pool;
mod worker_start;

pub use connect::probe;
pub use lease::{Upstream, UpstreamLease};
pub use supervision::WorkersThread;
pub use worker_pool::WorkerPool;
pub(crate) use worker_start::log_errors;
