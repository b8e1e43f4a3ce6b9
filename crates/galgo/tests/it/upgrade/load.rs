//! Repeated upgrades and reloads under load: no request fails, and nothing is left behind.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use h2::Reason;

use crate::{
    harness::{list, new_site},
    http2::{Connection, request},
};
use galgo_testkit::{
    Client, Repeated, Server,
    process::{descriptors, figure, of_site, parent, pids},
    stream::own,
    wait_until,
};

list![no_request_fails];

/// Number of upgrades and of reloads; `GALGO_TEST_UPGRADES` changes it.
const ROUNDS: usize = 6;

const PAGES: [&str; 3] = [
    "/health",
    "/cgi-bin/t?head&out=x",
    "/warm/t?head&fill=100000",
];

/// Asks over a connection until the server closes it, then over the next connection.
fn kept(at: SocketAddr, asked: &Arc<AtomicUsize>) -> Repeated {
    let (asked, mut client, mut n) = (asked.clone(), Client::connect(at), 0);
    Repeated::start(move || {
        let page = PAGES[n % PAGES.len()];
        client.get(page);
        let reply = client.reply();
        assert_eq!(reply.status, 200, "{page}");
        if reply.closes() {
            client = Client::connect(at);
        }
        n += 1;
        asked.fetch_add(1, Ordering::Relaxed);
    })
}

/// Asks over a new connection each time.
fn once(at: SocketAddr, asked: &Arc<AtomicUsize>) -> Repeated {
    let asked = asked.clone();
    Repeated::start(move || {
        let mut client = Client::connect(at);
        client.send("GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        assert_eq!(client.reply().status, 200);
        asked.fetch_add(1, Ordering::Relaxed);
    })
}

/// Asks over a connection of HTTP/2, two streams at once, until the server sends GOAWAY. Like every client, sends a request
/// again if the server says that it has not processed the stream (RFC 9113, 8.7). Such streams occur because this client may
/// open one after it has acknowledged GOAWAY.
fn streams(socket: &Path, asked: &Arc<AtomicUsize>) -> Repeated {
    let (asked, socket) = (asked.clone(), PathBuf::from(socket));
    let (mut client, mut n) = (Connection::connect(&socket), 0);
    Repeated::start(move || {
        let pages = [PAGES[n % PAGES.len()], "/health"];
        let sent = pages.map(|page| client.send(request("GET", page), true));
        let mut open = true;
        for sent in sent {
            let reply = sent.ok().map(|stream| client.reply(stream));
            match reply.map(|reply| (reply.status, reply.cut)) {
                Some((200, None)) => drop(asked.fetch_add(1, Ordering::Relaxed)),
                None | Some((0, Some(Reason::NO_ERROR | Reason::REFUSED_STREAM))) => open = false,
                failed => panic!("{failed:?}"),
            }
        }
        if open {
            n += 1
        } else {
            client = Connection::connect(&socket)
        }
    })
}

/// Returns the galgo processes of a site: the servers, including ending ones, and their guards.
fn galgos(server: &Server) -> (Vec<u32>, Vec<u32>) {
    let folder = server.site.folder().to_str().unwrap().to_owned();
    let serves = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line
            .split(|&b| b == 0)
            .map(String::from_utf8_lossy)
            .collect();
        words.len() > 2 && words[1] == "serve" && words[2] == folder.as_str()
    };
    let is_guard = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"galgo-guard\n")
    };
    pids().filter(serves).partition(|pid| !is_guard(pid))
}

fn no_request_fails() {
    let own = own();
    let rounds = std::env::var("GALGO_TEST_UPGRADES").ok();
    let rounds = rounds.map_or(ROUNDS, |n| n.parse().unwrap());
    let socket = "unix:h";
    let site = new_site().config(&format!(
        "listen = [\"127.0.0.1:0\", \"https://127.0.0.2:0\", \"h2c+{socket}\"]\n\
         shutdown_grace = \"2m\"\naccess_log = \"off\"\n\
         [tls]\ncertificate = {:?}\nkey = {:?}\n\
         [[route]]\npath = \"/warm/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n",
        own.certificate, own.key
    ));
    let server = site.start();
    let socket = server.path("h");
    let asked = Arc::new(AtomicUsize::new(0));
    for page in PAGES {
        assert_eq!(server.get(page).status, 200);
    }
    let load = || {
        let [plain, tls] = [0, 1].map(|n| server.listens(n));
        vec![
            kept(plain, &asked),
            kept(plain, &asked),
            once(plain, &asked),
            kept(tls, &asked),
            once(tls, &asked),
            streams(&socket, &asked),
        ]
    };
    // Takes over under load once more, then waits until the load and the other processes have ended.
    let settled = || {
        let loads = load();
        assert!(server.upgrade() && server.reload());
        loads.into_iter().for_each(Repeated::end);
        wait_until("the end of the others", || {
            let (servers, guards) = galgos(&server);
            servers == [server.pid()] && guards.len() == 1
        });
        for page in PAGES {
            assert_eq!(server.get(page).status, 200);
        }
    };
    let holds = || {
        let threads = figure(server.pid(), "Threads") as usize;
        [descriptors(server.pid()), threads]
    };
    settled();
    let before = holds();
    let loads = load();
    for _ in 0..rounds {
        assert!(server.upgrade(), "{}", server.errors());
        assert!(server.reload(), "{}", server.errors());
    }
    loads.into_iter().for_each(Repeated::end);
    settled();
    // Templates and idle connections come and go. A leak would show once for each upgrade or reload.
    let slack = rounds.min(8);
    wait_until("a server that holds no more than before", || {
        holds().iter().zip(before).all(|(now, b)| *now < b + slack)
    });
    // Templates and their waiting children. Other servers' templates have ended, too.
    let of_others = || {
        let mut all = of_site(server.site.folder()).into_iter();
        all.any(|pid| parent(pid) != Some(server.pid()))
    };
    wait_until("the end of what others had loaded", || !of_others());
    assert!(!server.errors().contains("panicked"), "{}", server.errors());
    eprintln!(
        "{rounds} upgrades and reloads, {} requests",
        asked.load(Ordering::Relaxed)
    );
}
