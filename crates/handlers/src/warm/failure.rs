//! Why there is no template.

use std::io;

/// Why there is no template.
pub(super) enum TemplateFailure {
    /// This version of the program can only be cold, whatever it is loaded with: it ..., in words.
    Cold(String),
    /// It can only be cold, or `parks`: it ..., in words.
    Unfit { why: String, parks: bool },
    /// It ended, or took too long.
    Ended(String),
    /// It may be better another time.
    NotNow(String),
    /// One of its files may have changed while it was loaded.
    Changed(String),
}

/// Of a program that is not started again without a request.
pub(super) const UNPROVEN: &str = "did not stop before its first line, and may have run to its end";

impl From<io::Error> for TemplateFailure {
    fn from(e: io::Error) -> Self {
        Self::NotNow(e.to_string())
    }
}

impl TemplateFailure {
    pub(super) fn late() -> Self {
        Self::Ended("it has not come to its first line within first_byte_timeout".into())
    }
}
