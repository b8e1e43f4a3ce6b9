//! Invalid modules, and modules that trap, loop or take all that they can get.

use super::{programs, site, worker};
use std::time::Duration;

use crate::harness::list;
use galgo_testkit::{Client, End, Server, process, wait_until};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

list![
    what_is_no_program_is_a_502_with_words,
    a_trap_before_the_head_is_a_502_with_the_backtrace_in_the_log,
    a_trap_after_the_head_cuts_the_body,
    recursion_ends_in_a_trap,
    memory_ends_at_the_limit_and_others_have_theirs,
    open_files_end_at_the_limit_and_others_have_theirs,
    loops_end_at_the_deadline_and_delay_nobody,
    a_guest_that_waits_in_a_host_call_is_ended,
    processor_time_is_limited,
    fifty_megabytes_of_module_and_many_functions,
    a_module_that_takes_too_long_to_compile,
];

fn what_is_no_program_is_a_502_with_words() {
    let hello = programs::hello();
    let cut = hello[..hello.len() - 20].to_vec();
    let text = |text: &str| wat::parse_str(text).unwrap();
    let imports = r#"(module (import "env" "magic" (func)) (import "host" "more" (func))
        (func (export "_start")))"#;
    let rows = [
        ("empty.wasm", Vec::new(), "the file is empty"),
        ("short.wasm", b"\0asm\x01".to_vec(), "cut off"),
        (
            "text.wasm",
            b"#!/bin/sh\necho".to_vec(),
            "not a WebAssembly module",
        ),
        ("cut.wasm", cut, "cut.wasm"),
        ("imports.wasm", text(imports), "env.magic, host.more"),
        ("library.wasm", text("(module)"), "_start"),
        (
            "component.wasm",
            text("(component)"),
            "neither wasi:cli/run",
        ),
    ];
    let modules: Vec<_> = rows
        .iter()
        .map(|(n, bytes, _)| (*n, bytes.clone()))
        .collect();
    let server = site(&modules).start();
    for (name, _, says) in rows {
        let reply = server.get(&format!("/cgi-bin/{name}"));
        assert_eq!(reply.status, 502, "{name}");
        assert!(!reply.text().contains("\0asm"), "{name}: shown");
        server.says(says);
    }
    assert_eq!(server.get("/health").status, 200);
}

fn a_trap_before_the_head_is_a_502_with_the_backtrace_in_the_log() {
    let traps = programs::command("(call $deep)", "(func $deep unreachable)");
    let server = site(&[("a.wasm", traps)]).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").status, 502);
    server.says("wasm trap");
    server.says("deep");
}

fn a_trap_after_the_head_cuts_the_body() {
    // More output than the server holds back until it knows the end of the run.
    let traps = programs::command(
        "(local $n i32) (call $head)
         (loop $again (call $say (i32.const 4096) (i32.const 65536))
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (br_if $again (i32.lt_u (local.get $n) (i32.const 16))))
         unreachable",
        "",
    );
    let server = site(&[("a.wasm", traps)]).start();
    let mut client = server.connect();
    client.get("/cgi-bin/a.wasm");
    let reply = client.reply();
    assert_eq!(reply.status, 200);
    assert_ne!(reply.end, End::Whole, "a cut response looks cut");
}

fn recursion_ends_in_a_trap() {
    let deep = programs::command("(call $deep)", "(func $deep (call $deep) (call $deep))");
    let server = site(&[("a.wasm", deep), ("b.wasm", programs::hello())]).start();
    for _ in 0..3 {
        assert_eq!(server.get("/cgi-bin/a.wasm").status, 502);
    }
    server.says("call stack exhausted");
    assert_eq!(server.get("/cgi-bin/b.wasm").text(), "yes\n");
}

/// The permitted number of modules all grow up to their limit at once, and other requests are answered meanwhile.
fn memory_ends_at_the_limit_and_others_have_theirs() {
    let bomb = programs::command(
        "(call $head)
         (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
         (call $verdict (i32.le_u (memory.size) (i32.const 320)))",
        "",
    );
    let server = site(&[("a.wasm", bomb), ("b.wasm", programs::hello())])
        .defaults("memory = \"20M\"")
        .start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let mut clients: Vec<_> = (0..32).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|c| c.get("/cgi-bin/a.wasm"));
    assert_eq!(server.get("/cgi-bin/b.wasm").text(), "yes\n");
    for client in &mut clients {
        assert_eq!(client.reply().text(), "yes\n");
    }
}

