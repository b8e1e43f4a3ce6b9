use proptest::prelude::*;

use super::*;

/// Decodes a body that arrives in `pieces`. Returns the data, and the number of bytes after its
/// end: `None` if the body has not ended.
fn decode<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, Option<usize>), ChunkError> {
    let mut body = Chunked::default();
    let (mut data, mut left) = (Vec::new(), None);
    for mut input in pieces {
        while left.is_none() {
            match body.next_chunk(input)? {
                Parsed::Partial => break,
                Parsed::Complete(Chunk::Data(n), used) => {
                    assert!(n >= 1);
                    data.extend_from_slice(&input[used..used + n]);
                    input = &input[used + n..];
                }
                Parsed::Complete(Chunk::End, used) => {
                    assert!(body.is_end());
                    input = &input[used..];
                    left = Some(0);
                }
            }
        }
        left = left.map(|l| l + input.len());
    }
    Ok((data, left))
}

fn whole(body: &str) -> Result<(Vec<u8>, Option<usize>), ChunkError> {
    decode([body.as_bytes()])
}

#[track_caller]
fn refused(bodies: &[&str]) {
    for body in bodies {
        assert!(whole(body).is_err(), "{body:?}: {:?}", whole(body));
    }
}

#[test]
fn s7_1_chunks_are_joined_and_what_follows_is_left() {
    let body = "5\r\nhello\r\n0006\r\n world\r\n1\r\n\r\r\nA\r\n0123456789\r\n0\r\n\r\nGET /";
    let (data, left) = whole(body).unwrap();
    assert_eq!(data, b"hello world\r0123456789");
    assert_eq!(left, Some(5));
    assert_eq!(whole("0\r\n\r\n").unwrap(), (vec![], Some(0)));
}

#[test]
fn a_body_that_stops_has_not_ended() {
    let body = "5;x\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for n in 0..body.len() {
        let (data, left) = whole(&body[..n]).unwrap();
        assert_eq!(left, None, "{n}");
        assert!(b"hello".starts_with(&data));
    }
}

#[test]
fn s7_1_sizes_are_up_to_16_hexadecimal_digits() {
    refused(&[
        "\r\n",
        " 5\r\n",
        "+5\r\n",
        "-5\r\n",
        "0x5\r\n",
        "0X5\r\n",
        "g\r\n",
        "5g\r\n",
        ";x\r\n",
        "5 5\r\n",
        "5_\r\n",
        "5 \r\n",
        "5.\r\n",
        "10000000000000000\r\n",
        "00000000000000005\r\n",
        "\u{ff15}\r\n",
    ]);
    assert_eq!(whole("0000000000000001\r\na\r\n0\r\n\r\n").unwrap().0, b"a");
    let mut body = Chunked::default();
    let step = body.next_chunk(b"ffffffffffffffff\r\nab").unwrap();
    assert_eq!(step, Parsed::Complete(Chunk::Data(2), 18));
    assert_eq!(body.state, ChunkedState::Data(u64::MAX - 2));
}

#[test]
fn bare_lf_or_cr_anywhere_in_the_framing() {
    refused(&[
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhelloX\n0\r\n\r\n",
        "5\r\nhello\n\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5;a\rhello\r\n0\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
        "0\r\n\rX",
        "0\r\nA: b\n\r\n",
        "0\r\nA: b\r\r\n",
        "0\r\nA: b\r\n\n",
    ]);
}

#[test]
fn s7_1_1_extensions_are_read_over() {
    let body = "1;a=\"b c\" ; d\r\nx\r\n1 \t;\te = f;g\r\ny\r\n0;h=\"\\\"\\\\;\u{e9}\"\r\n\r\n";
    assert_eq!(whole(body).unwrap(), (b"xy".to_vec(), Some(0)));
    refused(&[
        "1;\r\nx",
        "1;;a\r\nx",
        "1; ;a\r\nx",
        "1;=a\r\nx",
        "1;a=\r\nx",
        "1;a= ;b\r\nx",
        "1;a b\r\nx",
        "1;a \r\nx",
        "1;a=b c\r\nx",
        "1;a=b \r\nx",
        "1;a==b\r\nx",
        "1;a=b=c\r\nx",
        "1;a\"b\"\r\nx",
        "1;a=b\"c\"\r\nx",
        "1;\"a\"\r\nx",
        "1;a=\"b\"c\r\nx",
        "1;a=\"b\r\nx",
        "1;a=\"b\\\"\r\nx",
        "1;a=\"\\\r\"\r\nx",
        "1;a=\"\0\"\r\nx",
        "1;a/b\r\nx",
        "1;\u{e9}\r\nx",
        "1=a\r\nx",
        "1 \r\nx",
        "1 a\r\nx",
        "1;\0\r\nx",
        "1;\x7f\r\nx",
        "1 \0;\r\nx",
    ]);
}

