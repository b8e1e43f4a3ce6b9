use super::*;

/// Unpacks a block that is written in hexadecimal digits, to lines.
fn read(decoder: &mut HpackDecoder, block: &str) -> Result<String, Undecodable> {
    let mut lines = String::new();
    decoder.decode(&unhex(block), |name, value| {
        let [name, value] = [name, value].map(String::from_utf8_lossy);
        lines += &format!("{name}: {value}\n");
    })?;
    Ok(lines)
}

/// Returns the bytes of hexadecimal digits, between which spaces may stand.
fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

const FIRST: &str = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
const THIRD: &str = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n";

/// RFC 7541, C.3 and C.4: three requests on a connection, without and with the Huffman code.
#[test]
fn c_3_and_c_4_requests() {
    for blocks in [
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
    ] {
        let decoder = &mut HpackDecoder::default();
        let [first, second, third] = blocks.map(|block| read(decoder, block).unwrap());
        assert_eq!(first, FIRST);
        assert_eq!(second, format!("{FIRST}cache-control: no-cache\n"));
        assert_eq!(third, THIRD);
        assert_eq!(decoder.table.size, 164);
    }
}

/// RFC 7541, C.6.1 and C.6.3, in a table of 256 bytes: old fields make room for new ones.
#[test]
fn c_6_fields_are_evicted() {
    let decoder = &mut HpackDecoder::default();
    let first = "3fe101 488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3";
    let said = read(decoder, first).unwrap();
    assert!(said.starts_with(":status: 302\ncache-control: private\n"));
    assert!(said.ends_with("location: https://www.example.com\n"));
    assert_eq!(decoder.table.size, 222);
    let second = read(decoder, "4883640effc1c0bf").unwrap();
    assert!(second.starts_with(":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013"));
    assert_eq!(decoder.table.size, 222);
    let third = "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007";
    let said = read(decoder, third).unwrap();
    assert!(said.ends_with(
        "content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n"
    ));
    assert_eq!(decoder.table.size, 215);
    // A field that is larger than the table empties it; so does a limit of 0.
    let large = format!("40 01 61 7f 81 01 {}", "62".repeat(256));
    assert!(read(decoder, &large).is_ok());
    assert_eq!(
        (decoder.table.size, read(decoder, "be")),
        (0, Err(Undecodable))
    );
    assert!(read(decoder, "20 be").is_err());
}

/// The codes of all bytes (RFC 7541, B), one after the other, and padding.
const CODES: &str = "
ffc7fffd8fffffe2fffffe3fffffe4fffffe5fffffe6fffffe7fffffe8ffffeafffffff3fffffa7fffffabffffffdfffffebfffffecfffffedffff
feefffffefffffff0ffffff1ffffff2fffffffbfffffcffffffd3fffffd7fffffdbfffffdffffffe3fffffe7fffffebfffffed4fe3f9ffaffcabf1
febfafefe7fdfd2cbb00089969b71d79fb9f7fff20ffbff3ff50ddbd7f061c58f265cd9f469d5af66dddbf871e5f9cff7ff7fffc3ff9ffe45fff47
19242cb34e6e9d68a6a3d7dac426defe3cfaf7fffbfe7ffbffdffffffcfffe6ffff4bfff9ffffa3fffd3ffff53fffd5ffffb3fffeb7fffdaffffb7
ffff73fffeeffffdeffffebffffbfffffd9ffffdbfffebffffe0ffffeeffffc3ffff8bffff1ffffe4fffee7fffb1ffff97fffd9ffffcdffff9ffff
fbffffdafffeeffff4ffffb7fffee7fffe8ffffd3fffdeffffd5fffeeffffbdffffe1fffdfffff7fffff5ffffecffff07fff87fffe0ffff17fffed
ffff87ffff77fffeffffeaffff8bfffe3ffff93ffff87fffcbffff37ffff1fffff83ffffe1fffebfffe3ffff3fffff2ffffa3ffffd9fffff17ffff
c7fffff27ffffdefffffbffffff2fffff8fffffb7fff97fff8fffffe6fffffc1fffff87ffffe7fffffc5ffffe5fffe4ffff2fffffd1fffff4fffff
fefffffe3fffffc9fffff97fffb3ffffcffffb7fffcdffff4ffff9ffffd1ffffcffffeaffffafffffddffffeffffff4fffff5fffffabffffa7ffff
d7fffff9bffffecfffffb7fffff3fffffe8fffffd3fffffabfffff5fffffff7ffffecfffffdbfffffbbfffff7ffffff0fffffbbf";

#[test]
fn every_byte_has_a_code() {
    let mut text = Vec::new();
    huffman::decode(&unhex(CODES), &mut text).unwrap();
    assert!(text.into_iter().eq(0..=255));
}

#[test]
fn undecodable() {
    for block in [
        "80",                  // number 0
        "be",                  // a field that was not inserted
        "00",                  // no name
        "0001 61",             // no value
        "0001 61 02 62",       // half a value
        "3fe21f",              // a limit of 4097
        "82 20",               // a limit behind a field
        "ff ffffffff 7f",      // a number that is too large
        "7f",                  // half a number
        "0001 61 84 ffffffff", // the end of a string
        "0001 61 81 1e",       // padding of zeros
        "0001 61 82 1fff",     // padding of a byte
    ] {
        let said = read(&mut HpackDecoder::default(), block);
        assert_eq!(said, Err(Undecodable), "{block}");
    }
}

proptest::proptest! {
    #[test]
    fn no_block_panics(blocks: Vec<Vec<u8>>) {
        let mut decoder = HpackDecoder::default();
        for block in blocks {
            let _ = decoder.decode(&block, |_, _| {});
            assert!(decoder.table.size <= 4096);
        }
    }
}
