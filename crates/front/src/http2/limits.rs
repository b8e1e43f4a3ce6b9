//! What one connection may ask for.

use std::time::Duration;

/// Requests at once on a connection (SETTINGS_MAX_CONCURRENT_STREAMS): the least that RFC 9113, 6.5.2 recommends.
pub(super) const MAX_STREAMS: u32 = 100;
/// Bytes of a request body that may be on their way or wait here, a stream: as many as a pipe holds.
pub(super) const STREAM_WINDOW: u32 = 64 << 10;
/// The same of all streams of a connection: at most as much as all of them together may have, 6.25 MiB, so that programs that
/// leave their input alone hold up no other upload. See [`super::windows`].
pub(super) const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// What small frames of bodies may take beside their bytes, until they are taken out of them ([`super::client`]). They are taken
/// before so many have come ([`super::frames`]); a body that nobody takes may meet it.
pub(super) const FRAMES: usize = 2 * STREAM_WINDOW as usize;
/// Requests at once that any connection may have, however many connections its address has.
pub(super) const FEW_STREAMS: usize = 8;
/// Bytes of a response that wait here for the connection to take them, a stream.
pub(super) const SEND_BUFFER: usize = 64 << 10;
/// Bytes that a request takes while it is answered, more or less: its head, its task, and what `h2` knows of its stream.
pub(super) const STREAM_SIZE: usize = 8 << 10;
/// Bytes of answers of a connection that wait here until the client reads it: no more of a file or a program is read meanwhile.
/// With a large head that exceeds it, and with what [`super::wire`] holds, it is 256 KiB.
pub(super) const MAX_UNREAD: usize = 128 << 10;
/// How many of them are not charged to the address's share of `spool_memory`.
pub(super) const FREE_UNREAD: usize = 64 << 10;
/// A head of at most so many bytes is among [`STREAM_SIZE`]; larger ones count as bytes of answers.
pub(super) const SMALL_HEAD: usize = 2 << 10;
/// Streams that the client has opened and reset before they were looked at: beyond, the connection ends with
/// ENHANCE_YOUR_CALM (CVE-2023-44487).
pub(super) const MAX_RESET_BY_CLIENT: usize = 20;
/// Streams that were reset for what the client did wrong, in all: beyond, the same (CVE-2025-8671).
pub(super) const MAX_RESET_FOR_ERRORS: usize = 200;
/// Streams that were reset here and are remembered, since their frames may still come.
pub(super) const MAX_RESET_HERE: usize = 50;
/// For how long the rest of a body that no program reads is taken in behind its response, and dropped: a client that still sends may
/// lose the response if the stream is reset at once.
pub(super) const REST_TIME: Duration = Duration::from_secs(1);
/// So many bytes of it at most.
pub(super) const REST_BYTES: usize = 1 << 20;
