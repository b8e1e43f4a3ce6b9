use proptest::prelude::*;

use super::*;
use crate::target::target_error::PERCENT;

fn parse(raw: &str) -> Result<Target, HeadError> {
    Target::parse(raw.as_bytes(), 1000)
}

#[track_caller]
fn refused(why: HeadError, targets: &[&str]) {
    for raw in targets {
        assert_eq!(parse(raw), Err(why), "{raw}");
    }
}

#[test]
fn s3_2_1_origin_form_is_decoded_once() {
    for (raw, path, query) in [
        ("/", "/", None),
        ("/a%20b", "/a b", None),
        ("/%252e%252e/x", "/%2e%2e/x", None),
        ("/caf%C3%a9", "/caf\u{e9}", None),
        ("//evil/x", "/evil/x", None),
        ("/a//b/", "/a/b/", None),
        ("/a;v=1/..;/b", "/a;v=1/..;/b", None),
        ("/.../.a/a./..a", "/.../.a/a./..a", None),
        ("/%5c", "/\\", None),
        ("/?", "/", Some("")),
        ("/a?b=c?d", "/a", Some("b=c?d")),
        ("/a?/../%2f%00%0a%2e%2e", "/a", Some("/../%2f%00%0a%2e%2e")),
        ("/%3f?x", "/?", Some("x")),
        ("/a?q[]={|}", "/a", Some("q[]={|}")),
        ("/a?%", "/a", Some("%")),
        ("/a?x=100%&y", "/a", Some("x=100%&y")),
        ("/a?%4", "/a", Some("%4")),
    ] {
        let t = parse(raw).unwrap();
        assert_eq!(t.raw, raw);
        assert_eq!(t.path(), path.as_bytes(), "{raw}");
        assert_eq!(t.query_at.map(|_| t.query()), query, "{raw}");
        assert_eq!(t.authority(), None);
    }
}

#[test]
fn s3_2_2_absolute_form_loses_its_authority() {
    for (raw, rest, authority) in [
        ("http://a", "/", "a"),
        ("http://a/", "/", "a"),
        ("HTTP://A.b:80//x?y", "//x?y", "A.b:80"),
        ("https://[::1]:1/x", "/x", "[::1]:1"),
        ("http://a?x=http://b/", "/?x=http://b/", "a"),
    ] {
        let t = parse(raw).unwrap();
        assert_eq!((t.raw.as_str(), t.authority()), (rest, Some(authority)));
        assert!(t.path().starts_with(b"/"));
    }
    assert_eq!(parse("http://a?x=1").unwrap().query(), "x=1");
}

#[test]
fn other_forms_are_refused() {
    refused(
        FORM,
        &[
            "",
            "a",
            "a/b",
            "**",
            "*/",
            "*?x",
            "?x",
            "http:/a",
            "http:",
            "http://",
            "http:///x",
            "http://?x",
            "http://a:/",
            "http://a:x/",
            "http://u@a/",
            "http://u:p@a/",
            "ftp://a/",
            "file:///etc/passwd",
            "a:80",
            "ws://a/",
            "httpx://a/",
            "http://a%2fb/",
            "\\a",
        ],
    );
}

#[test]
fn s3_2_4_asterisk_form() {
    let t = parse("*").unwrap();
    assert_eq!((t.raw.as_str(), t.path(), t.query()), ("*", &b"*"[..], ""));
}

#[test]
fn bytes_that_no_target_holds() {
    refused(
        BYTE,
        &[
            "/#", "/a?b#c", "/ ", "/a?b c", "/\t", "/\0", "/\x7f", "/\x1f", "/\u{e9} ", "#",
        ],
    );
}

