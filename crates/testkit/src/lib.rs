//! Helpers that the tests of galgo's crates share. A [`Site`] is a folder with programs and a configuration, a
//! [`Server`] is the binary that serves it, a [`Client`] speaks raw bytes to the server.
//!
//! No helper sleeps for a fixed time: [`eventually`] waits for a state. A test ends at the first unexpected result,
//! so every function panics if it cannot do its task.
#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test ends at the first unexpected result

pub mod accounts;
pub mod authority;
pub mod client;
pub mod command;
pub mod config;
pub mod file;
mod http2;
pub mod process;
pub mod server;
pub mod site;
pub mod stream;
mod wait;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering},
};

pub use client::{Client, End, Reply, tcp_with_buffer};
pub use command::{Beside, Done};
pub use config::Config;
pub use server::Server;
pub use site::Site;
pub use stream::{Spoken, Stream};
pub use wait::{LONG, Repeated, RunningTime, eventually, wait_until};

/// Returns whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns a free TCP address. No other test asks this machine for a port on the same IP address, so it stays free.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (n, own) = (NEXT.fetch_add(1, Ordering::Relaxed), std::process::id());
    let [_, a, b, c] = (own << 6 ^ n).to_be_bytes();
    let address = Ipv4Addr::new(127, a | 1, b, c.clamp(1, 254));
    let listener = TcpListener::bind((address, 0)).unwrap();
    listener.local_addr().unwrap()
}
