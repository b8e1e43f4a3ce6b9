//! Files that threads answer for, because the file system may hang ([`crate::blocking`]).
//!
//! An event loop touches nothing of such a file system. A thread reads the bytes of a large file piece by piece. The event loop
//! does not keep the descriptor either, because close(2) may hang, too: each piece opens the file again.

use std::{
    fs::File,
    future::ready,
    os::{fd::OwnedFd, unix::fs::FileExt},
    pin::pin,
    sync::Arc,
    task::{Context as TaskContext, Poll, Waker},
};

use galgo_io::out::Out;
use galgo_proto::{Fields, h1::Head, h1::Method};
use galgo_service::{
    body::{Body, FilePart, Output, Response},
    client::Client,
    fault::Fault,
    log::LogSource,
    producer::{Boxed, OutputEvent, Producer},
    request::Request,
};
use galgo_spawn::FileId;
use rustix::{
    fs::{OFlags, fstat},
    io::Errno,
};

use super::{Files, answer_uncached, open::OpenRefusal};
use crate::{
    beneath,
    blocking::run_in_folder,
    context::Context,
    root::{Folder, is_local},
};

/// Limit for the bytes of a piece, which a thread reads at once.
const PIECE: u64 = 128 << 10;

/// A response on its way from a thread to an event loop.
struct Made {
    status: u16,
    fields: Fields,
    body: MadeBody,
}

enum MadeBody {
    Empty,
    Bytes(Vec<u8>),
    Shared(Arc<[u8]>),
    /// Part of a file on a local file system.
    Local(FilePart),
    Remote(RemotePart),
}

/// Part of a file that is opened again for each piece.
#[derive(Debug, Clone)]
struct RemotePart {
    /// Path of the file below the folder of the route.
    path: Vec<u8>,
    id: FileId,
    offset: u64,
    len: u64,
}

/// Does the same as [`super::answer`], on a thread. `Ok(Err(_))`: another route answers, for the index of this name.
///
/// # Errors
/// The file system does not answer in time.
pub async fn answer(
    cx: Context<'_>,
    request: &Request<'_>,
    (files, head, rest): (&Files, &Head, &[u8]),
    elsewhere: impl Fn(&str) -> bool,
) -> Result<Result<(Response, Option<&'static str>), String>, Fault> {
    let others = files.index.iter().filter(|name| elsewhere(name));
    let others: Vec<_> = others.cloned().collect();
    let (own, asked, below) = (files.clone(), without_ranges(head), rest.to_vec());
    let answered = run_in_folder(&files.fd, move || {
        let is_others = |name: &str| others.iter().any(|other| other == name);
        let answer = answer_uncached(&own, &asked, &below, is_others);
        match poll_until_ready(answer.response(ready(()))) {
            Ok((response, cause)) => Ok((Made::from_response(&own, response), cause)),
            Err(index) => Err(index.unwrap_or_default().to_owned()),
        }
    });
    Ok(match answered.await? {
        Ok((made, cause)) => Ok((made.response(cx, request, files)?, cause)),
        Err(index) => Err(index),
    })
}

/// Does the same as [`super::send_for_program`]; on a thread, if the file system may hang.
///
/// # Errors
/// The file system does not answer in time.
pub(crate) async fn send_for_program(
    cx: Context<'_>,
    request: &Request<'_>,
    (files, head, rest): (&Files, &Head, &[u8]),
    media_type: Option<String>,
) -> Result<Option<Response>, Fault> {
    if let Ok(response) = super::send_for_program(files, head, rest, media_type.clone()) {
        return Ok(response);
    }
    let (own, asked, below) = (files.clone(), without_ranges(head), rest.to_vec());
    let made = run_in_folder(&files.fd, move || {
        let response = super::send_for_program(&own, &asked, &below, media_type);
        let response = response.ok().flatten()?;
        Some(Made::from_response(&own, response))
    });
    let made = Box::pin(made).await?;
    made.map(|made| made.response(cx, request, files))
        .transpose()
}

/// Returns the request's head without several ranges: a request for them gets the whole file (RFC 9110, 14.2).
fn without_ranges(head: &Head) -> Head {
    let mut head = head.clone();
    if head
        .fields
        .first_value("range")
        .is_some_and(|range| range.contains(&b','))
    {
        head.fields.remove(&["range"]);
    }
    head
}

/// Returns the result of a future that waits for nothing but this thread.
fn poll_until_ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut cx = TaskContext::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut cx) {
            return done;
        }
    }
}

