//! A producer that reads a file, or bytes in memory, a piece at a time.

use std::{future::ready, sync::Arc};

use galgo_io::{out::Out, pool};
use galgo_service::{
    body::{Body, FilePart},
    client::Client,
    fault::Fault,
    producer::{Boxed, OutputEvent, Producer},
};
use rustix::{buffer::spare_capacity, io::pread};

#[derive(Debug)]
enum Rest {
    File(FilePart),
    Bytes(Arc<[u8]>, usize),
}

#[derive(Debug)]
pub(super) struct StoredBody {
    rest: Rest,
    out: Out,
    /// Whether the file became shorter, or cannot be read any more.
    cut: bool,
}

impl StoredBody {
    /// # Errors
    /// The body is neither a file nor bytes: it is returned unchanged.
    pub(super) fn from_body(body: Body) -> Result<Self, Body> {
        let rest = match body {
            Body::File(part) => Rest::File(part),
            Body::Bytes(bytes) => Rest::Bytes(bytes.into(), 0),
            Body::Shared(bytes) => Rest::Bytes(bytes, 0),
            body => return Err(body),
        };
        Ok(Self {
            rest,
            out: Out::default(),
            cut: false,
        })
    }

    fn read(&mut self) {
        let buffer = self.out.buffer();
        match &mut self.rest {
            Rest::Bytes(bytes, at) => {
                let end = bytes.len().min(*at + pool::SIZE);
                buffer.extend_from_slice(&bytes[*at..end]);
                *at = end;
            }
            Rest::File(part) => {
                let before = buffer.len();
                let most = usize::try_from(part.len).map_or(pool::SIZE, |len| len.min(pool::SIZE));
                buffer.reserve(most);
                let read = pread(&part.file, spare_capacity(buffer), part.offset);
                buffer.truncate(before + most);
                let read = read.map_or(0, |_| buffer.len() - before) as u64;
                self.cut = read == 0;
                (part.offset, part.len) = (part.offset + read, part.len - read);
            }
        }
        self.out.keep_all();
    }
}

impl Producer for StoredBody {
    fn pending_output(&mut self) -> &mut Out {
        &mut self.out
    }

    fn pending_len(&self) -> usize {
        self.out.len()
    }

    fn has_output_ended(&self) -> bool {
        self.cut
            || match &self.rest {
                Rest::File(part) => part.len == 0,
                Rest::Bytes(bytes, at) => *at == bytes.len(),
            }
    }

    fn drain_ready(&mut self, _most: usize) {
        if !self.has_output_ended() {
            self.read();
        }
    }

    fn next_event<'a>(
        &'a mut self,
        _client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>> {
        if self.has_output_ended() {
            return Box::pin(ready(Ok(OutputEvent::End)));
        }
        self.read();
        Box::pin(ready(Ok(OutputEvent::Output)))
    }

    fn truncation_fault(&mut self) -> Boxed<'_, Option<Fault>> {
        let words = "a file became shorter while it was sent";
        let fault = self.cut.then(|| Fault::Internal(words.into()));
        Box::pin(ready(fault))
    }
}
