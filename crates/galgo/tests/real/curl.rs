//! curl, as the client.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use galgo_testkit::LONG;

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// Returns all values of a field.
    pub(crate) fn fields(&self, name: &str) -> Vec<&str> {
        self.head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// Returns the value of a field that must occur exactly once.
    pub(crate) fn field(&self, name: &str) -> &str {
        let values = self.fields(name);
        assert_eq!(values.len(), 1, "{name} in {}", self.head);
        values[0]
    }

    /// Checks that the status is 200, and returns the reply.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.is(200)
    }

    /// Checks that the reply has this status, and returns the reply.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(2000)]);
        assert_eq!(self.status, status, "{}\n{body}", self.head);
        self
    }
}

/// Returns curl without the configuration of the user that runs the tests.
pub(crate) fn command() -> Command {
    let mut curl = Command::new("curl");
    curl.args(["-q", "-sS", "--noproxy", "*", "--path-as-is", "--max-time"])
        .arg(LONG.as_secs().to_string());
    curl
}

/// Runs curl with more arguments.
#[track_caller]
pub(crate) fn curl(args: &[&str]) -> Reply {
    curl_with(args, b"")
}

/// Runs curl with `input` as its standard input, for arguments with `@-`.
#[track_caller]
pub(crate) fn curl_with(args: &[&str], input: &[u8]) -> Reply {
    let folder = tempfile::tempdir().unwrap();
    let head = folder.path().join("head");
    let mut child = command()
        .arg("-D")
        .arg(&head)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl is missing: `scripts/need test` installs it");
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // curl may have its answer before it has read everything.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    });
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {args:?}: {error}");
    let heads = std::fs::read_to_string(head).unwrap();
    // Interim responses come before the final head.
    let head = heads.trim_end().rsplit("\r\n\r\n").next().unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply {
        status,
        head: head.to_owned(),
        body: output.stdout,
    }
}

/// A request whose program waits after the first line of its response, until it can read from a pipe.
pub(crate) struct Begun {
    client: Child,
    stdout: BufReader<ChildStdout>,
    /// The first line of the response.
    pub(crate) first: String,
}

impl Begun {
    pub(crate) fn ask(url: &str) -> Self {
        let mut client = command()
            .args(["-N", url])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(client.stdout.take().unwrap());
        let mut first = String::new();
        stdout.read_line(&mut first).unwrap();
        Self {
            client,
            stdout,
            first,
        }
    }

    /// Writes `words` to the pipe; returns the rest of the response.
    pub(crate) fn go_on(mut self, pipe: &Path, words: &str) -> String {
        std::fs::write(pipe, words).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.client.wait().unwrap().success());
        rest
    }
}
