//! A whole request body, taken in before a program is started or an application asked (`body = "file"`).

use std::{pin::pin, sync::Arc, time::Duration};

use galgo_io::pool;
use galgo_service::{
    client::Next,
    fault::Fault,
    request::Request,
    spool::{Full, Spool, Stored, with_disk_timeout},
};

/// Receives the rest of the body. `patience` limits the time for writing one piece to the disk.
pub(crate) async fn store_body(
    spool: &Arc<Spool>,
    request: &mut Request<'_>,
    patience: Duration,
) -> Result<Stored, Fault> {
    let declared = request.client.declared_length();
    let spool = spool.share_of(request.peer());
    // A body without a declared length has storage once it is larger than a piece, or complete.
    let mut storage = match declared {
        Some(_) => Some(on_disk(request, patience, spool.create_for_body(declared)).await?),
        None => None,
    };
    request.client.send_continue();
    let mut piece = pool::take_buffer();
    loop {
        match request.client.next()? {
            Next::Data(n) => {
                let n = n.min(pool::SIZE - piece.len());
                piece.extend_from_slice(&request.client.buffered_bytes()[..n]);
                request.client.consume(n);
            }
            Next::More => request.client.wait_for_body().await?,
            Next::End => break,
        }
        if piece.len() == pool::SIZE {
            let stored = match &mut storage {
                Some(stored) => stored,
                None => storage.insert(on_disk(request, patience, spool.create_file()).await?),
            };
            piece = on_disk(request, patience, stored.append(piece)).await?;
        }
    }
    let mut stored = match storage {
        Some(stored) => stored,
        None => {
            let len = Some(piece.len() as u64);
            on_disk(request, patience, spool.create_for_body(len)).await?
        }
    };
    if !piece.is_empty() {
        piece = on_disk(request, patience, stored.append(piece)).await?;
    }
    pool::return_buffer(piece);
    Ok(stored)
}

/// Waits for the disk, and notices a client that leaves meanwhile.
async fn on_disk<T>(
    request: &mut Request<'_>,
    patience: Duration,
    disk: impl Future<Output = Result<T, Full>>,
) -> Result<T, Fault> {
    let disk = pin!(with_disk_timeout(patience, disk));
    request.client.await_while_connected(disk).await?
}
