//! Sockets that a service manager passes (sd_listen_fds(3)).

use std::{net::SocketAddr, os::unix::net::UnixStream, process::Command};

use crate::harness::{list, new_site};
use galgo_testkit::{Client, Done, Server, Site, free_address, process::assert_gone};

list![
    by_address,
    by_name,
    all_where_nobody_says_where,
    with_an_upgrade,
    by_a_reload,
    what_is_wrong,
    of_another_process,
];

/// Opens sockets like systemd does, and executes the command after `--`. Each word is `NAME=ADDRESS:PORT` or `NAME=/path`,
/// with `udp!` before the address for a UDP socket.
const PASS: &str = r#"
use Socket; use POSIX ();
$^F = 100;
my ($fd, @names) = (3);
while (($_ = shift) ne '--') {
    my ($name, $udp, $at) = m{^(.*?)=(udp!)?(.*)$};
    my ($host, $port) = $at =~ m{^(.*):(\d+)$};
    my $family = $at =~ m{^/} ? PF_UNIX : PF_INET;
    socket(my $s, $family, $udp ? SOCK_DGRAM : SOCK_STREAM, 0) or die;
    setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1) or die;
    bind($s, $family == PF_UNIX ? pack_sockaddr_un($at) : pack_sockaddr_in($port, inet_aton($host))) or die "$at: $!";
    $udp || $name eq 'deaf' || listen($s, 100) || die;
    POSIX::dup2(fileno($s), $fd + 50) or die;
    $fd++; push @names, $name; push @keep, $s;
}
POSIX::dup2($_ + 50, $_), POSIX::close($_ + 50) for 3 .. $fd - 1;
$ENV{LISTEN_PID} = $ENV{OTHER} // $$; $ENV{LISTEN_FDS} = $fd - 3; $ENV{LISTEN_FDNAMES} = join ':', @names;
exec @ARGV;
"#;

/// Passes these sockets to the site's server.
pub fn passed(site: Site, sockets: &[&str]) -> Site {
    site.through(&[&["perl", "-e", PASS, "--"], sockets, &["--"]].concat())
}

fn fine(at: SocketAddr) {
    let mut client = Client::connect(at);
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
}

fn listens(server: &Server, at: &str) -> bool {
    server
        .table
        .lines()
        .any(|line| line == format!("listening on {at}"))
}

fn by_address() {
    let (web, site) = (free_address(), new_site());
    let socket = site.path("s").display().to_string();
    let site = site.config(&format!(
        "listen = [\"127.0.0.1:0\", \"unix:s\", \"{web}\"]"
    ));
    let server = passed(
        site,
        &[&format!("galgo.socket={web}"), &format!("x={socket}")],
    )
    .start();
    fine(web);
    fine(server.address());
    let mut client = Client::over(UnixStream::connect(&socket).unwrap());
    client.get("/health");
    assert_eq!(client.reply().status, 200);
    // The socket file belongs to the service manager, so galgo makes no lock for it.
    assert!(!server.path("s.lock").exists());
    let fds = server.get("/cgi-bin/t?head&fds").text();
    assert_eq!(fds.trim(), "0 1 2");
}

fn by_name() {
    let [a, b, c] = [(); 3].map(|()| free_address());
    let site = new_site()
        .config("listen = [\"fd:web\", \"scgi+fd:app\"]")
        .without_probe();
    let sockets = [format!("web={a}"), format!("app={b}"), format!("web={c}")];
    let sockets: Vec<_> = sockets.iter().map(String::as_str).collect();
    let server = passed(site, &sockets).start();
    assert!(listens(&server, &format!("http://{a}")) && listens(&server, &format!("scgi+{b}")));
    fine(a);
    fine(c);
}

fn all_where_nobody_says_where() {
    let at = free_address();
    let site = new_site().without("listen");
    let server = passed(site, &[&format!("unknown={at}")]).start();
    assert!(listens(&server, &format!("http://{at}")));
    fine(at);
}

fn with_an_upgrade() {
    let [web, later] = [(); 2].map(|()| free_address());
    let site = new_site().config("listen = [\"127.0.0.1:0\", \"fd:web\"]");
    let server = passed(site, &[&format!("web={web}")]).start();
    for _ in 0..2 {
        let before = server.pid();
        assert!(server.upgrade(), "{}", server.errors());
        assert_gone(before);
        fine(web);
    }
    server.configure(&format!(
        "listen = [\"127.0.0.1:0\", \"{web}\", \"{later}\"]"
    ));
    assert!(server.upgrade(), "{}", server.errors());
    fine(later);
    fine(web);
}

/// A passed socket is kept, so that a later configuration can name it again.
fn by_a_reload() {
    let web = free_address();
    let site = new_site().config("listen = [\"127.0.0.1:0\", \"https://fd:web\"]");
    let own = galgo_testkit::stream::own();
    let site = site.config(&format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}",
        own.certificate, own.key
    ));
    let server = passed(site, &[&format!("web={web}")]).start();
    server.configure("listen = [\"127.0.0.1:0\"]");
    assert!(!server.reload());
    assert!(server.errors().contains("its clients would wait for ever"));
    server.configure("listen = [\"127.0.0.1:0\", \"proxy+fd:web\"]");
    assert!(server.reload());
}

fn what_is_wrong() {
    let site = new_site();
    for (sockets, listen, words) in [
        (
            vec!["web=127.0.0.1:0"],
            "fd:other",
            "The passed sockets are \"fd:web\"",
        ),
        (vec![], "fd:web", "no service manager has passed a socket"),
        (
            vec!["web=127.0.0.1:0"],
            "127.0.0.1:0",
            "and `listen` does not name it",
        ),
        (
            vec!["web=udp!127.0.0.1:0"],
            "fd:web",
            "\"web\" that galgo was passed: it is not a stream socket",
        ),
        (
            vec!["deaf=127.0.0.1:0"],
            "fd:deaf",
            "it is not a listening socket (Accept=no)",
        ),
    ] {
        let mut command = Command::new("perl");
        command.args(["-e", PASS, "--"]).args(&sockets).arg("--");
        command
            .arg(env!("CARGO_BIN_EXE_galgo"))
            .args(["serve", "-l", listen]);
        command.arg(site.folder());
        Done::of(&mut command, b"").has_err(words);
    }
}

/// Another process was meant to get the variables, but galgo inherited them.
fn of_another_process() {
    let at = free_address();
    let site = passed(new_site().env("OTHER", "1"), &[&format!("web={at}")]);
    let server = site.start();
    assert_ne!(server.address(), at);
    fine(server.address());
}
