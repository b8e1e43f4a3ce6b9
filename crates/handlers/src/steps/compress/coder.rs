//! The three codings behind one face. Levels were chosen for what an event loop may spend: docs/performance.md.

use std::{fmt, hint, io, io::Write, sync::Once};

use brotlic::{BrotliEncoderOptions, CompressorWriter, Quality, WindowSize};
use flate2::{Compression, write::GzEncoder};
use galgo_proto::coding::Coding;
use zstd::stream::write::Encoder;

const GZIP: u32 = 3;
const BROTLI: u8 = 2;
const ZSTD: i32 = 3;
/// Bytes that the window of br and zstd holds, as a power of two: 256 KiB. What a coder takes grows with it.
const WINDOW: u8 = 18;
/// Bytes that a coder takes at most, of all codings and with these windows.
const MEMORY: usize = 2 << 20;

/// A body that is being coded.
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

/// Has the allocator keep what a coder gives back, for the next one: given back to the kernel, it comes again by a hundred page
/// faults. glibc keeps twice the size of the largest mapping that was freed (mallopt(3), M_MMAP_THRESHOLD); others do as they do.
fn keep_freed_memory() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| drop(hint::black_box(Vec::<u8>::with_capacity(MEMORY))));
}

impl Coder {
    /// # Errors
    /// There is no memory for it.
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

    /// Codes more.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(coder) => coder.write_all(bytes),
            Self::Brotli(coder) => coder.write_all(bytes),
            Self::Zstd(coder) => coder.write_all(bytes),
        }
    }

    /// All that was written can be read from what comes out now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(coder) => coder.flush(),
            Self::Brotli(coder) => coder.flush(),
            Self::Zstd(coder) => coder.flush(),
        }
    }

    /// What has come out since the last time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Gzip(coder) => coder.get_mut(),
            Self::Brotli(coder) => coder.get_mut(),
            Self::Zstd(coder) => coder.get_mut(),
        })
    }

    /// The end, and what had not been taken.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(coder) => coder.finish(),
            Self::Brotli(coder) => coder.into_inner().map_err(|e| e.into_error()),
            Self::Zstd(coder) => coder.finish(),
        }
    }
}
