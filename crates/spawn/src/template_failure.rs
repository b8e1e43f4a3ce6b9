//! Defines why a program has no template.

use crate::{start_error::StartError, template_kind::Unfit};
use std::{fmt, io};

/// The reason why there is no template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTemplate {
    /// This version of the program can only start cold. The words continue a sentence that begins with "it".
    Unfit,
    /// A later attempt may succeed.
    NotNow,
    /// A file of the program has changed while it was loaded.
    Changed,
    /// The program has ended before it stopped.
    Ended,
}

/// The failure to load a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFailure {
    /// The reason, which decides what follows.
    pub reason: NoTemplate,
    /// The words for the log; empty if the program has ended and nothing else is known.
    pub words: String,
}

impl LoadFailure {
    /// Creates a failure.
    pub fn new(reason: NoTemplate, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { reason, words }
    }

    /// Creates a failure that a later attempt may not have.
    pub fn not_now(words: impl fmt::Display) -> Self {
        Self::new(NoTemplate::NotNow, words.to_string())
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<io::Error> for LoadFailure {
    fn from(e: io::Error) -> Self {
        Self::not_now(e)
    }
}

impl From<StartError> for LoadFailure {
    fn from(e: StartError) -> Self {
        Self::not_now(e)
    }
}

impl From<Unfit> for LoadFailure {
    fn from(Unfit { why, passes }: Unfit) -> Self {
        if passes {
            Self::not_now(format_args!("it {why}"))
        } else {
            Self::new(NoTemplate::Unfit, why)
        }
    }
}
