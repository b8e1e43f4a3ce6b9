//! TLS (RFC 8446, RFC 5246) on a connection that was accepted: the session, and the certificates that servers show.
//!
//! The rustls library does the work, with AWS-LC for the arithmetic. AWS-LC is the fastest of the maintained providers. It
//! alone offers by default a key exchange that a quantum computer does not break (X25519MLKEM768).

mod certificates;
mod clients;
mod facts;
mod provider;
mod server;
mod session;
mod shown;
#[cfg(test)]
mod tests;

pub use certificates::Certificate;
pub use clients::{ClientCertificate, Clients, UserIs};
pub use facts::{Facts, format_date};
pub use server::{Agreed, H2, TlsServer};
pub(crate) use session::Session;
pub use session::explain_handshake_error;
pub use shown::{ACME, Shown};
