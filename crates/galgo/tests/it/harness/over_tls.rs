//! Tests that do not run a second time over TLS: `GALGO_TEST_TLS` makes servers and clients of tests speak it
//! (`galgo_testkit`).

use galgo_testkit::Spoken;

use super::{Test, leave_out};

/// Tests to which the transport means nothing, or something else, and the reasons. A name that ends with `*` stands for all
/// names that begin like it.
const NOT: &[(&str, &str)] = &[
    ("acme::*", OWN),
    ("client_certificates::*", OWN),
    ("handshakes::*", OWN),
    ("http2::*", "it is about HTTP/2"),
    ("tls::*", OWN),
    ("fronts::*", "it is about FastCGI and SCGI fronts"),
    ("fairness::*", PROCESSES),
    ("from_apache::*", "galgo only translates a configuration"),
    ("include::*", "it is about how a configuration is read"),
    ("judges::*", PROCESSES),
    ("owners::*", PROCESSES),
    ("secrets::*", PROCESSES),
    ("sendfile::*", "what is encrypted goes by no sendfile(2)"),
    ("sites::*", "it is about which folder answers"),
    ("warm::*", PROCESSES),
    ("wasm::*", PROCESSES),
    (
        "cgi::request::s4_1_the_environment_is_the_documented_list*",
        "TLS adds variables; tls:: has them",
    ),
    (
        "cgi::request::s4_2_a_body_is_whole_where_its_pipe_may_not_be_widened*",
        "what is encrypted is spliced into no pipe",
    ),
    ("faults::errors::*", BESIDE),
    (
        "faults::fair::an_address_has_half_of_all_connections",
        UNANSWERED,
    ),
    ("faults::many::busy_connections_are_not_shed", UNANSWERED),
    (
        "faults::many::ten_thousand_idle_connections",
        "it bounds the memory of a connection without TLS",
    ),
    (
        "faults::slow::a_head_of_one_byte_at_a_time_meets_a_total_deadline",
        BESIDE,
    ),
    (
        "faults::slow::a_body_of_one_byte_at_a_time_meets_the_minimum_rate",
        BESIDE,
    ),
    (
        "faults::upstreams::others::a_body_streams_in_both_directions*",
        BESIDE,
    ),
    ("faults::fed::what_cannot_be_executed*", BESIDE),
    ("faults::streams::closes_stdin_at_once*", BESIDE),
    ("faults::streams::echoes_64_mb_as_they_come*", BESIDE),
    ("faults::streams::never_reads_a_body*", BESIDE),
    (
        "faults::streams::writes_64_mb_before_it_reads_64_mb*",
        BESIDE,
    ),
    (
        "framing::order::s9_6_a_response_to_a_client_that_still_sends",
        BESIDE,
    ),
    ("proxied::nothing_is_believed_unless_asked_for", PLAIN),
    ("redirects::routes_that_redirect", PLAIN),
    ("reload::leaks::fifty_times_under_load", LISTENERS),
    ("reload::listeners::*", LISTENERS),
    (
        "server::room::an_idle_connection_of_another_loop_makes_room",
        UNANSWERED,
    ),
    (
        "server::room::bytes_behind_the_last_request",
        "it writes to the socket itself",
    ),
    (
        "server::room::without_descriptors_nothing_seems_to_be_missing",
        "its handshake waits until the connection is taken",
    ),
    ("server::room::with_every_connection_busy", UNANSWERED),
    (
        "spool::bodies::a_disk_that_stalls_holds_up_nobody_else",
        BESIDE,
    ),
    ("websocket::slow::a_program_that_never_reads*", BESIDE),
    ("websocket::slow::neither_reads*", BESIDE),
    ("websocket::requests::a_large_exchange_both_ways*", BESIDE),
];

const BESIDE: &str = "it sends and reads at once, by two handles of one socket";
const LISTENERS: &str = "it names its listeners anew, without TLS";
const OWN: &str = "it speaks TLS by itself";
const PLAIN: &str = "it is about requests that come without TLS";
const PROCESSES: &str = "it is about processes, which are the same behind every transport";
const UNANSWERED: &str =
    "without a handshake there is nothing to answer in: the connection is closed";

/// Returns the tests that are to run.
pub fn chosen(mut tests: Vec<Test>) -> Vec<Test> {
    if Spoken::asked() == Some(Spoken::Tls) {
        leave_out(&mut tests, NOT);
    }
    tests
}
