use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::h1::{BodyLen, Method, Version};
use crate::{Fields, target::Target};

mod fields;

/// The variables as text; a variable put twice fails the test.
#[derive(Debug, Default, PartialEq)]
struct Env(BTreeMap<String, String>);

impl Sink for Env {
    fn put_variable(&mut self, name: &[u8], value: &[u8]) {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        assert!(!name.is_empty() && !name.contains(&b'=') && !name.contains(&0));
        assert!(!value.contains(&0));
        let before = self.0.insert(text(name), text(value));
        assert!(before.is_none(), "{} twice", text(name));
    }
}

impl Env {
    fn at(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

fn head(fields: &[(&str, &str)]) -> Head {
    let mut list = Fields::new();
    for (name, value) in fields {
        list.push(name, value);
    }
    Head {
        method: Method::Get,
        target: Target::from_decoded(
            "/cgi-bin/a.cgi/x%20y?q=1".into(),
            Some(21),
            b"/cgi-bin/a.cgi/x y".to_vec(),
        ),
        version: Version::Http11,
        fields: list,
        host: "example.org".into(),
        port: Some(9),
        body: BodyLen::None,
        expects_continue: false,
        keep_alive: true,
    }
}

const CONNECTION: ConnectionVars<'_> = ConnectionVars {
    remote_addr: "192.0.2.1",
    remote_port: Some(40000),
    server_addr: "192.0.2.2",
    server_port: 8080,
    https: false,
    tls: None,
};

const UNIX: ConnectionVars<'_> = ConnectionVars {
    remote_addr: "",
    remote_port: None,
    server_addr: "",
    server_port: 0,
    https: false,
    tls: None,
};

const SCRIPT: Script<'_> = Script {
    script_name: b"/cgi-bin/a.cgi",
    path_info: b"/x y",
    path_translated: Some(b"/srv/public/x y"),
    script_filename: b"/srv/cgi-bin/a.cgi",
    document_root: b"/srv/public",
    unique_id: "id-1",
    content_length: None,
    user: None,
    pass_authorization: false,
    drop_shellshock: true,
    upgrade: false,
};

fn all(
    head: &Head,
    conn: &ConnectionVars<'_>,
    script: &Script<'_>,
) -> Result<(Env, Dropped), Ambiguous> {
    let mut env = Env::default();
    let s = ServerVars {
        redirect_status: b"200",
        software: "galgo/0.1.0",
        path: "/usr/bin:/bin",
    };
    put_server(&s, &mut env);
    put_connection(conn, &mut env);
    let dropped = put_request(head, conn, script, &mut env)?;
    Ok((env, dropped))
}

fn of(fields: &[(&str, &str)]) -> Env {
    all(&head(fields), &CONNECTION, &SCRIPT).unwrap().0
}

/// Returns the variables that fields become.
fn http(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let env = of(fields).0.into_iter();
    env.filter(|(name, _)| name.starts_with("HTTP_") || name == "CONTENT_TYPE")
        .collect()
}

fn refused(fields: &[(&str, &str)]) -> Option<String> {
    all(&head(fields), &CONNECTION, &SCRIPT).err().map(|e| e.0)
}

#[test]
fn s4_1_the_whole_environment_is_the_documented_list() {
    let env = of(&[("Host", "example.org:9"), ("Accept", "*/*")]);
    let lines: Vec<_> = env.0.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let want = [
        "DOCUMENT_ROOT=/srv/public",
        "GATEWAY_INTERFACE=CGI/1.1",
        "HTTP_ACCEPT=*/*",
        "HTTP_HOST=example.org:9",
        "PATH=/usr/bin:/bin",
        "PATH_INFO=/x y",
        "PATH_TRANSLATED=/srv/public/x y",
        "QUERY_STRING=q=1",
        "REDIRECT_STATUS=200",
        "REMOTE_ADDR=192.0.2.1",
        "REMOTE_HOST=192.0.2.1",
        "REMOTE_PORT=40000",
        "REQUEST_METHOD=GET",
        "REQUEST_SCHEME=http",
        "REQUEST_URI=/cgi-bin/a.cgi/x%20y?q=1",
        "SCRIPT_FILENAME=/srv/cgi-bin/a.cgi",
        "SCRIPT_NAME=/cgi-bin/a.cgi",
        "SERVER_ADDR=192.0.2.2",
        "SERVER_NAME=example.org",
        "SERVER_PORT=8080",
        "SERVER_PROTOCOL=HTTP/1.1",
        "SERVER_SOFTWARE=galgo/0.1.0",
        "UNIQUE_ID=id-1",
    ];
    assert_eq!(lines, want);
}

