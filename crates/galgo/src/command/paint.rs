//! Colours, for terminals that show them.

use std::io::IsTerminal;

use crate::programs::Severity;

/// Marks words with colours, or leaves them alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    /// Chooses colours for output to `stream`. Output is plain in a pipe, on a dumb terminal, and if NO_COLOR is set
    /// (no-color.org).
    pub(crate) fn for_stream(stream: &impl IsTerminal) -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Self(stream.is_terminal() && !set("NO_COLOR") && !dumb)
    }

    #[cfg(test)]
    pub(crate) fn without_colour() -> Self {
        Self(false)
    }

    /// Returns the mark at the beginning of a line of that verdict.
    pub(crate) fn verdict_mark(self, verdict: Severity) -> String {
        match verdict {
            Severity::Fine => self.sgr("32", "ok  "),
            Severity::Note => self.faint("note"),
            Severity::Warns => self.sgr("33", "warn"),
            Severity::Fails => self.sgr("1;31", "FAIL"),
        }
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.sgr("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.sgr("2", text)
    }

    fn sgr(self, code: &str, text: &str) -> String {
        if self.0 {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}
