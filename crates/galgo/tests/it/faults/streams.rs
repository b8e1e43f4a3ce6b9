//! Programs and clients that read or write too much, too little, or at the wrong time.

use std::thread;

use rustix::process::Signal;

use crate::harness::{child::pattern, encode, list, new_site, watch::Watch};
use galgo_testkit::{Client, End, Server, process::all_threads_are, wait_until};

const MB: usize = 1_000_000;
/// Limit of the server's memory at its peak, however much flows through it.
const FLAT: u64 = 24 << 20;

/// Sends `n` bytes of a request body from another thread while the caller reads. Stops when the server takes no more.
pub(super) fn upload(client: &Client, n: usize) -> thread::JoinHandle<usize> {
    use std::io::Write;
    let mut stream = client.stream.try_clone().unwrap();
    thread::spawn(move || {
        let block = pattern(0, 100_000);
        let mut sent = 0;
        while sent < n {
            let piece = block.len().min(n - sent);
            if stream.write_all(&block[..piece]).is_err() {
                break;
            }
            sent += piece;
        }
        sent
    })
}

fn never_reads_a_body_of_100_mb() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?head&out=unread", 100 * MB);
    let sending = upload(&client, 100 * MB);
    let reply = client.reply();
    assert_eq!((reply.text(), reply.end), ("unread".into(), End::Whole));
    drop(client);
    sending.join().unwrap();
    watch.after(&["ok"]);
}

/// Blocking clients send everything before they read anything.
fn never_reads_a_body_that_is_sent_before_anything_is_read() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?head&out=unread&touch=said&await=sent", 20 * MB);
    let sending = upload(&client, 20 * MB);
    server.wait_for("said");
    // A program that reads nothing while it runs holds back its client, and nothing else.
    wait_until("the pipe to be full", || {
        galgo_testkit::process::memory(server.pid(), "VmRSS") > 0
    });
    server.set("sent");
    assert_eq!(sending.join().unwrap(), 20 * MB);
    assert_eq!(client.reply().text(), "unread");
    drop(client);
    watch.after(&["ok"]);
}

fn closes_stdin_at_once() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.begin_post(
        "/cgi-bin/t?close=0&head&out=first&touch=closed&await=go&out=second",
        20 * MB,
    );
    let sending = upload(&client, 20 * MB);
    server.wait_for("closed");
    // The server takes in the whole unwanted body, so that the client goes on to read.
    assert_eq!(sending.join().unwrap(), 20 * MB);
    server.set("go");
    let reply = client.reply();
    assert_eq!(
        (reply.text(), reply.end),
        ("firstsecond".into(), End::Whole)
    );
    drop(client);
    watch.after(&["ok"]);
}

fn reads_one_byte_at_a_time() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.post("/cgi-bin/t?head&slowly", &pattern(0, 200_000));
    assert_eq!(client.reply().text(), "200000");
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"]);
}

fn writes_64_mb_before_it_reads_64_mb() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?head&fill=64000000&count", 64 * MB);
    let sending = upload(&client, 64 * MB);
    let reply = client.reply();
    assert_eq!(reply.end, End::Whole);
    assert_eq!(reply.body.len(), 64 * MB + 8);
    assert!(reply.body.ends_with(b"8964000000"));
    assert_eq!(sending.join().unwrap(), 64 * MB);
    drop(client);
    watch.after(&["ok"]);
}

fn echoes_64_mb_as_they_come() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.begin_post("/cgi-bin/t?head&echo", 64 * MB);
    let sending = upload(&client, 64 * MB);
    let reply = client.reply();
    assert_eq!(reply.end, End::Whole);
    assert!(
        reply.body == pattern(0, 64 * MB),
        "{} bytes",
        reply.body.len()
    );
    assert_eq!(sending.join().unwrap(), 64 * MB);
    drop(client);
    watch.after(&["ok"]);
}

fn ten_mb_to_stderr_before_the_head() {
    let server = new_site().defaults("max_stderr = \"4K\"").start();
    let watch = Watch::begin(&server).memory(FLAT);
    let reply = server.get("/cgi-bin/t?errfill=10000000&head&out=still%20here");
    assert_eq!(reply.text(), "still here");
    server.says("max_stderr is reached");
    assert!(server.errors().len() < 8 << 10);
    watch.after(&["ok"]);
}

