//! The end of an exchange: its meaning for the response, the connection, and an instance at the other side.

use std::time::Duration;

use galgo_proto::fcgi;
use galgo_service::fault::Fault;
use galgo_spawn::Exit;

use super::{Exchange, ExchangeLease, ID, ResponseEnd, ResponseFraming, open_link};
use crate::relay::{process::unfinished, program::LINGER};

impl Exchange {
    /// Returns the meaning of the connection's end.
    pub(super) fn end_at_close(&self) -> ResponseEnd {
        match self.wire {
            ResponseFraming::Scgi => Ok(false),
            ResponseFraming::Fastcgi(_) => Err(Fault::Script(
                "the application closed the connection before the end of its response".into(),
            )),
        }
    }

    /// Ends the response. The connection may be kept only if there was no fault at all.
    pub(super) fn end_response(&mut self, end: ResponseEnd) {
        self.stderr.finish();
        let Some(link) = self.link.as_mut().filter(|link| !link.good) else {
            return;
        };
        let exit = match (&link.lease, &self.wire) {
            (ExchangeLease::Application(_), _) => Ok(None),
            (ExchangeLease::Instance(lease), ResponseFraming::Fastcgi(reply))
                if reply.is_over() =>
            {
                lease.decode_exit(reply.extra_bytes()).map(Some)
            }
            (ExchangeLease::Instance(lease), _) => Ok(Some(lease.exit_without_report())),
        };
        let end = exit.and_then(|exit| {
            self.exit = exit;
            end
        });
        if let (ExchangeLease::Application(lease), Ok(_)) = (&mut link.lease, &end) {
            lease.record_answer(self.heard);
        }
        link.good = matches!(end, Ok(true)) && self.sending.is_done();
        self.link.take_if(|link| !link.good);
        // The exit of an instance explains the end better.
        if self.exit.is_none() {
            self.verdict = end.err();
        }
    }

    /// Returns the fault if the output did not end with the end of a response.
    pub fn output_fault(&self) -> Option<Fault> {
        self.exit.and_then(unfinished).or_else(|| self.verdict())
    }

    /// Ends an exchange whose response was complete and has been sent on: the connection may serve another request. `done` gets
    /// the exit of an instance.
    pub fn finish(mut self: Box<Self>, done: impl FnOnce(Option<Exit>) + 'static) {
        if let Some(link) = self.link.take_if(|link| link.good) {
            link.lease.give_back(link.conn);
            return done(self.exit);
        }
        let finishes = self.run_to_completion && self.sending.is_done();
        let patience = self.clocks.patience(finishes, LINGER);
        self.discard_response(patience, done);
    }

    /// Gives the request up: tells the application, and closes the connection.
    pub fn abandon(self: Box<Self>, client_left: bool, done: impl FnOnce(Option<Exit>) + 'static) {
        let finishes = client_left && self.run_to_completion && self.sending.is_done();
        let patience = self.clocks.patience(finishes, Duration::ZERO);
        self.discard_response(patience, done);
    }

    /// Discards the rest of the response. In the background, an instance has `patience` to end by itself.
    fn discard_response(
        mut self: Box<Self>,
        patience: Duration,
        done: impl FnOnce(Option<Exit>) + 'static,
    ) {
        let Some(link) = open_link(&self.link) else {
            return done(self.exit);
        };
        let Some(lease) = link.lease.application() else {
            tokio::task::spawn_local(async move {
                self.await_instance_end(patience).await;
                if let Some(link) = self.link.take_if(|link| link.good) {
                    link.lease.give_back(link.conn);
                }
                done(self.exit);
            });
            return;
        };
        lease.record_break_off();
        if matches!(self.wire, ResponseFraming::Fastcgi(_)) && self.sending.is_between() {
            // If the application does not take these few bytes, it sees the connection close.
            let _ = link.conn.try_write(&fcgi::abort_request(ID));
        }
        self.stderr.finish();
        done(None);
    }

    /// Handles an invalid response. Gives an instance a moment to end and to tell why, unless it must `end` at once.
    pub async fn post_mortem(&mut self, end: bool) -> (Option<Exit>, String) {
        if open_link(&self.link).is_some_and(|link| link.lease.application().is_none()) {
            let patience = if end { Duration::ZERO } else { LINGER };
            self.await_instance_end(patience).await;
        }
        (self.exit, self.stderr_tail())
    }

    /// Waits until an instance has ended; tells it to end after `patience`.
    async fn await_instance_end(&mut self, patience: Duration) {
        if tokio::time::timeout(patience, self.discard_output())
            .await
            .is_ok()
        {
            return;
        }
        // An incomplete body has no end: its reader gets the connection's end instead, which is an error.
        if let Some(link) = open_link(&self.link) {
            let _ = rustix::net::shutdown(&link.conn, rustix::net::Shutdown::Write);
            let _ = tokio::time::timeout(LINGER, self.discard_output()).await;
        }
        self.link.take_if(|link| link.good);
    }

    async fn discard_output(&mut self) {
        while let Some(link) = open_link(&self.link) {
            self.out.clear_seen();
            let read = link.conn.read_later(self.out.buffer()).await;
            self.receive(read);
        }
    }
}
