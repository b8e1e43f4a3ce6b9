//! Handlers that answer requests: programs, long-running applications, files, constant answers.
//!
//! | module | holds |
//! |---|---|
//! | [`program`], `relay` | a process for each request, and the work while it runs |
//! | [`warm`] | programs kept loaded, and forked for each request |
//! | `owners` | programs and workers that a helper starts as another user |
//! | [`wasm`] | programs that are WebAssembly modules |
//! | [`application`], [`upstream`] | FastCGI and SCGI: asking an application, its connections and worker processes |
//! | [`files`], [`respond`] | files, constant answers |
//! | [`script`], [`root`], [`beneath`] | the file that a path names, found in a folder and nowhere else |
//! | [`blocking`] | file systems that may hang |
//! | `backend` | the source of an answer: a process, or an exchange with an application |
//! | [`program_settings`], [`application_settings`], [`template_settings`], [`guest_access`] | settings of the handlers |
//! | `reply`, `authorizer`, [`sendfile`], [`variables`] | variables for CGI programs, and responses made from their answers |
//! | [`steps`] | steps before and after a handler: redirects, rewrites, access, fields, error pages, compression; [`passwords`] |
//! | [`cache`] | answers of programs that are kept for a moment |
//! | [`status`] | responses to failed requests |
//! | [`context`], [`resources`], [`shared`] | parts that every handler may use |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod application;
pub mod application_settings;
mod authorizer;
mod backend;
mod before_reply;
pub mod beneath;
pub mod blocking;
mod body_spool;
pub mod cache;
mod connect;
pub mod context;
pub mod files;
pub mod guest_access;
mod links;
pub mod modules;
mod owners;
pub mod password_gate;
pub mod passwords;
pub mod program;
pub mod program_settings;
pub mod rate_limit;
mod relay;
mod reply;
pub mod resources;
pub mod respond;
pub mod root;
pub mod script;
pub mod sendfile;
pub mod shared;
pub mod status;
pub mod steps;
pub mod template_settings;
mod trial;
pub mod upstream;
pub mod variables;
pub mod warm;
pub mod wasm;
