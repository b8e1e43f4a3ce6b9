//! Keeps answers of programs for a moment (`cache = "2s"`). Requests can also wait for an answer that another request
//! makes.
//!
//! [`rules`] says which requests and answers take part, and when two requests are equal. [`store`] holds the answers.

pub mod rules;
pub mod store;

pub use store::AnswerCache;
