//! A connection over TCP, plain or in TLS.

use std::{
    cell::RefCell,
    collections::HashSet,
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    ops::Deref,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

/// Where servers of this process speak TLS.
static SPOKEN: Mutex<Option<HashSet<SocketAddr>>> = Mutex::new(None);

/// Whether servers are to speak TLS: `GALGO_TEST_TLS` is set.
pub(crate) fn is_asked() -> bool {
    std::env::var_os("GALGO_TEST_TLS").is_some()
}

/// TLS is spoken at this address from now on.
pub(crate) fn is_spoken_at(address: SocketAddr) {
    let mut spoken = SPOKEN.lock().unwrap();
    spoken.get_or_insert_default().insert(address);
}

/// A certificate for `localhost`, and a client that trusts it.
pub struct Own {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    client: Arc<ClientConfig>,
    _folder: tempfile::TempDir,
}

/// That of this process.
pub fn own() -> &'static Own {
    static OWN: LazyLock<Own> = LazyLock::new(Own::new);
    &OWN
}

/// A certificate for these hosts, and its key, both in PEM.
pub fn certificate(hosts: &[&str]) -> (String, String) {
    let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(hosts).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

impl Own {
    fn new() -> Self {
        let (pem, secret) = certificate(&["localhost", "*.example.test"]);
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["own.pem", "own.key"].map(|name| folder.path().join(name));
        fs::write(&certificate, &pem).unwrap();
        fs::write(&key, secret).unwrap();
        crate::file::chmod(folder.path(), 0o755);
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        roots.add(own).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            certificate,
            key,
            client: Arc::new(client),
            _folder: folder,
        }
    }
}

/// A connection. What is asked of the socket itself goes to that.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    tls: Option<RefCell<ClientConnection>>,
}

impl From<TcpStream> for Stream {
    /// In TLS where a server of this process speaks that there.
    fn from(tcp: TcpStream) -> Self {
        let peer = tcp.peer_addr();
        let spoken = SPOKEN.lock().unwrap();
        let speaks = peer.is_ok_and(|at| spoken.as_ref().is_some_and(|all| all.contains(&at)));
        drop(spoken);
        let tls = speaks.then(|| {
            let name = ServerName::try_from("localhost").unwrap();
            let mut tls = ClientConnection::new(own().client.clone(), name).unwrap();
            // A server that refuses the connection is met by who reads or writes.
            let _ = tls.complete_io(&mut &tcp);
            RefCell::new(tls)
        });
        Self { tcp, tls }
    }
}

impl Stream {
    /// Sends no more, and goes on to read.
    pub(crate) fn half_close(&self) {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().send_close_notify();
            let _ = tls.borrow_mut().complete_io(&mut &self.tcp);
        }
        self.tcp.shutdown(Shutdown::Write).unwrap();
    }

    /// What a read would find now: bytes, 0 at the end, `None` if it had to wait.
    pub(crate) fn peeked(&self) -> Option<io::Result<usize>> {
        self.tcp.set_nonblocking(true).unwrap();
        let found = match &self.tls {
            None => self.tcp.peek(&mut [0]),
            Some(tls) => peek(&mut tls.borrow_mut(), &self.tcp),
        };
        self.tcp.set_nonblocking(false).unwrap();
        match found {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            found => Some(found),
        }
    }
}

/// Takes in what has come: more than a message of TLS's own?
fn peek(tls: &mut ClientConnection, mut tcp: &TcpStream) -> io::Result<usize> {
    loop {
        let state = tls.process_new_packets().map_err(io::Error::other)?;
        if state.plaintext_bytes_to_read() > 0 {
            return Ok(state.plaintext_bytes_to_read());
        }
        if state.peer_has_closed() || tls.read_tls(&mut tcp)? == 0 {
            return Ok(0);
        }
    }
}

impl Deref for Stream {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.tcp
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.read(buf),
            Some(tls) => {
                let read = rustls::Stream::new(tls.get_mut(), &mut self.tcp).read(buf);
                // Without close_notify the connection was cut, as by a reset.
                read.map_err(|e| match e.kind() {
                    io::ErrorKind::UnexpectedEof => io::ErrorKind::ConnectionReset.into(),
                    _ => e,
                })
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.tcp.write(buf),
            Some(tls) => rustls::Stream::new(tls.get_mut(), &mut self.tcp).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
