//! How an exchange ends: what that means for the response, and what becomes of the connection and of an
//! instance at its other side.

use std::time::Duration;

use galgo_proto::fcgi;
use galgo_service::fault::Fault;
use galgo_spawn::Exit;

use super::{Exchange, ExchangeLease, ID, ResponseEnd, ResponseFraming, open};
use crate::relay::{process::unfinished, program::LINGER};

impl Exchange {
    /// What the end of the connection means.
    pub(super) fn closed(&self) -> ResponseEnd {
        match self.wire {
            ResponseFraming::Scgi => Ok(false),
            ResponseFraming::Fastcgi(_) => Err(Fault::Script(
                "the application closed the connection before it had ended the request".into(),
            )),
        }
    }

    /// The response is over. The connection may be kept only where nothing at all was wrong.
    pub(super) fn end(&mut self, end: ResponseEnd) {
        self.stderr.finish();
        let Some(link) = self.link.as_mut().filter(|link| !link.good) else {
            return;
        };
        let exit = match (&link.lease, &self.wire) {
            (ExchangeLease::Application(_), _) => Ok(None),
            (ExchangeLease::Instance(lease), ResponseFraming::Fastcgi(reply))
                if reply.is_over() =>
            {
                lease.ended(reply.more()).map(Some)
            }
            (ExchangeLease::Instance(lease), _) => Ok(Some(lease.gone())),
        };
        let end = exit.and_then(|exit| {
            self.exit = exit;
            end
        });
        if let (ExchangeLease::Application(lease), Ok(_)) = (&mut link.lease, &end) {
            lease.answered(self.heard);
        }
        link.good = matches!(end, Ok(true)) && self.sending.is_done();
        self.link.take_if(|link| !link.good);
        // How an instance ended says it better.
        if self.exit.is_none() {
            self.verdict = end.err();
        }
    }

    /// Output has ended: whether that was the end of a response.
    pub fn cut(&self) -> Option<Fault> {
        self.exit.and_then(unfinished).or_else(|| self.verdict())
    }

    /// The response was sent on, and was one: the connection may serve another request. `done` is told how an
    /// instance ended.
    pub fn finish(mut self: Box<Self>, done: impl FnOnce(Option<Exit>) + 'static) {
        if let Some(link) = self.link.take_if(|link| link.good) {
            link.lease.give_back(link.conn);
            return done(self.exit);
        }
        let finishes = self.run_to_completion && self.sending.is_done();
        let patience = self.clocks.patience(finishes, LINGER);
        self.leave(patience, done);
    }

    /// Gives the request up: the application is told, and the connection closed.
    pub fn abandon(self: Box<Self>, client_left: bool, done: impl FnOnce(Option<Exit>) + 'static) {
        let finishes = client_left && self.run_to_completion && self.sending.is_done();
        let patience = self.clocks.patience(finishes, Duration::ZERO);
        self.leave(patience, done);
    }

    /// The rest of the response is discarded. An instance has `patience` to end by itself, in the background.
    fn leave(mut self: Box<Self>, patience: Duration, done: impl FnOnce(Option<Exit>) + 'static) {
        let Some(link) = open(&self.link) else {
            return done(self.exit);
        };
        let Some(lease) = link.lease.application() else {
            tokio::task::spawn_local(async move {
                self.see_out(patience).await;
                if let Some(link) = self.link.take_if(|link| link.good) {
                    link.lease.give_back(link.conn);
                }
                done(self.exit);
            });
            return;
        };
        lease.broken_off();
        if matches!(self.wire, ResponseFraming::Fastcgi(_)) && self.sending.is_between() {
            // An application that does not take these few bytes sees the connection close.
            let _ = link.conn.try_write(&fcgi::abort(ID));
        }
        self.stderr.finish();
        done(None);
    }

    /// The response is none. Gives an instance a moment to end and to say why, unless it must `end` at once.
    pub async fn post_mortem(&mut self, end: bool) -> (Option<Exit>, String) {
        if open(&self.link).is_some_and(|link| link.lease.application().is_none()) {
            let patience = if end { Duration::ZERO } else { LINGER };
            self.see_out(patience).await;
        }
        (self.exit, self.stderr_tail())
    }

    /// Waits until an instance has ended; after `patience` it is told to.
    async fn see_out(&mut self, patience: Duration) {
        if tokio::time::timeout(patience, self.discard()).await.is_ok() {
            return;
        }
        // A body that is not whole has no end: its reader meets that of the connection, which is an error.
        if let Some(link) = open(&self.link) {
            let _ = rustix::net::shutdown(&link.conn, rustix::net::Shutdown::Write);
            let _ = tokio::time::timeout(LINGER, self.discard()).await;
        }
        self.link.take_if(|link| link.good);
    }

    async fn discard(&mut self) {
        while let Some(link) = open(&self.link) {
            self.out.clear();
            let read = link.conn.read_later(self.out.buffer()).await;
            self.receive(read);
        }
    }
}
