//! Heads of HTTP/2: a block of any bytes is unpacked or refused, and a head is made of what it holds.
#![no_main]

use galgo_proto::{
    h1::HeadLimits,
    h2::{ReceivedFields, build_head},
    hpack::HpackDecoder,
};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 1 << 17;

fuzz_target!(|input: &[u8]| {
    let mut decoder = HpackDecoder::default();
    // 0xff separates the blocks of a connection.
    for block in input.split(|&b| b == 0xff) {
        let (mut received, mut bytes) = (ReceivedFields::default(), 0);
        let decoded = decoder.decode(block, |name, value| {
            bytes += name.len() + value.len();
            received.add_field(name, value, LIMIT);
        });
        if decoded.is_err() {
            return;
        }
        // A field takes a byte at least, and an indexed one repeats at most the whole table.
        assert!(bytes <= block.len() * 4096);
        let malformed = received.is_malformed_request();
        let head = build_head(received, true, None, &HeadLimits::default());
        assert!(head.is_err() || !malformed);
    }
});
