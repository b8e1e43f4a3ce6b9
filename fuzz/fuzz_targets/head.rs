//! Request heads: any split gives the same answer, and what is taken keeps its promises.
#![no_main]

use galgo_proto::{
    fields::is_token,
    h1::{BodyLen, Head, HeadError, HeadLimits, HeadScan, Version},
    target::Authority,
};
use libfuzzer_sys::fuzz_target;

/// The first byte chooses how the rest is cut.
fn split(cut: u8, buf: &[u8], limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
    let mut scan = HeadScan::default();
    let step = usize::from(cut % 17) + 1;
    let mut have = 0;
    loop {
        match scan.scan_head(&buf[..have], limits) {
            Ok(None) if have < buf.len() => have = buf.len().min(have + step),
            done => return done,
        }
    }
}

/// Writes a head again.
fn written(head: &Head) -> Vec<u8> {
    let version = match head.version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => unreachable!("no head of HTTP/1 says so"),
    };
    let origin = match head.target.authority() {
        Some(authority) => format!("http://{authority}"),
        None => String::new(),
    };
    let (method, raw) = (head.method.as_str(), &head.target.raw);
    let mut out = format!("{method} {origin}{raw} {version}\r\n").into_bytes();
    for (name, value) in head.fields.iter() {
        out.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
    }
    out.extend_from_slice(b"\r\n");
    out
}

fn check(head: &Head) {
    assert!(head.method.as_str().bytes().all(is_token));
    assert!(!["TRACE", "CONNECT"].contains(&head.method.as_str()));
    assert!(!head.target.path().iter().any(u8::is_ascii_control));
    for (name, value) in head.fields.iter() {
        assert!(!name.is_empty() && name.iter().copied().all(is_token));
        assert!(!value.iter().any(|b| b.is_ascii_control() && *b != b'\t'));
        assert_eq!(value.trim_ascii(), value);
    }
    let lengths = head.fields.all_values("content-length").count();
    let codings = head.fields.all_values("transfer-encoding").count();
    let framing = match head.body {
        BodyLen::None => (0, 0),
        BodyLen::Length(n) => {
            assert!(n < 1 << 63);
            (1, 0)
        }
        BodyLen::Chunked => (0, 1),
    };
    assert_eq!((lengths, codings), framing);
    assert!(head.version == Version::Http11 || head.body != BodyLen::Chunked);
    assert!(!head.expects_continue || !head.body.is_empty());
    if head.host.is_empty() {
        assert!(head.version == Version::Http10);
    } else {
        let again = Authority::parse(head.host.as_bytes()).unwrap();
        assert_eq!((again.host, again.port), (head.host.clone(), None));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, buf)) = data.split_first() else {
        return;
    };
    let limits = HeadLimits {
        bytes: 4096,
        fields: 70,
        target: 512,
        encoded_slash: cut & 1 != 0,
    };
    let found = HeadScan::default().scan_head(buf, &limits);
    assert_eq!(found, split(cut, buf, &limits));
    let parsed = Head::parse(buf, &limits);
    if parsed.is_ok() {
        assert_eq!(
            found,
            Ok(Some(buf.len())),
            "parsed what the scan does not find"
        );
    }
    let Ok(Some(end)) = found else {
        return;
    };
    // What is written again can be longer: a space behind each colon, the path of `http://a`.
    let roomy = HeadLimits {
        encoded_slash: limits.encoded_slash,
        ..HeadLimits::default()
    };
    if let Ok(head) = Head::parse(&buf[..end], &limits) {
        check(&head);
        let again = written(&head);
        assert_eq!(Head::parse(&again, &roomy), Ok(head));
        assert_eq!(
            HeadScan::default().scan_head(&again, &roomy),
            Ok(Some(again.len()))
        );
    }
});
