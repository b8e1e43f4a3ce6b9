//! Repeated reloads leave nothing of previous configurations behind.

use std::fs;

use super::{answer, site};
use crate::harness::list;
use galgo_testkit::{
    Client, Repeated, Server,
    process::{children, descriptors, memory},
    wait_until,
};

list![fifty_times_under_load];

fn route(n: usize) -> String {
    format!(
        "[[route]]\npath = \"/v/\"\ncgi = \"cgi-bin\"\nenv = {{ N = \"{n}\" }}\nmax_running = 50\n"
    )
}

/// Returns how many descriptors, threads and children the server has.
fn held(server: &Server) -> [usize; 3] {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    [
        descriptors(server.pid()),
        tasks.count(),
        children(server.pid()).len(),
    ]
}

/// Changes a variable now and then and, in turn, an answer, the listeners, or nothing else.
fn change(server: &Server, n: usize) {
    server.configure(&route((n + 1).div_ceil(5)));
    let socket = server.path("s");
    let more = format!("listen = [\"127.0.0.1:0\", \"unix:{}\"]", socket.display());
    match n % 5 {
        0 => server.configure(&answer("two")),
        1 => server.configure(&more),
        2 => server.configure("listen = [\"127.0.0.1:0\"]"),
        3 => server.configure(&answer("one")),
        _ => {}
    }
}

fn fifty_times_under_load() {
    let server = site().config(&route(0)).start();
    // The first request of each kind opens what the server keeps.
    for target in ["/c", "/v/t?head", "/cgi-bin/t?head"] {
        assert_eq!(server.get(target).status, 200);
    }
    assert!(server.reload());
    let before = held(&server);
    let resident = memory(server.pid(), "VmRSS");
    let address = server.address();
    let ask = |target: &'static str| {
        let mut kept = Client::connect(address);
        Repeated::start(move || {
            kept.get(target);
            assert_eq!(kept.reply().status, 200, "{target}");
            let mut once = Client::connect(address);
            once.send(format!(
                "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
            ));
            assert_eq!(once.reply().status, 200, "{target}");
        })
    };
    let asking = ["/c", "/v/t?head&out=x", "/cgi-bin/t?head&fill=100000"].map(ask);
    for n in 0..50 {
        change(&server, n);
        assert!(server.reload());
    }
    asking.into_iter().for_each(Repeated::end);
    assert!(server.get("/v/t?head&env").text().contains("N=10\n"));
    let slack = match std::env::var_os("GALGO_TEST_START") {
        // Templates, and their children that wait for requests.
        Some(_) => 24,
        None => 0,
    };
    wait_until("as much as before", || {
        let now = held(&server);
        now[0] <= before[0] + slack && now[1] <= before[1] && now[2] <= before[2]
    });
    let grown = memory(server.pid(), "VmRSS").saturating_sub(resident);
    assert!(grown < 16 << 20, "{} KiB more", grown >> 10);
    assert!(!server.errors().contains("panicked"));
}