fn one_gb_to_stderr() {
    let server = new_site().defaults("max_stderr = \"4K\"").start();
    let watch = Watch::begin(&server).memory(FLAT);
    let reply = server.get("/cgi-bin/t?head&errfill=1000000000&out=still%20here");
    assert_eq!((reply.text(), reply.end), ("still here".into(), End::Whole));
    server.says("max_stderr is reached");
    assert_eq!(server.errors().matches("max_stderr is reached").count(), 1);
    assert!(server.errors().len() < 8 << 10);
    watch.after(&["ok"]);
}

fn control_characters_in_stderr() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let forged =
        "/cgi-bin/t?err=%1B[2Ja%00b%07c%0D%0A2026%20error%20[x]%20forged%0A%FF%C2%9Bd&head";
    assert_eq!(server.get(forged).status, 200);
    server.says("forged");
    server.says("\\xff");
    let errors = server.errors();
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!errors.contains(control), "{errors:?}");
    // A line of a program can be told from a line of the server.
    let line = errors.lines().find(|l| l.contains("forged")).unwrap();
    assert!(
        line.contains(" stderr [") && line.contains("] /cgi-bin/t: 2026"),
        "{line}"
    );
    watch.after(&["ok"]);
}

fn stderr_lines_carry_the_request_id() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    server.get("/cgi-bin/t?errlines=3&err=no%20end&head");
    let lines = watch.after(&["ok"]);
    let id = lines[0]["id"].as_str().unwrap();
    for line in ["line 0", "line 1", "line 2", "no end"] {
        server.says(&format!("stderr [{id}] /cgi-bin/t: {line}\n"));
    }
}

fn stdout_closed_but_the_process_lives() {
    let server = new_site().defaults("kill_grace = \"1m\"").start();
    let watch = Watch::begin(&server);
    let reply = server.get("/cgi-bin/t?last=told&head&out=done&close=1&hang");
    assert_eq!((reply.text(), reply.end), ("done".into(), End::Whole));
    // The program gets TERM first.
    server.wait_for("told");
    let lines = watch.after(&["ok"]);
    assert_eq!(lines[0]["exit"], 0);
}

fn stdout_closed_but_the_process_lives_and_is_deaf() {
    let server = new_site().defaults("kill_grace = \"100ms\"").start();
    let watch = Watch::begin(&server);
    let reply = server.get("/cgi-bin/t?deaf&head&out=done&close=1&hang");
    assert_eq!((reply.text(), reply.end), ("done".into(), End::Whole));
    let lines = watch.after(&["ok"]);
    assert_eq!(lines[0]["signal"], 9);
}

/// The server waits for a silent background child, then ends it. Because the child could have printed more, the
/// response is cut, and the log says how to start such a process.
fn a_background_child_keeps_stdout_open() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let reply = server.get("/cgi-bin/t?bg=touch=bg%26deaf%26hang&await=bg&head&out=done&exit=0");
    assert_eq!((reply.text(), reply.end), ("done".into(), End::Cut));
    server.says(HOLDS);
    watch.after(&["script_error"]);
}

const HOLDS: &str = "start such a process with \">/dev/null &\"";

/// A response of known length is whole nevertheless.
fn a_background_child_keeps_stdout_open_after_content_length() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let head = encode("Content-Type: text/plain\nContent-Length: 4\n\ndone");
    let reply = server.get(&format!(
        "/cgi-bin/t?bg=touch=bg%26hang&await=bg&out={head}&exit=0"
    ));
    assert_eq!((reply.text(), reply.end), ("done".into(), End::Whole));
    server.says(HOLDS);
    watch.after(&["ok"]);
}

/// The output of a background child belongs to the response, also after a pause, and if the child has left the group.
fn a_background_child_prints_the_rest() {
    const REST: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\n\n'\n\
        exec 3>&1\n$1 sh -c 'while ! [ -e ../marks/go ]; do sleep 0.01; done; \
        for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.1; done' >&3 3>&- &\necho first\n";
    let session = REST.replace("$1 sh", "setsid sh");
    let site = new_site()
        .file("cgi-bin/group", REST.replace("$1 ", ""), 0o755)
        .file("cgi-bin/session", session, 0o755);
    let server = site.start();
    let watch = Watch::begin(&server);
    for name in ["group", "session"] {
        let _ = std::fs::remove_file(server.mark("go"));
        let mut client = server.connect();
        client.get(&format!("/cgi-bin/{name}"));
        assert_eq!(client.head().status, 200);
        assert_eq!(client.chunk().unwrap(), b"first\n", "{name}");
        // Long after the program has exited.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        server.set("go");
        let mut rest = Vec::new();
        loop {
            let chunk = client.chunk().expect("a chunk");
            if chunk.is_empty() {
                break;
            }
            rest.extend(chunk);
        }
        assert_eq!(rest, b"1\n2\n3\n4\n5\n6\n7\n8\n", "{name}");
    }
    watch.after(&["ok"; 2]);
}

