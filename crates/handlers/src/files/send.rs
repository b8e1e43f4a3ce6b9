//! The answer for a file that is open: preconditions, ranges, fields, body.

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    os::fd::OwnedFd,
    sync::Arc,
    time::SystemTime,
};

use galgo_proto::{
    coding::Coding,
    cond::{self, CondOutcome, Validators},
    h1::{Head, Method},
    range::{self, Ranges},
};
use galgo_service::body::{Body, BodyPart, FilePart, Response};
use rustix::{
    buffer::spare_capacity,
    io::{Errno, pread},
};

use super::settings::Files;
use super::{
    open::{OpenFile, OpenRefusal},
    types,
    variant::Representation,
};

/// Up to here a file is read at once, so that head and body leave in one write; beyond, sendfile wins.
pub(super) const SMALL: u64 = 64 << 10;

/// Ranges in one request; more are answered with the whole (RFC 9110, 14.2).
const MAX_RANGES: usize = 200;

/// What the preconditions and Range leave of the request.
enum Selected {
    NotModified,
    Whole,
    Partial(Vec<Range<u64>>),
}

/// Answers for the file at `path`, of `own_type` where that is given.
pub(super) fn file(
    files: &Files,
    head: &Head,
    path: &[u8],
    file: OpenFile,
    own_type: Option<String>,
    now: SystemTime,
) -> Result<Response, OpenRefusal> {
    let media_type = own_type.map_or_else(|| types::media_type(files, path), Into::into);
    let varies = files.precompressed && types::is_compressible(&media_type);
    let variant = if varies {
        Representation::negotiated(files, &head.fields, path, file, now)
    } else {
        Representation::identity(file, now)
    };
    let answer = match decide(head, &variant) {
        Ok(answer) => answer,
        Err(response) => return Ok(response),
    };
    let mut response = Response::new(match answer {
        Selected::NotModified => 304,
        Selected::Whole => 200,
        Selected::Partial(_) => 206,
    });
    describe(&mut response, &variant, varies);
    match answer {
        // The steps behind ask for the type; it is not sent.
        Selected::NotModified => response.fields.push("Content-Type", &*media_type),
        Selected::Whole => whole(&mut response, head, variant.file, &media_type)?,
        Selected::Partial(ranges) => partial(&mut response, variant.file, &media_type, &ranges)?,
    }
    Ok(response)
}

/// Preconditions, then ranges (13.2.2); `Err` is the whole answer where one of them fails.
fn decide(head: &Head, variant: &Representation) -> Result<Selected, Response> {
    let current = Validators {
        etag: Some(&variant.etag),
        modified: variant.modified,
    };
    match cond::evaluate(&head.method, &head.fields, Some(current)) {
        CondOutcome::Failed => return Err(Response::new(412)),
        CondOutcome::NotModified => return Ok(Selected::NotModified),
        CondOutcome::Proceed => {}
    }
    let size = variant.file.size();
    match range::evaluate(&head.method, &head.fields, current, size, MAX_RANGES) {
        Ranges::Whole => Ok(Selected::Whole),
        Ranges::Partial(ranges) => Ok(Selected::Partial(ranges)),
        Ranges::Unsatisfiable => Err(Response::new(416)
            .with("Content-Range", format!("bytes */{size}"))
            .with("Accept-Ranges", "bytes")),
    }
}

/// The fields that say what is sent; a 304 has only those that a cache needs (15.4.5).
fn describe(response: &mut Response, variant: &Representation, varies: bool) {
    let fields = &mut response.fields;
    fields.push("ETag", &variant.etag);
    if let Some(modified) = variant.modified {
        fields.push("Last-Modified", httpdate::fmt_http_date(modified));
    }
    // Also where no sibling is there now: one may be put there while a cache still holds this.
    if varies {
        fields.push("Vary", "Accept-Encoding");
    }
    if response.status == 304 {
        return;
    }
    if variant.coding != Coding::Identity {
        fields.push("Content-Encoding", variant.coding.name());
    }
    fields.push("Accept-Ranges", "bytes");
}

fn whole(
    response: &mut Response,
    head: &Head,
    file: OpenFile,
    media_type: &str,
) -> Result<(), OpenRefusal> {
    let all = 0..file.size();
    response.fields.push("Content-Type", media_type);
    response.body = if head.method == Method::Head && !all.is_empty() {
        // Its length is all that is wanted of it.
        Body::File(part(&Arc::new(file.fd), &all))
    } else {
        body(file, &all)?
    };
    Ok(())
}

/// 206: one part as it is (15.3.7.1), several as multipart/byteranges (15.3.7.2).
fn partial(
    response: &mut Response,
    file: OpenFile,
    media_type: &str,
    ranges: &[Range<u64>],
) -> Result<(), OpenRefusal> {
    let size = file.size();
    let fields = &mut response.fields;
    if let [range] = ranges {
        fields.push("Content-Type", media_type);
        fields.push("Content-Range", content_range(range, size));
        response.body = body(file, range)?;
        return Ok(());
    }
    let boundary = boundary();
    let multipart = format!("multipart/byteranges; boundary={boundary}");
    fields.push("Content-Type", multipart);
    let fd = Arc::new(file.fd);
    let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
    let mut line = "";
    for range in ranges {
        let at = content_range(range, size);
        let head = format!(
            "{line}--{boundary}\r\nContent-Type: {media_type}\r\nContent-Range: {at}\r\n\r\n"
        );
        parts.push(BodyPart::Bytes(head.into_bytes()));
        parts.push(BodyPart::File(part(&fd, range)));
        line = "\r\n";
    }
    parts.push(BodyPart::Bytes(
        format!("\r\n--{boundary}--\r\n").into_bytes(),
    ));
    response.body = Body::Parts(parts);
    Ok(())
}

/// The bytes of `range`: read now where they are few.
///
/// Where the file has become shorter meanwhile the relay is left to find out, and to cut the response
/// visibly: fewer bytes under the old ETag would pass for the file.
fn body(file: OpenFile, range: &Range<u64>) -> Result<Body, OpenRefusal> {
    let len = range.end - range.start;
    if len == 0 {
        return Ok(Body::Empty);
    }
    if len <= SMALL
        && let Some(bytes) = read(&file.fd, range)?
    {
        return Ok(Body::Bytes(bytes));
    }
    Ok(Body::File(part(&Arc::new(file.fd), range)))
}

/// All the bytes of `range`, or `None` where the file ends before.
fn read(fd: &OwnedFd, range: &Range<u64>) -> Result<Option<Vec<u8>>, OpenRefusal> {
    let Ok(len) = usize::try_from(range.end - range.start) else {
        return Ok(None);
    };
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = range.start + bytes.len() as u64;
        match pread(fd, spare_capacity(&mut bytes), at) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // The allocator may have given more room than was asked for, and the file may have grown into it.
    bytes.truncate(len);
    Ok(Some(bytes))
}

fn part(file: &Arc<OwnedFd>, range: &Range<u64>) -> FilePart {
    FilePart {
        file: Arc::clone(file),
        offset: range.start,
        len: range.end - range.start,
    }
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// 128 bits that no file can hold beforehand: the standard library's hash keys are random.
fn boundary() -> String {
    let half = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", half(), half())
}
