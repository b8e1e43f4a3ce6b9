//! The answer of a handler: a status, fields, and a body that only the front knows how to send.

use std::{os::fd::OwnedFd, sync::Arc};

use galgo_proto::Fields;

use crate::{fault::Fault, log::LogSource, producer::Producer, spool::SpoolShare};

/// An answer that is not yet sent.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The reason phrase, if the program chose one.
    pub reason: Option<String>,
    /// The fields, without Date, Connection, Content-Length and Transfer-Encoding, which the connection adds.
    pub fields: Fields,
    /// The body.
    pub body: Body,
}

/// The body of a response.
#[derive(Debug)]
pub enum Body {
    /// No body; `Content-Length: 0` unless the status forbids it.
    Empty,
    /// Bytes made for this response.
    Bytes(Vec<u8>),
    /// Bytes shared between responses.
    Shared(Arc<[u8]>),
    /// A piece of an open file, sent without copying it.
    File(FilePart),
    /// Several pieces in a row: multipart/byteranges.
    Parts(Vec<BodyPart>),
    /// A body that is produced while it is sent.
    Stream(Box<Output>),
}

/// A body that is produced while it is sent, after the response head.
#[derive(Debug)]
pub struct Output {
    /// The producer of the bytes.
    pub producer: Box<dyn Producer>,
    /// The Content-Length that the program gave.
    pub content_length: Option<u64>,
    /// The program speaks to the client itself (`nph-`): its bytes are not changed.
    pub nph: bool,
    /// Bytes after the head are not a document: they are read and dropped.
    pub discard: bool,
    /// The program has printed more than its Content-Length.
    pub excess: bool,
    /// Names the program in the log.
    pub source: LogSource,
    /// The spool for bytes that wait for the client.
    pub spool: SpoolShare,
}

/// A piece of an open file.
#[derive(Debug, Clone)]
pub struct FilePart {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// Position of the first byte.
    pub offset: u64,
    /// Number of bytes.
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
    /// Returns an answer with a status, no fields and no body.
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
    pub fn with_field(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(name, value);
        self
    }
}

impl Output {
    /// Checks, at the end of the output, that `sent` bytes of body are all of the `promised` bytes. Reports
    /// bytes beyond them.
    ///
    /// # Errors
    /// The program printed fewer bytes: the response is cut.
    pub fn check_sent_length(&self, promised: u64, sent: u64) -> Result<(), Fault> {
        if let Some(fault) = short_body_fault(promised, sent) {
            return Err(fault);
        }
        if self.excess {
            self.source.log_excess_output(promised);
        }
        Ok(())
    }
}

/// Returns the fault if a program has `printed` fewer bytes than `promised`.
pub fn short_body_fault(promised: u64, printed: u64) -> Option<Fault> {
    (printed < promised).then(|| Fault::Script(format!(
        "the program promised Content-Length {promised} and printed {printed} bytes; the connection was closed"
    )))
}

impl Body {
    /// Returns the length of the body in bytes.
    pub fn len(&self) -> u64 {
        match self {
            // The length of a program's output is not known here; its sender asks for `content_length`.
            Self::Empty | Self::Stream(_) => 0,
            Self::Bytes(b) => b.len() as u64,
            Self::Shared(b) => b.len() as u64,
            Self::File(f) => f.len,
            Self::Parts(p) => p.iter().map(BodyPart::len).sum(),
        }
    }

    /// Whether the body is empty.
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
