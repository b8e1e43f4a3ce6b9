//! Connections between a server under an attacker's control and a helper.

use std::{fs::File, io::Read, os::fd::OwnedFd, os::unix::net::UnixDatagram};

use super::{GAMES, Spawner, heard, order, pair, receive, send, start};
use crate::harness::list;

list![
    a_connection_has_one_program_at_a_time,
    a_helper_says_nothing_to_a_service,
];

fn a_connection_has_one_program_at_a_time() {
    let spawner = Spawner::start();
    let helper = spawner.helper(GAMES, 0).unwrap();
    let (echo, attack) = (spawner.path("games/echo"), spawner.path("games/attack"));
    let (ours, theirs) = pair();
    // The helper knows no connection with this number.
    assert_eq!(written(order(&helper, (7, None), 0, &[&echo])), "");
    let stays = [&attack[..], b"QUERY_STRING=stay"];
    let runs = order(&helper, (7, Some(theirs)), 0, &stays);
    assert_eq!(heard(&ours), "started");
    assert_eq!(written(order(&helper, (7, None), 0, &[&echo])), "");
    send(&ours, &[15], &[]);
    drop(runs);
    ends(&ours);
    // Several programs may use the connection, each after the previous one has ended.
    for _ in 0..3 {
        let out = order(&helper, (7, None), 0, &[&echo]);
        assert!(written(out).starts_with("5 "));
        ends(&ours);
    }
    // A message while no program runs applies to the next program, whose order may arrive later.
    send(&ours, &[9], &[]);
    let out = order(&helper, (7, None), 0, &stays);
    ends(&ours);
    drop(out);
    // The helper forgets a closed connection. Shut down, because a process that another test starts may hold a copy.
    rustix::net::shutdown(&ours, rustix::net::Shutdown::Both).unwrap();
    assert_eq!(written(order(&helper, (7, None), 0, &[&echo])), "");
}

/// The server connects to a service of another user, and hands that over as the connection of a program: what the helper sends
/// would come from the program's user.
fn a_helper_says_nothing_to_a_service() {
    let spawner = Spawner::start();
    let helper = spawner.helper(GAMES, 0).unwrap();
    let (echo, none) = (spawner.path("games/echo"), spawner.path("games/none"));
    let service = spawner.site.path("service");
    let listener = UnixDatagram::bind(&service).unwrap();
    let ours = UnixDatagram::unbound().unwrap();
    ours.connect(&service).unwrap();
    for program in [&echo, &none] {
        let theirs = ours.try_clone().unwrap().into();
        assert_eq!(
            written(order(&helper, (7, Some(theirs)), 0, &[program])),
            ""
        );
    }
    let (file, folder) = (File::open("/dev/null").unwrap(), File::open("/").unwrap());
    for other in [file, folder] {
        let out = order(&helper, (7, Some(other.into())), 0, &[&echo]);
        assert_eq!(written(out), "");
    }
    listener.set_nonblocking(true).unwrap();
    let heard = listener.recv(&mut [0; 8]).unwrap_err();
    assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(start(&helper, 0, &[&echo]).0, "started");
}

fn written(mut out: std::io::PipeReader) -> String {
    let mut written = String::new();
    out.read_to_string(&mut written).unwrap();
    written
}

/// Waits for the end of the connection's program.
fn ends(connection: &OwnedFd) {
    loop {
        let (report, _) = receive(connection);
        match report.first() {
            Some(b'S') => {}
            first => return assert_eq!(first, Some(&b'X')),
        }
    }
}
