//! Findings of `galgo check` about certificates, and about files that are not certificates.

use crate::scene::new_site;
use galgo_testkit::{Done, Site, authority::Authority, is_root, stream::certificate};

/// Contents of the files of the chain and the key. `None`: the file does not exist.
type Files = (Option<String>, Option<String>);

/// Makes a site that uses these files.
fn shows((chain, key): &Files) -> Site {
    let site = new_site();
    site.sh("hello", "");
    for (name, text) in [("chain.pem", chain), ("own.key", key)] {
        if let Some(text) = text {
            let file = site.write(name, text);
            galgo_testkit::file::chmod(&file, 0o640);
        }
    }
    site.write(
        "galgo.toml",
        "listen = [\"https://127.0.0.1:0\"]\n[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\n\
         [tls]\ncertificate = \"chain.pem\"\nkey = \"own.key\"\n",
    );
    site
}

fn check(site: &Site) -> Done {
    site.galgo(&["check"])
}

#[test]
fn what_cannot_be_shown_fails() {
    let authority = Authority::new("authority");
    let (pem, key) = authority.host("a.example");
    let (other, _) = authority.host("b.example");
    let some = |text: &str| Some(text.to_owned());
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let table = [
        ((None, some(&key)), "chain.pem does not exist"),
        ((some(&pem), None), "own.key does not exist"),
        (
            (some(""), some(&key)),
            "the file of the certificate is empty",
        ),
        ((some(&pem), some(" \n")), "the file of the key is empty"),
        (
            (some("rubbish"), some(&key)),
            "the file holds no certificate: a certificate begins with",
        ),
        ((some(&pem), some("rubbish")), "the key cannot be read"),
        (
            (some(&key), some(&key)),
            "holds a key: are `certificate` and `key` swapped?",
        ),
        ((some(&pem), some(&pem)), "the key cannot be read"),
        ((some(&pem[..pem.len() / 2]), some(&key)), "is not PEM"),
        (
            (some(&other), some(&key)),
            "the key belongs to another certificate",
        ),
        ((some(&pem), some(encrypted)), "the key is encrypted"),
        ((some(&pem), some(old)), "the key is encrypted"),
        (
            (Some(authority.pem().to_owned() + &pem), some(&key)),
            "the chain is in the wrong order: the certificate of the key comes first",
        ),
    ];
    for (files, want) in table {
        let done = check(&shows(&files));
        let line = done.out.lines().next().unwrap_or_default();
        let place = line.starts_with("FAIL  configuration: ") && line.contains("galgo.toml:");
        assert!(place && line.contains(want), "{want}: {line}");
        assert_eq!(done.code, 1, "{want}");
    }
}

#[test]
fn what_clients_will_hardly_take_is_a_warning() {
    let authority = Authority::new("authority");
    let other = Authority::new("other");
    let (pem, key) = authority.host("a.example");
    let both = |pair: (String, String)| (Some(pair.0), Some(pair.1));
    let table = [
        (
            both(authority.dated("a.example", (2020, 2021))),
            "it expired on 2021-01-01T00:00:00Z",
        ),
        (
            both(authority.dated("a.example", (2090, 2100))),
            "it is not valid before 2090-01-01T00:00:00Z: is the clock right?",
        ),
        (
            both(authority.client("a.example", (2020, 2100))),
            "it names no host",
        ),
        (
            both((pem.clone() + other.pem(), key.clone())),
            "its chain is in the wrong order: certificate 1 was signed by \"CN=authority\", but the next certificate is \"CN=other\"",
        ),
    ];
    for (files, want) in table {
        let done = check(&shows(&files));
        let fits = |l: &str| l.starts_with("warn  configuration: ") && l.contains(want);
        assert!(done.out.lines().any(fits), "{want}: {}", done.out);
        assert_eq!(done.code, 0, "{want}");
    }
    let done = check(&shows(&both((pem + authority.pem(), key))));
    let fine = "chain.pem: for a.example, by CN=authority, valid for ";
    done.has_out(fine);
    done.has_out("1 ok, 0 warnings");
}

#[test]
fn a_key_that_may_not_be_read_is_said_to_be_one() {
    if is_root() {
        eprintln!("skipped a_key_that_may_not_be_read_is_said_to_be_one: root reads all");
        return;
    }
    let (pem, key) = certificate(&["a.example"]);
    let site = shows(&(Some(pem), Some(key)));
    galgo_testkit::file::chmod(site.path("own.key"), 0);
    let done = check(&site);
    done.has_out("own.key: chmod");
}

#[test]
fn what_has_not_come_yet_is_a_note() {
    let site = new_site();
    site.sh("hello", "");
    site.write(
        "galgo.toml",
        "listen = [\"https://127.0.0.1:0\"]\n[[route]]\npath = \"/\"\ncgi = \"cgi-bin\"\n\
         [tls]\nautomatic = { hosts = [\"a.example\"], state = \"state\" }\n",
    );
    let done = check(&site);
    done.has_out(
        "note  certificate of a.example: not issued yet: the server orders it when it runs\n",
    );
    assert!(!site.path("state").exists() && done.code == 0);
}
