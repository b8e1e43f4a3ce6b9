//! Response heads of CGI programs: any split gives the same answer, and nothing in what is passed on
//! could end a head or frame a body.
#![no_main]

use galgo_proto::{
    Parsed,
    cgi::{Reply, ReplyError, ReplyKind, ReplyLimits, ReplyScan},
    fields::is_token,
};
use libfuzzer_sys::fuzz_target;

fn split(step: usize, buf: &[u8], limits: &ReplyLimits) -> Result<Parsed<Reply>, ReplyError> {
    let mut scan = ReplyScan::default();
    let mut have = 0;
    loop {
        match scan.scan_head(&buf[..have], limits) {
            Ok(Parsed::Partial) if have < buf.len() => have = buf.len().min(have + step),
            done => return done,
        }
    }
}

fn check(reply: &Reply) {
    assert!((200..=999).contains(&reply.status));
    let text = |b: &u8| !b.is_ascii_control() || *b == b'\t';
    assert!(reply.reason.iter().all(|r| r.as_bytes().iter().all(text)));
    if let ReplyKind::LocalRedirect(path) = &reply.kind {
        assert!(path.starts_with('/') && !path.starts_with("//"));
    }
    for (name, value) in reply.fields.iter() {
        assert!(!name.is_empty() && name.iter().copied().all(is_token));
        assert!(value.iter().all(text));
    }
    for gone in [
        "Status",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "Trailer",
    ] {
        assert!(!reply.fields.has_field(gone), "{gone}");
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, buf)) = data.split_first() else {
        return;
    };
    let limits = ReplyLimits {
        bytes: 2048,
        fields: 32,
        upgrade: cut >= 128,
        status_line: cut % 2 == 1,
    };
    let mut scan = ReplyScan::default();
    let whole = scan.scan_head(buf, &limits);
    assert_eq!(whole, split(usize::from(cut % 17) + 1, buf, &limits));
    match whole {
        Ok(Parsed::Complete(reply, used)) => {
            assert!(used <= buf.len() && used <= limits.bytes);
            check(&reply);
        }
        Ok(Parsed::Partial) => {
            assert!(buf.len() <= limits.bytes);
            let _ = scan.explain_incomplete(buf);
        }
        Err(_) => {}
    }
});
