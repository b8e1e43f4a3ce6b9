//! Request targets and authorities: what is taken is harmless and means the same when read again.
#![no_main]

use galgo_proto::target::{Authority, Target};
use libfuzzer_sys::fuzz_target;

fn check(raw: &[u8], t: &Target) {
    let path = t.path();
    assert!(t.raw.bytes().all(|b| b.is_ascii_graphic() && b != b'#'));
    assert!(!path.iter().any(u8::is_ascii_control));
    assert!(path.starts_with(b"/") || (path == b"*" && raw == b"*"));
    assert!(!path.split(|&b| b == b'/').any(|s| s == b"." || s == b".."));
    let in_path = t.raw.split('?').next().unwrap_or_default();
    assert!(!path.windows(2).any(|pair| pair == b"//"));
    let slashes = |bytes: &[u8]| bytes.iter().filter(|&&b| b == b'/').count();
    let (came, raw_slashes) = (t.url_path().came, slashes(in_path.as_bytes()));
    assert!(
        slashes(came) <= raw_slashes,
        "no slash came from an encoding"
    );
    assert!(t.request_uri() != t.raw || slashes(came) == raw_slashes);
    assert_eq!(t.query_at.is_some(), t.raw.contains('?'));
    if let Some(at) = t.query_at {
        assert_eq!(format!("{in_path}?{}", t.query()), t.raw);
        assert_eq!(at, in_path.len() + 1);
    }
    match t.authority() {
        None if raw.is_ascii() => assert_eq!(t.raw.as_bytes(), raw),
        None => assert!(t.raw.len() > raw.len()),
        Some(a) => assert!(Authority::parse(a.as_bytes()).is_some()),
    }
}

/// The path with every byte but the slashes encoded, and the query as it was.
fn encoded(t: &Target) -> String {
    let mut out = String::new();
    for &b in t.path() {
        match b {
            b'/' => out.push('/'),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    if t.query_at.is_some() {
        out.push('?');
        out.push_str(t.query());
    }
    out
}

fuzz_target!(|data: &[u8]| {
    if let Ok(t) = Target::parse(data, 1 << 12) {
        assert!(data.len() <= 1 << 12);
        check(data, &t);
        if t.path() != b"*" {
            let again = Target::parse(t.raw.as_bytes(), usize::MAX).unwrap();
            assert_eq!((&again.raw, again.path()), (&t.raw, t.path()));
            for uri in [t.request_uri(), &t.canonical()] {
                let same = Target::parse(uri.as_bytes(), usize::MAX).unwrap();
                assert_eq!((same.path(), same.query()), (t.path(), t.query()));
                assert!(same.request_uri() == same.raw);
            }
            let other = Target::parse(encoded(&t).as_bytes(), usize::MAX).unwrap();
            assert_eq!((other.path(), other.query()), (t.path(), t.query()));
        }
    }
    if let Some(a) = Authority::parse(data) {
        assert!(!a.host.is_empty() && !a.host.bytes().any(|b| b.is_ascii_uppercase()));
        let port = a.port.map(|p| format!(":{p}")).unwrap_or_default();
        let again = Authority::parse(format!("{}{port}", a.host).as_bytes());
        assert_eq!(again, Some(a));
    }
});
