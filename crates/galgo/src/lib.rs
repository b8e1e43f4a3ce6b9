//! galgo: a web server for `cgi-bin`. Linux only (x86_64 and aarch64).
//!
//! A request's way: [`listen`] → [`conn`] → [`route`] → [`handler`] → [`relay`] → [`conn::send`] → [`log`].

pub mod balance;
pub mod beneath;
pub mod cli;
pub mod config;
pub mod conn;
pub mod crowd;
pub mod handler;
pub mod idle;
pub mod listen;
pub mod proxy;
pub mod refused;
pub mod relay;
pub mod resources;
pub mod route;
pub mod serve;
pub mod site;
pub mod socket_file;
mod trial;
pub mod upstream;
pub mod warm;
pub mod wasm;
pub mod worker;

use galgo_io::{address, buf, off_loop, out, pace, pool, sock, tick, trusted_path};
use galgo_service::{
    admission, body, client, fault, id, link, log, peer, phase, producer, request, service, spool,
};
