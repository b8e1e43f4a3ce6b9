//! What is being done, on standard error: one line that is written again and again on a terminal, a line for each program
//! in a pipe.

use std::io::{IsTerminal, Write, stderr};

/// A name that is longer is cut: a line that wraps could not be written again.
const NAME: usize = 40;

#[derive(Debug)]
pub(super) struct Progress {
    rewrites: bool,
    at: usize,
    of: usize,
    name: String,
}

impl Progress {
    /// Of so many programs.
    pub(super) fn new(of: usize) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Self {
            rewrites: stderr().is_terminal() && !dumb,
            at: 0,
            of,
            name: String::new(),
        }
    }

    /// The next program, its name escaped.
    pub(super) fn begin(&mut self, name: &str) {
        self.at += 1;
        self.name = name.chars().take(NAME).collect();
        if !self.rewrites {
            // Standard error may have no reader, here and below.
            let _ = writeln!(stderr(), "{} of {}: {name}", self.at, self.of);
        }
    }

    /// What is done with it now.
    pub(super) fn step(&self, what: &str) {
        if self.rewrites {
            let Self { at, of, name, .. } = self;
            let _ = write!(stderr(), "\r\x1b[K{at} of {of}: {name}: {what}");
        }
    }

    /// Makes room for a line of the result.
    pub(super) fn clear(&self) {
        if self.rewrites {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
