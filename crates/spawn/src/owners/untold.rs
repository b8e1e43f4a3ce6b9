//! Answers of the spawner that the server has not taken yet: something is short, or the server does not read.

use crate::remote::{
    deadline::Deadline,
    message::{OrderAnswer, send},
    shortage::is_short,
};
use rustix::{io::Errno, net::SendFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// While so many wait, the spawner takes no order: a server that does not read its answers is heard no further.
const MOST: usize = 64;

/// The answer to the order of this number, which is waited for until a deadline.
#[derive(Debug)]
pub(super) struct UntoldAnswer {
    pub(super) number: u32,
    pub(super) by: Deadline,
    pub(super) answer: OrderAnswer,
    pub(super) fds: Vec<OwnedFd>,
}

/// The answers that wait.
#[derive(Debug, Default)]
pub(super) struct UntoldAnswers(Vec<UntoldAnswer>);

impl UntoldAnswers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    pub(super) fn add(&mut self, answer: UntoldAnswer) {
        self.0.push(answer);
    }

    /// Sends those that are still waited for. A server that does not read is not waited for.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) {
        self.0.retain(|told| {
            let fds: Vec<_> = told.fds.iter().map(AsFd::as_fd).collect();
            let answer = told.answer.encode(told.number);
            let sent = send(socket, &[&answer], &fds, SendFlags::DONTWAIT);
            matches!(sent, Err(e) if is_short(e) || e == Errno::INTR) && !told.by.has_passed()
        });
    }
}
