//! Requests from a web server in front of us: FastCGI records and SCGI netstrings.
//!
//! Each connection has one request at a time, as FCGI_GET_VALUES says (FCGI_MPXS_CONNS=0). A second request meanwhile is
//! answered FCGI_CANT_MPX_CONN. A violation of the protocol ends the connection, because later bytes have no meaning.

use std::rc::Rc;

use galgo_io::turn;
use galgo_proto::{
    Parsed,
    fcgi::{self, HEADER, Header, MANAGEMENT, NameValuePairs, Outcome, RecordType, Role},
    gateway::{self, Gateway},
    h1::{BodyLen, Head, HeadLimits},
    scgi as netstring,
};
use galgo_service::{client::Next, fault::Fault, link::Link, request::Named};

use super::{
    input::Input,
    wire::{self, WireFormat},
};
use crate::{
    request_body::RequestBody,
    stdin::{BROKEN, Stdin},
};

/// FCGI_KEEP_CONN (FastCGI, 5.1).
const KEEP_CONN: u8 = 1;

/// A request that has arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    /// The head of the request.
    pub head: Rc<Head>,
    /// The request's own link, if it differs from the connection's. Boxed: most requests need no room for it.
    pub link: Option<Box<Link>>,
    /// The body of the request, whose data comes over the connection.
    pub body: RequestBody,
    /// The file that the front server names.
    pub named: Option<Box<Named>>,
}

const LARGE: Fault = Fault::Client(431, "the request's variables are too large");

/// A FastCGI request whose variables are still coming.
#[derive(Debug, Default)]
struct Begun {
    id: u16,
    keep: bool,
    params: Vec<u8>,
}

/// Reads a FastCGI request up to the end of its variables. `Ok(None)`: the connection ended before a request. Sets `wire` to
/// the format of the request as soon as the request's id is known.
pub(super) async fn read_fastcgi(
    input: &mut Input,
    wire: &mut WireFormat,
    limits: &HeadLimits,
) -> Result<Option<Arrived>, Fault> {
    *wire = WireFormat::FastCgi { id: 0 };
    let mut begun: Option<Begun> = None;
    loop {
        let Some((header, content)) = read_record(input).await? else {
            return match begun {
                None if input.buf.is_empty() => Ok(None),
                _ => Err(Fault::Gone(
                    "the front server left in the request's variables",
                )),
            };
        };
        match (header.kind, &mut begun) {
            (RecordType::GET_VALUES, _) if header.id == MANAGEMENT => {
                send_answer(input, &answer_get_values(&content)?)
            }
            (kind, _) if header.id == MANAGEMENT => send_answer(input, &fcgi::unknown_type(kind)),
            (RecordType::BEGIN, None) => {
                begun = accept_request(input, header.id, &content)?;
                if begun.is_some() {
                    *wire = WireFormat::FastCgi { id: header.id };
                }
            }
            (RecordType::BEGIN, Some(b)) if b.id != header.id => {
                send_answer(
                    input,
                    &fcgi::end_request(header.id, 0, Outcome::CANNOT_MULTIPLEX),
                );
            }
            (RecordType::ABORT, Some(b)) if b.id == header.id => {
                send_answer(input, &wire::end_records(header.id, 0));
                begun = None;
                *wire = WireFormat::FastCgi { id: 0 };
            }
            (RecordType::PARAMS, Some(b)) if b.id == header.id => {
                if content.is_empty() {
                    return build_arrived(input, std::mem::take(b), limits).map(Some);
                }
                b.params.extend_from_slice(&content);
                if b.params.len() > limits.bytes {
                    return Err(LARGE);
                }
            }
            // Records of a request that is over, or was refused, are ignored (FastCGI, 3.3).
            (RecordType::PARAMS | RecordType::STDIN | RecordType::DATA | RecordType::ABORT, b)
                if b.as_ref().is_none_or(|b| b.id != header.id) => {}
            _ => return Err(BROKEN),
        }
    }
}

/// Reads a whole record with its padding, which is slightly more than 64 KiB at most. `None`: no more records come.
async fn read_record(input: &mut Input) -> Result<Option<(Header, Vec<u8>)>, Fault> {
    loop {
        if let Some(header) = Header::parse(input.buf.as_slice()).map_err(|_| BROKEN)? {
            let content = HEADER + usize::from(header.content);
            let all = content + usize::from(header.padding);
            if input.buf.len() >= all {
                turn::spend_units(turn::PIECE);
                turn::wait_for_turn().await;
                let content = input.buf.as_slice()[HEADER..content].to_vec();
                input.buf.consume(all);
                return Ok(Some((header, content)));
            }
        }
        if input.fill_buffer(0).await? == 0 {
            return Ok(None);
        }
    }
}

