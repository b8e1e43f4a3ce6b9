//! Tests how the fields of a request become variables: RFC 3875, 4.1.18.

use super::*;

#[test]
fn s4_1_18_fields_become_variables() {
    for (name, variable) in [
        ("Accept", "HTTP_ACCEPT"),
        ("accept-LANGUAGE", "HTTP_ACCEPT_LANGUAGE"),
        ("X-Y-Z", "HTTP_X_Y_Z"),
        ("1", "HTTP_1"),
        ("Content-Encoding", "HTTP_CONTENT_ENCODING"),
        ("Range", "HTTP_RANGE"),
        ("LD-PRELOAD", "HTTP_LD_PRELOAD"),
        ("PATH", "HTTP_PATH"),
        ("Proxy-X", "HTTP_PROXY_X"),
    ] {
        assert_eq!(http(&[(name, "v")]), [(variable.into(), "v".into())]);
    }
}

#[test]
fn s4_1_18_repeated_fields_are_joined_in_order() {
    let fields = [
        ("X-A", "1"),
        ("Cookie", "a=1"),
        ("x-a", ""),
        ("X-B", "b"),
        ("COOKIE", "b=2"),
        ("X-A", "3"),
    ];
    let want = [
        ("HTTP_COOKIE", "a=1; b=2"),
        ("HTTP_X_A", "1, , 3"),
        ("HTTP_X_B", "b"),
    ];
    assert_eq!(http(&fields), want.map(|(n, v)| (n.into(), v.into())));
}

#[test]
fn s4_1_18_many_repeated_fields_keep_their_order() {
    // Mixed, and more than a sort would handle by insertion, which keeps the order anyway.
    let numbers: Vec<_> = (0..256).map(|n| n.to_string()).collect();
    let names = ["X-C", "X-A", "X-B"];
    let fields: Vec<_> = (0..256)
        .map(|n| (names[n * 7 % 3], numbers[n].as_str()))
        .collect();
    for (variable, value) in http(&fields) {
        let name = variable.replace("HTTP_X_", "X-");
        let of_name = fields.iter().filter(|f| f.0 == name).map(|f| f.1);
        assert_eq!(value, of_name.collect::<Vec<_>>().join(", "), "{name}");
    }
}

#[test]
fn only_letters_digits_and_hyphens_become_variables() {
    let marks = "!#$%&'*+.^_`|~".chars();
    for name in marks.map(|mark| format!("X{mark}Remote-User")) {
        let alone = head(&[(&name, "evil"), ("Y", "4")]);
        let (env, dropped) = all(&alone, &CONNECTION, &SCRIPT).unwrap();
        assert_eq!(dropped.names, 1, "{name}");
        assert_eq!(env.at("HTTP_Y"), Some("4"));
        assert_eq!(env.0.keys().filter(|n| n.starts_with("HTTP_")).count(), 1);
        // The real field keeps its own value, in either order.
        let want = [("HTTP_X_REMOTE_USER".into(), "ada".into())];
        let real = ("X-Remote-User", "ada");
        assert_eq!(http(&[(&name, "evil"), real]), want, "{name}");
        assert_eq!(http(&[real, (&name, "evil")]), want, "{name}");
    }
    let h = head(&[
        ("X_Forwarded_For", "1"),
        ("_", "2"),
        (".", "3"),
        ("X-Real_IP", "4"),
    ]);
    assert_eq!(all(&h, &CONNECTION, &SCRIPT).unwrap().1.names, 4);
}

#[test]
fn httpoxy_in_every_spelling() {
    for name in ["Proxy", "proxy", "PROXY", "pRoXy"] {
        assert_eq!(http(&[(name, "http://evil")]), [], "{name}");
        assert_eq!(http(&[(name, "a"), ("Proxy", "b")]), [], "{name} twice");
    }
}

#[test]
fn authorization_is_withheld_unless_passed() {
    let fields = [
        ("AUTHORIZATION", "Basic eDp5"),
        ("Proxy-Authorization", "Basic eDp5"),
    ];
    assert_eq!(http(&fields), []);
    let script = Script {
        pass_authorization: true,
        ..SCRIPT
    };
    let (env, _) = all(&head(&fields), &CONNECTION, &script).unwrap();
    assert_eq!(env.at("HTTP_AUTHORIZATION"), Some("Basic eDp5"));
    assert_eq!(env.at("HTTP_PROXY_AUTHORIZATION"), None);
    let twice = head(&[
        ("Authorization", "Basic eDp5"),
        ("Authorization", "Basic eDp6"),
    ]);
    assert!(all(&twice, &CONNECTION, &script).is_err());
}

#[test]
fn s4_1_18_fields_of_the_connection_are_removed() {
    for name in [
        "Connection",
        "Keep-Alive",
        "Proxy-Connection",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Upgrade",
        "HTTP2-Settings",
        "Expect",
        "Content-Length",
        "Transfer.Encoding",
        "Content~Length",
    ] {
        assert_eq!(http(&[(name, "x"), (name, "x")]), [], "{name}");
    }
}

#[test]
fn a_client_cannot_nominate_fields_away() {
    let fields = [
        ("Connection", "Cookie, X-Real-IP, Authorization"),
        ("Cookie", "a=1"),
        ("X-Real-IP", "192.0.2.9"),
    ];
    let want = [("HTTP_COOKIE", "a=1"), ("HTTP_X_REAL_IP", "192.0.2.9")];
    assert_eq!(http(&fields), want.map(|(n, v)| (n.into(), v.into())));
}

#[test]
fn shellshock_values_are_dropped_and_counted() {
    let fields = [
        ("User-Agent", "() { :;}; id"),
        ("X-A", "a"),
        ("X-A", " \t() {"),
        ("Content-Type", "() { x"),
        ("Connection", "() { :;}"),
        ("X-B", "(){"),
        ("X-C", "x() {"),
    ];
    let (env, dropped) = all(&head(&fields), &CONNECTION, &SCRIPT).unwrap();
    assert_eq!(dropped.shellshock, 3);
    assert_eq!(env.at("HTTP_X_A"), Some("a"));
    assert_eq!(env.at("HTTP_X_B"), Some("(){"));
    assert_eq!(env.at("HTTP_X_C"), Some("x() {"));
    assert_eq!(
        (env.at("HTTP_USER_AGENT"), env.at("CONTENT_TYPE")),
        (None, None)
    );

    let script = Script {
        drop_shellshock: false,
        ..SCRIPT
    };
    let (env, dropped) = all(&head(&fields), &CONNECTION, &script).unwrap();
    assert_eq!(dropped.shellshock, 0);
    assert_eq!(env.at("HTTP_USER_AGENT"), Some("() { :;}; id"));
    assert_eq!(env.at("HTTP_X_A"), Some("a,  \t() {"));
}

#[test]
fn a_value_with_nul_is_refused() {
    assert_eq!(refused(&[("X", "a\0b")]).as_deref(), Some("HTTP_X"));
    assert_eq!(
        refused(&[("Content-Type", "a\0")]).as_deref(),
        Some("HTTP_CONTENT_TYPE")
    );
}
