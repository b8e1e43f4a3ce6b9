//! Progress on standard error: on a terminal one line that is rewritten, in a pipe a line for each program.

use std::io::{IsTerminal, Write, stderr};

/// Longest name that is shown, in characters: a line that wraps could not be rewritten.
const NAME: usize = 40;

#[derive(Debug)]
pub(super) struct Progress {
    rewrites: bool,
    at: usize,
    of: usize,
    name: String,
}

impl Progress {
    /// Starts the progress of `of` programs.
    pub(super) fn new(of: usize) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Self {
            rewrites: stderr().is_terminal() && !dumb,
            at: 0,
            of,
            name: String::new(),
        }
    }

    /// Names the next program; `name` is escaped already.
    pub(super) fn begin_program(&mut self, name: &str) {
        self.at += 1;
        self.name = name.chars().take(NAME).collect();
        if !self.rewrites {
            // Standard error may have no reader, here and below.
            let _ = writeln!(stderr(), "{} of {}: {name}", self.at, self.of);
        }
    }

    /// Shows the current step of the program.
    pub(super) fn show_step(&self, what: &str) {
        if self.rewrites {
            let Self { at, of, name, .. } = self;
            let _ = write!(stderr(), "\r\x1b[K{at} of {of}: {name}: {what}");
        }
    }

    /// Clears the line, so that a line of the result can be printed.
    pub(super) fn clear_line(&self) {
        if self.rewrites {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear_line();
    }
}