#[test]
fn bytes_above_0x7f_count_as_if_percent_encoded() {
    for (raw, encoded, path, query) in [
        (&b"/?q=\xc3\xa4"[..], "/?q=%C3%A4", &b"/"[..], "q=%C3%A4"),
        (b"/caf\xc3\xa9//x", "/caf%C3%A9//x", b"/caf\xc3\xa9/x", ""),
        (b"/\xff?\x80%e4", "/%FF?%80%e4", b"/\xff", "%80%e4"),
        (b"http://a/\xe4", "/%E4", b"/\xe4", ""),
    ] {
        let t = Target::parse(raw, 99).unwrap();
        assert_eq!(
            (t.raw.as_str(), t.path(), t.query()),
            (encoded, path, query)
        );
    }
    refused(FORM, &["http://\u{e4}/", "\u{e4}"]);
    // Variables of programs are no longer than the limit either.
    assert_eq!(Target::parse(b"/\xff", 3), Err(TOO_LONG));
    assert!(Target::parse(b"/\xff", 4).is_ok());
}

#[test]
fn an_encoded_slash_counts_as_one_where_it_is_taken() {
    for (raw, clean, came) in [
        ("/a%2Fb", "/a/b", "/a/b"),
        ("/a%2f%2Fb", "/a/b", "/a//b"),
        ("/%2Fadmin", "/admin", "//admin"),
        ("/x%2F..%2Fadmin%2fy", "/admin/y", "/admin/y"),
        ("/a%252Fb", "/a%2Fb", "/a%2Fb"),
    ] {
        let t = Target::parse_with(raw.as_bytes(), 99, true).unwrap();
        let came_as = t.url_path().came;
        assert_eq!(
            (t.path(), came_as),
            (clean.as_bytes(), came.as_bytes()),
            "{raw}"
        );
    }
    let dots = Target::parse_with(b"/..%2Fx", 99, true);
    assert_eq!(dots, Err(DOT_SEGMENT));
    let nul = Target::parse_with(b"/%2F%00", 99, true);
    assert_eq!(nul, Err(PERCENT));
}

#[test]
fn percent_that_is_broken_or_hides_something() {
    refused(
        PERCENT,
        &[
            "/%",
            "/%4",
            "/%zz",
            "/%4z",
            "/%+1",
            "/%%41",
            "/%u0041",
            "/%2f",
            "/%2F",
            "/a%2fb",
            "/..%2f",
            "/%00",
            "/a%00.cgi",
            "/%0a",
            "/%0d",
            "/%1f",
            "/%7f",
            "/%09",
        ],
    );
}

/// The raw target, the clean path, the path with its slashes, and the URI that programs see.
#[test]
fn every_spelling_has_one_clean_path() {
    for (raw, clean, came, uri) in [
        ("//", "/", "//", "//"),
        ("//admin//x", "/admin/x", "//admin//x", "//admin//x"),
        ("/a/b///", "/a/b/", "/a/b///", "/a/b///"),
        ("/%61dmin//x?y", "/admin/x", "/admin//x", "/%61dmin//x?y"),
        ("/.", "/", "/", "/"),
        ("//.", "/", "/", "/"),
        ("/./", "/", "/", "/"),
        ("/a/.", "/a/", "/a/", "/a/"),
        ("/a/..", "/", "/", "/"),
        ("/a/b/..", "/a/", "/a/", "/a/"),
        ("/a/b/../", "/a/", "/a/", "/a/"),
        ("/./a/./b", "/a/b", "/a/b", "/a/b"),
        ("/a/../b", "/b", "/b", "/b"),
        ("/a/b/../../c", "/c", "/c", "/c"),
        ("/x//../admin/", "/admin/", "/admin/", "/admin/"),
        ("/a//b//../c", "/a/c", "/a/c", "/a/c"),
        ("/a//./b", "/a/b", "/a/b", "/a/b"),
        ("/.//evil/x", "/evil/x", "//evil/x", "//evil/x"),
        ("/a/%2e%2E/b?..", "/b", "/b", "/b?.."),
        (
            "/a/.%2e/b c%20".replace(' ', "%20").as_str(),
            "/b c ",
            "/b c ",
            "/b%20c%20",
        ),
        (
            "/a/../%C3%A4;b=@:!",
            "/\u{e4};b=@:!",
            "/\u{e4};b=@:!",
            "/%C3%A4;b=@:!",
        ),
        ("http://h//a/../b", "/b", "/b", "/b"),
        (
            "/.../..a/.b./a.",
            "/.../..a/.b./a.",
            "/.../..a/.b./a.",
            "/.../..a/.b./a.",
        ),
        ("/a?/../b//c", "/a", "/a", "/a?/../b//c"),
    ] {
        let t = parse(raw).unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let got = (text(t.path()), text(t.url_path().came), t.request_uri());
        assert_eq!(got, (clean.into(), came.into(), uri), "{raw}");
    }
}

