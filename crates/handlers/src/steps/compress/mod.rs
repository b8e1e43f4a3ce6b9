//! Codes responses in a content coding that the client accepts (RFC 9110, 8.4): gzip, br or zstd, while they are sent.
//!
//! 1. Check whether the response may be coded.
//! 2. Choose a coding.
//! 3. Code a small body at once, and any other body as its producer goes on.

mod coded;
mod coder;
mod stored;

use std::sync::Arc;

use galgo_proto::{
    Fields,
    coding::{AcceptedCodings, Coding},
    fields::lists_token,
    h1::{Head, Method},
};
use galgo_service::{
    body::{Body, Output, Response},
    log::LogSource,
    request::Request,
};

use self::{
    coded::{Coded, CoderPermit},
    coder::Coder,
    stored::StoredBody,
};
use super::headers::{TypePattern, media_type};
use crate::context::Context;

/// Limit for a body that is coded at once, which takes an event loop a millisecond or so.
const AT_ONCE: usize = 32 << 10;

/// Selects the responses of a route to code.
#[derive(Debug, Clone, PartialEq)]
pub struct Compress {
    /// Media types.
    pub types: Vec<TypePattern>,
    /// Least size of a body in bytes, if its size is known.
    pub least: u64,
}

/// Types to code by default, because they shrink. Compressed fonts and pictures do not.
pub const TYPES: [&str; 14] = [
    "text/*",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/manifest+json",
    "application/xml",
    "application/xhtml+xml",
    "application/atom+xml",
    "application/rss+xml",
    "application/wasm",
    "image/svg+xml",
    "image/bmp",
    "font/otf",
    "font/ttf",
];
/// Default for the least size. Smaller bodies do not shrink by much, and fit into one packet either way.
pub const LEAST: u64 = 256;
/// Type of event streams. Events are to arrive at once: they are coded only if the configuration names their type.
const EVENTS: &str = "text/event-stream";

impl Compress {
    /// Returns the response in a coding that its client accepts, or unchanged.
    pub fn answer(
        &self,
        cx: Context<'_>,
        request: &Request<'_>,
        mut response: Response,
    ) -> Response {
        if !self.applies(&response) {
            return response;
        }
        add_vary(&mut response.fields);
        let head = &*request.head;
        if matches!(response.status, 206 | 304) || head.method == Method::Head {
            return response;
        }
        let Some(coding) = choose_coding(head) else {
            return response;
        };
        let Some(permit) = CoderPermit::try_acquire(is_small(&response.body)) else {
            return response;
        };
        let (body, coded) = match std::mem::replace(&mut response.body, Body::Empty) {
            Body::Bytes(bytes) if bytes.len() <= AT_ONCE => code_small_body(coding, bytes.into()),
            Body::Shared(bytes) if bytes.len() <= AT_ONCE => code_small_body(coding, bytes),
            Body::Stream(output) => output_coded(coding, output, permit),
            stored => match StoredBody::from_body(stored) {
                Ok(stored) => {
                    let path = String::from_utf8_lossy(head.target.path());
                    let output = Output {
                        producer: Box::new(stored),
                        content_length: None,
                        nph: false,
                        discard: false,
                        excess: false,
                        source: LogSource::new(cx.resources.errors.clone(), request.id(), &path),
                        spool: cx.shared.spool.share_of(request.peer()),
                    };
                    output_coded(coding, Box::new(output), permit)
                }
                Err(body) => (body, false),
            },
        };
        response.body = body;
        if coded {
            describe(&mut response.fields, coding);
        }
        response
    }

    /// Returns whether the response would be coded for a client that asks for it. A part and a 304 are never coded, but describe
    /// a response that would be (RFC 9110, 15.3.7 and 15.4.5).
    fn applies(&self, response: &Response) -> bool {
        let fields = &response.fields;
        let (is_part, unchanged) = (response.status == 206, response.status == 304);
        let sized = match &response.body {
            Body::Stream(output) if output.nph => return false,
            _ if is_part => whole_length(fields),
            _ if unchanged => None,
            Body::Stream(output) if output.discard => return false,
            Body::Stream(output) => output.content_length,
            Body::Empty | Body::Parts(_) => return false,
            body => Some(body.len()),
        };
        /// Fields of responses that are coded already, or whose bytes a checksum protects.
        const AS_IT_IS: [&str; 4] = [
            "content-encoding",
            "content-digest",
            "content-md5",
            "digest",
        ];
        let media = media_type(fields);
        // The whole may have a type to code: neither several parts nor a program's own 304 tell its type.
        let is_unknown = is_part && media.eq_ignore_ascii_case("multipart/byteranges")
            || unchanged && media.is_empty();
        !matches!(response.status, 100..=199 | 204 | 205 | 300..=303 | 305..=399)
            && sized.is_none_or(|sized| sized >= self.least)
            && !lists_token(fields, "cache-control", "no-transform")
            && !fields.has_any(&AS_IT_IS)
            && (is_unknown || self.codes_type(media))
    }

