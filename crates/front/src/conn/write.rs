//! Writing bytes to a client within its allowance.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
};

use galgo_io::{rate_allowance::RateAllowance, transport::Transport};

/// Writes all of `parts`; `more`: telling the kernel that more follows, bytes or the end of the connection.
pub(super) async fn write_all(
    sock: &Transport,
    allowance: &mut RateAllowance,
    mut parts: &mut [IoSlice<'_>],
    more: bool,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let mut waits = false;
        let write = poll_fn(|cx| {
            allowance.poll_wait(cx, |cx| sock.poll_write(parts, more, &mut waits, cx))
        });
        match write.await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => IoSlice::advance_slices(&mut parts, n),
        }
    }
    Ok(())
}

/// Writes `bytes`, telling the kernel that more follows.
pub(super) async fn write_more(
    sock: &Transport,
    allowance: &mut RateAllowance,
    bytes: &[u8],
) -> io::Result<()> {
    write_all(sock, allowance, &mut [IoSlice::new(bytes)], true).await
}
