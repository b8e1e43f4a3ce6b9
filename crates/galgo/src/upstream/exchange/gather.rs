//! Large output of an application, from its connection to the client through a pipe (splice(2)).

use std::io;

use super::{
    Errors, Exchange, Wire, decode,
    over::{End, broken},
    tend,
};
use crate::{
    client::Client,
    fault::Fault,
    pace::Pace,
    relay::{
        out::Out,
        program::{Turn, Way, way},
    },
    sock::Sock,
    upstream::aside::Aside,
};

/// What is read at once of what is no output: a header and its padding fit.
const FRAMING: usize = 264;

impl Exchange {
    /// From now on large output may go another way than through `out`, for [`Exchange::pass_on`].
    pub fn may_splice(&mut self) {
        self.splices = way() != Way::Copied;
        if way() == Way::Spliced && self.link.is_some() {
            self.aside = Aside::take();
        }
    }

    /// Whether output goes another way than through `out`.
    pub(super) fn goes_aside(&self) -> bool {
        let held = |aside: &Aside| aside.held() > 0;
        self.aside
            .as_ref()
            .is_some_and(|aside| held(aside) || self.wire.is_large())
    }

    /// As [`Exchange::turn`], once output goes another way.
    pub(super) async fn gather(&mut self, client: &mut dyn Client) -> Result<Turn, Fault> {
        let Self {
            link,
            aside,
            wire,
            errors,
            ..
        } = self;
        let (Some(link), Some(aside)) = (link, aside.as_mut().filter(|a| a.held() == 0)) else {
            return Ok(self.gathered());
        };
        let mut take = |conn: &Sock| take(conn, wire, errors, aside);
        let tend = tend(&mut self.sending, &mut self.clocks, &link.conn, client);
        let end = tokio::select! {
            biased;
            end = link.conn.taken(&mut take) => end,
            tended = tend => return tended.map(|()| Turn::HalfClosed),
        };
        self.clocks.moved();
        match end {
            Ok(Took::Output) => {}
            Ok(Took::End(end)) => self.end(end),
            Ok(Took::Closed) => self.end(self.closed()),
            Err(e) => self.end(broken(&e)),
        }
        Ok(self.gathered())
    }

    fn gathered(&self) -> Turn {
        match &self.aside {
            Some(aside) if aside.held() > 0 => Turn::Waiting(aside.held()),
            _ => Turn::End,
        }
    }

    /// Moves `len` bytes that [`Turn::Waiting`] announced to `to`, while everything else is tended to.
    pub async fn pass_on(
        &mut self,
        client: &mut dyn Client,
        to: &Sock,
        pace: &mut Pace,
        len: usize,
    ) -> Result<usize, Fault> {
        let Some(mut aside) = self.aside.take() else {
            return Ok(0);
        };
        let moved = pace.move_all(len, async |left| aside.empty(to, left).await);
        self.during(client, std::pin::pin!(moved)).await?;
        self.aside = Some(aside);
        Ok(len)
    }
}

/// What [`take`] came upon.
enum Took {
    /// Enough output, or all there is at the moment.
    Output,
    /// The end of the response.
    End(End),
    /// The end of the connection.
    Closed,
}

/// Takes what is there without waiting: output into `aside`, and what stands between it apart. `None`: nothing
/// was there.
fn take(
    conn: &Sock,
    wire: &mut Wire,
    errors: &mut Errors,
    aside: &mut Aside,
) -> io::Result<Option<Took>> {
    loop {
        let (output, framing) = match wire {
            Wire::Fastcgi(reply) => (reply.stdout(), reply.framing()),
            Wire::Scgi => (usize::MAX, 0),
        };
        let mut raw = [0; FRAMING];
        let there = match output {
            0 => conn.try_take(&mut raw[..framing.min(FRAMING)])?,
            most => aside.fill(conn, most)?,
        };
        match (there, &mut *wire) {
            (None, _) => return Ok((aside.held() > 0).then_some(Took::Output)),
            (Some(0), _) => return Ok(Some(Took::Closed)),
            (Some(n), Wire::Fastcgi(reply)) if output > 0 => reply.pass(n),
            (Some(_), Wire::Scgi) => {}
            (Some(n), Wire::Fastcgi(reply)) => {
                if let Some(end) = decode(reply, errors, &mut Out::of(&raw[..n])) {
                    return Ok(Some(Took::End(end)));
                }
            }
        }
        if aside.is_enough() || !wire.is_large() {
            return Ok(Some(Took::Output));
        }
    }
}
