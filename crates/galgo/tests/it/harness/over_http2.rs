//! Tests that run a second time over HTTP/2: `GALGO_TEST_HTTP2` makes their servers speak it, and a translator stands
//! before each client (`galgo_testkit`).

use galgo_testkit::Spoken;

use super::{Test, leave_out};

/// Modules about programs and their clients. The other modules are about the server, or about bytes of HTTP/1.1.
const MODULES: &[&str] = &[
    "access::",
    "authorizer::",
    "cgi::",
    "compress::",
    "faults::clients::",
    "faults::errors::",
    "faults::fair::",
    "faults::fed::",
    "faults::limits::",
    "faults::scripts::",
    "faults::streams::",
    "faults::upstreams::",
    "headers::",
    "logs::",
    "owners::programs::",
    "pages::",
    "passwords::",
    "places::",
    "redirects::",
    "spool::",
    "variables::",
    "wasm::",
];

/// Tests of those modules that are about HTTP/1.1, and the reasons. A name that ends with `*` stands for all names that
/// begin like it.
const NOT: &[(&str, &str)] = &[
    ("authorizer::a_denial_is_the_answer", REASON),
    (
        "cgi::response::s6_2_4_client_redirect_with_document",
        REASON,
    ),
    ("cgi::response::s5_nph_output_is_not_touched", NPH),
    ("cgi::response::s5_nph_without_output_is_a_502", NPH),
    ("cgi::framing::framing_http_1_0_*", OLD),
    (
        "compress::a_crowd_for_small_bodies",
        "a stream takes several turns, and the event loop looks for events between them",
    ),
    ("compress::every_coding_gives_back_what_went_in", OLD),
    ("faults::clients::a_head_that_is_cut_gets_400", CUT),
    ("faults::clients::gone_in_the_request_head", CUT),
    ("faults::clients::half_closed_*", CUT),
    ("faults::errors::sendfile_fails", FRAMES),
    ("faults::errors::splice_fails", FRAMES),
    (
        "faults::fair::an_address_has_half_of_all_connections",
        "it counts connections",
    ),
    (
        "faults::fair::a_slow_reader_is_not_taken_for_one_that_has_stopped",
        "the translator reads, and opens its windows, in large pieces",
    ),
    ("logs::a_developer_is_told_why_a_request_was_refused", NONE),
    ("logs::json_has_every_field", NONE),
    ("logs::why_a_request_was_refused", NONE),
    (
        "logs::why_many_requests_were_refused_is_said_once_a_second",
        NONE,
    ),
    (
        "cgi::request::s4_2_a_body_larger_than_max_body",
        "the size of a chunk says more than has come",
    ),
    (
        "cgi::request::s4_2_a_body_is_whole_where_its_pipe_may_not_be_widened",
        "bodies are not spliced into pipes",
    ),
    ("passwords::over_http2", "it speaks HTTP/2 by itself"),
    (
        "faults::scripts::content_length_longer_than_the_body",
        RESET,
    ),
    ("spool::output::what_failed_while_it_waited_is_cut", RESET),
];

const CUT: &str = "HTTP/2 has no half-closed connections, and no request before its head is whole";
const FRAMES: &str = "what is sent is copied into frames";
const NONE: &str = "it sends what only HTTP/1.1 can say";
const NPH: &str = "nph- programs write HTTP/1";
const OLD: &str = "it is about HTTP/1.0";
const RESET: &str = "a stream that is reset loses what is on its way (RFC 9113, 5.4.2)";
const REASON: &str = "HTTP/2 has no reason phrases";

/// Returns the tests that are to run.
pub fn chosen(tests: Vec<Test>) -> Vec<Test> {
    if Spoken::asked() != Some(Spoken::Http2) {
        return tests;
    }
    let is_in = |test: &Test| MODULES.iter().any(|module| test.name.starts_with(module));
    let mut tests: Vec<_> = tests.into_iter().filter(is_in).collect();
    leave_out(&mut tests, NOT);
    tests
}
