//! The command line, by the binary itself and with real programs.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stderr)]

mod check;
mod documents;
mod escapes;
mod logs;
mod modules;
mod ports;
mod run;
mod scene;
mod serve;
mod url;
mod user;
mod words;
