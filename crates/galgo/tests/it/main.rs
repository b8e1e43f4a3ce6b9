//! Behaviour tests: raw bytes over real sockets, against the real server.
//!
//! Started with `GATEWAY_INTERFACE` in its environment this binary is a program of a `cgi-bin`, whose
//! steps stand in the query ([`harness::child`]). Otherwise it runs the tests.
//!
//! A test that needs something this machine lacks calls [`harness::skip!`] and is reported as
//! ignored, by name and with the reason.

// A test that meets what it did not expect ends there.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    clippy::print_stderr,
    clippy::cast_possible_truncation
)]

mod authorizer;
mod cgi;
mod faults;
mod files;
mod framing;
mod fronts;
mod handover;
#[allow(dead_code, unused_imports, unused_macros)] // a tool may wait for its test
mod harness;
mod http2;
mod logs;
mod proxied;
mod reload;
mod secrets;
mod server;
mod spool;
mod tls;
mod warm;
mod wasm;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var_os("GATEWAY_INTERFACE").is_some() {
        return harness::child::main();
    }
    harness::raise_descriptors();
    let mut args = libtest_mimic::Arguments::from_args();
    // Most of a test is waiting: for a clock, a program, a grace.
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    args.test_threads.get_or_insert(2 * processors);
    let tests = [
        harness::tests(),
        authorizer::tests(),
        harness::both_ways(cgi::tests()),
        faults::tests(),
        files::tests(),
        framing::tests(),
        harness::both_ways(fronts::tests()),
        handover::tests(),
        http2::tests(),
        logs::tests(),
        proxied::tests(),
        reload::tests(),
        secrets::tests(),
        server::tests(),
        spool::tests(),
        tls::tests(),
        wasm::tests(),
        warm::tests(),
    ]
    .concat();
    libtest_mimic::run(&args, harness::trials(tests)).exit_code()
}
