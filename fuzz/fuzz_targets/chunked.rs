//! Chunked bodies: any split gives the same data, and what was decoded can be encoded again.
#![no_main]

use galgo_proto::{
    Parsed,
    h1::{Chunk, ChunkError, Chunked},
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, PartialEq)]
struct Decoded {
    data: Vec<u8>,
    /// Where in the input the body ended.
    end: Option<usize>,
    /// Why the rest was refused.
    error: Option<ChunkError>,
}

fn decode(input: &[u8], step: usize) -> Decoded {
    let mut body = Chunked::default();
    let mut out = Decoded {
        data: Vec::new(),
        end: None,
        error: None,
    };
    let mut at = 0;
    for piece in input.chunks(step) {
        let mut rest = piece;
        loop {
            match body.next_chunk(rest) {
                Err(e) => {
                    assert_eq!(body.next_chunk(b"0\r\n\r\n"), Err(e), "an error stays");
                    out.error = Some(e);
                    return out;
                }
                Ok(Parsed::Partial) => {
                    at += rest.len();
                    break;
                }
                Ok(Parsed::Complete(Chunk::Data(n), used)) => {
                    assert!(n >= 1);
                    out.data.extend_from_slice(&rest[used..used + n]);
                    rest = &rest[used + n..];
                    at += used + n;
                }
                Ok(Parsed::Complete(Chunk::End, used)) => {
                    assert!(used <= rest.len() && body.is_end());
                    assert_eq!(body.next_chunk(b"x"), Ok(Parsed::Complete(Chunk::End, 0)));
                    out.end = Some(at + used);
                    return out;
                }
            }
        }
    }
    out
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else {
        return;
    };
    let whole = decode(input, input.len().max(1));
    assert_eq!(whole, decode(input, usize::from(cut) + 1));
    assert_eq!(whole, decode(input, 1));
    assert!(whole.data.len() <= input.len());
    if let Some(end) = whole.end {
        assert!(input[..end].ends_with(b"\r\n"));
        assert_eq!(
            whole,
            decode(&input[..end], 3),
            "what follows does not matter"
        );
    }
    // The bytes as data: what is encoded comes back.
    let mut encoded = Vec::new();
    for chunk in input.chunks(usize::from(cut) + 1) {
        encoded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        encoded.extend_from_slice(chunk);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(b"0\r\n\r\n");
    let back = decode(&encoded, 7);
    assert_eq!((&back.data[..], back.end), (input, Some(encoded.len())));
});
