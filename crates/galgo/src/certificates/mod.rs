//! Certificates of `https://` listeners while the server runs: those that come by themselves (ACME, RFC 8555), and files
//! that became others. A thread of its own does all of it, and no request waits for it.
//!
//! | module | holds |
//! |---|---|
//! | `settings` | what is configured |
//! | `store` | the state folder: the account and what was obtained |
//! | `answers` | proofs over HTTP that a host is ours |
//! | `authority` | what is said to the authority |
//! | `plan` | when a certificate is renewed, and when what failed is tried again |
//! | `files` | files that become others |
//! | `renewal` | each host's certificate, from the first one on |
//! | `keeper`, `work` | the thread, and what it has to do |

pub mod answers;
mod authority;
mod files;
pub mod keeper;
mod plan;
mod renewal;
pub mod settings;
pub mod store;
pub mod work;
