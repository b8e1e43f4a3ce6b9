//! Certificates of `https://` listeners while the server runs: automatic ones (ACME, RFC 8555), and reloaded files. A
//! separate thread does all of this, and no request waits for it.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | the configuration of certificates |
//! | `store` | the state folder: the account and the certificates that were obtained |
//! | `answers` | proofs over HTTP that a host is ours |
//! | `authority` | the conversation with the authority |
//! | `plan` | the times of renewals, and of retries after failures |
//! | `files` | certificate files that are replaced |
//! | `renewal` | each host's certificate, from the first one on |
//! | `keeper`, `work` | the thread, and its work |

pub mod answers;
mod authority;
pub mod certificate_settings;
mod files;
pub mod keeper;
mod plan;
mod renewal;
pub mod store;
pub mod work;
