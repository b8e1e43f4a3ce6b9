//! A connection over TCP: plain, in TLS, or through a translator to HTTP/2.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    ops::Deref,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use crate::http2::Translated;

/// The protocol of test servers in place of plain HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// HTTP/1.1 in TLS.
    Tls,
    /// HTTP/2 without TLS.
    Http2,
}

/// Addresses of this process's servers that speak a protocol other than plain HTTP/1.1.
static SPOKEN: Mutex<Option<HashMap<SocketAddr, Spoken>>> = Mutex::new(None);

impl Spoken {
    /// Returns the protocol that `GALGO_TEST_TLS` or `GALGO_TEST_HTTP2` asks servers to speak.
    pub fn asked() -> Option<Self> {
        let is_set = |name| std::env::var_os(name).is_some();
        if is_set("GALGO_TEST_TLS") {
            return Some(Self::Tls);
        }
        is_set("GALGO_TEST_HTTP2").then_some(Self::Http2)
    }

    /// Returns the prefix of a listener's address.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::Tls => "https://",
            Self::Http2 => "h2c+",
        }
    }

    /// Returns the protocol of a listener, from the name that the server gives it.
    pub(crate) fn at(listener: &str) -> Option<Self> {
        let all = [Self::Tls, Self::Http2];
        all.into_iter()
            .find(|one| listener.starts_with(one.scheme()))
    }
}

/// Records the protocol that servers speak at this address from now on. A previous server may have
/// had the same port.
pub fn is_spoken_at(address: SocketAddr, what: Option<Spoken>) {
    let mut spoken = SPOKEN.lock().unwrap();
    let spoken = spoken.get_or_insert_default();
    match what {
        Some(what) => spoken.insert(address, what),
        None => spoken.remove(&address),
    };
}

/// A certificate for `localhost`, and a client that trusts it.
pub struct Own {
    /// Path of the certificate's file.
    pub certificate: PathBuf,
    /// Path of the key's file.
    pub key: PathBuf,
    client: Arc<ClientConfig>,
    _folder: tempfile::TempDir,
}

/// Returns the certificate of this process.
pub fn own() -> &'static Own {
    static OWN: LazyLock<Own> = LazyLock::new(Own::new);
    &OWN
}

/// Makes a certificate for these hosts. Returns the certificate and its key, both in PEM.
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

/// A connection. The type dereferences to the TCP socket, for calls that concern the socket itself.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    tls: Option<RefCell<ClientConnection>>,
    http2: Option<Translated>,
}

impl From<TcpStream> for Stream {
    /// Speaks the protocol that this process's server at the peer's address speaks.
    fn from(tcp: TcpStream) -> Self {
        let peer = tcp.peer_addr().ok();
        let spoken = SPOKEN.lock().unwrap();
        let speaks = peer.and_then(|at| spoken.as_ref()?.get(&at).copied());
        drop(spoken);
        let http2 = (speaks == Some(Spoken::Http2)).then(|| Translated::before(&tcp).unwrap());
        let tls = (speaks == Some(Spoken::Tls)).then(|| {
            let name = ServerName::try_from("localhost").unwrap();
            let mut tls = ClientConnection::new(own().client.clone(), name).unwrap();
            // If the server refuses the connection, the next read or write reports that.
            let _ = tls.complete_io(&mut &tcp);
            RefCell::new(tls)
        });
        Self { tcp, tls, http2 }
    }
}

impl Stream {
    /// Ends the sending side. Reading goes on.
    pub(crate) fn half_close(&self) {
        let Some(tls) = &self.tls else {
            return self.shutdown(Shutdown::Write).unwrap();
        };
        tls.borrow_mut().send_close_notify();
        let _ = tls.borrow_mut().complete_io(&mut &self.tcp);
        // The server may have closed the connection already, in response to close_notify.
        let _ = self.shutdown(Shutdown::Write);
    }

    /// Makes closing the connection send a reset.
    pub(crate) fn reset_on_close(&self) {
        for socket in [&self.tcp, self] {
            let zero = Some(Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(socket, zero).unwrap();
        }
    }

    /// Returns the address that the server sees as the client's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Returns the server's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Returns what a read would find now: bytes, 0 at the end, `None` if the read would block.
    pub(crate) fn peeked(&self) -> Option<io::Result<usize>> {
        self.set_nonblocking(true).unwrap();
        let found = match &self.tls {
            None => self.peek(&mut [0]),
            Some(tls) => peek(&mut tls.borrow_mut(), &self.tcp),
        };
        self.set_nonblocking(false).unwrap();
        match found {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => None,
            found => Some(found),
        }
    }
}

/// Takes in the data that has arrived. Returns whether it holds more than TLS's own messages.
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
        self.http2.as_ref().map_or(&self.tcp, |http2| &http2.outer)
    }
}

impl Drop for Stream {
    /// Announces the end, as clients do. Without close_notify the server takes the data for
    /// truncated.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            let _ = self.tcp.set_nonblocking(true);
            tls.get_mut().send_close_notify();
            let _ = tls.get_mut().write_tls(&mut &self.tcp);
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => (&**self).read(buf),
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
            None => (&**self).write(buf),
            Some(tls) => rustls::Stream::new(tls.get_mut(), &mut self.tcp).write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
