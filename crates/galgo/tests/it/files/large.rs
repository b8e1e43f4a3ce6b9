//! Sending of files.

use std::{fs::File, io::Read};

use super::site;
use crate::harness::{child::pattern, list, new_site, watch::Watch};

/// More than the buffers of both sides of a connection hold.
const LARGE: usize = 40_000_000;

fn large() -> Vec<u8> {
    pattern(0, 1_000_000).repeat(LARGE / 1_000_000)
}

/// A single read gets the whole response each time; two writes would sometimes arrive apart.
fn a_small_file_is_one_write() {
    let server = site().file("public/s", pattern(0, 3000), 0o644).start();
    let mut client = server.connect();
    for _ in 0..200 {
        client.get("/s");
        let mut buf = vec![0; 64 << 10];
        let n = client.stream.read(&mut buf).unwrap();
        let body = buf[..n].windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(buf[body..n], pattern(0, 3000));
    }
}

fn a_large_file_arrives_whole() {
    const HUGE: usize = 100 << 20;
    let site = new_site();
    let block = pattern(0, 1_000_000);
    let file = File::create(site.path("public/large")).unwrap();
    for at in (0..HUGE).step_by(block.len()) {
        let n = block.len().min(HUGE - at);
        std::os::unix::fs::FileExt::write_all_at(&file, &block[..n], at as u64).unwrap();
    }
    let server = site.start();
    let watch = Watch::begin(&server).memory(8 << 20);
    let mut client = server.connect();
    client.get("/large");
    let head = client.head();
    assert_eq!(head.field("content-length"), Some("104857600"));
    // The pattern repeats itself in each block, so the test compares block by block, not all in memory.
    let mut at = 0;
    while at < HUGE {
        let piece = client.take(block.len().min(HUGE - at));
        assert!(piece[..] == block[..piece.len()], "at {at}");
        at += piece.len();
    }
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"]);
}

fn a_file_that_is_cut_while_it_is_sent() {
    let site = new_site().file("public/large", large(), 0o644);
    let server = site.start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/large");
    assert_eq!(client.head().status, 200);
    // The server cannot have sent the whole file, because the client has not read it.
    let path = server.path("public/large");
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let got = client.rest();
    assert!(got.len() < LARGE, "{}", got.len());
    // The kernel may have set queued bytes beyond the new end to zeros.
    let kept = got.len().min(1 << 20);
    assert!(got[..kept] == large()[..kept]);
    drop(client);
    watch.after(&["cut"]);
}

fn a_file_that_is_replaced_while_it_is_sent() {
    let site = new_site()
        .file("public/large", large(), 0o644)
        .file("public/new", "new", 0o644);
    let server = site.start();
    let mut client = server.connect();
    client.get("/large");
    assert_eq!(client.head().status, 200);
    let at = |name: &str| server.path("public").join(name);
    std::fs::rename(at("new"), at("large")).unwrap();
    assert_eq!(server.get("/large").text(), "new");
    assert!(client.take(LARGE) == large());
    client.get("/large");
    assert_eq!(client.reply().text(), "new");
}

list![
    a_small_file_is_one_write,
    a_large_file_arrives_whole,
    a_file_that_is_cut_while_it_is_sent,
    a_file_that_is_replaced_while_it_is_sent
];
