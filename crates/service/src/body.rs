//! What a handler answers: a status, fields, and a body that only the front knows how to send.

use std::{os::fd::OwnedFd, sync::Arc};

use galgo_proto::Fields;

use crate::{fault::Fault, log::LogSource, producer::Producer, spool::SpoolShare};

/// An answer, not yet on its way.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The reason phrase, where the program chose one.
    pub reason: Option<String>,
    /// The fields, without Date, Connection, Content-Length and Transfer-Encoding, which the connection adds.
    pub fields: Fields,
    /// The body.
    pub body: Body,
}

/// A body.
#[derive(Debug)]
pub enum Body {
    /// None; `Content-Length: 0` unless the status forbids it.
    Empty,
    /// Bytes made for this response.
    Bytes(Vec<u8>),
    /// Bytes shared between responses.
    Shared(Arc<[u8]>),
    /// A piece of an open file, sent without copying it.
    File(FilePart),
    /// Pieces in a row: multipart/byteranges.
    Parts(Vec<BodyPart>),
    /// Produced while it is sent.
    Stream(Box<Output>),
}

/// A body that is produced while it is sent, behind its response head.
#[derive(Debug)]
pub struct Output {
    /// What produces it.
    pub producer: Box<dyn Producer>,
    /// The Content-Length it gave.
    pub content_length: Option<u64>,
    /// It speaks to the client itself (`nph-`): its bytes are not touched.
    pub nph: bool,
    /// Bytes behind the head are not a document: they are read and dropped.
    pub discard: bool,
    /// It has printed more than its Content-Length.
    pub excess: bool,
    /// Names it in the log.
    pub source: LogSource,
    /// Where it may wait for its client.
    pub spool: SpoolShare,
}

/// A piece of an open file.
#[derive(Debug, Clone)]
pub struct FilePart {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A piece of a body.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum BodyPart {
    Bytes(Vec<u8>),
    File(FilePart),
}

impl Response {
    /// An answer with a status, no fields and no body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            reason: None,
            fields: Fields::new(),
            body: Body::Empty,
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(name, value);
        self
    }
}

impl Output {
    /// The output has ended, and `sent` bytes of body went out of the `promised` ones: says what is
    /// wrong with that.
    ///
    /// # Errors
    /// There were fewer: the response is cut.
    pub fn ended(&self, promised: u64, sent: u64) -> Result<(), Fault> {
        if let Some(fault) = too_short(promised, sent) {
            return Err(fault);
        }
        if self.excess {
            self.source.excess(promised);
        }
        Ok(())
    }
}

/// What is wrong where a program has `printed` so many bytes and `promised` more.
pub fn too_short(promised: u64, printed: u64) -> Option<Fault> {
    (printed < promised).then(|| Fault::Script(format!(
        "the program promised Content-Length {promised} and printed {printed} bytes; the connection was closed"
    )))
}

impl Body {
    /// Bytes it will be.
    pub fn len(&self) -> u64 {
        match self {
            // A program's length is not known here; its sender asks for `content_length`.
            Self::Empty | Self::Stream(_) => 0,
            Self::Bytes(b) => b.len() as u64,
            Self::Shared(b) => b.len() as u64,
            Self::File(f) => f.len,
            Self::Parts(p) => p.iter().map(BodyPart::len).sum(),
        }
    }

    /// Whether it is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl BodyPart {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(b) => b.len() as u64,
            Self::File(f) => f.len,
        }
    }
}
