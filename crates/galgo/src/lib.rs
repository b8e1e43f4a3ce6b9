//! galgo: a web server for `cgi-bin`. Linux only (x86_64 and aarch64).
//!
//! A request's way: [`listen`] → [`conn`] → [`route`] → [`dispatch`] → `galgo_handlers` → [`conn::send`] → [`log`].

pub mod balance;
pub mod cli;
pub mod config;
pub mod conn;
pub mod crowd;
pub mod dispatch;
pub mod idle;
pub mod listen;
mod live;
pub mod proxy;
pub mod refused;
pub mod route;
pub mod serve;
pub mod site;
pub mod socket_file;
pub mod worker;

use galgo_io::{address, buf, out, pace, pool, sock, tick, trusted_path};
use galgo_service::{
    admission, body, client, fault, id, link, log, peer, phase, producer, request, service, spool,
};
