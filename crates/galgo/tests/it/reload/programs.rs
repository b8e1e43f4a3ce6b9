//! Programs, and what the server keeps for them, across reloads.

use std::{sync::mpsc, thread};

use super::{answer, says, site};
use crate::harness::{list, new_site};
use galgo_testkit::wait_until;

list![
    a_variable_that_changed_is_the_next_programs,
    places_become_more_and_fewer,
    templates_of_routes_that_did_not_change_live_on,
    templates_of_routes_that_are_gone_end,
];

fn a_variable_that_changed_is_the_next_programs() {
    let route = |what: &str| {
        format!("[[route]]\npath = \"/v/\"\ncgi = \"cgi-bin\"\nenv = {{ WHAT = \"{what}\" }}\n")
    };
    for start in ["cold", "warm"] {
        let server = new_site()
            .defaults(&format!("start = \"{start}\""))
            .config(&route("old"))
            .start();
        let env = || server.get("/v/t?head&env").text();
        assert!(env().contains("WHAT=old\n"));
        assert!(env().contains("WHAT=old\n"));
        server.configure(&route("new"));
        server.configure("path = \"/usr/bin\"");
        assert!(server.reload());
        for _ in 0..3 {
            let env = env();
            assert!(
                env.contains("WHAT=new\n") && env.contains("PATH=/usr/bin\n"),
                "{env}"
            );
        }
    }
}

/// The permits belong to the server: they also count programs that began under a previous configuration.
fn places_become_more_and_fewer() {
    let server = site().config("max_running = 1\nqueue = 0").start();
    let hold = |name: &str| {
        let mut client = server.connect();
        client.get(&format!(
            "/cgi-bin/t?touch=in-{name}&await={name}&head&out={name}"
        ));
        server.wait_for(&format!("in-{name}"));
        client
    };
    let busy = || server.get("/cgi-bin/t?head").status == 503;
    let mut a = hold("a");
    assert!(busy());
    server.configure("max_running = 3");
    assert!(server.reload());
    let (mut b, mut c) = (hold("b"), hold("c"));
    assert!(busy());
    server.configure("max_running = 1");
    assert!(server.reload());
    for (client, name) in [(&mut a, "a"), (&mut b, "b")] {
        server.set(name);
        assert_eq!(client.reply().text(), name);
        // `c` has the only permit.
        assert!(busy(), "{name}");
    }
    server.set("c");
    assert_eq!(c.reply().text(), "c");
    wait_until("the permit of `c`", || !busy());
    server.configure("queue = 1");
    assert!(server.reload());
    let mut d = hold("d");
    // The queue takes either of the two clients and refuses the other; the test accepts both orders.
    let (say, said) = mpsc::channel();
    thread::scope(|scope| {
        for say in [say.clone(), say] {
            let server = &server;
            scope.spawn(move || say.send(server.get("/cgi-bin/t?head&out=waited")).unwrap());
        }
        assert_eq!(said.recv().unwrap().status, 503);
        server.set("d");
        assert_eq!(d.reply().text(), "d");
        assert_eq!(said.recv().unwrap().text(), "waited");
    });
}

const WARM: &str = "start = \"warm\"";

fn templates_of_routes_that_did_not_change_live_on() {
    let server = site().defaults(WARM).start();
    let loaded = || server.errors().matches("loaded for warm starts").count();
    assert_eq!(server.get("/cgi-bin/t?head").status, 200);
    wait_until("two templates", || loaded() == 2);
    for words in ["two", "one"] {
        server.configure(&answer(words));
        assert!(server.reload());
        assert_eq!(server.get("/cgi-bin/t?head").status, 200);
    }
    assert_eq!(says(&server), "one");
    assert_eq!(loaded(), 2);
    server.configure("[defaults]\nidle_timeout = \"3m\"");
    assert!(server.reload());
    assert_eq!(server.get("/cgi-bin/t?head").status, 200);
    wait_until("others", || loaded() == 4);
}

fn templates_of_routes_that_are_gone_end() {
    let server = site().defaults(WARM).start();
    assert_eq!(server.get("/cgi-bin/t?head").status, 200);
    let templates = || crate::warm::templates(&server).len();
    wait_until("two templates", || templates() == 2);
    server.reconfigure(|config| {
        config.remove_route("/cgi-bin/");
        config.merge("[[route]]\npath = \"/elsewhere/\"\ncgi = \"cgi-bin\"");
    });
    assert!(server.reload());
    assert_eq!(server.get("/cgi-bin/t?head").status, 404);
    wait_until("their end", || templates() == 0);
    server.configure("[defaults]\nstart = \"cold\"");
    assert!(server.reload());
    assert_eq!(server.get("/elsewhere/t?head").status, 200);
}
