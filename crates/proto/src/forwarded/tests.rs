use proptest::prelude::*;

use super::*;

fn trusted(fields: &[ForwardedField]) -> Trusted {
    let block = |t: &&str| Block::parse(t).unwrap();
    Trusted {
        blocks: ["10.0.0.0/8", "192.0.2.7", "fd00::/8"]
            .iter()
            .map(block)
            .collect(),
        unix: true,
        fields: fields.to_vec(),
    }
}

const X: [ForwardedField; 4] = [
    ForwardedField::For,
    ForwardedField::Proto,
    ForwardedField::Host,
    ForwardedField::Port,
];

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in lines {
        fields.push(name, value);
    }
    fields
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

fn x(lines: &[(&str, &str)]) -> Result<Option<ForwardedParams>, Unreadable> {
    trusted(&X).forwarded_params(&fields(lines), ip("10.1.1.1"))
}

fn f(line: &str) -> Result<Option<ForwardedParams>, Unreadable> {
    trusted(&[ForwardedField::Forwarded])
        .forwarded_params(&fields(&[("Forwarded", line)]), ip("10.1.1.1"))
}

#[test]
fn blocks() {
    let table = [
        ("10.0.0.0/8", "10.255.0.1", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.0.0.0/8", "::ffff:10.0.0.1", true),
        ("0.0.0.0/0", "203.0.113.1", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("::/0", "2001:db8::1", true),
        ("::1", "::1", true),
        ("::1", "::2", false),
        ("2001:db8::/33", "2001:db8:8000::1", false),
        ("192.0.2.1/32", "192.0.2.1", true),
    ];
    for (block, address, inside) in table {
        let block = Block::parse(block).unwrap();
        assert_eq!(
            block.contains(address.parse().unwrap()),
            inside,
            "{block:?} {address}"
        );
    }
    for bad in [
        "10.0.0.1/8",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "a",
        "",
        "10/8",
        "::1/0008",
    ] {
        assert_eq!(Block::parse(bad), None, "{bad}");
    }
}

#[test]
fn who_is_not_trusted_says_nothing() {
    let lines = fields(&[
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=1.2.3.4;proto=https"),
    ]);
    for all in [&X[..], &[ForwardedField::Forwarded]] {
        let trusted = trusted(all);
        assert_eq!(
            trusted.forwarded_params(&lines, ip("203.0.113.9")),
            Ok(None)
        );
        assert_eq!(trusted.forwarded_params(&lines, ip("::1")), Ok(None));
        assert!(
            trusted
                .forwarded_params(&lines, ip("fd00::1"))
                .unwrap()
                .is_some()
        );
        assert!(trusted.forwarded_params(&lines, None).unwrap().is_some());
        let tcp_only = Trusted {
            unix: false,
            ..trusted
        };
        assert_eq!(tcp_only.forwarded_params(&lines, None), Ok(None));
        // Garbage from an untrusted peer is not even an error.
        let garbage = fields(&[("X-Forwarded-For", "\"<"), ("Forwarded", "=\"")]);
        assert_eq!(
            tcp_only.forwarded_params(&garbage, ip("203.0.113.9")),
            Ok(None)
        );
    }
}

#[test]
fn a_field_that_is_not_named_is_not_read() {
    let lines = fields(&[
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("Forwarded", "for=5.6.7.8"),
    ]);
    let only_for = trusted(&[ForwardedField::For])
        .forwarded_params(&lines, None)
        .unwrap()
        .unwrap();
    assert_eq!(
        only_for,
        ForwardedParams {
            client: ip("1.2.3.4"),
            ..ForwardedParams::default()
        }
    );
    let only_forwarded = trusted(&[ForwardedField::Forwarded])
        .forwarded_params(&lines, None)
        .unwrap()
        .unwrap();
    assert_eq!(only_forwarded.client, ip("5.6.7.8"));
    assert_eq!(only_forwarded.https, None);
}

#[test]
fn the_walk_goes_from_the_right_to_the_first_stranger() {
    let table = [
        ("203.0.113.1", "203.0.113.1"),
        ("1.1.1.1, 203.0.113.1", "203.0.113.1"),
        ("1.1.1.1,203.0.113.1,10.0.0.9", "203.0.113.1"),
        // Entries to the left of the client were written by the client.
        ("\"garbage\", <, 203.0.113.1, 10.0.0.9", "203.0.113.1"),
        ("10.0.0.1, 10.0.0.2", "10.0.0.1"),
        ("203.0.113.1:4711", "203.0.113.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:80", "2001:db8::1"),
        ("::ffff:203.0.113.1", "203.0.113.1"),
        ("::ffff:10.0.0.3, 192.0.2.7", "10.0.0.3"),
        ("unknown, 10.0.0.9", "10.0.0.9"),
        ("1.1.1.1, _hidden, 10.0.0.9", "10.0.0.9"),
    ];
    for (list, client) in table {
        assert_eq!(
            x(&[("X-Forwarded-For", list)]).unwrap().unwrap().client,
            ip(client),
            "{list}"
        );
    }
    let lines = [
        ("X-Forwarded-For", "1.1.1.1"),
        ("X-Forwarded-For", "203.0.113.5"),
    ];
    assert_eq!(x(&lines).unwrap().unwrap().client, ip("203.0.113.5"));
    let port = x(&[("X-Forwarded-For", "203.0.113.1:4711")])
        .unwrap()
        .unwrap()
        .client_port;
    assert_eq!(port, Some(4711));
    assert_eq!(x(&[("X-Forwarded-For", "unknown")]), Ok(None));
}

#[test]
fn what_a_trusted_proxy_writes_and_cannot_be_read_is_refused() {
    let table = [
        ("X-Forwarded-For", ""),
        ("X-Forwarded-For", "1.2.3.4,"),
        ("X-Forwarded-For", "1.2.3.4,,10.0.0.1"),
        ("X-Forwarded-For", "example.org"),
        ("X-Forwarded-For", "1.2.3"),
        ("X-Forwarded-For", "1.2.3.4:"),
        ("X-Forwarded-For", "1.2.3.4:99999"),
        ("X-Forwarded-For", "[1.2.3.4]"),
        ("X-Forwarded-For", "\"1.2.3.4\""),
        ("X-Forwarded-For", "10.0.0.1 10.0.0.2"),
        ("X-Forwarded-Proto", "ftp"),
        ("X-Forwarded-Proto", "https,http"),
        ("X-Forwarded-Host", "a b"),
        ("X-Forwarded-Host", "user@a"),
        ("X-Forwarded-Port", "0"),
        ("X-Forwarded-Port", "+1"),
    ];
    for (name, value) in table {
        assert_eq!(
            x(&[(name, value)]),
            Err(Unreadable(name)),
            "{name}: {value}"
        );
    }
}

#[test]
fn scheme_host_and_port() {
    let said = |lines: &[(&str, &str)]| x(lines).unwrap().unwrap();
    let o = said(&[
        ("X-Forwarded-Proto", "HTTPS"),
        ("X-Forwarded-Host", "WWW.example.org"),
    ]);
    assert_eq!((o.https, o.server_port()), (Some(true), Some(443)));
    assert_eq!(&*o.host.unwrap().host, "www.example.org");
    let o = said(&[
        ("X-Forwarded-Host", "a:8443"),
        ("X-Forwarded-Proto", "https"),
    ]);
    assert_eq!(o.server_port(), Some(8443));
    let o = said(&[("X-Forwarded-Port", "81"), ("X-Forwarded-Host", "a:8443")]);
    assert_eq!(o.server_port(), Some(81));
    assert_eq!(said(&[("X-Forwarded-For", "1.1.1.1")]).server_port(), None);
    // If there are as many elements as hops, the element of the hop that saw the client counts.
    let hops = ("X-Forwarded-For", "9.9.9.9, 203.0.113.1, 10.0.0.2");
    let o = said(&[hops, ("X-Forwarded-Proto", "http, https, http")]);
    assert_eq!(o.https, Some(true));
    let mismatch = [hops, ("X-Forwarded-Proto", "https, http")];
    assert_eq!(x(&mismatch), Err(Unreadable("X-Forwarded-Proto")));
}

#[test]
fn rfc7239_4_elements() {
    let said = |line: &str| f(line).unwrap().unwrap();
    let o = said("for=192.0.2.43;proto=https;host=\"example.org:444\";by=10.0.0.1");
    assert_eq!((o.client, o.https), (ip("192.0.2.43"), Some(true)));
    assert_eq!(o.server_port(), Some(444));
    assert_eq!(
        said("For=\"[2001:db8:cafe::17]:4711\"").client_port,
        Some(4711)
    );
    assert_eq!(said("for=\"1.2.3.4:_odd\"").client, ip("1.2.3.4"));
    assert_eq!(
        said("for=9.9.9.9, for=198.51.100.17;proto=http, for=10.0.0.1").client,
        ip("198.51.100.17")
    );
    assert_eq!(
        said("for=\"\\1.2.3.4\" ; ext=\"a,b;c\"").client,
        ip("1.2.3.4")
    );
    assert_eq!(f("for=unknown"), Ok(None));
    assert_eq!(
        said("for=9.9.9.9;proto=https, for=_a, for=10.0.0.1").client,
        ip("10.0.0.1")
    );
    // The scheme comes from the outermost believed hop.
    assert_eq!(
        said("for=203.0.113.1;proto=https, for=10.0.0.1;proto=http").https,
        Some(true)
    );
}

#[test]
fn rfc7239_4_what_breaks_the_grammar_is_refused() {
    for line in [
        "",
        "for",
        "for=",
        "for=1.2.3.4;",
        "for=1.2.3.4,",
        ",for=1.2.3.4",
        "for = 1.2.3.4",
        "for=\"1.2.3.4",
        "for=\"a, for=1.2.3.4",
        "for=2001:db8::1",
        "for=1.2.3.4;for=1.2.3.4",
        "for=1.2.3.4 for=1.2.3.4",
        "proto=gopher",
        "host=\"a b\"",
        "for=\"x\"y",
        "for=example.org",
    ] {
        assert_eq!(f(line), Err(Unreadable("Forwarded")), "{line}");
    }
}

proptest! {
    /// Text that a client puts in front of the proxy's entry is never taken for the client.
    #[test]
    fn nothing_in_front_counts(garbage in "[ -~]{0,40}") {
        let list = format!("{garbage}, 203.0.113.1, 10.0.0.9");
        let o = x(&[("X-Forwarded-For", &list)]).unwrap().unwrap();
        prop_assert_eq!(o.client, ip("203.0.113.1"));
        // A quote that is left open is refused instead.
        match f(&format!("{garbage}, for=203.0.113.1, for=10.0.0.9")) {
            Err(_) => {}
            Ok(o) => prop_assert_eq!(o.unwrap().client, ip("203.0.113.1")),
        }
    }

    #[test]
    fn no_input_panics(a in "\\PC{0,60}", b in "[a-z0-9=\",;:\\[\\]._\\\\-]{0,60}") {
        for line in [a, b] {
            let _ = f(&line);
            let _ = x(&[("X-Forwarded-For", &line), ("X-Forwarded-Host", &line)]);
            let _ = Block::parse(&line);
        }
    }
}
