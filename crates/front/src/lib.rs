//! The front: everything that speaks with clients. All that it knows of the code that answers their requests is the trait
//! [`Service`](galgo_service::service::Service).
//!
//! | module | holds |
//! |---|---|
//! | [`front_settings`] | the configuration of a front |
//! | [`site`] | the site that answers the requests of an event loop |
//! | [`listener`], [`accept`] | listening sockets; accepting, and choosing the event loop of each connection |
//! | [`shared_by_loops`], [`event_loop`] | state that all event loops share; state of one event loop |
//! | `crowd`, `idle` | the choice of a connection that makes room; connections that wait for a request |
//! | `framing` | the way in which the end of a response's body is marked |
//! | `linger` | closing so that the last response arrives |
//! | `floods` | names clients that keep an event loop busy with small things |
//! | `handshakes` | handshakes of TLS, in which addresses take turns |
//! | `throttle` | clients that were told 503 and ask again at once |
//! | `conn` | one connection, request by request |
//! | `request_body`, `stdin` | how far a request body has come, without a socket |
//! | `http2` | one connection, many requests at once |
//! | `frames` | the frames of HTTP/2 on their way to `h2`: floods, heads and refused requests |
//! | [`mod@run`] | the main loop of an event loop |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod accept;
mod conn;
mod crowd;
pub mod event_loop;
mod floods;
mod frames;
mod framing;
pub mod front_settings;
mod handshakes;
mod http2;
mod idle;
mod linger;
pub mod listener;
mod logged;
mod origin;
mod request_body;
pub mod run;
pub mod shared_by_loops;
pub mod site;
mod stdin;
mod throttle;

pub use conn::future_size;
