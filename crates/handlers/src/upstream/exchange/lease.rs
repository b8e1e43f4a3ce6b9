//! The lease of a request, and what becomes of its connection.

use crate::{sock::Sock, upstream::UpstreamLease, wasm};

/// The lease of a request.
#[derive(Debug)]
pub enum ExchangeLease {
    /// Of an application that stays.
    Application(UpstreamLease),
    /// Of an instance in the wasm worker.
    Instance(wasm::InstanceLease),
}

impl ExchangeLease {
    /// That of an application; `None`: it is an instance's.
    pub(super) fn application(&self) -> Option<&UpstreamLease> {
        match self {
            Self::Application(lease) => Some(lease),
            Self::Instance(_) => None,
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
