//! Listeners that stay, are added or are removed by a reload.

use std::{
    fs,
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixStream},
};

use rustix::process::geteuid;

use super::{answer, says, site};
use crate::harness::list;
use galgo_testkit::{Client, Repeated, Server, free_address};

list![
    one_that_stays_refuses_nobody,
    they_come_and_go,
    one_that_cannot_be_bound_keeps_the_old,
    who_was_let_in_before_is_served,
    what_is_spoken_may_change,
    one_of_its_own_is_in_the_way,
];

/// Configures the server to listen at these additional addresses, and drops previous additions.
fn listen(server: &Server, more: &str) {
    server.configure(&format!("listen = [\"127.0.0.1:0\", {more}]"));
}

fn refused(at: SocketAddr) -> bool {
    TcpStream::connect(at).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

/// Clients connect all the time during reloads, and every connection is answered.
fn one_that_stays_refuses_nobody() {
    let server = site().start();
    let address = server.address();
    let knocking = [(); 3].map(|()| {
        Repeated::start(move || {
            let mut client = Client::connect(address);
            client.get("/c");
            assert_eq!(client.reply().status, 200);
        })
    });
    let socket = format!("\"unix:{}\"", server.path("s").display());
    for _ in 0..10 {
        listen(&server, &socket);
        assert!(server.reload());
        listen(&server, "");
        assert!(server.reload());
    }
    knocking.into_iter().for_each(Repeated::end);
}

fn they_come_and_go() {
    let server = site().start();
    let (port, socket) = (free_address(), server.path("s"));
    assert!(refused(port));
    let more = format!("\"{port}\", \"unix:{}\"", socket.display());
    listen(&server, &more);
    assert!(server.reload());
    let mut old = Client::connect(port);
    old.get("/c");
    assert_eq!(old.reply().text(), "one");
    assert!(UnixStream::connect(&socket).is_ok());
    assert_eq!(says(&server), "one");
    listen(&server, "");
    assert!(server.reload());
    assert!(refused(port) && !socket.exists());
    // A connection that was accepted before its listener was closed stays open.
    old.get("/c");
    assert_eq!(old.reply().text(), "one");
    // The same address can be added again.
    listen(&server, &more);
    assert!(server.reload());
    let mut new = Client::connect(port);
    new.get("/c");
    assert_eq!(new.reply().text(), "one");
    drop(server);
    assert!(refused(port));
}

/// If one address cannot be bound, nothing of the new configuration is used.
fn one_that_cannot_be_bound_keeps_the_old() {
    let server = site().start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = server.path("s");
    let more = format!(
        "\"unix:{}\", \"{}\"",
        socket.display(),
        taken.local_addr().unwrap()
    );
    listen(&server, &more);
    server.configure(&answer("two"));
    assert!(!server.reload());
    assert!(
        server
            .errors()
            .contains("another program listens there already")
    );
    assert!(!socket.exists());
    assert_eq!(says(&server), "one");
    drop(taken);
    assert!(server.reload());
    assert_eq!(says(&server), "two");
    assert!(UnixStream::connect(&socket).is_ok());
}

/// A connection that the kernel accepted before its listener was closed is answered.
fn who_was_let_in_before_is_served() {
    let server = site().start();
    let port = free_address();
    let more = format!("\"{port}\"");
    listen(&server, &more);
    assert!(server.reload());
    listen(&server, "");
    let mut many: Vec<_> = (0..100).map(|_| Client::connect(port)).collect();
    assert!(server.reload());
    many.iter_mut().for_each(|client| client.get("/c"));
    assert!(many.iter_mut().all(|client| client.reply().text() == "one"));
}

/// The socket stays, and new connections on it speak the configured protocol.
fn what_is_spoken_may_change() {
    let server = site().start();
    let port = free_address();
    listen(&server, &format!("\"{port}\""));
    assert!(server.reload());
    listen(&server, &format!("\"scgi+{port}\""));
    assert!(server.reload());
    let mut front = Client::connect(port);
    let variables = "CONTENT_LENGTH\x000\0SCGI\x001\0REQUEST_METHOD\0GET\0REQUEST_URI\0/c\0\
                     SERVER_PROTOCOL\0HTTP/1.1\0HTTP_HOST\0localhost\0";
    front.send(format!("{}:{variables},", variables.len()));
    let said = String::from_utf8(front.rest()).unwrap();
    assert!(
        said.starts_with("Status: 200 OK\r\n") && said.ends_with("one"),
        "{said}"
    );
}

/// A server cannot listen on every address of a port while its own socket has one address of that port.
fn one_of_its_own_is_in_the_way() {
    let mut site = site();
    if geteuid().is_root() {
        // A server that stays root listens for this machine only, so this one becomes another user.
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(site.folder(), mode).unwrap();
        site = site.arguments(&["--user", "daemon"]);
    }
    let server = site.start();
    let port = free_address();
    listen(&server, &format!("\"{port}\""));
    assert!(server.reload());
    listen(&server, &format!("\"127.0.0.2:{}\"", port.port()));
    assert!(server.reload());
    listen(&server, &format!("\"0.0.0.0:{}\"", port.port()));
    assert!(!server.reload());
    let words = "galgo itself listens on 127.0.0.2:";
    assert!(server.errors().contains(words), "{}", server.errors());
    assert_eq!(says(&server), "one");
}
