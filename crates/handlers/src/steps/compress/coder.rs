//! A common interface to the three codings. Their levels fit the time that an event loop may spend: docs/performance.md.

use std::{fmt, hint, io, io::Write, sync::Once};

use brotlic::{BrotliEncoderOptions, CompressorWriter, Quality, WindowSize};
use flate2::{Compression, write::GzEncoder};
use galgo_proto::coding::Coding;
use zstd::stream::write::Encoder;

const GZIP: u32 = 3;
const BROTLI: u8 = 2;
const ZSTD: i32 = 3;
/// Size of the window of br and zstd, as a power of two: 256 KiB. A coder's memory grows with it.
const WINDOW: u8 = 18;
/// Limit for a coder's memory, over all codings and with these windows.
const MEMORY: usize = 2 << 20;

/// An encoder of a body.
pub(super) enum Coder {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(Box<Encoder<'static, Vec<u8>>>),
}

impl fmt::Debug for Coder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip(_) => "Gzip",
            Self::Brotli(_) => "Brotli",
            Self::Zstd(_) => "Zstd",
        })
    }
}

/// Makes the allocator keep the memory of a finished coder for the next one. If the memory went back to the kernel, the next
/// coder would get it by a hundred page faults. With glibc, the allocator keeps twice the size of the largest mapping that was
/// freed (mallopt(3), M_MMAP_THRESHOLD); other allocators may ignore this.
fn keep_freed_memory() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| drop(hint::black_box(Vec::<u8>::with_capacity(MEMORY))));
}

impl Coder {
    /// # Errors
    /// There is not enough memory for a coder.
    pub(super) fn new(coding: Coding) -> io::Result<Self> {
        keep_freed_memory();
        Ok(match coding {
            Coding::Brotli => {
                let encoder = BrotliEncoderOptions::new()
                    .quality(Quality::new(BROTLI).map_err(io::Error::other)?)
                    .window_size(WindowSize::new(WINDOW).map_err(io::Error::other)?)
                    .build()
                    .map_err(io::Error::other)?;
                Self::Brotli(Box::new(CompressorWriter::with_encoder(
                    encoder,
                    Vec::new(),
                )))
            }
            Coding::Zstd => {
                let mut encoder = Encoder::new(Vec::new(), ZSTD)?;
                encoder.window_log(WINDOW.into())?;
                Self::Zstd(Box::new(encoder))
            }
            Coding::Gzip | Coding::Identity => {
                Self::Gzip(Box::new(GzEncoder::new(Vec::new(), Compression::new(GZIP))))
            }
        })
    }

    /// Codes more bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(coder) => coder.write_all(bytes),
            Self::Brotli(coder) => coder.write_all(bytes),
            Self::Zstd(coder) => coder.write_all(bytes),
        }
    }

    /// Makes all input so far readable from the output so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(coder) => coder.flush(),
            Self::Brotli(coder) => coder.flush(),
            Self::Zstd(coder) => coder.flush(),
        }
    }

    /// Returns the output since the last call.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(coder) => coder.get_mut(),
            Self::Brotli(coder) => coder.get_mut(),
            Self::Zstd(coder) => coder.get_mut(),
        })
    }

    /// Ends the coding, and returns the output that was not taken yet.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(coder) => coder.finish(),
            Self::Brotli(coder) => coder.into_inner().map_err(|e| e.into_error()),
            Self::Zstd(coder) => coder.finish(),
        }
    }
}
