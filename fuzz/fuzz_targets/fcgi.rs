//! FastCGI records, in both directions: any split means the same, and what is written is read.
#![no_main]

use galgo_proto::{
    Parsed,
    fcgi::{Header, NameValuePairs, Params, RecordError, RecordPiece, Records, reply, request},
    vars::Sink,
};
use libfuzzer_sys::fuzz_target;

/// The events of a stream with the lengths of data summed up, so that pieces do not matter. The application
/// may be one of our own that puts `more` bytes behind END_REQUEST.
fn reply_of(input: &[u8], step: usize, more: usize) -> (Vec<u8>, Vec<u8>, String) {
    let mut reply = reply::ReplyReader::with_extra_bytes(1, more);
    let (mut stdout, mut stderr, mut marks) = (Vec::new(), Vec::new(), String::new());
    for piece in input.chunks(step) {
        let mut rest = piece;
        loop {
            match reply.next_event(rest) {
                Ok(Parsed::Partial) => break,
                Ok(Parsed::Complete(event, used)) => {
                    rest = &rest[used..];
                    let (to, n) = match event {
                        reply::ReplyEvent::Stdout(n) => (&mut stdout, n),
                        reply::ReplyEvent::Stderr(n) => (&mut stderr, n),
                        mark => {
                            marks.push_str(&format!("{mark:?} {:x?} ", reply.extra_bytes()));
                            continue;
                        }
                    };
                    assert!(n >= 1);
                    to.extend_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                Err(e) => return (stdout, stderr, marks + &format!("{e}")),
            }
        }
    }
    (stdout, stderr, marks)
}

fn requests_of(input: &[u8], step: usize) -> (Vec<u8>, Vec<u16>, String, Option<RecordError>) {
    let mut requests = request::Requests::default();
    let (mut data, mut ids, mut marks) = (Vec::new(), Vec::new(), String::new());
    for piece in input.chunks(step) {
        let mut rest = piece;
        loop {
            match requests.next_event(rest) {
                Ok(Parsed::Partial) => break,
                Ok(Parsed::Complete(event, used)) => {
                    rest = &rest[used..];
                    let (id, n) = match event {
                        request::Event::Params(id, n) | request::Event::Stdin(id, n) => (id, n),
                        request::Event::GetValues(n) => (0, n),
                        mark => {
                            marks.push_str(&format!("{mark:?} "));
                            continue;
                        }
                    };
                    assert!(n >= 1);
                    ids.extend(std::iter::repeat_n(id, n));
                    data.extend_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                Err(e) => return (data, ids, marks, Some(e)),
            }
        }
    }
    (data, ids, marks, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else {
        return;
    };
    let step = usize::from(cut) + 1;
    let whole = input.len().max(1);
    for more in [0, step % reply::MORE, reply::MORE] {
        assert_eq!(reply_of(input, step, more), reply_of(input, whole, more));
    }
    assert_eq!(requests_of(input, step), requests_of(input, whole));
    // A header is the same where it stands and as it arrives.
    let began = match Records::default().next_piece(input) {
        Ok(Parsed::Complete(RecordPiece::Begin(header), _)) => Some(header),
        _ => None,
    };
    assert_eq!(Header::parse(input).ok().flatten(), began);
    for pair in NameValuePairs::new(input).flatten() {
        assert!(pair.0.len() + pair.1.len() <= input.len());
    }
    // The bytes as variables: what is written comes back.
    let pairs: Vec<_> = input
        .chunks(step)
        .map(|c| c.split_at(c.len() / 3))
        .collect();
    let mut out = Vec::new();
    let mut params = Params::new(7, &mut out);
    for (name, value) in &pairs {
        params.put_variable(name, value);
    }
    params.finish();
    let (content, _, marks, error) = requests_of(&out, step);
    assert_eq!((&marks[..], error), ("ParamsEnd(7) ", None));
    let back: Vec<_> = NameValuePairs::new(&content).map(Result::unwrap).collect();
    assert_eq!(back, pairs);
});
