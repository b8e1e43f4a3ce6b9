//! Standard input of a program: the write end of its pipe, and the state of the request body.

use galgo_io::sock::Sock;

/// Standard input of a program. Only [`end_body`](Self::end_body) lets the program see the end of its input. If a request is given up, the
/// part of its body that has come must not look complete.
#[derive(Debug)]
pub(crate) struct ProgramInput {
    pipe: Option<Sock>,
    ended: bool,
}

impl ProgramInput {
    /// Makes the input from a pipe to a program.
    pub(crate) fn from_pipe(pipe: Sock) -> Self {
        Self {
            pipe: Some(pipe),
            ended: false,
        }
    }

    /// Makes the input of a program that has its whole input already: a file, or nothing.
    pub(crate) fn without_pipe() -> Self {
        Self {
            pipe: None,
            ended: true,
        }
    }

    /// Returns the pipe, while the program may read.
    pub(crate) fn pipe(&self) -> Option<&Sock> {
        self.pipe.as_ref()
    }

    /// Ends the complete body: the program sees the end of its input.
    pub(crate) fn end_body(&mut self) {
        (self.pipe, self.ended) = (None, true);
    }

    /// Closes the pipe, because the program reads no more.
    pub(crate) fn close_pipe(&mut self) {
        self.pipe = None;
    }

    /// Returns whether the program has received, or can still receive, the whole body.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl Drop for ProgramInput {
    /// Keeps the pipe open until the program, and any process that it left running, is ended by other means.
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            galgo_spawn::keep_until_unread(pipe.into_fd());
        }
    }
}
