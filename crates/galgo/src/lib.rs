//! galgo: a web server for `cgi-bin`.

pub mod body;
pub mod config;
pub mod handler;
pub mod route;
