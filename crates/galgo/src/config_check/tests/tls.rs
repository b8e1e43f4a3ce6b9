//! Values of `[tls]` that are refused.

use super::{parse, site};
use crate::config::Automatic;

/// Values of `automatic`, each with the message that refuses it.
const BAD: &[(&str, &str)] = &[
    (
        "{}",
        "2:13: automatic: names no host: hosts = [\"example.org\"]",
    ),
    (
        "{ hosts = [] }",
        "2:13: automatic: names no host: hosts = [\"example.org\"]",
    ),
    (
        "{ hosts = [\"*.example.org\"] }",
        "2:24: hosts: \"*.example.org\" needs a DNS challenge, which galgo does not support: name each host",
    ),
    (
        "{ hosts = [\"192.0.2.1\"] }",
        "2:24: hosts: \"192.0.2.1\" is an IP address: write a host name",
    ),
    (
        "{ hosts = [\"https://example.org\"] }",
        "2:24: hosts: \"https://example.org\" is not a host name: write it as in \"www.example.org\" (punycode: \"xn--…\")",
    ),
    (
        "{ hosts = [\"../etc\"] }",
        "2:24: hosts: \"../etc\" is not a host name: write it as in \"www.example.org\" (punycode: \"xn--…\")",
    ),
    (
        "{ hosts = [\"a.example\"], contact = \"me@a.example\" }",
        "2:48: contact: must begin with \"mailto:\", as in \"mailto:me@example.org\"",
    ),
    (
        "{ hosts = [\"a.example\"], authority = \"http://a.example\" }",
        "2:50: authority: must begin with \"https://\", as in \"https://acme-v02.api.letsencrypt.org/directory\"",
    ),
    (
        "{ hosts = [\"a.example\"], authority_ca = \"none.pem\" }",
        "2:53: authority_ca: DIR/none.pem does not exist: create it or correct the path",
    ),
    (
        "{ host = \"a.example\" }",
        "2:15: unknown key \"host\"; did you mean \"hosts\"?",
    ),
];

#[test]
fn automatic_certificates_are_refused_with_place_and_mend() {
    let dir = site();
    let file = dir.path().join("galgo.toml").display().to_string();
    for (table, want) in BAD {
        let source = format!("[tls]\nautomatic = {table}");
        let got = parse(dir.path(), &source).expect_err(table).to_string();
        let got = got.strip_prefix(&format!("{file}:")).unwrap_or(&got);
        let got = got.replace(&dir.path().display().to_string(), "DIR");
        assert_eq!(got, *want, "{table}");
    }
}

/// Without an https listener, no client could use the certificates.
#[test]
fn automatic_needs_a_listener_that_speaks_https() {
    for (listen, is_said) in [
        ("", true),
        ("listen = [\"127.0.0.1:0\"]\n", true),
        (
            "listen = [\"127.0.0.1:0\", \"https://127.0.0.1:0\"]\n",
            false,
        ),
        ("listen = [\"https://fd:web\"]\n", false),
    ] {
        let source = format!("{listen}[tls]\nautomatic = {{ hosts = [\"a.example\"] }}");
        let config = parse(site().path(), &source).unwrap();
        let said = config.lacks_certificate();
        assert_eq!(said.is_some(), is_said, "{listen} {said:?}");
        assert!(
            said.is_none_or(|said| said.contains("https://0.0.0.0:443")),
            "{listen}"
        );
    }
}

#[test]
fn automatic_certificates_have_defaults() {
    let dir = site();
    let source = "listen = [\"https://127.0.0.1:0\"]\n[tls]\nautomatic = { hosts = [\"B.example\", \"a.example\", \"b.example\"] }";
    let config = parse(dir.path(), source).unwrap();
    let want = Automatic {
        hosts: vec!["a.example".into(), "b.example".into()],
        contact: None,
        authority: "https://acme-v02.api.letsencrypt.org/directory".into(),
        authority_ca: None,
        state: None,
    };
    assert_eq!(config.tls.automatic, Some(want));
    assert_eq!(config.lacks_certificate(), None);
}
