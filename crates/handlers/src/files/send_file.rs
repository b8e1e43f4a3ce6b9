//! Answers for an open file: preconditions, ranges, fields, body.

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

use crate::files::{
    file_settings::Files,
    open::{OpenFile, OpenRefusal},
    types,
    variant::Representation,
};

/// Limit for a file that is read at once, so that head and body leave in one write. For larger files sendfile is faster.
pub(super) const SMALL: u64 = 64 << 10;

/// Limit for ranges in one request; a request for more gets the whole file (RFC 9110, 14.2).
const MAX_RANGES: usize = 200;

/// Part of the file to send, by the preconditions and Range.
enum Selected {
    NotModified,
    Whole,
    Partial(Vec<Range<u64>>),
}

/// Answers with the file at `path`, as `own_type` if that is given.
pub(super) fn answer_with_file(
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
        // Later steps need the type; they do not send it.
        Selected::NotModified => response.fields.push("Content-Type", &*media_type),
        Selected::Whole => send_whole(&mut response, head, variant.file, &media_type)?,
        Selected::Partial(ranges) => {
            send_ranges(&mut response, variant.file, &media_type, &ranges)?
        }
    }
    Ok(response)
}

/// Checks preconditions, then ranges (13.2.2). `Err`: the complete answer if a check fails.
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
            .with_field("Content-Range", format!("bytes */{size}"))
            .with_field("Accept-Ranges", "bytes")),
    }
}

/// Adds the fields that describe the content; a 304 gets only the fields that a cache needs (15.4.5).
fn describe(response: &mut Response, variant: &Representation, varies: bool) {
    let fields = &mut response.fields;
    fields.push("ETag", &variant.etag);
    if let Some(modified) = variant.modified {
        fields.push("Last-Modified", httpdate::fmt_http_date(modified));
    }
    // Add Vary even if no sibling exists: a sibling may appear while a cache still holds this response.
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

fn send_whole(
    response: &mut Response,
    head: &Head,
    file: OpenFile,
    media_type: &str,
) -> Result<(), OpenRefusal> {
    let all = 0..file.size();
    response.fields.push("Content-Type", media_type);
    response.body = if head.method == Method::Head && !all.is_empty() {
        // A response to HEAD needs only the length of the body.
        Body::File(file_part(&Arc::new(file.fd), &all))
    } else {
        range_body(file, &all)?
    };
    Ok(())
}

/// Makes a 206: a single part as it is (15.3.7.1), several as multipart/byteranges (15.3.7.2).
fn send_ranges(
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
        response.body = range_body(file, range)?;
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
        parts.push(BodyPart::File(file_part(&fd, range)));
        line = "\r\n";
    }
    parts.push(BodyPart::Bytes(
        format!("\r\n--{boundary}--\r\n").into_bytes(),
    ));
    response.body = Body::Parts(parts);
    Ok(())
}

/// Returns the bytes of `range`; few bytes are read now.
///
/// If the file has become shorter meanwhile, the relay finds out and cuts the response visibly. Fewer bytes under the old ETag
/// would pass for the file.
fn range_body(file: OpenFile, range: &Range<u64>) -> Result<Body, OpenRefusal> {
    let len = range.end - range.start;
    if len == 0 {
        return Ok(Body::Empty);
    }
    if len <= SMALL
        && let Some(bytes) = read(&file.fd, range)?
    {
        return Ok(Body::Bytes(bytes));
    }
    Ok(Body::File(file_part(&Arc::new(file.fd), range)))
}

/// Reads all the bytes of `range`; `None` if the file ends earlier.
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
    // The allocator may have reserved more room than requested, and the file may have grown into it.
    bytes.truncate(len);
    Ok(Some(bytes))
}

fn file_part(file: &Arc<OwnedFd>, range: &Range<u64>) -> FilePart {
    FilePart {
        file: Arc::clone(file),
        offset: range.start,
        len: range.end - range.start,
    }
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// Makes 128 bits that no file can hold beforehand: the standard library's hash keys are random.
fn boundary() -> String {
    let half = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", half(), half())
}
