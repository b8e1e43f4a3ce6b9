//! Limits on the requests of one connection.

use std::time::Duration;

pub(super) use crate::frames::refusals::MAX_STREAMS;

/// Bytes of a stream's request body that may be on their way or wait here: as many as a pipe holds.
pub(super) const STREAM_WINDOW: u32 = 64 << 10;
/// Bytes of all request bodies of a connection that may be on their way or wait here. The limit is the sum of the streams'
/// windows, 6.25 MiB, so that a program that does not read its input holds up no other upload. See [`super::windows`].
pub(super) const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// Memory that small frames of bodies may take in addition to their data, until [`super::client`] takes the data out of them.
/// It does so before the frames reach this limit ([`super::frames`]). Only a body that no program takes may reach it.
pub(super) const FRAMES: usize = 2 * STREAM_WINDOW as usize;
/// Requests at once that any connection may have, however many connections its address has.
pub(super) const FEW_STREAMS: usize = 8;
/// Bytes of a stream's response that wait here for the connection to take them.
pub(super) const SEND_BUFFER: usize = 64 << 10;
/// Bytes that a request takes while it is answered, more or less: its head, its task, and the state of its stream in `h2`.
pub(super) const STREAM_SIZE: usize = 8 << 10;
/// Bytes of a connection's answers that wait here until the client reads them. Beyond that no more of a file or a program is
/// read. With a large head that exceeds the limit, and with the buffers of [`super::wire`], a connection holds 256 KiB.
pub(super) const MAX_UNREAD: usize = 128 << 10;
/// Part of [`MAX_UNREAD`] that is not charged to the address's share of `spool_memory`.
pub(super) const FREE_UNREAD: usize = 64 << 10;
/// A head of at most this many bytes is covered by [`STREAM_SIZE`]; larger heads count as bytes of answers.
pub(super) const SMALL_HEAD: usize = 2 << 10;
/// Streams that the client has opened and reset before galgo looked at them. Beyond this limit, the connection ends with
/// ENHANCE_YOUR_CALM (CVE-2023-44487).
pub(super) const MAX_RESET_BY_CLIENT: usize = 20;
/// Streams that were reset because of the client's errors, in total. Beyond this limit, the connection ends in the same way
/// (CVE-2025-8671).
pub(super) const MAX_RESET_FOR_ERRORS: usize = 200;
/// Streams that galgo has reset and still remembers, because their frames may still come.
pub(super) const MAX_RESET_HERE: usize = 50;
/// Time for which the rest of a body that no program reads is received and dropped after its response. If the stream were reset
/// at once, a client that still sends might lose the response.
pub(super) const REST_TIME: Duration = Duration::from_secs(1);
/// Limit on the bytes of that rest.
pub(super) const REST_BYTES: usize = 1 << 20;
