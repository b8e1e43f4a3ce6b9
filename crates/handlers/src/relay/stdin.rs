//! Standard input of a program: the write end of its pipe, and whether the request body has ended.

use galgo_io::sock::Sock;

/// Standard input of a program. Only [`end`](Self::end) lets the program see the end of its input: a request that is given up
/// must not make the part of its body that has come look like all of it.
#[derive(Debug)]
pub(crate) struct ProgramInput {
    pipe: Option<Sock>,
    ended: bool,
}

impl ProgramInput {
    /// A pipe to a program.
    pub(crate) fn piped(pipe: Sock) -> Self {
        Self {
            pipe: Some(pipe),
            ended: false,
        }
    }

    /// The program has its whole input already: a file, or nothing.
    pub(crate) fn whole() -> Self {
        Self {
            pipe: None,
            ended: true,
        }
    }

    /// The pipe, while the program may read.
    pub(crate) fn pipe(&self) -> Option<&Sock> {
        self.pipe.as_ref()
    }

    /// The body is complete: the program sees the end of its input.
    pub(crate) fn end(&mut self) {
        (self.pipe, self.ended) = (None, true);
    }

    /// The program reads no more.
    pub(crate) fn unread(&mut self) {
        self.pipe = None;
    }

    /// Whether the program has got, or can still get, all of the body.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }
}

impl Drop for ProgramInput {
    /// The program, and any process that it has left running, is ended by other means. Until then the pipe stays open.
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            galgo_spawn::keep_until_unread(pipe.into_fd());
        }
    }
}
