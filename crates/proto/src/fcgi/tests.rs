use proptest::prelude::*;

use super::{reply, request, *};
use crate::{Parsed, vars::Sink};

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let header = Header {
        kind: RecordType(kind),
        id,
        content: u16::try_from(content.len()).unwrap(),
        padding,
    };
    [&header.to_bytes()[..], content, &vec![0xaa; padding.into()]].concat()
}

/// The contents of a reply, with neighbouring data joined.
#[derive(Debug, Default, Clone, PartialEq)]
struct Said {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    stdout_ends: u32,
    end: Option<(u32, Outcome)>,
    left: usize,
    error: Option<RecordError>,
}

fn said<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Said {
    let mut reply = reply::ReplyReader::new(1);
    let mut said = Said::default();
    for mut input in pieces {
        while said.end.is_none() && said.error.is_none() {
            match reply.next_event(input) {
                Err(e) => said.error = Some(e),
                Ok(Parsed::Partial) => {
                    input = &[];
                    break;
                }
                Ok(Parsed::Complete(event, used)) => {
                    input = &input[used..];
                    let (to, n) = match event {
                        reply::ReplyEvent::Stdout(n) => (&mut said.stdout, n),
                        reply::ReplyEvent::Stderr(n) => (&mut said.stderr, n),
                        reply::ReplyEvent::StdoutEnd => {
                            said.stdout_ends += 1;
                            continue;
                        }
                        reply::ReplyEvent::End(status, outcome) => {
                            said.end = Some((status, outcome));
                            continue;
                        }
                    };
                    assert!(n > 0);
                    to.extend_from_slice(&input[..n]);
                    input = &input[n..];
                }
            }
        }
        said.left += if said.error.is_some() { 0 } else { input.len() };
    }
    said
}