fn open_files_end_at_the_limit_and_others_have_theirs() {
    let site = site(&[
        ("bomb.wasm", programs::opens_endlessly("note")),
        ("a.wasm", programs::opens("note")),
    ]);
    let server = site
        .file("data/note", "x", 0o644)
        .config(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\npreopen = { \"/data\" = \"data\" }\n",
        )
        .start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let worker = worker(&server);
    let mut bombs: Vec<_> = (0..15).map(|_| server.connect()).collect();
    bombs
        .iter_mut()
        .for_each(|client| client.get("/cgi-bin/bomb.wasm"));
    for _ in 0..50 {
        assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    }
    for client in &mut bombs {
        assert_eq!(client.reply().status, 502);
    }
    server.says("resource table");
    wait_until("its files to be closed", || {
        process::descriptors(worker) < 500
    });
}

fn loops_end_at_the_deadline_and_delay_nobody() {
    let endless = programs::command("(loop $again (br $again))", "");
    let busy = programs::command(
        "(loop $again (call $say (i32.const 0) (i32.const 0)) (br $again))",
        "",
    );
    let server = site(&[
        ("loop.wasm", endless),
        ("calls.wasm", busy),
        ("a.wasm", programs::hello()),
    ]);
    let in_time =
        "[[route]]\npath = \"/in-time/\"\ncgi = \"cgi-bin\"\nfirst_byte_timeout = \"1s\"\n";
    let server = server.config(in_time).start();
    assert_eq!(server.get("/cgi-bin/a.wasm").status, 200);
    let mut stuck = [server.connect(), server.connect(), server.connect()];
    stuck[0].get("/in-time/loop.wasm");
    stuck[1].get("/in-time/calls.wasm");
    stuck[2].get("/in-time/loop.wasm");
    for _ in 0..20 {
        assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    }
    for client in &mut stuck {
        assert_eq!(client.reply().status, 504);
    }
}

fn a_guest_that_waits_in_a_host_call_is_ended() {
    let reads = programs::command("(drop (call $take))", "");
    let server = site(&[("sleep.wasm", programs::sleeps("")), ("read.wasm", reads)])
        .defaults("first_byte_timeout = \"300ms\"")
        .start();
    // More requests than may run at once: each run that is ended must give its permit back.
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..16).map(|_| server.connect()).collect();
        clients
            .iter_mut()
            .for_each(|c| c.get("/cgi-bin/sleep.wasm"));
        for client in &mut clients {
            assert_eq!(client.reply().status, 504);
        }
    }
    let threads = || process::figure(worker(&server), "Threads");
    wait_until("few threads", || threads() < 64);
    // An empty input ends at once. The deadline above may pass while the module is compiled.
    wait_until("an end of input", || {
        server.get("/cgi-bin/read.wasm").status == 502
    });
}

fn processor_time_is_limited() {
    let endless = programs::command("(loop $again (br $again))", "");
    let server = site(&[("a.wasm", endless)])
        .defaults("cpu = \"1s\"")
        .start();
    assert_eq!(server.get("/cgi-bin/a.wasm").status, 502);
    server.says("SIGXCPU");
}

fn fifty_megabytes_of_module_and_many_functions() {
    let data = format!(
        "(memory 1000) (data (i32.const 0) \"{}\")",
        "x".repeat(50 << 20)
    );
    let large = wat::parse_str(format!("(module {data} (func (export \"_start\")))")).unwrap();
    assert!(large.len() > 50 << 20);
    let function = "(func (param f64) (result f64) (f64.add (local.get 0) (f64.const 1)))";
    let many = format!(
        "(module {} (func (export \"_start\")))",
        function.repeat(40_000)
    );
    let many = wat::parse_str(many).unwrap();
    let server = site(&[
        ("large.wasm", large),
        ("many.wasm", many),
        ("a.wasm", programs::hello()),
    ]);
    let server = server.defaults("first_byte_timeout = \"20m\"").start();
    let mut clients = [patient(&server), patient(&server)];
    clients[0].get("/cgi-bin/large.wasm");
    clients[1].get("/cgi-bin/many.wasm");
    // Requests that wait for the compilation do not block others.
    assert_eq!(server.get("/health").status, 200);
    for client in &mut clients {
        // These modules print nothing, which is an invalid response, but they have run.
        assert_eq!(client.reply().status, 502);
    }
    server.says("it printed nothing");
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    // The server computed the module's digest piece by piece.
    let peak = process::memory(server.pid(), "VmHWM");
    assert!(peak < 50 << 20, "the server held a module: {peak} bytes");
}

/// Compilation has the lowest priority (nice(2)), so it takes long on a busy machine.
fn patient(server: &Server) -> Client {
    let client = server.connect();
    let long = Some(Duration::from_secs(20 * 60));
    client.stream.set_read_timeout(long).unwrap();
    client
}

/// A compilation may take two minutes. If the server has a lower limit, that one holds.
fn a_module_that_takes_too_long_to_compile() {
    let server = site(&[("a.wasm", programs::hello())]);
    let server = server.defaults("first_byte_timeout = \"20m\"").start();
    assert_eq!(server.get("/cgi-bin/a.wasm").text(), "yes\n");
    let seconds = Some(2);
    let limit = Rlimit {
        current: seconds,
        maximum: seconds,
    };
    let pid = Pid::from_raw(server.pid().cast_signed());
    prlimit(pid, Resource::Cpu, limit).unwrap();
    let function = "(func (param f64) (result f64) (f64.add (local.get 0) (f64.const 1)))";
    let bomb = function.repeat(400_000);
    let bomb = wat::parse_str(format!("(module {bomb} (func (export \"_start\")))")).unwrap();
    super::replace(&server, "bomb.wasm", &bomb);
    let mut client = patient(&server);
    client.get("/cgi-bin/bomb.wasm");
    assert_eq!(client.reply().status, 502);
    server.says("it needed more time or memory than the limits");
    // The same module is not compiled again, and other modules are.
    assert_eq!(server.get("/cgi-bin/bomb.wasm").status, 502);
    super::replace(&server, "b.wasm", &programs::prints("b"));
    assert_eq!(server.get("/cgi-bin/b.wasm").text(), "b");
}
