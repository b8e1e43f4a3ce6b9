//! The sending side of a connection.

use std::{
    io::{self, IoSlice},
    rc::Rc,
};

use galgo_io::{rate_allowance::RateAllowance, transport::Transport};

use super::wire::{WireFormat, write_all};

/// The sending side of a connection.
#[derive(Debug)]
pub(super) struct ConnectionSender {
    pub(super) sock: Rc<Transport>,
    pub(super) allowance: RateAllowance,
    pub(super) wire: WireFormat,
    /// Bytes of files that have been written for this response.
    pub(super) sent: u64,
    /// Whether the end of the response has been written.
    pub(super) ended: bool,
    /// The exit status of the program that answers, as far as it is known, for a front server.
    pub(super) status: u32,
    /// Whether the connection ends with the response. If so, the last bytes and that end leave in one segment.
    pub(super) closing: bool,
}

impl ConnectionSender {
    /// Creates the sending side of `sock`.
    pub(super) fn new(sock: Rc<Transport>, allowance: RateAllowance) -> Self {
        Self {
            sock,
            allowance,
            wire: WireFormat::Http,
            sent: 0,
            ended: false,
            status: 0,
            closing: false,
        }
    }

    /// Begins the response to a new request, in the format of `wire`.
    pub(super) fn begin_response(&mut self, wire: WireFormat) {
        self.allowance.restore_grace();
        self.wire = wire;
        self.sent = 0;
        self.ended = false;
        self.status = 0;
        self.closing = false;
    }

    /// Writes `parts` of a response. With the `last` parts, writes the end of the response, too.
    pub(super) async fn write(&mut self, parts: &mut [IoSlice<'_>], last: bool) -> io::Result<()> {
        let Self {
            sock, allowance, ..
        } = self;
        let status = last.then_some(self.status);
        let written = self
            .wire
            .write(sock, allowance, parts, status, self.closing);
        written.await?;
        self.ended |= last;
        Ok(())
    }

    /// Writes the end of a response, if its format marks the end and that was not written yet.
    pub(super) async fn write_end(&mut self) -> io::Result<()> {
        if self.ended || !matches!(self.wire, WireFormat::FastCgi { .. }) {
            Ok(())
        } else {
            self.write(&mut [], true).await
        }
    }

    /// Writes a part of a response that is not the last.
    pub(super) async fn write_more(&mut self, bytes: &[u8]) -> io::Result<()> {
        let parts = &mut [IoSlice::new(bytes)];
        match self.wire {
            WireFormat::FastCgi { .. } => self.write(parts, false).await,
            WireFormat::Http | WireFormat::Scgi => {
                write_all(&self.sock, &mut self.allowance, parts, true).await
            }
        }
    }
}