#[test]
fn a_reply_is_taken_apart() {
    let bytes = [
        record(6, 1, b"Status: 200\n", 0),
        record(7, 1, b"oops", 255),
        record(6, 1, b"\nbody", 3),
        record(7, 1, b"", 1),
        record(6, 1, b"", 0),
        record(7, 1, b"!", 0),
        record(3, 1, &[0, 0, 1, 2, 2, 9, 9, 9], 5),
        b"next".to_vec(),
    ]
    .concat();
    let whole = said([&bytes[..]]);
    assert_eq!(whole.stdout, b"Status: 200\n\nbody");
    assert_eq!(whole.stderr, b"oops!");
    assert_eq!(whole.stdout_ends, 1);
    assert_eq!(whole.end, Some((258, Outcome::OVERLOADED)));
    assert_eq!((whole.left, whole.error), (4, None));
    for cut in 0..bytes.len() {
        assert_eq!(said([&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
    }
    assert_eq!(said(bytes.chunks(1)), whole);
}

#[test]
fn what_applications_do_not_send_is_refused() {
    let end = [0; 8];
    let rows = [
        ("another id", record(6, 2, b"x", 0)),
        ("the management id", record(6, 0, b"x", 0)),
        ("a request", record(1, 1, &end, 0)),
        ("an abort", record(2, 1, b"", 0)),
        ("variables", record(4, 1, b"x", 0)),
        ("input", record(5, 1, b"x", 0)),
        ("values that were not asked for", record(10, 0, b"", 0)),
        ("an unknown type", record(12, 1, b"", 0)),
        ("type 0", record(0, 1, b"", 0)),
        ("a short end", record(3, 1, &end[..7], 1)),
        ("a long end", record(3, 1, &[0; 9], 0)),
        ("HTTP", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        (
            "version 0",
            [&[0][..], &record(6, 1, b"x", 0)[1..]].concat(),
        ),
        (
            "output behind its end",
            [record(6, 1, b"", 0), record(6, 1, b"x", 0)].concat(),
        ),
        (
            "two ends of output",
            [record(6, 1, b"", 0), record(6, 1, b"", 0)].concat(),
        ),
    ];
    for (name, bytes) in rows {
        let whole = said([&bytes[..]]);
        assert!(
            whole.error.is_some() && whole.stdout.is_empty(),
            "{name}: {whole:?}"
        );
        assert_eq!(said(bytes.chunks(1)), whole, "{name}");
    }
}

#[test]
fn every_end_has_its_name() {
    for (number, outcome) in [
        (0, Outcome::COMPLETE),
        (1, Outcome::CANNOT_MULTIPLEX),
        (2, Outcome::OVERLOADED),
        (3, Outcome::UNKNOWN_ROLE),
        (4, Outcome(4)),
    ] {
        assert_eq!(end_request(1, 7, outcome)[12], number);
        assert_eq!(
            said([&end_request(1, 7, outcome)[..]]).end,
            Some((7, outcome))
        );
    }
}

#[test]
fn s3_3_headers_pad_to_eight() {
    for n in 0..=MOST {
        let header = Header::new(RecordType::STDIN, 1, n);
        assert_eq!((n + header.padding_bytes().len()) % 8, 0);
        assert!(header.padding < 8 && usize::from(header.content) == n);
    }
    assert_eq!(
        usize::from(Header::new(RecordType::STDIN, 1, 1 << 20).content),
        MOST
    );
    assert_eq!(
        Header::new(RecordType::STDIN, 0x1234, 0x1235).to_bytes(),
        [1, 5, 0x12, 0x34, 0x12, 0x35, 3, 0]
    );
}

/// The contents of a web server's stream, with neighbouring data joined.
#[derive(Debug, Clone, PartialEq)]
enum Heard {
    Event(request::Event),
    Params(u16, Vec<u8>),
    Stdin(u16, Vec<u8>),
    Values(Vec<u8>),
    Wrong(RecordError),
}

fn heard<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Vec<Heard> {
    let mut requests = request::Requests::default();
    let mut all = Vec::new();
    for mut input in pieces {
        loop {
            let event = match requests.next_event(input) {
                Ok(Parsed::Partial) => break,
                Ok(Parsed::Complete(event, used)) => {
                    input = &input[used..];
                    event
                }
                Err(e) => {
                    all.push(Heard::Wrong(e));
                    return all;
                }
            };
            let n = match event {
                request::Event::Params(_, n)
                | request::Event::Stdin(_, n)
                | request::Event::GetValues(n) => n,
                other => {
                    all.push(Heard::Event(other));
                    continue;
                }
            };
            let (data, rest) = input.split_at(n);
            input = rest;
            match (event, all.last_mut()) {
                (request::Event::Params(id, _), Some(Heard::Params(last, held))) if *last == id => {
                    held.extend(data)
                }
                (request::Event::Stdin(id, _), Some(Heard::Stdin(last, held))) if *last == id => {
                    held.extend(data)
                }
                (request::Event::GetValues(_), Some(Heard::Values(held))) => held.extend(data),
                (request::Event::Params(id, _), _) => all.push(Heard::Params(id, data.to_vec())),
                (request::Event::Stdin(id, _), _) => all.push(Heard::Stdin(id, data.to_vec())),
                _ => all.push(Heard::Values(data.to_vec())),
            }
        }
    }
    all
}

#[test]
fn requests_are_taken_apart() {
    let mut bytes = begin_request(1, Role::RESPONDER, true).to_vec();
    let mut params = Params::new(1, &mut bytes);
    params.put_variable(b"A", b"b");
    params.finish();
    bytes.extend(begin_request(2, Role::AUTHORIZER, false));
    bytes.extend(record(5, 1, b"body", 4));
    bytes.extend(abort_request(2));
    bytes.extend(record(9, 0, b"\x0e\0FCGI_MAX_CONNS", 0));
    bytes.extend(record(77, 0, b"what?", 3));
    bytes.extend(record(78, 1, b"passed over", 3));
    bytes.extend(record(8, 1, b"passed over, too", 3));
    bytes.extend(record(5, 1, b"", 0));
    let whole = heard([&bytes[..]]);
    let event = Heard::Event;
    let want = [
        event(request::Event::Begin {
            id: 1,
            role: Role::RESPONDER,
            keep: true,
        }),
        Heard::Params(1, b"\x01\x01Ab".to_vec()),
        event(request::Event::ParamsEnd(1)),
        event(request::Event::Begin {
            id: 2,
            role: Role::AUTHORIZER,
            keep: false,
        }),
        Heard::Stdin(1, b"body".to_vec()),
        event(request::Event::Abort(2)),
        Heard::Values(b"\x0e\0FCGI_MAX_CONNS".to_vec()),
        event(request::Event::GetValuesEnd),
        event(request::Event::Unknown(RecordType(77))),
        event(request::Event::StdinEnd(1)),
    ];
    assert_eq!(whole, want);
    for cut in 0..bytes.len() {
        assert_eq!(heard([&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
    }
}

#[test]
fn what_web_servers_do_not_send_is_refused() {
    let rows = [
        record(1, 1, &[0; 7], 0),
        record(1, 1, &[0; 9], 0),
        record(1, 0, &[0; 8], 0),
        record(2, 1, b"x", 0),
        record(4, 0, b"x", 0),
        record(5, 0, b"", 0),
        record(9, 1, b"", 0),
        record(3, 1, &[0; 8], 0),
        record(6, 1, b"x", 0),
        record(7, 1, b"x", 0),
        record(10, 0, b"", 0),
        b"GET / HTTP/1.1\r\n".to_vec(),
    ];
    for bytes in rows {
        assert!(
            matches!(heard([&bytes[..]])[..], [Heard::Wrong(_)]),
            "{bytes:?}"
        );
    }
}

#[test]
fn answers_to_management_records() {
    assert_eq!(
        unknown_type(RecordType(77)),
        *b"\x01\x0b\0\0\0\x08\0\0\x4d\0\0\0\0\0\0\0"
    );
    let name: &[u8] = b"FCGI_MPXS_CONNS";
    assert_eq!(
        get_values_result([(name, &b"1"[..])]),
        b"\x01\x0a\0\0\0\x12\x06\0\x0f\x01FCGI_MPXS_CONNS1\0\0\0\0\0\0"
    );
    assert_eq!(get_values_result([]), b"\x01\x0a\0\0\0\0\0\0");
}

fn written(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut params = Params::new(1, &mut bytes);
    for (name, value) in pairs {
        params.put_variable(name, value);
    }
    params.finish();
    bytes
}

/// Returns the content of a stream of variables, which must be ended once and be padded to eight.
fn content(bytes: &[u8]) -> Vec<u8> {
    assert_eq!(bytes.len() % 8, 0);
    match &heard([bytes])[..] {
        [Heard::Event(request::Event::ParamsEnd(1))] => Vec::new(),
        [
            Heard::Params(1, content),
            Heard::Event(request::Event::ParamsEnd(1)),
        ] => content.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn s3_4_lengths_take_one_byte_or_four() {
    for n in [
        0, 1, 127, 128, 129, 255, 256, 65_520, 65_528, 65_535, 65_536, 200_000,
    ] {
        let pair = (vec![b'N'; n], vec![b'v'; n / 2]);
        let content = content(&written(std::slice::from_ref(&pair)));
        let overhead = if n < 128 { 1 } else { 4 } + if n / 2 < 128 { 1 } else { 4 };
        assert_eq!(content.len(), overhead + n + n / 2);
        let read: Result<Vec<_>, _> = NameValuePairs::new(&content).collect();
        assert_eq!(read.unwrap(), [(&pair.0[..], &pair.1[..])]);
    }
}

#[test]
fn records_split_where_they_are_full() {
    for n in MOST - 20..MOST + 20 {
        let pairs = [
            (b"A".to_vec(), vec![b'v'; n]),
            (b"B".to_vec(), b"w".to_vec()),
        ];
        assert_eq!(
            NameValuePairs::new(&content(&written(&pairs))).count(),
            2,
            "{n}"
        );
    }
}

#[test]
fn lengths_that_lead_astray_are_refused() {
    for bytes in [
        &b"\x05"[..],
        b"\x01\x01A",
        b"\x80\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xffAB",
        b"\x01\0",
    ] {
        let all: Vec<_> = NameValuePairs::new(bytes).collect();
        assert_eq!(all, [Err(BadPairs)], "{bytes:?}");
    }
    assert_eq!(
        NameValuePairs::new(b"\0\0").collect::<Vec<_>>(),
        [Ok((&b""[..], &b""[..]))]
    );
}

#[test]
fn a_header_is_looked_at_where_it_stands() {
    let header = Header {
        kind: RecordType::STDIN,
        id: 0x0102,
        content: 0xfffe,
        padding: 255,
    };
    let bytes = header.to_bytes();
    for cut in 0..HEADER {
        assert_eq!(Header::parse(&bytes[..cut]), Ok(None), "{cut}");
    }
    assert_eq!(
        Header::parse(&[&bytes[..], b"more"].concat()),
        Ok(Some(header))
    );
    assert_eq!(Header::parse(b"HTTP"), Err(RecordError::Version(b'H')));
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_mean_the_same(
        records in prop::collection::vec((0..13_u8, 0..3_u16, prop::collection::vec(any::<u8>(), 0..20), any::<u8>()), 0..12),
        junk in prop::collection::vec(any::<u8>(), 0..20),
        step in 1..40_usize,
    ) {
        let mut bytes: Vec<u8> = records.iter().flat_map(|(k, id, c, p)| record(*k, *id, c, *p)).collect();
        bytes.extend(junk);
        let whole = said([&bytes[..]]);
        let pieces = said(bytes.chunks(step));
        prop_assert_eq!(&pieces, &whole);
        prop_assert_eq!(heard(bytes.chunks(step)), heard([&bytes[..]]));
    }

    #[test]
    fn replies_in_any_pieces_mean_the_same(
        records in prop::collection::vec((6..8_u8, prop::collection::vec(any::<u8>(), 1..30), any::<u8>()), 0..12),
        step in 1..40_usize,
    ) {
        let mut bytes: Vec<u8> = records.iter().flat_map(|(k, c, p)| record(*k, 1, c, *p)).collect();
        bytes.extend(end_request(1, 0, Outcome::COMPLETE));
        let of = |kind| records.iter().filter(|r| r.0 == kind).flat_map(|r| r.1.clone()).collect::<Vec<u8>>();
        let all = said(bytes.chunks(step));
        prop_assert_eq!(all.stdout, of(6));
        prop_assert_eq!(all.stderr, of(7));
        prop_assert_eq!(all.end, Some((0, Outcome::COMPLETE)));
    }

    #[test]
    fn variables_come_back(
        pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..3000)), 0..60),
    ) {
        let content = content(&written(&pairs));
        let read: Vec<_> = NameValuePairs::new(&content).map(|p| p.map(|(n, v)| (n.to_vec(), v.to_vec()))).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(read, pairs);
    }
}
