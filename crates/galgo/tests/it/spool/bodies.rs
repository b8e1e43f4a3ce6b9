//! Request bodies that the server stores before their program starts.

use std::{fs, io::Write, path::Path, thread};

use rustix::io::Errno;

use crate::harness::{
    child::pattern,
    disk::{Disk, nameless},
    inject,
    inject::Calls,
    list, new_site,
    watch::Watch,
};
use galgo_testkit::{Client, Server, Site, wait_until};

const MB: usize = 1 << 20;

fn files() -> Site {
    let patient = new_site().config("rate_grace = \"1h\"");
    patient.defaults("body = \"file\"")
}

fn on(disk: &Disk) -> Site {
    files().config(&format!("spool = {:?}", disk.path()))
}

/// Posts `n` bytes from another thread, because the server may not read for a while. Returns the response.
fn posting(server: &Server, target: &str, n: usize) -> thread::JoinHandle<(u16, Vec<u8>)> {
    let (mut client, target) = (server.connect(), target.to_owned());
    thread::spawn(move || {
        client.begin_post(&target, n);
        client.try_send(pattern(0, n));
        let reply = client.reply();
        (reply.status, reply.body)
    })
}

/// Returns how many threads of the server wait for a disk in uninterruptible sleep.
fn waiting(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let waits = |task: &fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.contains("(spool) D ")
    };
    tasks.flatten().filter(|task| waits(task)).count()
}

/// A single event loop, and more requests than threads that write. Files are being created, written and closed.
fn a_disk_that_stalls_holds_up_nobody_else() {
    let disk = Disk::new(96 << 20);
    let site = on(&disk)
        .config("workers = 1")
        .defaults("idle_timeout = \"1h\"");
    let server = site.start();
    let watch = Watch::begin(&server);
    // Two bodies are already on their way: one client continues, the other leaves.
    let mut begun: Vec<_> = (0..2).map(|_| server.connect()).collect();
    for client in &mut begun {
        client.begin_post("/cgi-bin/t?head&count", 3 * MB);
        client.send(pattern(0, MB));
    }
    wait_until("two bodies on the disk", || {
        nameless(server.pid(), &disk.path()) > MB as u64
    });
    let frozen = disk.freeze();
    let stalled: Vec<_> = (0..8)
        .map(|_| posting(&server, "/cgi-bin/t?head&echo", 3 * MB))
        .collect();
    wait_until("threads that wait for the disk", || waiting(&server) > 1);
    begun.pop().unwrap().reset();
    let mut slow = begun.pop().unwrap();
    let rest = pattern(MB, 2 * MB);
    let mut upload = slow.stream.try_clone().unwrap();
    let rest = thread::spawn(move || upload.write_all(&rest).is_ok());
    for _ in 0..20 {
        assert_eq!(server.get("/cgi-bin/t?head&out=there").text(), "there");
        let mut small = server.connect();
        small.post("/cgi-bin/t?head&echo", b"in memory");
        assert_eq!(small.reply().text(), "in memory");
    }
    drop(frozen);
    assert!(rest.join().unwrap());
    assert_eq!(slow.reply().text(), (3 * MB).to_string());
    for stalled in stalled {
        assert!(stalled.join().unwrap() == (200, pattern(0, 3 * MB)));
    }
    drop(slow);
    let outcomes = [vec!["ok"; 49], vec!["client_gone"]].concat();
    watch.after(&outcomes);
}

fn a_disk_that_stalls_for_too_long_is_503() {
    let disk = Disk::new(32 << 20);
    let server = on(&disk).defaults("idle_timeout = \"1s\"").start();
    let watch = Watch::begin(&server);
    let frozen = disk.freeze();
    let stalled = posting(&server, "/cgi-bin/t?touch=ran&head", 3 * MB);
    assert_eq!(stalled.join().unwrap().0, 503);
    server.says("took no bytes within idle_timeout");
    assert!(!server.mark("ran").exists());
    drop(frozen);
    watch.after(&["busy"]);
}

fn a_full_disk_is_507_and_its_room_comes_back() {
    let disk = Disk::new(16 << 20);
    let server = on(&disk).start();
    let watch = Watch::begin(&server);
    let free = disk.free();
    for _ in 0..3 {
        let (status, _) = posting(&server, "/cgi-bin/t?touch=ran&head", 32 * MB)
            .join()
            .unwrap();
        assert_eq!(status, 507);
        server.says("No space left on device");
        assert!(!server.mark("ran").exists());
        wait_until("the room of before", || disk.free() >= free);
    }
    let fits = posting(&server, "/cgi-bin/t?head&count", 8 * MB)
        .join()
        .unwrap();
    assert_eq!(fits, (200, (8 * MB).to_string().into()));
    watch.after(&["no_storage", "no_storage", "no_storage", "ok"]);
}

/// Bodies in memory and on the disk have limits for all requests, so a program must not make its own body longer.
fn a_program_reads_its_body_and_cannot_write_it() {
    let site = files();
    site.program(
        "tries",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n(echo more >&0) 2>/dev/null || echo refused\nwc -c\n",
    );
    let server = site.start();
    let watch = Watch::begin(&server);
    for size in [100, 3 * MB] {
        let said = posting(&server, "/cgi-bin/tries", size).join().unwrap();
        assert_eq!(said, (200, format!("refused\n{size}\n").into()));
    }
    watch.after(&["ok"; 2]);
}

