//! Answers of the spawner that the server has not taken yet, because something is short or the server does not read.

use crate::remote::{
    deadline::Deadline,
    message::{OrderAnswer, send_message},
    shortage::is_short,
};
use rustix::{io::Errno, net::SendFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Limit of waiting answers. At this limit the spawner takes no more orders from a server that does not read its answers.
const MOST: usize = 64;

/// The answer to the order with this number. The server waits for the answer until a deadline.
#[derive(Debug)]
pub(crate) struct UntoldAnswer {
    pub(crate) number: u32,
    pub(crate) by: Deadline,
    pub(crate) answer: OrderAnswer,
    pub(crate) fds: Vec<OwnedFd>,
}

/// The answers that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct UntoldAnswers(Vec<UntoldAnswer>);

impl UntoldAnswers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    pub(crate) fn add_answer(&mut self, answer: UntoldAnswer) {
        self.0.push(answer);
    }

    /// Sends the answers that the server still waits for. Does not block if the server does not read.
    pub(crate) fn send_waiting(&mut self, socket: BorrowedFd<'_>) {
        self.0.retain(|told| {
            let fds: Vec<_> = told.fds.iter().map(AsFd::as_fd).collect();
            let answer = told.answer.encode(told.number);
            let sent = send_message(socket, &[&answer], &fds, SendFlags::DONTWAIT);
            matches!(sent, Err(e) if is_short(e) || e == Errno::INTR) && !told.by.has_passed()
        });
    }
}
