//! galgo: a web server for `cgi-bin`. Linux only (x86_64 and aarch64).
//!
//! A request's way: [`galgo_front`] → [`dispatch`] → [`route`] → [`galgo_handlers`] → [`galgo_front`] → [`log`](galgo_service::log).
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

mod admit;
pub mod certificates;
pub mod cli;
mod command;
pub mod config;
mod config_check;
mod config_text;
mod described;
pub mod dispatch;
mod handle;
pub mod hosts;
mod isolation;
mod live;
mod notify;
mod owner_limits;
mod passage;
mod programs;
mod reading;
pub mod route;
mod route_check;
mod run;
pub mod serve;
pub mod site;
mod sockets;
mod trace;
mod waits;
