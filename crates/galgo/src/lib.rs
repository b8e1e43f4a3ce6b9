//! galgo: a web server for `cgi-bin`. Linux only (x86_64 and aarch64).
//!
//! A request's way: [`listen`] → [`conn`] → [`route`] → [`handler`] → [`relay`] → [`conn::send`] → [`log`].

pub mod admission;
pub mod balance;
pub mod beneath;
pub mod body;
pub mod cli;
pub mod client;
pub mod config;
pub mod conn;
pub mod crowd;
pub mod fault;
pub mod handler;
pub mod id;
pub mod idle;
pub mod listen;
pub mod log;
pub mod peer;
pub mod producer;
pub mod proxy;
pub mod refused;
pub mod relay;
pub mod route;
pub mod serve;
pub mod site;
pub mod socket_file;
pub mod spool;
pub mod trusted_path;
pub mod upstream;
pub mod warm;
pub mod wasm;
pub mod worker;

use galgo_io::{buf, off_loop, out, pace, pool, sock, tick};
