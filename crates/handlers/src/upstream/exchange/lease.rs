//! The lease of a request, and what becomes of its connection.

use galgo_spawn::Exit;

use crate::{fault::Fault, sock::Sock, upstream::UpstreamLease, wasm};

/// The lease of a request.
#[derive(Debug)]
pub enum ExchangeLease {
    /// Of an application that stays.
    Application(UpstreamLease),
    /// Of an instance in the wasm worker.
    Instance(wasm::InstanceLease),
}

impl ExchangeLease {
    /// Bytes of its own that come behind END_REQUEST's.
    pub(super) fn more(&self) -> usize {
        match self {
            Self::Application(_) => 0,
            Self::Instance(_) => wasm::InstanceLease::MORE,
        }
    }

    /// Whether its end is to be waited for when its response is discarded.
    pub(super) fn waits(&self) -> bool {
        matches!(self, Self::Instance(_))
    }

    /// Something of a response has come.
    pub(super) fn heard(&mut self) {
        if let Self::Application(lease) = self {
            lease.heard();
        }
    }

    /// Whether a long answer is to be expected. Not known of modules.
    pub(super) fn is_long(&self) -> bool {
        match self {
            Self::Application(lease) => lease.is_long(),
            Self::Instance(_) => false,
        }
    }

    /// An answer of so many bytes, framing included, was whole.
    pub(super) fn answered(&mut self, bytes: usize) {
        if let Self::Application(lease) = self {
            lease.answered(bytes);
        }
    }

    /// The connection is closed before the request has ended, by galgo.
    pub(super) fn broken_off(&self) {
        if let Self::Application(lease) = self {
            lease.broken_off();
        }
    }

    /// END_REQUEST has come, with `more` behind it: how the instance ended.
    ///
    /// # Errors
    /// It has not begun: why.
    pub(super) fn ended(&self, more: &[u8]) -> Result<Option<Exit>, Fault> {
        match self {
            Self::Application(_) => Ok(None),
            Self::Instance(lease) => lease.ended(more).map(Some),
        }
    }

    /// The connection has ended without one.
    pub(super) fn gone(&self) -> Option<Exit> {
        match self {
            Self::Application(_) => None,
            Self::Instance(lease) => Some(lease.gone()),
        }
    }

    /// The request is over and nothing was wrong: keeps the connection for another.
    pub(super) fn give_back(self, conn: Sock) {
        match self {
            Self::Application(lease) => lease.give_back(conn),
            Self::Instance(lease) => lease.give_back(conn),
        }
    }
}