#[test]
fn s4_1_names_lists_exactly_what_can_be_set() {
    let conn = ConnectionVars {
        https: true,
        tls: Some(TlsVars {
            protocol: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            server_name: Some("a.example"),
            asked: true,
            client: Some(ClientVars {
                subject: "CN=ada",
                common_name: Some("ada"),
                issuer: "CN=authority",
                serial: "01",
                start: "Nov 22 20:36:02 2026 GMT",
                end: "Nov 22 20:36:02 2027 GMT",
            }),
        }),
        ..CONNECTION
    };
    let script = Script {
        content_length: Some(1),
        user: Some(("ada", "Basic")),
        ..SCRIPT
    };
    let (env, _) = all(&head(&[("Content-Type", "a/b")]), &conn, &script).unwrap();
    assert_eq!(env.0.keys().collect::<Vec<_>>(), NAMES);
    assert!(NAMES.is_sorted());
}

#[test]
fn s4_1_1_auth_type_and_s4_1_11_remote_user_from_verified_authentication_only() {
    let basic = [("Authorization", "Basic eDp5"), ("Remote-User", "root")];
    let env = of(&basic);
    assert_eq!((env.at("REMOTE_USER"), env.at("AUTH_TYPE")), (None, None));
    let script = Script {
        user: Some(("ada", "Basic")),
        ..SCRIPT
    };
    let (env, _) = all(&head(&basic), &CONNECTION, &script).unwrap();
    assert_eq!(env.at("REMOTE_USER"), Some("ada"));
    assert_eq!(env.at("AUTH_TYPE"), Some("Basic"));
}

#[test]
fn s4_1_2_content_length_only_when_known() {
    // The field does not decide: a chunked body has no length, a spooled body has its own.
    assert_eq!(of(&[("Content-Length", "7")]).at("CONTENT_LENGTH"), None);
    for (length, want) in [(0, "0"), (10, "10"), (u64::MAX, "18446744073709551615")] {
        let script = Script {
            content_length: Some(length),
            ..SCRIPT
        };
        let (env, _) = all(&head(&[]), &CONNECTION, &script).unwrap();
        assert_eq!(env.at("CONTENT_LENGTH"), Some(want));
    }
}

#[test]
fn s4_1_3_content_type_only_from_the_one_field() {
    assert_eq!(of(&[]).at("CONTENT_TYPE"), None);
    assert_eq!(
        http(&[("content-TYPE", "text/plain; charset=utf-8")]),
        [("CONTENT_TYPE".into(), "text/plain; charset=utf-8".into())]
    );
    let twice = [("Content-Type", "a/b"), ("content-type", "a/b")];
    assert_eq!(refused(&twice).as_deref(), Some("CONTENT_TYPE"));
    assert_eq!(http(&[("Content.Type", "a/b")]), []);
    let both = [("Content.Type", "a/b"), ("Content-Type", "c/d")];
    assert_eq!(http(&both), [("CONTENT_TYPE".into(), "c/d".into())]);
}

#[test]
fn s4_1_5_and_s4_1_6_no_path_info_no_path_translated() {
    let script = Script {
        path_info: b"",
        ..SCRIPT
    };
    let (env, _) = all(&head(&[]), &CONNECTION, &script).unwrap();
    assert_eq!(
        (env.at("PATH_INFO"), env.at("PATH_TRANSLATED")),
        (None, None)
    );
}

#[test]
fn s4_1_7_query_string_is_always_set() {
    let mut h = head(&[]);
    h.target.raw.truncate(20);
    h.target.query_at = None;
    let (env, _) = all(&h, &CONNECTION, &SCRIPT).unwrap();
    assert_eq!(env.at("QUERY_STRING"), Some(""));
    assert_eq!(env.at("REQUEST_URI"), Some("/cgi-bin/a.cgi/x%20y"));
}

#[test]
fn s4_1_12_request_method_and_s4_1_16_server_protocol_as_they_came() {
    let mut h = head(&[]);
    h.method = Method::Other("PROPFIND".into());
    h.version = Version::Http10;
    let (env, _) = all(&h, &CONNECTION, &SCRIPT).unwrap();
    assert_eq!(env.at("REQUEST_METHOD"), Some("PROPFIND"));
    assert_eq!(env.at("SERVER_PROTOCOL"), Some("HTTP/1.0"));
}

