//! Names of files and output of programs on their way to a terminal, a log and a shell.

use crate::scene::new_site;
use galgo_testkit::{Done, Site};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::PathBuf,
    process::{Command, Stdio},
};

/// Names that affect a terminal, or the shell that a user pastes them into.
const NAMES: [&[u8]; 6] = [
    b"title\x1b]0;owned\x07.sh",
    "invoice\u{202e}fdp.sh".as_bytes(),
    b"csi\xc2\x9b2J.sh",
    b"bytes\xff\xfe.sh",
    b"it's $(touch owned)`touch owned`;touch owned.sh",
    b"two\nlines.sh",
];

/// Checks that the bytes are text without any character that a terminal obeys.
#[track_caller]
fn assert_plain(bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).expect("no UTF-8");
    let bad = text.chars().find(|&c| {
        (c.is_control() && !"\n\t".contains(c))
            || "\u{61c}\u{200e}\u{200f}".contains(c)
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
            || c == '\u{fffd}'
    });
    assert_eq!(bad, None, "{text:?}");
}

fn scripts() -> (Site, Vec<PathBuf>) {
    let site = new_site();
    let path = |name: &&[u8]| site.path("cgi-bin").join(OsStr::from_bytes(name));
    let paths: Vec<_> = NAMES.iter().map(path).collect();
    for path in &paths {
        fs::write(path, "#!/bin/sh\n").unwrap();
    }
    (site, paths)
}

#[test]
fn check_prints_names_escaped_and_its_commands_do_what_they_say() {
    let (site, paths) = scripts();
    let output = site.command(&["check"]).output().unwrap();
    assert_plain(&output.stdout);
    let done: Done = output.into();
    let commands: Vec<_> = done
        .out
        .lines()
        .filter_map(|l| l.split("(try: ").nth(1)?.strip_suffix(')'))
        .collect();
    assert_eq!(commands.len(), NAMES.len(), "{}", done.out);
    for command in commands {
        let mut bash = Command::new("bash");
        let done = bash
            .args(["-c", command])
            .current_dir(site.path(""))
            .status();
        assert!(done.unwrap().success(), "{command}");
    }
    for path in paths {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{path:?}");
    }
    assert!(!site.path("owned").exists() && !site.path("cgi-bin/owned").exists());
}

#[test]
fn every_command_prints_names_escaped() {
    let (site, paths) = scripts();
    let folder = site
        .path("cgi-bin")
        .join(OsStr::from_bytes(b"fol\x1bder\xff"));
    fs::create_dir(&folder).unwrap();
    for path in &paths {
        for args in [
            &["run"][..],
            &["run", "--config", "none.toml"],
            &["run", "--path-info", "/x", "-d", "@none"],
            &["serve"],
            &["check"],
            &["check", "--warm"],
            &[],
        ] {
            let output = site.command(args).arg(path).output().unwrap();
            assert_plain(&output.stdout);
            // If the arguments themselves are wrong, the parser of the command line can only name files in
            // UTF-8.
            let said = String::from_utf8(output.stderr).unwrap();
            assert_plain(said.replace('\u{fffd}', "").as_bytes());
            assert!(!args.is_empty() || said.contains("To run it: galgo run "));
        }
    }
    for args in [&["run"][..], &["serve"], &[]] {
        let output = site.command(args).arg(&folder).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_plain(said.replace('\u{fffd}', "").as_bytes());
    }
    let server = site.serve(&["-l", "127.0.0.1:0"]);
    assert_plain(server.table.as_bytes());
    assert!(server.table.contains("FAIL"));
}

/// On a terminal a response is escaped, too; in a pipe it stays as it is.
#[test]
fn a_terminal_gets_a_response_escaped() {
    let site = new_site();
    let says =
        "Content-Type: text/plain\\nX-Name: a\\342\\200\\256b\\n\\nbody\\033[2J\\342\\200\\256x\\n";
    let errors = "oops\\033]0;owned\\007\\342\\200\\256\\n";
    site.sh("evil", &format!("printf '{errors}' >&2; printf '{says}'"));
    site.sh("nph-evil", &format!("printf 'HTTP/1.0 200 OK\\r\\n{says}'"));
    for args in ["cgi-bin/evil", "cgi-bin/evil -o body", "cgi-bin/nph-evil"] {
        let galgo = crate::scene::GALGO;
        let mut script = Command::new("script");
        script.args(["-qec", &format!("'{galgo}' run {args}"), "/dev/null"]);
        script.current_dir(site.path("")).stdin(Stdio::null());
        let output = script.output().unwrap();
        // The terminal itself adds carriage returns.
        let text: Vec<u8> = output.stdout.into_iter().filter(|&b| b != b'\r').collect();
        assert_plain(&text);
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("body\\u{1b}[2J\\u{202e}x\n"), "{text}");
        assert!(text.contains("X-Name: a\\u{202e}b\n"), "{text}");
    }
    let output = site.command(&["run", "cgi-bin/evil"]).output().unwrap();
    assert!(
        output
            .stdout
            .ends_with("body\u{1b}[2J\u{202e}x\n".as_bytes())
    );
    assert_plain(&output.stderr);
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("oops\\u{1b}]0;owned\\u{7}\\u{202e}")
    );
}

/// The limit includes the text that galgo adds before each line.
#[test]
fn max_stderr_bounds_what_is_added_to_the_log() {
    let site = new_site();
    site.write(
        "galgo.toml",
        "[[route]]\npath = '/'\ncgi = 'cgi-bin'\nmax_stderr = '64K'\n",
    );
    site.sh(
        "chatty",
        "yes | head -c 1000000 >&2; printf 'Content-Type: text/plain\n\n'",
    );
    let done = site.galgo(&["run", "cgi-bin/chatty"]);
    done.has_err("max_stderr is reached");
    let most = 65 << 10;
    assert!(
        done.err.len() > 60_000 && done.err.len() < most,
        "{} bytes",
        done.err.len()
    );
}
