//! Handshakes of TLS that fail, stop, or ask for features that the server refuses.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Instant,
};

use crate::harness::{list, new_site};
use galgo_testkit::{Client, Done, Server, Site, stream::own};

list![
    the_log_says_why_and_no_more_than_once_a_second,
    a_thousand_that_stop_hold_up_nobody,
    early_data_is_not_taken,
    the_strongest_cipher_is_taken,
    renegotiation_is_refused,
];

fn site() -> Site {
    let own = own();
    new_site().config(&format!(
        "listen = [\"127.0.0.2:0\", \"https://127.0.0.1:0\"]\n[tls]\ncertificate = {:?}\nkey = {:?}\n",
        own.certificate, own.key
    ))
}

/// Sends `bytes`, and reads the answer to its end.
fn say(server: &Server, bytes: &[u8]) {
    let mut tcp = TcpStream::connect(server.listens(1)).unwrap();
    tcp.write_all(bytes).unwrap();
    let _ = tcp.shutdown(std::net::Shutdown::Write);
    let _ = tcp.read_to_end(&mut Vec::new());
}

fn the_log_says_why_and_no_more_than_once_a_second() {
    let server = site().config("workers = 1").start();
    let failed = "127.0.0.1: the TLS handshake failed: ";
    for (bytes, why) in [
        (&[22; 100][..], "the client does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP without TLS"),
    ] {
        let words = format!("info {failed}{why}");
        galgo_testkit::wait_until(&words, || {
            say(&server, bytes);
            server.errors().contains(&words)
        });
    }
    // A client that connects and sends nothing gets no line: it may only check whether the server is there.
    let began = Instant::now();
    let before = server.errors().matches(failed).count();
    for _ in 0..200 {
        say(&server, b"");
        say(&server, &[22; 100]);
    }
    server.get("/health");
    let said = server.errors().matches(failed).count() - before;
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    assert!(said <= seconds, "{said} lines in {seconds} s");
}

fn a_thousand_that_stop_hold_up_nobody() {
    let server = site()
        .config("head_timeout = \"2s\"\nmax_connections = 4000")
        .start();
    let mut client = Client::connect(server.listens(1));
    let mut asks = || {
        client.get("/health");
        assert_eq!(client.reply().status, 200);
    };
    // Once the server answers, it has all descriptors that it keeps.
    asks();
    let before = galgo_testkit::process::descriptors(server.pid());
    // The beginning of a ClientHello.
    let stop = |_| {
        let mut tcp = TcpStream::connect(server.listens(1)).unwrap();
        tcp.write_all(b"\x16\x03\x01\x02\x00\x01\x00").unwrap();
        tcp
    };
    let mut slow: Vec<_> = (0..1000).map(stop).collect();
    asks();
    for tcp in &mut slow {
        let _ = tcp.read_to_end(&mut Vec::new());
    }
    server.says("the TLS handshake failed: it took longer than head_timeout");
    galgo_testkit::wait_until("their descriptors are closed", || {
        galgo_testkit::process::descriptors(server.pid()) <= before
    });
}

fn openssl(server: &Server, more: &[&str], input: &[u8]) -> Done {
    let at = server.listens(1).to_string();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &at]).args(more);
    Done::of(&mut command, input)
}

/// An attacker with a recording could send the request in early data again (RFC 8446, 8).
fn early_data_is_not_taken() {
    let server = site().start();
    let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let session = server.path("session");
    let session = session.to_str().unwrap();
    let first = openssl(&server, &["-ign_eof", "-sess_out", session], request);
    first.has_out("Max Early Data: 0");
    let early = server.site.write("early", request);
    let more = [
        "-ign_eof",
        "-sess_in",
        session,
        "-early_data",
        early.to_str().unwrap(),
    ];
    openssl(&server, &more, request).has_out("Early data was not sent");
}

/// The server takes the strongest cipher, whatever the client prefers.
fn the_strongest_cipher_is_taken() {
    let server = site().start();
    let (strong, weaker) = (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    );
    let wanted = format!("{weaker}:{strong}");
    openssl(&server, &["-tls1_2", "-cipher", &wanted], b"").has_out(format!("Cipher is {strong}"));
    let wanted = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
    let done = openssl(&server, &["-tls1_3", "-ciphersuites", wanted], b"");
    done.has_out("Cipher is TLS_AES_256_GCM_SHA384");
}

/// `R` makes openssl ask for a renegotiation.
fn renegotiation_is_refused() {
    let server = site().start();
    let done = openssl(&server, &["-tls1_2"], b"R\n");
    done.has_out("Secure Renegotiation IS supported");
    done.has_err("no renegotiation");
}
