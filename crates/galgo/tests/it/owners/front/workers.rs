//! Workers of FastCGI, and their sockets, that a server under an attacker's control asks for.

use super::*;

list![
    a_helper_starts_the_worker_as_configured,
    sockets_of_workers_are_out_of_reach_while_they_are_made,
];

fn a_helper_starts_the_worker_as_configured() {
    let spawner = Spawner::start();
    for uid in [0, MAN, NOBODY] {
        assert!(spawner.helper(uid, APP).is_err());
    }
    let helper = spawner.helper(GAMES, APP).unwrap();
    let echo = spawner.path("games/echo");
    let (report, said) = start(&helper, 0, &[&echo]);
    assert_eq!(
        (&*report, &*said),
        ("started", "5 /usr/local/bin:/usr/bin:/bin bar  one\n")
    );
    let who = spawner.path("games/who");
    for (args, strings, why) in [
        (0, &[&who[..]][..], "is not below"),
        (0, &[b"/bin/sh"], "is not below"),
        (1, &[&echo, b"two"], "takes no arguments"),
        (1, &[&echo, b"-e"], "takes no arguments"),
        (0, &[&echo, b"HTTP_X=1"], "takes no variables"),
        (0, &[&echo, b"PATH=/evil"], "takes no variables"),
        (0, &[&echo, b"QUERY_STRING=1"], "may not be set"),
        (0, &[&echo, b"LD_PRELOAD=/evil.so"], "may not be set"),
    ] {
        let (report, said) = start(&helper, args, strings);
        assert!(report.contains(why) && said.is_empty(), "{report} {said}");
    }
    // A route's helper starts no worker, and a worker's helper starts no program.
    let cgi = spawner.helper(GAMES, 0).unwrap();
    let (_, said) = start(&cgi, 0, &[&echo]);
    assert_eq!(said, "5 /usr/local/bin:/usr/bin:/bin bar  \n");
    // The spawner makes a socket for a worker, and an order cannot influence how.
    let made = spawner.order(3, 0, 0).unwrap().unwrap();
    assert!(rustix::net::sockopt::socket_acceptconn(&made).unwrap());
    assert!(spawner.order(3, GAMES, 0).is_err());
    assert!(spawner.order(3, 0, spawner.digests[0]).is_err());
}

/// Watches the folder of each new socket, and the socket in it, until it has seen enough folders or reached one socket.
const WATCHES: &str = "import os, sys\nseen = set()\nfor _ in iter(int, 1):
    for name in os.listdir(sys.argv[1]):
        if not name.startswith('galgo-'): continue
        seen.add(name)
        try: os.open(f'{sys.argv[1]}/{name}/socket', os.O_PATH)
        except OSError: continue
        sys.exit(1)
    if len(seen) >= 100: sys.exit(0)
";

/// Otherwise a program of the server's user could send any request to a worker of another user.
fn sockets_of_workers_are_out_of_reach_while_they_are_made() {
    let spawner = Spawner::start();
    let mut watches = Command::new(UNPRIVILEGED[0]);
    watches.args(&UNPRIVILEGED[1..]);
    watches.args(["/usr/bin/python3", "-c", WATCHES]);
    let mut watches = watches.arg(temporary(&spawner.site)).spawn().unwrap();
    let end = loop {
        assert!(spawner.order(3, 0, 0).is_ok());
        if let Some(end) = watches.try_wait().unwrap() {
            break end;
        }
    };
    assert!(end.success(), "it has met a socket, or has not run: {end}");
}
