//! Certificates of our own making, and sessions with rustls's own client over socket pairs.

use std::{
    io::{ErrorKind, IoSlice, Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::Arc,
    thread,
};

use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, pki_types::ServerName};

use super::{Certificate, Shown, TlsServer, provider::provider};
use crate::{buf::Buf, sock::Sock, transport::Transport};

struct Made {
    pem: String,
    key: String,
    der: rustls::pki_types::CertificateDer<'static>,
}

fn made(names: &[&str]) -> Made {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    Made {
        pem: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        der: made.cert.der().clone(),
    }
}

fn certificate(made: &Made) -> Certificate {
    Certificate::from_pem(made.pem.as_bytes(), made.key.as_bytes()).unwrap()
}

fn client(trusts: &[&Made]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for made in trusts {
        roots.add(made.der.clone()).unwrap();
    }
    ClientConfig::builder_with_provider(provider().clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn server(own: &Made) -> TlsServer {
    let shown = Shown::new(&[certificate(own)], &[], None);
    TlsServer::new(Arc::new(shown), None, None).unwrap()
}

fn on_a_loop<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(run)
}

fn pair() -> (UnixStream, Transport) {
    let (client, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (client, Transport::new(Sock::new(ours.into())))
}

#[test]
fn what_is_no_certificate_is_refused_in_words() {
    let (one, other) = (made(&["a.example"]), made(&["b.example"]));
    let table = [
        ("", &*one.key, "the file of the certificate is empty"),
        ("garbage", &one.key, "holds no certificate"),
        (&one.key, &one.key, "holds a key"),
        ("-----BEGIN CERTIFICATE-----\n", &one.key, "is not PEM"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &one.key,
            "the certificate cannot be read",
        ),
        (&one.pem, "", "the file of the key is empty"),
        (&one.pem, &one.pem, "the key cannot be read"),
        (
            &one.pem,
            &other.key,
            "the key belongs to another certificate",
        ),
    ];
    for (chain, key, want) in table {
        let error = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn each_host_is_shown_its_own() {
    let first = made(&["example.org", "*.example.org"]);
    let second = made(&["www.example.org", "other.example"]);
    let all = [certificate(&first), certificate(&second)];
    let shown = Shown::new(&all, &["late.example".into()], None);
    let table = [
        ("example.org", Some(&all[0])),
        ("EXAMPLE.org", Some(&all[0])),
        ("git.example.org", Some(&all[0])),
        ("www.example.org", Some(&all[1])),
        ("other.example", Some(&all[1])),
        // If no name fits, the first certificate is shown.
        ("a.git.example.org", Some(&all[0])),
        ("a.other.example", Some(&all[0])),
        ("", Some(&all[0])),
        ("Late.example", None),
    ];
    let got = |shown: &Shown, host| shown.for_client(host).as_ref().map(Arc::as_ptr);
    for (host, want) in table {
        let want = want.map(|one| Arc::as_ptr(&one.key));
        assert_eq!(got(&shown, Some(host)), want, "{host}");
    }
    assert_eq!(got(&shown, None), Some(Arc::as_ptr(&all[0].key)));
    let late = certificate(&made(&["late.example"]));
    shown.show_automatic("late.example", late.clone());
    let late = Some(Arc::as_ptr(&late.key));
    assert_eq!(got(&shown, Some("late.example")), late);
    // The certificate stays when the configuration is read again. It is the only one if no file is named.
    let next = Shown::new(&[], &["late.example".into()], Some(&shown));
    for host in [Some("late.example"), Some("other.example"), None] {
        assert_eq!(got(&next, host), late, "{host:?}");
    }
    assert_eq!(got(&Shown::default(), None), None);
}

/// Data written in pieces arrives unchanged in both directions, whatever its length. Then each side is told the end.
#[test]
fn bytes_arrive_in_both_directions() {
    let own = made(&["localhost"]);
    let server = server(&own);
    let (mut socket, transport) = pair();
    let config = Arc::new(client(&[&own]));
    let said: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let says = said.clone();
    let peer = thread::spawn(move || {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(config, name).unwrap();
        let mut stream = Stream::new(&mut tls, &mut socket);
        stream.write_all(&says).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        tls.send_close_notify();
        tls.complete_io(&mut socket).unwrap();
        heard
    });
    let (heard, ended) = on_a_loop(async move {
        let mut buf = Buf::default();
        transport.accept(&server, &mut buf).await.unwrap();
        let agreed = transport.agreed().unwrap();
        assert_eq!(agreed.protocol, "TLSv1.3");
        assert!(agreed.cipher.starts_with("TLS_"), "{}", agreed.cipher);
        assert_eq!(agreed.server_name.as_deref(), Some("localhost"));
        assert!(transport.plain_sock().is_none());
        while buf.len() < 300_000 {
            assert!(transport.fill_buffer(&mut buf, 0).await.unwrap() > 0);
        }
        let mut left = buf.as_slice();
        while !left.is_empty() {
            let n = transport.write(&[IoSlice::new(left)], false).await.unwrap();
            left = &left[n..];
        }
        transport.end_output().unwrap();
        let mut none = Buf::default();
        (
            buf.as_slice().to_vec(),
            transport.read_idle(&mut none).await.unwrap(),
        )
    });
    assert!(heard == said && ended == 0);
    assert!(peer.join().unwrap() == said);
}

/// If a connection ends without close_notify, data may be missing: that is an error, and not an end of file.
#[test]
fn a_truncated_stream_is_told_from_an_ended_one() {
    let own = made(&["localhost"]);
    let server = server(&own);
    let (mut socket, transport) = pair();
    let config = Arc::new(client(&[&own]));
    let peer = thread::spawn(move || {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(config, name).unwrap();
        Stream::new(&mut tls, &mut socket)
            .write_all(b"half")
            .unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        socket
    });
    on_a_loop(async move {
        let mut buf = Buf::default();
        transport.accept(&server, &mut buf).await.unwrap();
        while buf.len() < 4 {
            assert!(transport.fill_buffer(&mut buf, 0).await.unwrap() > 0);
        }
        let error = transport.fill_buffer(&mut buf, 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    });
    drop(peer.join().unwrap());
}

/// Bytes after close_notify belong to no message: the server neither reads nor awaits them.
#[test]
fn bytes_behind_the_end_are_let_go() {
    let own = made(&["localhost"]);
    let server = server(&own);
    // The beginning of a record of 16 KiB, and more bytes than it can hold.
    let more = [&[22, 3, 3, 0x40, 0][..], &[0; 20_000]].concat();
    let (mut socket, transport) = pair();
    let (config, behind) = (Arc::new(client(&[&own])), more.clone());
    let peer = thread::spawn(move || {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(config, name).unwrap();
        tls.complete_io(&mut socket).unwrap();
        tls.send_close_notify();
        let mut sent = Vec::new();
        tls.write_tls(&mut sent).unwrap();
        sent.extend(behind);
        socket.write_all(&sent).unwrap();
        socket
    });
    let mut buf = Buf::default();
    let read = on_a_loop(async {
        transport.accept(&server, &mut buf).await.unwrap();
        transport.fill_buffer(&mut buf, more.len()).await
    });
    assert_eq!((read.unwrap(), buf.len()), (0, 0));
    peer.join().unwrap();
}

#[test]
fn what_is_no_tls_is_refused_with_an_alert() {
    let own = made(&["localhost"]);
    let server = server(&own);
    let (mut socket, transport) = pair();
    socket
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    on_a_loop(async move {
        let error = transport.accept(&server, &mut Buf::default()).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidData);
    });
    let mut said = Vec::new();
    socket.read_to_end(&mut said).unwrap();
    // A fatal alert (RFC 8446, 6): type 21, level 2.
    assert_eq!((said[0], said[5]), (21, 2), "{said:?}");
}

/// Returns the first message that a client sends.
fn hello(own: &Made) -> (ClientConnection, Vec<u8>) {
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::new(client(&[own])), name).unwrap();
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).unwrap();
    (tls, hello)
}

/// Splits a record into pieces, each in a record of its own (RFC 8446, 5.1).
fn in_records(record: &[u8], of: usize) -> Vec<u8> {
    let (head, content) = record.split_at(5);
    let piece = |piece: &[u8]| {
        let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
        [&head[..3], &length, piece].concat()
    };
    content.chunks(of).flat_map(piece).collect()
}

/// A hello in pieces is the same hello, whether the network or the client has cut it.
#[test]
fn a_hello_in_pieces_is_one() {
    let own = made(&["localhost"]);
    let server = server(&own);
    for (of, step) in [(usize::MAX, 1), (100, 7), (1, usize::MAX)] {
        let (mut socket, transport) = pair();
        let (mut tls, record) = hello(&own);
        let said = match of {
            usize::MAX => record,
            of => in_records(&record, of),
        };
        let peer = thread::spawn(move || {
            for piece in said.chunks(step) {
                socket.write_all(piece).unwrap();
            }
            // Keep the socket open until the server has sent its messages, too.
            (tls.complete_io(&mut socket), socket)
        });
        on_a_loop(async {
            let mut buf = Buf::default();
            let done = transport.accept(&server, &mut buf).await;
            done.unwrap_or_else(|e| panic!("{of} {step}: {e}"));
        });
        peer.join().unwrap().0.unwrap();
    }
}

/// If a hello is cut short, the handshake ends at that point, and nothing else happens.
#[test]
fn a_hello_cut_short_is_an_error() {
    let own = made(&["localhost"]);
    let server = server(&own);
    let (_, record) = hello(&own);
    let lengths = (1..record.len()).filter(|n| *n < 64 || n % 37 == 0);
    for length in lengths {
        let (mut socket, transport) = pair();
        socket.write_all(&record[..length]).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let done = on_a_loop(async { transport.accept(&server, &mut Buf::default()).await });
        let kind = done.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::UnexpectedEof, "{length}");
    }
    // Flip one bit of the hello at a time: an error or, if the bit means nothing, a hello.
    for bit in (0..record.len() * 8).step_by(5) {
        let (mut socket, transport) = pair();
        let mut wrong = record.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        socket.write_all(&wrong).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let done = on_a_loop(async { transport.accept(&server, &mut Buf::default()).await });
        assert!(done.is_err(), "{bit}");
    }
}
