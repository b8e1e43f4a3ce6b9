//! The front: everything that speaks with clients. It knows nothing of what answers their requests but the trait
//! [`Service`](galgo_service::service::Service).
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | what a front is configured with |
//! | [`site`] | what answers the requests of an event loop |
//! | [`listener`], [`accept`] | listening sockets; accepting, and which event loop has a connection |
//! | [`shared`], [`event_loop`] | what the event loops share; what connections have of their own one |
//! | `crowd`, `idle` | which connection makes room for another; those that wait for a request |
//! | `framing` | how the end of a response's body is marked |
//! | `linger` | closing so that the last response arrives |
//! | `floods` | names clients that keep an event loop busy with small things |
//! | `handshakes` | handshakes of TLS, by address in turn |
//! | `throttle` | clients that were told 503 and ask again at once |
//! | `conn` | one connection, request by request |
//! | `http2` | one connection, many requests at once |
//! | [`mod@run`] | an event loop as it runs |
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

pub mod accept;
mod conn;
mod crowd;
pub mod event_loop;
mod floods;
mod framing;
mod handshakes;
mod http2;
mod idle;
mod linger;
pub mod listener;
mod logged;
mod origin;
pub mod run;
pub mod settings;
pub mod shared;
pub mod site;
mod throttle;

pub use conn::future_size;
