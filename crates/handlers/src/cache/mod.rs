//! Answers of programs that are kept for a moment (`cache = "2s"`), and requests that wait for one that is being made.
//!
//! [`rules`] says which requests and answers take part, and what makes two requests equal. [`store`] holds the answers.

pub mod rules;
pub mod store;

pub use store::AnswerCache;
