//! Behaviour tests: raw bytes over real sockets, against the real server.
//!
//! If `GATEWAY_INTERFACE` is in its environment, this binary acts as a CGI program: the query lists the steps to run
//! ([`harness::child`]). Otherwise the binary runs the tests.
//!
//! A test that needs something this machine lacks calls [`harness::skip!`] and is reported as
//! ignored, by name and with the reason.

// A test ends at the first unexpected result.
#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    clippy::print_stderr,
    clippy::cast_possible_truncation
)]

mod access;
mod acme;
mod authorizer;
mod cached;
mod cgi;
mod client_certificates;
mod compress;
mod fairness;
mod faults;
mod files;
mod framing;
mod from_apache;
mod fronts;
mod handshakes;
#[allow(dead_code, unused_imports, unused_macros)] // a helper may not have a test yet
mod harness;
mod headers;
mod http2;
mod include;
mod judges;
mod logs;
mod owners;
mod pages;
mod passwords;
mod places;
mod proxied;
mod redirects;
mod reload;
mod secrets;
mod sendfile;
mod server;
mod sites;
mod spool;
mod tls;
mod tries;
mod upgrade;
mod variables;
mod warm;
mod wasm;
mod websocket;

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var_os("GATEWAY_INTERFACE").is_some() {
        return harness::child::main();
    }
    harness::raise_descriptors();
    let mut args = libtest_mimic::Arguments::from_args();
    // Tests spend most of their time waiting: for a clock, a program, a grace period.
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    args.test_threads.get_or_insert(2 * processors);
    let tests = [
        harness::tests(),
        access::tests(),
        acme::tests(),
        authorizer::tests(),
        cached::tests(),
        harness::both_ways(cgi::tests()),
        client_certificates::tests(),
        compress::tests(),
        fairness::tests(),
        faults::tests(),
        files::tests(),
        framing::tests(),
        from_apache::tests(),
        harness::both_ways(fronts::tests()),
        sendfile::tests(),
        handshakes::tests(),
        http2::tests(),
        headers::tests(),
        include::tests(),
        judges::tests(),
        logs::tests(),
        owners::tests(),
        passwords::tests(),
        passwords::fail2ban::tests(),
        pages::tests(),
        places::tests(),
        proxied::tests(),
        redirects::tests(),
        reload::tests(),
        secrets::tests(),
        server::tests(),
        sites::tests(),
        spool::tests(),
        tls::tests(),
        tries::tests(),
        upgrade::tests(),
        variables::tests(),
        wasm::tests(),
        websocket::tests(),
        warm::tests(),
    ]
    .concat();
    let tests = harness::over_tls::chosen(harness::over_http2::chosen(tests));
    libtest_mimic::run(&args, harness::trials(tests)).exit_code()
}