#[test]
fn above_the_root() {
    refused(
        DOT_SEGMENT,
        &[
            "/..",
            "/../",
            "/../a",
            "//..//",
            "/a/../..",
            "/a//../../b",
            "/a/../../a",
            "/./..",
            "/%2E%2e",
            "/.%2e/a",
            "/%2e./a",
            "/..?x",
            "http://a/..",
        ],
    );
}

/// The path, the length of SCRIPT_NAME in the clean path, and both parts.
#[test]
fn path_info_keeps_the_slashes_that_came() {
    for (raw, script_name, path_info) in [
        ("/a", "/a", ""),
        ("/a/b", "/a", "/b"),
        ("/a//b///c/", "/a", "//b///c/"),
        ("//a//b//c", "/a", "//b//c"),
        ("///a///b//c", "/a/b", "//c"),
        ("//a//b", "/a/b", ""),
        ("//a//b//", "/a/b", "//"),
        ("/a/./b//c", "/a/b", "//c"),
        ("/a/x/../b//c", "/a", "/b//c"),
        // An empty SCRIPT_NAME: the program's own path must not become another host.
        ("/a//b", "", "/a//b"),
        ("//a//b", "", "/a//b"),
        ("////", "", "/"),
        ("/.//a//b", "", "/a//b"),
    ] {
        let t = parse(raw).unwrap();
        let got = t.url_path().split_at(script_name.len()).unwrap();
        let want = (script_name.as_bytes(), path_info.as_bytes());
        assert_eq!(got, want, "{raw}");
    }
    let t = parse("//a//").unwrap();
    assert!(t.url_path().split_at(4).is_none());
    assert!(parse("/a").unwrap().url_path().split_at(3).is_none());
}

#[test]
fn who_judges_by_the_uri_is_given_the_clean_one() {
    for (raw, canonical) in [
        ("/a/b?c", "/a/b?c"),
        ("//%61dmin/./x?", "/admin/x?"),
        ("/y/../%7eu/a%20b", "/~u/a%20b"),
    ] {
        assert_eq!(parse(raw).unwrap().canonical(), canonical, "{raw}");
    }
}

/// Values of a server in front of us: the URI it was asked, the path that it found, the URI for programs.
#[test]
fn passed_on_by_a_front() {
    let passed = |uri: &str, path: &str| {
        let path = path.as_bytes().to_vec();
        Target::from_gateway(Some(uri.as_bytes()), path, None, 1000, false)
    };
    for (uri, path, clean, seen) in [
        ("/a//b?c", "/a//b", "/a/b", "/a//b?c"),
        ("/pretty?c", "/index.cgi", "/index.cgi", "/pretty?c"),
        ("/admin/../x?c", "/x", "/x", "/x?c"),
        ("/admin%2F..%2Fx", "/x", "/x", "/x"),
        ("/a%zz", "/x", "/x", "/a%zz"),
    ] {
        let t = passed(uri, path).unwrap();
        assert_eq!(
            (t.path(), t.request_uri()),
            (clean.as_bytes(), seen),
            "{uri}"
        );
    }
    assert_eq!(passed("/../x", "/x"), Err(DOT_SEGMENT));
    assert_eq!(passed("/x", "/a/../x"), Err(DOT_SEGMENT));
}

#[test]
fn longer_than_the_limit() {
    assert_eq!(Target::parse(b"/234", 3), Err(TOO_LONG));
    assert!(Target::parse(b"/234", 4).is_ok());
    assert_eq!(Target::parse(b"/\0 too", 3), Err(TOO_LONG));
}

