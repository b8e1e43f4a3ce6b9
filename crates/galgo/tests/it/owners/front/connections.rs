//! Connections between a server under an attacker's control and a helper.

use std::{io::Read, os::fd::OwnedFd};

use super::{GAMES, Spawner, heard, order, pair, receive, send};
use crate::harness::list;

list![a_connection_has_one_program_at_a_time];

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
