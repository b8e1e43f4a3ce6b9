//! Real programs behind the real server, asked by real clients, without any stand-ins.
//!
//! Every test starts the galgo binary on a folder of its own. If this machine lacks something that a
//! test needs, the test fails with a sentence; `make test` installs everything.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod authorizer;
mod bang;
mod behind;
mod cgit;
mod curl;
mod databases;
mod django;
mod fastcgi;
mod flask;
mod git;
mod gitweb;
mod guestbook;
mod migration;
mod mojolicious;
mod perl;
mod php;
mod php_applications;
mod php_databases;
mod php_pool;
mod php_servers;
mod php_warm;
mod processes;
mod programs;
mod recipe;
mod reload;
mod repository;
mod service;
mod site;
mod wasm;
mod websocket;
