//! A problem of a program, and its fix.

use crate::words;
use std::{fmt, path::Path};

/// A problem of a program, and its fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The problem, as a sentence without its full stop: "the program is not executable".
    pub says: String,
    /// The fix, most often a command; empty if it is plain.
    pub mend: String,
    /// Whether the program cannot run like this; otherwise the finding is a warning.
    pub fails: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.says)?;
        if self.mend.is_empty() {
            Ok(())
        } else {
            write!(f, " (try: {})", self.mend)
        }
    }
}

/// The file that a finding is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    Program,
    /// Named as in the `#!` line or the ELF header.
    Interpreter(&'a [u8]),
}

impl Subject<'_> {
    pub(super) fn failure(self, says: impl fmt::Display, mend: impl Into<String>) -> Finding {
        Finding {
            says: format!("{self} {says}"),
            mend: mend.into(),
            fails: true,
        }
    }
    pub(super) fn warning(self, says: impl fmt::Display, mend: impl Into<String>) -> Finding {
        Finding {
            fails: false,
            ..self.failure(says, mend)
        }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("the program"),
            Self::Interpreter(name) => write!(f, "interpreter `{}`", words::escape(name)),
        }
    }
}

pub(super) fn chmod_command(mode: &str, path: &Path) -> String {
    format!("chmod {mode} {}", words::shell_argument(path))
}
