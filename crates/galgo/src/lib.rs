//! galgo: a web server for `cgi-bin`. Linux only (x86_64 and aarch64).
//!
//! A request's way: [`galgo_front`] → [`route`] → [`handler`] → [`relay`] → [`galgo_front`] → [`log`].

pub mod beneath;
pub mod cli;
pub mod config;
pub mod handler;
pub mod relay;
pub mod resources;
pub mod route;
pub mod serve;
pub mod site;
mod trial;
pub mod upstream;
pub mod warm;
pub mod wasm;

use galgo_io::{address, off_loop, out, pace, pool, sock, tick, trusted_path};
use galgo_service::{
    admission, body, client, fault, id, link, log, peer, phase, producer, request, service, spool,
};
