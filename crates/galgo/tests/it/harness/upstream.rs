//! An application behind a socket that does byte for byte what a test tells it to do.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use galgo_proto::{
    Parsed,
    fcgi::{Header, NameValuePairs, Outcome, RecordType, Role, end_request, request},
};

/// An application that answers each connection on a thread of its own.
#[derive(Debug)]
pub struct Application {
    /// Path of the socket.
    pub path: PathBuf,
    accepted: Arc<AtomicUsize>,
}

/// A request as it arrived.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Heard {
    pub params: Vec<(String, String)>,
    pub stdin: Vec<u8>,
    pub keep: bool,
    pub role: Option<Role>,
    pub aborted: bool,
}

impl Heard {
    pub fn param(&self, name: &str) -> Option<&str> {
        let mut all = self.params.iter().filter(|(n, _)| n == name);
        let found = all.next().map(|(_, v)| v.as_str());
        assert!(all.next().is_none(), "{name} twice");
        found
    }
}

impl Application {
    /// Listens on `app.sock` in `folder`; calls `answer` with the number of each connection.
    pub fn start(
        folder: &Path,
        answer: impl Fn(usize, &mut UnixStream) + Send + Sync + 'static,
    ) -> Self {
        let path = folder.join("app.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (accepted.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (n, answer) = (count.fetch_add(1, Ordering::SeqCst), answer.clone());
                thread::spawn(move || answer(n, &mut stream));
            }
        });
        Self { path, accepted }
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Reads one FastCGI request. `None`: the connection ended before the request was whole.
pub fn hear(stream: &mut UnixStream) -> Option<Heard> {
    hear_until(stream, |event| matches!(event, request::Event::StdinEnd(_)))
}

/// Reads the variables of a FastCGI request and no byte after them.
pub fn hear_params(stream: &mut UnixStream) -> Option<Heard> {
    hear_until(stream, |event| {
        matches!(event, request::Event::ParamsEnd(_))
    })
}

/// Reads until an event, byte by byte, so that no byte after it is taken.
pub fn hear_until(
    stream: &mut UnixStream,
    over: impl Fn(&request::Event) -> bool,
) -> Option<Heard> {
    let mut requests = request::Requests::default();
    let (mut heard, mut params) = (Heard::default(), Vec::new());
    let mut buf = [0; 1];
    loop {
        if stream.read(&mut buf).ok()? == 0 {
            return None;
        }
        let mut rest = &buf[..];
        while let Parsed::Complete(event, used) = requests.next_event(rest).unwrap() {
            rest = &rest[used..];
            match event {
                request::Event::Begin { keep, role, .. } => {
                    heard.keep = keep;
                    heard.role = Some(role);
                }
                request::Event::Params(_, n) => {
                    params.extend_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                request::Event::Stdin(_, n) => {
                    heard.stdin.extend_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                request::Event::ParamsEnd(_) => {
                    let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
                    let pair = |p: Result<(&[u8], &[u8]), _>| {
                        let (n, v) = p.unwrap();
                        (text(n), text(v))
                    };
                    heard.params = NameValuePairs::new(&params).map(pair).collect();
                }
                request::Event::Abort(_) => heard.aborted = true,
                _ => {}
            }
            if over(&event) {
                return Some(heard);
            }
        }
    }
}

/// Returns the bytes of a record.
pub fn record(kind: RecordType, id: u16, content: impl AsRef<[u8]>, padding: u8) -> Vec<u8> {
    let content = content.as_ref();
    let header = Header {
        kind,
        id,
        content: u16::try_from(content.len()).unwrap(),
        padding,
    };
    [&header.to_bytes()[..], content, &vec![0; padding.into()]].concat()
}

/// Returns a record of output.
pub fn stdout(content: impl AsRef<[u8]>) -> Vec<u8> {
    record(RecordType::STDOUT, 1, content, 3)
}

/// Returns the record that ends a request.
pub fn ended(outcome: Outcome) -> Vec<u8> {
    end_request(1, 0, outcome).to_vec()
}

/// Returns the records of a whole document.
pub fn document(body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = stdout("Content-Type: text/plain\n\n");
    [head, stdout(body), stdout(""), ended(Outcome::COMPLETE)].concat()
}

/// Sends `bytes`; the other side may be gone.
pub fn say(stream: &mut UnixStream, bytes: impl AsRef<[u8]>) {
    let _ = stream.write_all(bytes.as_ref());
}

/// Stays connected, and silent, until the other side has gone.
pub fn hold(stream: &mut UnixStream) {
    let mut buf = [0; 1 << 16];
    while matches!(stream.read(&mut buf), Ok(n) if n > 0) {}
}
