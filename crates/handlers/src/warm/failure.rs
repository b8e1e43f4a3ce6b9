//! Reasons for a missing template.

use std::io;

/// The reason why there is no template.
pub(super) enum TemplateFailure {
    /// This version of the program can only be started cold, with any modules. The text continues
    /// "it ...".
    Cold(String),
    /// The program can only be started cold, or parked if `parks`. The text continues "it ...".
    Unfit { why: String, parks: bool },
    /// The program ended, or took too long.
    Ended(String),
    /// A later try may succeed.
    NotNow(String),
    /// A file of the program may have changed while the program was loaded.
    Changed(String),
}

/// Reason for a program that is not started again without a request.
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