fn all_files_together_have_one_bound() {
    let server = files().config("spool_limit = \"4M\"").start();
    let watch = Watch::begin(&server);
    let mut first = server.connect();
    first.begin_post("/cgi-bin/t?head&count", 2 * MB);
    first.send(pattern(0, 2 * MB - 1));
    let spool = Path::new("/var/tmp");
    let spool = std::env::var_os("TMPDIR").map_or(spool.to_owned(), Into::into);
    wait_until("nearly all of the first body in its file", || {
        nameless(server.pid(), &spool) > MB as u64
    });
    // Each address may use half of the space; the other half is for other addresses.
    let post = |address: [u8; 4]| {
        let mut client = Client::connect_from(address, server.address());
        client.begin_post("/cgi-bin/t?touch=ran&head&count", 2 * MB);
        client.try_send(pattern(0, 2 * MB - 1));
        client
    };
    let refused = |mut client: Client| {
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")));
    };
    refused(post([127, 0, 0, 1]));
    server.says("of this client's address have reached half of spool_limit");
    let mut second = post([127, 0, 0, 2]);
    wait_until("nearly all of both bodies in files", || {
        nameless(server.pid(), &spool) > 3 * MB as u64
    });
    refused(post([127, 0, 0, 3]));
    assert!(!server.mark("ran").exists());
    second.send("x");
    assert_eq!(second.reply().text(), (2 * MB).to_string());
    first.send("x");
    assert_eq!(first.reply().text(), (2 * MB).to_string());
    // The space of finished requests is free again.
    wait_until("room for as much as before", || {
        let (status, body) = posting(&server, "/cgi-bin/t?head&count", 2 * MB)
            .join()
            .unwrap();
        status == 200 && body == (2 * MB).to_string().as_bytes()
    });
    drop((first, second));
    drop(watch);
}

/// Forty clients send small bodies except for the last byte: memory holds bodies up to the limit, and files hold the rest.
fn bodies_in_memory_have_one_bound() {
    let disk = Disk::new(96 << 20);
    let server = on(&disk).config("spool_memory = \"4M\"").start();
    let watch = Watch::begin(&server);
    let address = |n: u8| [127, 0, 0, 1 + n % 2];
    let connect = |n| Client::connect_from(address(n), server.address());
    let mut clients: Vec<Client> = (0..40).map(connect).collect();
    let sent = pattern(0, MB);
    for client in &mut clients {
        client.begin_post("/cgi-bin/t?head&echo", MB);
        client.send(&sent[..MB - 1]);
    }
    clients.iter().for_each(Client::wait_until_read);
    let in_memory = nameless(server.pid(), Path::new("/memfd:galgo request body"));
    // The last piece of each body has not been written yet.
    assert!(
        in_memory > 3 << 20 && in_memory <= 4 << 20,
        "{in_memory} bytes of bodies are in memory"
    );
    wait_until("the others in files", || {
        nameless(server.pid(), &disk.path()) > 30 << 20
    });
    for client in &mut clients {
        client.send(&sent[MB - 1..]);
    }
    for client in &mut clients {
        assert!(client.reply().body == sent);
    }
    drop(clients);
    watch.after(&["ok"; 40]);
}

/// Some file systems do not support O_TMPFILE.
fn where_files_have_names_they_are_removed_at_once() {
    const TMPFILE: u32 = 0o20_000_000;
    let folder = tempfile::tempdir().unwrap();
    let site = files().config(&format!("spool = {:?}", folder.path()));
    let calls = Calls {
        name: "openat",
        argument: 2,
        mask: TMPFILE,
    };
    let server = calls.of(site).start();
    let watch = Watch::begin(&server);
    inject::fail(&server, 0, u64::MAX, Errno::OPNOTSUPP);
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?head&count", 3 * MB);
    client.send(pattern(0, 3 * MB - 1));
    wait_until("nearly all of the body in its file", || {
        nameless(server.pid(), folder.path()) > 2 * MB as u64
    });
    assert_eq!(nameless(server.pid(), Path::new("/memfd:galgo request")), 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    client.send("x");
    assert_eq!(client.reply().text(), (3 * MB).to_string());
    drop(client);
    watch.after(&["ok"]);
}

fn check_says_that_no_file_can_be_made() {
    let disk = Disk::new(16 << 20);
    let server = on(&disk).start();
    let check = || {
        let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_galgo"));
        let done = check
            .arg("check")
            .arg(server.site.folder())
            .output()
            .unwrap();
        (
            done.status.success(),
            String::from_utf8_lossy(&done.stdout).into_owned(),
        )
    };
    let (fine, says) = check();
    assert!(fine, "{says}");
    let at = disk.path();
    let read_only = std::process::Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(&at)
        .status();
    assert!(read_only.unwrap().success());
    let (fine, says) = check();
    assert!(
        !fine && says.contains("spool") && says.contains("Read-only"),
        "{says}"
    );
    let reply = posting(&server, "/cgi-bin/t?head", 2 * MB).join().unwrap();
    assert_eq!(reply.0, 507);
    server.says("Read-only file system");
}

list![
    a_disk_that_stalls_holds_up_nobody_else,
    a_disk_that_stalls_for_too_long_is_503,
    a_full_disk_is_507_and_its_room_comes_back,
    a_program_reads_its_body_and_cannot_write_it,
    all_files_together_have_one_bound,
    bodies_in_memory_have_one_bound,
    where_files_have_names_they_are_removed_at_once,
    check_says_that_no_file_can_be_made,
];
