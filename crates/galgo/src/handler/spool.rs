//! A whole request body, taken in before anybody is asked to answer (`body = "file"`).

use std::{pin::pin, time::Duration};

use crate::{
    conn::{
        Request,
        input::{Next, watch_unread},
    },
    fault::Fault,
    pool,
    spool::{Full, Stored, within},
};

/// Receives the rest of the body. `patience`: how long one piece of it may take on its way to the disk.
pub async fn spool(request: &mut Request<'_>, patience: Duration) -> Result<Stored, Fault> {
    let declared = request.body.declared();
    let site = request.site;
    let mut stored = kept(request, patience, site.spool.for_body(declared)).await?;
    request.send_continue();
    let mut piece = pool::take();
    loop {
        match request.body.next(&mut request.input.buf)? {
            Next::Data(n) => {
                let n = n.min(pool::SIZE - piece.len());
                piece.extend_from_slice(&request.input.buf.bytes()[..n]);
                request.body.take(&mut request.input.buf, n);
            }
            Next::More => request.input.fill_body().await?,
            Next::End => break,
        }
        if piece.len() == pool::SIZE {
            piece = kept(request, patience, stored.append(piece)).await?;
        }
    }
    if !piece.is_empty() {
        piece = kept(request, patience, stored.append(piece)).await?;
    }
    pool::give(piece);
    Ok(stored)
}

/// Waits for the disk; a client that leaves meanwhile is noticed.
async fn kept<T>(
    request: &mut Request<'_>,
    patience: Duration,
    disk: impl Future<Output = Result<T, Full>>,
) -> Result<T, Fault> {
    let mut disk = pin!(within(patience, disk));
    loop {
        let input = &mut *request.input;
        tokio::select! {
            biased;
            done = &mut disk => return done,
            left = watch_unread(input.sock.as_deref(), &mut input.half_closed, input.wire) => left?,
        }
    }
}