#[test]
fn s7_1_1_extensions_are_bounded() {
    let chunk = |n: usize| {
        let extension = [";", &"a".repeat(n.saturating_sub(1))].concat();
        format!("1{}\r\nx\r\n", &extension[..n])
    };
    // The CR counts too.
    assert!(whole(&chunk(1023)).is_ok());
    refused(&[&chunk(1024), &format!("1{}", " ".repeat(1025))]);
    assert!(whole(&chunk(1023).repeat(16)).is_ok());
    refused(&[&chunk(1023).repeat(17)]);
    // Chunks without extensions use nothing of this limit.
    assert!(whole(&chunk(0).repeat(20_000)).is_ok());
}

#[test]
fn s7_1_2_trailers_are_checked_bounded_and_discarded() {
    let body = "1\r\nx\r\n0\r\nProxy: evil\r\nB:\r\nC: \u{e9}\t\r\n\r\n";
    assert_eq!(whole(body).unwrap(), (b"x".to_vec(), Some(0)));
    refused(&[
        "0\r\n: b\r\n\r\n",
        "0\r\nA\r\n\r\n",
        "0\r\nA : b\r\n\r\n",
        "0\r\n A: b\r\n\r\n",
        "0\r\nA: b\r\n c\r\n\r\n",
        "0\r\nA: \0\r\n\r\n",
        "0\r\nA\u{e9}: b\r\n\r\n",
    ]);
    let of = |n: usize| format!("0\r\nA:{}\r\n\r\n", "b".repeat(n));
    assert!(whole(&of((8 << 10) - 4)).is_ok());
    refused(&[
        &of((8 << 10) - 3),
        &format!("0\r\n{}", "A: b\r\n".repeat(1366)),
    ]);
}

#[test]
fn an_end_and_an_error_stay() {
    let mut body = Chunked::default();
    assert_eq!(
        body.next_chunk(b"0\r\n\r\nrest"),
        Ok(Parsed::Complete(Chunk::End, 5))
    );
    assert_eq!(
        body.next_chunk(b"rest"),
        Ok(Parsed::Complete(Chunk::End, 0))
    );
    let mut body = Chunked::default();
    let e = body.next_chunk(b"x").unwrap_err();
    assert_eq!(body.next_chunk(b"0\r\n\r\n"), Err(e));
}

/// Cuts `bytes` into pieces of the lengths in `cuts`, over and over.
fn split<'a>(mut bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &cut in cuts.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at(cut.min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

proptest! {
    #[test]
    fn any_split_gives_the_same_data(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "0\r\n", "1\r\nx\r\n", "5;a\r\nhello\r\n", "A\r\n0123456789\r\n", "\r\n", "A: b\r\n",
            "\r", "\n", "3", ";", " ",
        ]), 0..12),
        cuts in prop::collection::vec(1usize..20, 1..6),
    ) {
        let body = pieces.concat();
        prop_assert_eq!(whole(&body), decode(split(body.as_bytes(), &cuts)));
    }

    #[test]
    fn what_was_encoded_comes_back(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        cuts in prop::collection::vec(1usize..20, 1..6),
    ) {
        let mut body = Vec::new();
        for c in &chunks {
            body.extend_from_slice(format!("{:x}\r\n", c.len()).as_bytes());
            body.extend_from_slice(c);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let (data, left) = decode(split(&body, &cuts)).unwrap();
        prop_assert_eq!(data, chunks.concat());
        prop_assert_eq!(left, Some(0));
    }
}
