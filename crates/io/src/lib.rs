//! Descriptors of one event loop: addresses, sockets and pipes, buffers and their pool, a coarse clock, the time that a client
//! may take, and the turns of connections.
//!
//! Only this crate calls splice(2) and sendfile(2). It knows no protocol, no configuration and no request.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod address;
pub mod buf;
mod kernel;
pub mod off_loop;
pub mod out;
pub mod pool;
pub mod rate_allowance;
pub mod sock;
pub mod tick;
pub mod tls;
pub mod transport;
pub mod turn;
pub mod watch;