impl Made {
    fn from_response(files: &Files, response: Response) -> Self {
        let failed = || Self {
            status: OpenRefusal::Failed.response().status,
            fields: Fields::new(),
            body: MadeBody::Empty,
        };
        let body = match response.body {
            Body::Empty => MadeBody::Empty,
            Body::Bytes(bytes) => MadeBody::Bytes(bytes),
            Body::File(part) => match is_local(&part.file) {
                Ok(true) => MadeBody::Local(part),
                Ok(false) => match RemotePart::from_part(files, &part) {
                    Ok(part) => MadeBody::Remote(part),
                    Err(_) => return failed(),
                },
                Err(_) => return failed(),
            },
            Body::Shared(bytes) => MadeBody::Shared(bytes),
            // `without_ranges` removes several ranges, so that no answer has several parts.
            Body::Parts(_) | Body::Stream(_) => return failed(),
        };
        Self {
            status: response.status,
            fields: response.fields,
            body,
        }
    }

    fn response(
        self,
        cx: Context<'_>,
        request: &Request<'_>,
        files: &Files,
    ) -> Result<Response, Fault> {
        let body = match self.body {
            MadeBody::Empty => Body::Empty,
            MadeBody::Bytes(bytes) => Body::Bytes(bytes),
            MadeBody::Shared(bytes) => Body::Shared(bytes),
            MadeBody::Local(part) => Body::File(part),
            MadeBody::Remote(part) => {
                let path = String::from_utf8_lossy(request.head.target.path());
                let content_length = Some(part.len);
                let producer = RemoteBody {
                    folder: files.fd.clone(),
                    left: match request.head.method {
                        Method::Head => RemotePart { len: 0, ..part },
                        _ => part,
                    },
                    out: Out::default(),
                };
                Body::Stream(Box::new(Output {
                    producer: Box::new(producer),
                    content_length,
                    nph: false,
                    discard: false,
                    excess: false,
                    source: LogSource::new(cx.resources.errors.clone(), request.id(), &path),
                    spool: cx.shared.spool.share_of(request.peer()),
                }))
            }
        };
        Ok(Response {
            status: self.status,
            reason: None,
            fields: self.fields,
            body,
        })
    }
}

impl RemotePart {
    fn from_part(files: &Files, part: &FilePart) -> Result<Self, Errno> {
        Ok(Self {
            path: beneath::path_inside(&files.fd, &part.file)?,
            id: FileId::from_stat(&fstat(&part.file)?),
            offset: part.offset,
            len: part.len,
        })
    }

    /// Reads the next bytes. `Ok(None)`: the path leads to another file now, or the file is too short.
    fn read(&self, folder: &Folder) -> Result<Option<Vec<u8>>, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file: OwnedFd = beneath::open_without_links(folder, &self.path, flags)?;
        if FileId::from_stat(&fstat(&file)?) != self.id {
            return Ok(None);
        }
        let most = usize::try_from(self.len.min(PIECE)).unwrap_or(0);
        let mut bytes = vec![0; most];
        let read = File::from(file).read_exact_at(&mut bytes, self.offset);
        Ok(read.is_ok().then_some(bytes))
    }
}

/// A producer of a file that threads read.
#[derive(Debug)]
struct RemoteBody {
    folder: Folder,
    left: RemotePart,
    out: Out,
}

impl RemoteBody {
    async fn next(&mut self) -> Result<OutputEvent, Fault> {
        let (own, part) = (self.folder.clone(), self.left.clone());
        let read = run_in_folder(&self.folder, move || part.read(&own)).await?;
        let Ok(Some(bytes)) = read else {
            let words = "a file changed or could not be read while it was sent";
            return Err(Fault::Internal(words.into()));
        };
        let n = bytes.len() as u64;
        (self.left.offset, self.left.len) = (self.left.offset + n, self.left.len - n);
        self.out.buffer().extend_from_slice(&bytes);
        self.out.keep_all();
        Ok(OutputEvent::Output)
    }
}

impl Producer for RemoteBody {
    fn pending_output(&mut self) -> &mut Out {
        &mut self.out
    }

    fn pending_len(&self) -> usize {
        self.out.len()
    }

    fn has_output_ended(&self) -> bool {
        self.left.len == 0
    }

    fn next_event<'a>(
        &'a mut self,
        _client: &'a mut dyn Client,
    ) -> Boxed<'a, Result<OutputEvent, Fault>> {
        if self.has_output_ended() {
            Box::pin(ready(Ok(OutputEvent::End)))
        } else {
            Box::pin(self.next())
        }
    }
}