#[test]
fn s4_1_14_server_name_is_the_host_or_the_address() {
    for (host, addr, want) in [
        ("a.example", "192.0.2.2", "a.example"),
        ("[2001:db8::1]", "192.0.2.2", "[2001:db8::1]"),
        ("2001:db8::1", "192.0.2.2", "[2001:db8::1]"),
        ("", "192.0.2.2", "192.0.2.2"),
        ("", "2001:db8::2", "[2001:db8::2]"),
        ("", "", "localhost"),
    ] {
        let mut h = head(&[]);
        h.host = host.into();
        let conn = ConnectionVars {
            server_addr: addr,
            ..CONNECTION
        };
        let (env, _) = all(&h, &conn, &SCRIPT).unwrap();
        assert_eq!(env.at("SERVER_NAME"), Some(want));
    }
}

#[test]
fn s4_1_15_server_port_is_the_port_listened_on() {
    // The Host of `head` says 9.
    assert_eq!(of(&[]).at("SERVER_PORT"), Some("8080"));
    let mut h = head(&[]);
    for (port, https, want) in [
        (Some(9), false, "9"),
        (None, false, "80"),
        (None, true, "443"),
    ] {
        h.port = port;
        let conn = ConnectionVars { https, ..UNIX };
        let (env, _) = all(&h, &conn, &SCRIPT).unwrap();
        assert_eq!(env.at("SERVER_PORT"), Some(want));
        assert_eq!(env.at("REMOTE_ADDR"), Some(""));
        assert_eq!(env.at("REMOTE_PORT"), None);
    }
}

#[test]
fn https_only_when_true() {
    let env = of(&[("Https", "on"), ("Request-Scheme", "https")]);
    assert_eq!(env.at("HTTPS"), None);
    assert_eq!(env.at("REQUEST_SCHEME"), Some("http"));
    let conn = ConnectionVars {
        https: true,
        ..CONNECTION
    };
    let (env, _) = all(&head(&[]), &conn, &SCRIPT).unwrap();
    assert_eq!(env.at("HTTPS"), Some("on"));
    assert_eq!(env.at("REQUEST_SCHEME"), Some("https"));
}

#[test]
fn what_every_request_has_is_of_none() {
    let mut constant = Env::default();
    let server = ServerVars {
        redirect_status: b"200",
        software: "s",
        path: "p",
    };
    super::put_server(&server, &mut constant);
    for name in NAMES {
        assert_eq!(is_of_request(name), constant.at(name).is_none(), "{name}");
    }
    assert!(is_of_request("HTTP_ACCEPT") && !is_of_request("LANG"));
}

#[test]
fn computed_variables_are_the_servers_and_the_rest_the_administrators() {
    for name in NAMES
        .iter()
        .chain(&["HTTP_PROXY", "HTTP_X", "HTTP_", "REMOTE_IDENT"])
    {
        assert!(is_computed(name), "{name}");
    }
    for name in [
        "LD_PRELOAD",
        "http_proxy",
        "HOME",
        "GIT_PROJECT_ROOT",
        "HTTPX",
        "",
    ] {
        assert!(!is_computed(name), "{name}");
    }
}

proptest! {
    #[test]
    fn whatever_fields_come_nothing_but_the_list_and_http_is_set(
        fields in prop::collection::vec(
            ("(?i:proxy|content-type|cookie|te|authorization|x)|[a-cA-C._-]{1,3}|[!-~]{1,8}", "[ -~\\x00\t]{0,6}|\\(\\) \\{.*"),
            0..12,
        ),
        pass_authorization: bool,
    ) {
        let fields: Vec<_> = fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let script = Script { pass_authorization, ..SCRIPT };
        // `Env` checks that nothing is put twice and nothing holds NUL.
        if let Ok((env, _)) = all(&head(&fields), &CONNECTION, &script) {
            prop_assert_eq!(env.at("HTTP_PROXY"), None);
            prop_assert_eq!(env.at("HTTP_PROXY_AUTHORIZATION"), None);
            prop_assert_eq!(env.at("PATH"), Some("/usr/bin:/bin"));
            for (name, value) in &env.0 {
                prop_assert!(is_computed(name), "{name}");
                prop_assert!(!value.trim_ascii_start().starts_with("() {"), "{name}");
            }
        }
    }
}

/// docs/programs.md names every variable, and no other in its table.
#[test]
fn the_documentation_lists_every_variable() {
    let doc = include_str!("../../../../../docs/programs.md");
    let rows = doc.lines().filter(|l| l.starts_with("| `"));
    let first = rows.filter_map(|l| l.split('|').nth(1));
    let mut named: Vec<&str> = first
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|n| *n != "HTTP_*" && n.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
        .collect();
    named.sort_unstable();
    assert_eq!(named, NAMES);
}