/// Sends answers between requests, when nothing else is being written.
fn send_answer(input: &Input, bytes: &[u8]) {
    // If a front server does not read its answers, they are lost.
    let _ = input.sock.try_write(bytes);
}

fn accept_request(input: &Input, id: u16, content: &[u8]) -> Result<Option<Begun>, Fault> {
    let &[high, low, flags, ..] = content else {
        return Err(BROKEN);
    };
    if Role(u16::from_be_bytes([high, low])) != Role::RESPONDER {
        send_answer(input, &fcgi::end_request(id, 0, Outcome::UNKNOWN_ROLE));
        return Ok(None);
    }
    Ok(Some(Begun {
        id,
        keep: flags & KEEP_CONN != 0,
        params: Vec::new(),
    }))
}

/// Answers FCGI_GET_VALUES (FastCGI, 4.1). Connections and requests have no limit of their own here.
fn answer_get_values(content: &[u8]) -> Result<Vec<u8>, Fault> {
    let known = (&b"FCGI_MPXS_CONNS"[..], &b"0"[..]);
    let asked = parse_pairs(content)?;
    let asked = asked.iter().filter(|(name, _)| *name == known.0);
    Ok(fcgi::get_values_result(asked.map(|_| known)))
}

type Pair<'c> = (&'c [u8], &'c [u8]);

fn parse_pairs(content: &[u8]) -> Result<Vec<Pair<'_>>, Fault> {
    NameValuePairs::new(content)
        .collect::<Result<_, _>>()
        .map_err(|_| BROKEN)
}

fn build_arrived(input: &mut Input, begun: Begun, limits: &HeadLimits) -> Result<Arrived, Fault> {
    let params = parse_pairs(&begun.params)?;
    let mut gateway = gateway::parse_request(params, limits)?;
    let left = match gateway.head.body {
        BodyLen::Length(n) => Some(n),
        BodyLen::None | BodyLen::Chunked => None,
    };
    let mut stdin = Stdin::new(begun.id, left);
    // A front server names no length if it does not know the body's length, or if there is no body. In the latter case the end
    // of input is here already, or comes next.
    if left.is_none() && stdin.next_data(&mut input.buf)? != Next::End {
        gateway.head.body = BodyLen::Chunked;
    }
    gateway.head.keep_alive = begun.keep;
    Ok(Arrived::new(gateway, RequestBody::from_records(stdin)))
}

/// Reads an SCGI request up to its body. `Ok(None)`: the connection ended before a request.
pub(super) async fn read_scgi(
    input: &mut Input,
    wire: &mut WireFormat,
    limits: &HeadLimits,
) -> Result<Option<Arrived>, Fault> {
    *wire = WireFormat::Scgi;
    loop {
        match netstring::parse_variables(input.buf.as_slice(), limits.bytes) {
            Ok(Parsed::Complete(variables, used)) => {
                let gateway = gateway::parse_request(variables.iter(), limits)?;
                input.buf.consume(used);
                let body = RequestBody::new(gateway.head.body);
                return Ok(Some(Arrived::new(gateway, body)));
            }
            Ok(Parsed::Partial) => {}
            Err(netstring::TOO_LARGE) => return Err(LARGE),
            Err(_) => return Err(NO_SCGI),
        }
        match input.fill_buffer(0).await? {
            0 if input.buf.is_empty() => return Ok(None),
            0 => {
                return Err(Fault::Gone(
                    "the front server left in the request's headers",
                ));
            }
            _ => {}
        }
    }
}

const NO_SCGI: Fault = Fault::Client(400, "the front server breaks the SCGI protocol");

impl Arrived {
    fn new(gateway: Gateway, body: RequestBody) -> Self {
        let link = Link::from_gateway(&gateway);
        let named = Named {
            file: gateway.file,
            document_root: gateway.document_root,
            script_name: gateway.script_name,
            path_info: gateway.path_info,
        };
        Self {
            head: Rc::new(gateway.head),
            link: Some(Box::new(link)),
            body,
            named: Some(Box::new(named)),
        }
    }
}