#[test]
fn s3_2_hosts_and_ports() {
    for (raw, host, port) in [
        ("a", "a", None),
        ("A_b-c.Example.", "a_b-c.example", None),
        (
            "xn--bcher-kva.example:65535",
            "xn--bcher-kva.example",
            Some(65535),
        ),
        ("127.0.0.1:00080", "127.0.0.1", Some(80)),
        ("3com.example", "3com.example", None),
        ("[::1]", "[::1]", None),
        ("[2001:DB8::0:1]:8080", "[2001:db8::1]", Some(8080)),
        ("[::ffff:1.2.3.4]", "[::ffff:1.2.3.4]", None),
    ] {
        let host = host.to_owned();
        assert_eq!(
            Authority::parse(raw.as_bytes()),
            Some(Authority {
                host: host.into(),
                port
            }),
            "{raw}"
        );
    }
    let long = "a".repeat(255);
    for raw in [
        "",
        ":",
        ":80",
        "a:",
        "a:0",
        "a:65536",
        "a:000080",
        "a:+80",
        "a:-1",
        "a:8 0",
        "a:80:80",
        "a:x",
        ".",
        "..",
        ".a",
        "a..",
        "a..b",
        "a b",
        "a/b",
        "a\\b",
        "a@b",
        "a,b",
        "a%41",
        "a'b",
        "a<b",
        "a#",
        "a?b",
        "a\0",
        "\u{e9}",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "127.1",
        "2130706433",
        "01.2.3.4",
        "::1",
        "[::1",
        "[::1]x",
        "[::1]80",
        "[]",
        "[::1%25eth0]",
        "[v1.a]",
        "[1.2.3.4]",
        "a[::1]",
        "[::1]:",
        &long,
    ] {
        assert_eq!(Authority::parse(raw.as_bytes()), None, "{raw}");
    }
}

proptest! {
    #[test]
    fn a_path_that_was_encoded_comes_back(
        segments in prop::collection::vec(
            prop::collection::vec(0x20u8.., 1..12), 1..6,
        ),
        all in any::<bool>(),
    ) {
        let mut raw = String::new();
        let mut path = Vec::new();
        for s in &segments {
            raw.push('/');
            path.push(b'/');
            for &b in s.iter().filter(|&&b| b != b'/' && b != 0x7f) {
                path.push(b);
                if all || !(b.is_ascii_alphanumeric() || b == b'.') {
                    raw.push_str(&format!("%{b:02x}"));
                } else {
                    raw.push(char::from(b));
                }
            }
        }
        let dots = path.split(|&b| b == b'/').any(|s| s == b"." || s == b"..");
        match parse(&raw) {
            Ok(t) if dots => prop_assert!(!has_dots(t.path())),
            Ok(t) => prop_assert_eq!(t.url_path().came, path),
            Err(e) => prop_assert!(dots && e == DOT_SEGMENT),
        }
    }

    #[test]
    fn what_is_taken_is_harmless(raw in "(http://a)?/([a.%/;?#]|%2[ef05]|%00|%41){0,12}") {
        if let Ok(t) = parse(&raw) {
            prop_assert!(!t.path().iter().any(u8::is_ascii_control));
            for path in [t.path(), t.url_path().came] {
                prop_assert!(path.starts_with(b"/"));
                prop_assert!(!path.split(|&b| b == b'/').any(|s| s == b"." || s == b".."));
            }
            prop_assert!(memchr::memmem::find(t.path(), b"//").is_none());
            // The URI for programs, and the URI for authorizers, mean the same path.
            for uri in [t.request_uri(), &t.canonical()] {
                let again = parse(uri).unwrap();
                prop_assert_eq!((again.path(), again.query()), (t.path(), t.query()));
                prop_assert!(again.request_uri() == again.raw);
            }
            // At every cut, both parts together are the path.
            for at in (0..=t.path().len()).filter(|&at| at == 0 || t.path()[at - 1] != b'/') {
                let (script_name, info) = t.url_path().split_at(at).unwrap();
                let whole = [script_name, info].concat();
                prop_assert_eq!(merge_slashes(&whole).unwrap_or(whole), t.path());
            }
        }
    }
}
