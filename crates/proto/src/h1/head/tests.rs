use super::*;

fn parse(head: &str) -> Result<Head, HeadError> {
    Head::parse(head.as_bytes(), &HeadLimits::default())
}

#[test]
fn a_head_is_read_whole() {
    let h = parse("POST /cgi-bin/a%20b?x=1 HTTP/1.1\r\nHost: Example.ORG:8080\r\nContent-Length: 5\r\nX: \t\r\n\r\n").unwrap();
    assert_eq!(h.method, Method::Post);
    assert_eq!(h.version, Version::Http11);
    assert_eq!(h.target.raw, "/cgi-bin/a%20b?x=1");
    assert_eq!(h.target.path, b"/cgi-bin/a b");
    assert_eq!(h.target.query(), "x=1");
    assert_eq!((h.host.as_str(), h.port), ("example.org", Some(8080)));
    assert_eq!(h.body, BodyLen::Length(5));
    assert!(h.keep_alive && !h.expects_continue);
    let fields: Vec<_> = h.fields.iter().collect();
    assert_eq!(
        fields,
        [
            (&b"Host"[..], &b"Example.ORG:8080"[..]),
            (b"Content-Length", b"5"),
            (b"X", b"")
        ]
    );
}