/// Closes its three streams, and writes a line into a file each 50 ms.
const BACKGROUND: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\n\nstarted'\n\
    (exec <&- >&- 2>&-; trap 'echo TERM >>../marks/told; exit' TERM; n=0; echo begun >../marks/begun\n\
    while [ $n -lt 40 ]; do sleep 0.05; n=$((n+1)); echo $n >>../marks/lines; done; echo done >>../marks/end) &\n\
    while ! [ -e ../marks/begun ]; do sleep 0.01; done\n";

/// The background child lives for two seconds after the response, then is told to end, and the log says so.
fn a_background_child_that_has_closed_its_streams_is_told_to_end() {
    let hangs = BACKGROUND.replace("-lt 40", "-lt 100000");
    // A shell takes its time to end on a machine that stands still.
    let site = new_site().defaults("kill_grace = \"60s\"");
    let server = site.file("cgi-bin/b", hangs, 0o755).start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/cgi-bin/b").text(), "started");
    server.wait_for("told");
    // The list of ended processes may contain the child's `sleep`, or not.
    server.says("leftover processes were ended: ");
    server.says("(TERM)");
    let text = std::fs::read_to_string(server.mark("lines")).unwrap();
    assert!(text.lines().count() > 0, "{text}");
    watch.after(&["ok"]);
}

/// A background child that ignores TERM is ended nevertheless.
fn a_background_child_that_does_not_hear_is_ended() {
    // Long enough for the child to report the TERM.
    let site = new_site().defaults("kill_grace = \"3s\"");
    let deaf = BACKGROUND
        .replace("-lt 40", "-lt 100000")
        .replace("exit' TERM", "' TERM");
    let server = site.file("cgi-bin/b", deaf, 0o755).start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/cgi-bin/b").text(), "started");
    server.wait_for("told");
    server.says("(KILL, because TERM did not end them within kill_grace)");
    watch.after(&["ok"]);
}

/// The background child finishes, within the limits of the clocks.
fn a_background_child_runs_to_its_completion() {
    let site = new_site().defaults("run_to_completion = true");
    let server = site.file("cgi-bin/b", BACKGROUND, 0o755).start();
    let watch = Watch::begin(&server);
    assert_eq!(server.get("/cgi-bin/b").text(), "started");
    server.wait_for("end");
    let text = std::fs::read_to_string(server.mark("lines")).unwrap();
    assert_eq!(text.lines().count(), 40);
    assert!(!server.mark("told").exists());
    watch.after(&["ok"]);
    assert!(!server.errors().contains("leftover processes were ended"));
    let late = new_site().defaults("run_to_completion = true\ntotal_timeout = \"3s\"");
    let hangs = BACKGROUND.replace("-lt 40", "-lt 100000");
    let server = late.file("cgi-bin/b", hangs, 0o755).start();
    assert_eq!(server.get("/cgi-bin/b").text(), "started");
    server.wait_for("told");
}

fn a_background_child_prints_for_ever() {
    let server = new_site().defaults("total_timeout = \"2s\"").start();
    let watch = Watch::begin(&server).memory(FLAT);
    let reply = server.get("/cgi-bin/t?head&out=begin&bg=endless&exit=0");
    assert_eq!((&reply.body[..5], reply.end), (&b"begin"[..], End::Cut));
    server.says("total_timeout");
    watch.after(&["script_timeout"]);
}

fn a_background_child_writes_to_stderr_for_ever() {
    let server = new_site().defaults("max_stderr = 0").start();
    let watch = Watch::begin(&server).memory(FLAT);
    let reply = server.get("/cgi-bin/t?head&out=done&bg=close=1%26errfill=1000000000000&exit=0");
    assert_eq!((reply.text(), reply.end), ("done".into(), End::Whole));
    watch.after(&["ok"]);
}

