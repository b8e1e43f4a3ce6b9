//! Refused configurations, each with its message. `DIR` stands for the folder of the file.

mod keys;
mod routes;

use super::{parse, site};

/// (source, message); the message begins with line and column.
type Refused = (&'static str, &'static str);

#[test]
fn refused_with_place_and_mend() {
    let dir = site();
    let file = dir.path().join("galgo.toml").display().to_string();
    let mut wrong = String::new();
    for (source, want) in keys::KEYS.iter().chain(routes::ROUTES) {
        let got = parse(dir.path(), source).expect_err(source).to_string();
        let got = got.strip_prefix(&format!("{file}:")).unwrap_or(&got);
        let got = got.replace(&dir.path().display().to_string(), "DIR");
        if got != *want {
            wrong.push_str(&format!(
                "source: {source:?}\n  want: {want:?}\n   got: {got:?}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// galgo reports all errors, in the order of the file.
#[test]
fn several_at_once() {
    let dir = site();
    let source = "umask = \"022\"\nmax_fields = 1\nlog_format = \"xml\"\n[[route]]\npath = \"a\"\nfiles = \"public\"\n[[route]]\npath = \"/\"\nfiles = \"none\"\n[defaults]\nmax_stderr = \"2T\"";
    let said = parse(dir.path(), source).unwrap_err().to_string();
    let lines: Vec<_> = said.lines().collect();
    let starts = [":2:", ":3:", ":5:", ":9:", ":11:"];
    assert_eq!(lines.len(), starts.len(), "{said}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.contains(&format!("galgo.toml{start}")), "{said}");
    }
    let homes =
        "[[route]]\npath = \"a\"\nfiles = \"public\"\n[userdir]\nfiles = \"www\"\nusers = []\n";
    let said = parse(dir.path(), homes).unwrap_err().to_string();
    let both = said.contains("toml:2:8: path:") && said.contains("userdir: list the users");
    assert!(both, "{said}");
    let many = "[[route]]\npath = \"a\"\nfiles = \"public\"\n".repeat(30);
    let said = parse(dir.path(), &many).unwrap_err().to_string();
    assert_eq!(
        (said.lines().count(), said.lines().last()),
        (21, Some("and 10 more"))
    );
}

/// An entry that cannot be read hides no other error. Keys that are missing in its table afterwards are not blamed on the
/// user.
#[test]
fn unknown_keys_and_wrong_types_hide_nothing() {
    let dir = site();
    let source = "lisen = []\nlisten = 80\nmax_fields = 1\n\
        [[route]]\npaht = \"/a/\"\nfiles = 5\ncgi = \"none\"\n\
        [[route]]\npath = \"/\"\nfiles = \"none\"\n\
        [tls]\ncertificate = \"none.pem\"\nkeys = \"none.pem\"\n\
        [defaults]\nmax_stderr = \"2T\"\ntimout = 1";
    let said = parse(dir.path(), source).unwrap_err().to_string();
    let want = [
        (1, "unknown key \"lisen\""),
        (2, "listen: "),
        (3, "max_fields: "),
        (5, "unknown key \"paht\""),
        (6, "files: found integer"),
        (10, "files: "),
        (13, "unknown key \"keys\""),
        (16, "unknown key \"timout\""),
    ];
    assert_eq!(said.lines().count(), want.len(), "{said}");
    for (line, (number, words)) in said.lines().zip(want) {
        let right = line.contains(&format!("galgo.toml:{number}:")) && line.contains(words);
        assert!(right, "{said}");
    }
}