    /// Returns whether responses of the type are coded.
    fn codes_type(&self, media: &str) -> bool {
        self.types.iter().any(|pattern| match pattern {
            TypePattern::Exact(_) => pattern.matches_type(media),
            _ => pattern.matches_type(media) && !media.eq_ignore_ascii_case(EVENTS),
        })
    }
}

/// Returns the length of the whole that the response is a part of, if the response tells it.
fn whole_length(fields: &Fields) -> Option<u64> {
    let range = str::from_utf8(fields.first_value("content-range")?).ok()?;
    range.rsplit_once('/')?.1.parse().ok()
}

/// Returns the coding that the client prefers; on a tie, the coding that costs least for its size.
fn choose_coding(head: &Head) -> Option<Coding> {
    /// Codings in order of preference: on a tie the last wins, because `max_by_key` returns the last maximum.
    const OURS: [Coding; 3] = [Coding::Brotli, Coding::Gzip, Coding::Zstd];
    let accepted = AcceptedCodings::from_fields(&head.fields);
    let quality = |coding| accepted.quality(coding);
    let best = OURS.into_iter().max_by_key(|&coding| quality(coding));
    best.filter(|&best| quality(best) > 0 && quality(best) >= quality(Coding::Identity))
}

/// Returns whether a body is complete, and small enough to code at once.
fn is_small(body: &Body) -> bool {
    match body {
        Body::Stream(output) => {
            output.producer.has_output_ended() && output.producer.pending_len() <= AT_ONCE
        }
        body => body.len() <= AT_ONCE as u64,
    }
}

/// Codes a small body; returns it uncoded if coding makes it no smaller.
fn code_small_body(coding: Coding, bytes: Arc<[u8]>) -> (Body, bool) {
    let coded = Coder::new(coding).and_then(|mut coder| {
        coder.write(&bytes)?;
        coder.finish()
    });
    match coded {
        Ok(coded) if coded.len() < bytes.len() => (Body::Bytes(coded), true),
        _ => (Body::Shared(bytes), false),
    }
}

/// Codes the output of a producer. Output that has already ended stays uncoded if it is shorter than promised, or small.
fn output_coded(coding: Coding, mut output: Box<Output>, permit: CoderPermit) -> (Body, bool) {
    let ready = output.producer.pending_len() as u64;
    let ended = output.producer.has_output_ended();
    let short = output.content_length.is_some_and(|length| length != ready);
    if ended && (short || ready < LEAST) {
        return (Body::Stream(output), false);
    }
    let Ok(coder) = Coder::new(coding) else {
        return (Body::Stream(output), false);
    };
    let promised = output.content_length.take();
    let source = output.source.clone();
    let producer = Coded::new(output.producer, coder, (promised, source), permit);
    output.producer = Box::new(producer);
    (Body::Stream(output), true)
}

/// A cache must not give one client a coding that only another accepts.
fn add_vary(fields: &mut Fields) {
    if !lists_token(fields, "vary", "accept-encoding") && !lists_token(fields, "vary", "*") {
        fields.push("Vary", "Accept-Encoding");
    }
}

/// Sets the fields of a coded response. Ranges and strong tags are about uncoded bytes, so ranges are not offered, and a tag
/// becomes weak.
fn describe(fields: &mut Fields, coding: Coding) {
    let tag = fields.first_value("etag").map(<[u8]>::to_vec);
    fields.remove(&["accept-ranges", "etag"]);
    if let Some(tag) = tag {
        let weak = if tag.starts_with(b"W/") {
            tag
        } else {
            [b"W/", &tag[..]].concat()
        };
        fields.push("ETag", weak);
    }
    fields.push("Content-Encoding", coding.name());
}