fn head_of_a_program_that_prints_for_ever() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.send("HEAD /cgi-bin/t?head&endless HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.reply_to("HEAD").status, 200);
    // The program does not keep the connection from serving the next request.
    client.get("/health");
    assert_eq!(client.reply().text(), "fine");
    drop(client);
    watch.after(&["ok"]);
}

fn endless_output_to_a_reader_that_stops_reading() {
    let server = new_site().config("rate_grace = \"1s\"").start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&endless");
    assert_eq!(client.head().status, 200);
    wait_for_outcome(&server, "client_gone");
    let rest = client.rest();
    assert!(!rest.ends_with(b"\r\n0\r\n\r\n"), "not visibly cut");
    drop(client);
    watch.after(&["client_gone"]);
}

fn a_million_writes_of_one_byte() {
    let server = new_site().start();
    let watch = Watch::begin(&server).memory(FLAT);
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&ones=1000000");
    let reply = client.head();
    assert_eq!(reply.field("transfer-encoding"), Some("chunked"));
    let (body, _) = chunks(&mut client);
    assert!(body == pattern(0, 1_000_000));
    drop(client);
    watch.after(&["ok"]);
}

/// Returns the rest of a body, and the number of its chunks.
fn chunks(client: &mut Client) -> (Vec<u8>, usize) {
    let (mut body, mut chunks) = (Vec::new(), 0);
    loop {
        let chunk = client.chunk().expect("a chunk");
        if chunk.is_empty() {
            return (body, chunks);
        }
        chunks += 1;
        body.extend(chunk);
    }
}

/// However small the writes were, they go out together: here the server stands still while they are made.
fn what_is_there_already_goes_out_together() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&await=go&ones=10000&touch=written");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.chunk().unwrap(), b"a");
    server.signal(Signal::STOP);
    wait_until("a server that stands still", || {
        all_threads_are('T', server.pid())
    });
    server.set("go");
    server.wait_for("written");
    server.signal(Signal::CONT);
    let (body, chunks) = chunks(&mut client);
    assert!(body == pattern(0, 10_000));
    assert!(chunks < 10, "{chunks} chunks");
    drop(client);
    watch.after(&["ok"]);
}

fn one_byte_is_sent_without_waiting_for_more() {
    let server = new_site().start();
    let watch = Watch::begin(&server);
    let mut client = server.connect();
    client.get("/cgi-bin/t?head&out=a&await=one&out=b&await=two&out=c");
    assert_eq!(client.head().status, 200);
    assert_eq!(client.chunk().unwrap(), b"a");
    server.set("one");
    assert_eq!(client.chunk().unwrap(), b"b");
    server.set("two");
    assert_eq!(client.chunk().unwrap(), b"c");
    assert_eq!(client.chunk().unwrap(), b"");
    drop(client);
    watch.after(&["ok"]);
}

/// Waits for a line of the access log with this outcome.
fn wait_for_outcome(server: &Server, outcome: &str) {
    wait_until(outcome, || {
        server.access().iter().any(|l| l["outcome"] == outcome)
    });
}

list![
    never_reads_a_body_of_100_mb,
    never_reads_a_body_that_is_sent_before_anything_is_read,
    closes_stdin_at_once,
    reads_one_byte_at_a_time,
    writes_64_mb_before_it_reads_64_mb,
    echoes_64_mb_as_they_come,
    ten_mb_to_stderr_before_the_head,
    one_gb_to_stderr,
    control_characters_in_stderr,
    stderr_lines_carry_the_request_id,
    stdout_closed_but_the_process_lives,
    stdout_closed_but_the_process_lives_and_is_deaf,
    a_background_child_keeps_stdout_open,
    a_background_child_keeps_stdout_open_after_content_length,
    a_background_child_prints_the_rest,
    a_background_child_that_has_closed_its_streams_is_told_to_end,
    a_background_child_that_does_not_hear_is_ended,
    a_background_child_runs_to_its_completion,
    a_background_child_prints_for_ever,
    a_background_child_writes_to_stderr_for_ever,
    head_of_a_program_that_prints_for_ever,
    endless_output_to_a_reader_that_stops_reading,
    a_million_writes_of_one_byte,
    what_is_there_already_goes_out_together,
    one_byte_is_sent_without_waiting_for_more,
];
