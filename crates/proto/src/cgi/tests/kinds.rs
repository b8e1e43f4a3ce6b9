//! Documents and redirects: RFC 3875, 6.1 and 6.2.

use super::*;

#[test]
fn s6_1_lines_end_with_lf_or_crlf_or_both() {
    for head in [
        "Content-Type: a/b\nX: y\n\n",
        "Content-Type: a/b\r\nX: y\r\n\r\n",
        "Content-Type: a/b\r\nX: y\n\r\n",
        "Content-Type: a/b\nX: y\r\n\n",
    ] {
        let fields = pairs([("Content-Type", "a/b"), ("X", "y")]);
        assert_eq!(list(&reply(head).fields), fields);
    }
}

#[test]
fn s6_1_the_body_begins_behind_the_empty_line() {
    let Ok(Parsed::Complete(_, used)) = read(b"Content-Type: a/b\n\n\nX: y\n\n") else {
        panic!()
    };
    assert_eq!(used, 19);
}

#[test]
fn s6_2_1_document() {
    let reply = reply("Content-Type:text/html \nX-Powered-By:\n\n");
    assert_eq!(reply.kind, ReplyKind::Document);
    assert_eq!((reply.status, reply.reason), (200, None));
    let fields = pairs([("Content-Type", "text/html"), ("X-Powered-By", "")]);
    assert_eq!(list(&reply.fields), fields);
}

#[test]
fn s6_2_2_local_redirect_is_a_path_alone() {
    for path in ["/", "/a/b?c=d", "/a%20b", "/a//b", "/a?//b"] {
        for removed in ["", "X-CGI-A: b\n", "Connection: close\n"] {
            let reply = reply(&format!("{removed}LOCATION: {path}\n\n"));
            assert_eq!(reply.kind, ReplyKind::LocalRedirect(path.into()));
            assert!(reply.fields.is_empty());
        }
    }
}

#[test]
fn s6_2_2_another_host_is_never_local() {
    for location in [
        "//evil",
        "//evil/path",
        "///",
        "http://example.org/",
        "HTTPS://example.org/",
        "mailto:a@example.org",
        "page.html",
        "?q=1",
        "../up",
        "/page#part",
        "/a b",
        "/caf\u{e9}",
    ] {
        let reply = reply(&format!("Location: {location}\n\n"));
        assert_eq!(
            (reply.kind, reply.status),
            (ReplyKind::Redirect, 302),
            "{location}"
        );
        assert_eq!(list(&reply.fields), pairs([("Location", location)]));
    }
}

#[test]
fn s6_2_2_no_field_is_lost_beside_a_path() {
    for beside in [
        "Set-Cookie: a=1\n",
        "Content-Type: text/html\n",
        "X: y\n",
        "Content-Length: 0\n",
        "Status: 302\n",
    ] {
        for head in [
            format!("Location: /a\n{beside}\n"),
            format!("{beside}Location: /a\n\n"),
        ] {
            let reply = reply(&head);
            assert_eq!(
                (reply.kind, reply.status),
                (ReplyKind::Redirect, 302),
                "{head:?}"
            );
            assert!(reply.fields.has_field("location"));
        }
    }
}

#[test]
fn s6_2_3_client_redirect_is_302() {
    let reply = reply("Location: http://example.org/\nSet-Cookie: a=1\nSet-Cookie: b=2\n\n");
    assert_eq!((&reply.kind, reply.status), (&ReplyKind::Redirect, 302));
    assert_eq!(
        reply.fields.all_values("set-cookie").collect::<Vec<_>>(),
        [b"a=1", b"b=2"]
    );
    assert_eq!(reply.body_handling(), ReplyBody::Discard);
}

#[test]
fn s6_2_4_client_redirect_with_document_keeps_its_status() {
    let reply = reply("Status: 303 See Other\nLocation: /a\nContent-Type: text/html\n\n");
    assert_eq!((&reply.kind, reply.status), (&ReplyKind::Redirect, 303));
    assert_eq!(reply.reason.as_deref(), Some("See Other"));
    assert_eq!(reply.body_handling(), ReplyBody::Send);
}
