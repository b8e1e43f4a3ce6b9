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
    // Of a number that is nobody's no connection is known.
    assert_eq!(written(order(&helper, (7, None), 0, &[&echo])), "");
    let stays = [&attack[..], b"QUERY_STRING=stay"];
    let runs = order(&helper, (7, Some(theirs)), 0, &stays);
    assert_eq!(heard(&ours), "started");
    assert_eq!(written(order(&helper, (7, None), 0, &[&echo])), "");
    send(&ours, &[15], &[]);
    drop(runs);
    ends(&ours);
    // One after the other.
    for _ in 0..3 {
        let out = order(&helper, (7, None), 0, &[&echo]);
        assert!(written(out).starts_with("5 "));
        ends(&ours);
    }
    // What is said where no program runs is about the next one: its order may come later.
    send(&ours, &[9], &[]);
    let out = order(&helper, (7, None), 0, &stays);
    ends(&ours);
    drop(out);
    // One that is closed is forgotten. Shut down: a process that another test starts may hold a copy of it for a moment.
    rustix::net::shutdown(&ours, rustix::net::Shutdown::Both).unwrap();
    assert_eq!(written(order(&helper, (7, None), 0, &[&echo])), "");
}

fn written(mut out: std::io::PipeReader) -> String {
    let mut written = String::new();
    out.read_to_string(&mut written).unwrap();
    written
}

/// Waits for the end of its program.
fn ends(connection: &OwnedFd) {
    loop {
        let (report, _) = receive(connection);
        match report.first() {
            Some(b'S') => {}
            first => return assert_eq!(first, Some(&b'X')),
        }
    }
}
