//! The rows: output or end of a program, and the answer to the client.

use super::{
    super::prints,
    Row,
    Want::{Cut, Lost, Page, Whole},
    row,
};

/// Returns the target that makes the program run these steps.
fn steps(steps: &str) -> String {
    format!("/cgi-bin/t?{steps}")
}

pub(super) fn starts() -> Vec<Row> {
    let file = |name: &str| format!("/cgi-bin/{name}");
    vec![
        row("not_executable", file("plain.py"), Page(403), "chmod +x"),
        row(
            "missing_interpreter",
            file("lost"),
            Page(502),
            "/no/such/interpreter",
        ),
        row(
            "carriage_return_in_first_line",
            file("dos"),
            Page(502),
            "carriage return",
        ),
        row("empty_file", file("blank"), Page(502), "empty"),
        row("no_format_the_kernel_knows", file("text"), Page(502), "#!"),
        row("a_folder", file("folder"), Page(404), ""),
        row("not_there", file("nothing"), Page(404), ""),
        row(
            "link_out_of_the_folder",
            file("outward"),
            Page(403),
            "symbolic link",
        ),
    ]
}

pub(super) fn deaths() -> Vec<Row> {
    vec![
        row(
            "exits_1_without_output",
            steps("exit=1"),
            Page(502),
            "it exited with status 1",
        ),
        row(
            "exits_0_without_output",
            steps(""),
            Page(502),
            "it printed nothing",
        ),
        row(
            "exits_1_and_leaves_a_child_that_keeps_stdout_open",
            steps("bg=hang&exit=1"),
            Page(502),
            "it exited with status 1",
        ),
        row(
            "closes_stdout_without_a_head_and_lives",
            steps("close=1&hang"),
            Page(502),
            "it printed nothing",
        ),
        row("dies_by_a_signal", steps("die=11"), Page(502), "SIGSEGV"),
        row(
            "dies_half_way_through_the_headers",
            steps("out=Content-Type:%20text/plain%0AX-Half&die=6"),
            Page(502),
            "SIGABRT",
        ),
        row(
            "ends_without_an_empty_line",
            prints("Content-Type: text/plain\n"),
            Page(502),
            "no empty line",
        ),
    ]
}

pub(super) fn deaths_behind_a_head() -> Vec<Row> {
    vec![
        row(
            "dies_half_way_through_a_body_of_known_length",
            steps(
                "out=Content-Type:%20text/plain%0AContent-Length:%2010%0A%0A12345&touch=out&await=go&die=9",
            ),
            Cut("12345"),
            "Content-Length 10",
        ),
        row(
            "dies_half_way_through_a_streamed_body",
            steps("head&out=12345&touch=out&await=go&die=9"),
            Cut("12345"),
            "SIGKILL",
        ),
        row(
            "dies_by_a_signal_at_once",
            steps("out=Content-Type:%20a/b%0A%0A12345&die=9"),
            Lost(502),
            "SIGKILL",
        ),
        row(
            "exits_3_behind_a_document",
            steps("head&out=done&exit=3"),
            Whole(200, "done"),
            "",
        ),
    ]
}

/// Heads that are refused: name, head, and words of the reason.
const BAD_HEADS: [(&str, &str, &str); 24] = [
    (
        "nul_in_a_value",
        "Content-Type: text/plain\nX: a\0b\n",
        "NUL",
    ),
    (
        "nul_in_a_name",
        "X\0Y: a\nContent-Type: text/plain\n",
        "NUL",
    ),
    (
        "bare_cr",
        "Content-Type: text/plain\nX: a\rSet-Cookie: b\n",
        "carriage return",
    ),
    (
        "obs_fold",
        "Content-Type: text/plain\nX: a\n b\n",
        "white space",
    ),
    (
        "no_colon",
        "Content-Type: text/plain\nHello\n",
        "not a header field",
    ),
    ("empty_name", "Content-Type: text/plain\n: a\n", "no name"),
    (
        "space_before_the_colon",
        "Content-Type : text/plain\n",
        "white space before",
    ),
    (
        "name_with_8_bits",
        "Content-Type: text/plain\nX-\u{e4}: a\n",
        "name",
    ),
    (
        "a_status_line",
        "HTTP/1.1 200 OK\nContent-Type: text/plain\n",
        "HTTP status line",
    ),
    (
        "status_abc",
        "Status: abc\nContent-Type: text/plain\n",
        "not a status",
    ),
    (
        "status_99",
        "Status: 99\nContent-Type: text/plain\n",
        "not a status",
    ),
    (
        "status_1000",
        "Status: 1000\nContent-Type: text/plain\n",
        "not a status",
    ),
    (
        "status_1xx",
        "Status: 103 Early Hints\nContent-Type: text/plain\n",
        "not a status",
    ),
    (
        "two_content_types",
        "Content-Type: text/plain\nContent-Type: text/plain\n",
        "repeats",
    ),
    ("two_locations", "Location: /a\nLocation: /b\n", "repeats"),
    (
        "two_statuses",
        "Status: 200\nstatus: 200\nContent-Type: text/plain\n",
        "repeats",
    ),
    (
        "transfer_encoding",
        "Transfer-Encoding: chunked\nContent-Type: text/plain\n",
        "Transfer-Encoding",
    ),
    (
        "content_length_no_number",
        "Content-Length: +4\nContent-Type: text/plain\n",
        "not a length",
    ),
    (
        "content_length_empty",
        "Content-Length:\nContent-Type: text/plain\n",
        "not a length",
    ),
    (
        "two_content_lengths",
        "Content-Length: 4\nContent-Length: 4\nContent-Type: text/plain\n",
        "repeats",
    ),
    ("location_without_a_value", "Location:\n", "no value"),
    (
        "control_character_in_a_reason",
        "Status: 404 \u{1b}[31m\nContent-Type: text/plain\n",
        "control character",
    ),
    (
        "lines_end_with_cr",
        "Content-Type: text/plain\r\r",
        "carriage return",
    ),
    (
        "byte_order_mark",
        "\u{feff}Content-Type: text/plain\n",
        "byte order mark",
    ),
];

pub(super) fn heads() -> Vec<Row> {
    const TYPE: &str = "Content-Type: text/plain\n";
    let bad =
        |name, head: &str, says| row(name, prints(format!("{head}\nbody\n")), Page(502), says);
    let fine = |name, head: &str| {
        row(
            name,
            prints(format!("{head}\nbody")),
            Whole(200, "body"),
            "",
        )
    };
    let mut all = BAD_HEADS
        .map(|(name, head, says)| bad(name, head, says))
        .to_vec();
    all.extend([
        fine("lines_end_with_lf", TYPE),
        fine("lines_end_with_crlf", "Content-Type: text/plain\r\n\r"),
        row(
            "status_in_any_letter_case",
            prints("sTATUS: 404 Not Found\ncontent-type: text/plain\n\ngone"),
            Whole(404, "gone"),
            "",
        ),
    ]);
    all
}

pub(super) fn sizes() -> Vec<Row> {
    let body = |length: &str, text: &str| {
        prints(format!(
            "Content-Type: text/plain\nContent-Length: {length}\n\n{text}"
        ))
    };
    vec![
        row(
            "one_gigabyte_of_headers",
            steps("fields=100000000"),
            Page(502),
            "more than 4096 fields",
        ),
        row(
            "ten_thousand_headers",
            steps("fields=10000"),
            Page(502),
            "more than 4096 fields",
        ),
        row(
            "a_header_line_without_end",
            steps("out=X:%20&endless"),
            Page(502),
            "65536 bytes",
        ),
        row(
            "content_length_shorter_than_the_body",
            body("4", "body and more"),
            Whole(200, "body"),
            "Content-Length 4",
        ),
        row(
            "content_length_shorter_than_an_endless_body",
            steps("out=Content-Type:%20a/b%0AContent-Length:%204%0A%0A&endless"),
            Whole(200, "0123"),
            "Content-Length 4",
        ),
        row(
            "content_length_longer_than_the_body",
            body("40", "body"),
            Cut("body"),
            "Content-Length 40",
        ),
    ]
}

pub(super) fn bodiless() -> Vec<Row> {
    let big = |head: &str| {
        steps(&format!(
            "out={}&fill=1000000&touch=out",
            crate::harness::encode(head)
        ))
    };
    let mut head = row(
        "body_on_head",
        big("Content-Type: text/plain\n\n"),
        Whole(200, ""),
        "",
    );
    head.method = "HEAD";
    vec![
        head,
        row("body_on_204", big("Status: 204\n\n"), Whole(204, ""), ""),
        row(
            "body_on_304",
            big("Status: 304 Not Modified\nETag: \"a\"\n\n"),
            Whole(304, ""),
            "",
        ),
        row(
            "body_on_304_with_a_type",
            big("Status: 304\nContent-Type: text/plain\n\n"),
            Whole(304, ""),
            "",
        ),
        row(
            "body_behind_a_redirect",
            big("Status: 303\nLocation: /elsewhere\n\n"),
            Whole(303, ""),
            "",
        ),
    ]
}

pub(super) fn redirects() -> Vec<Row> {
    let to = |location: &str| prints(format!("Location: {location}\n\n"));
    let itself = steps("out=Location:%20/cgi-bin/loop%0A%0A");
    let nested = |inner: &str| to(inner);
    vec![
        row(
            "local_redirect_to_itself",
            "/cgi-bin/loop".into(),
            Page(502),
            "local redirects",
        ),
        row(
            "local_redirect_into_a_loop",
            itself,
            Page(502),
            "local redirects",
        ),
        row(
            "local_redirect_to_a_static_file",
            to("/page.txt"),
            Whole(200, "a page"),
            "",
        ),
        row(
            "local_redirect_to_a_missing_page",
            to("/missing"),
            Page(404),
            "",
        ),
        row(
            "local_redirect_to_a_program",
            nested("/cgi-bin/t?head&out=there"),
            Whole(200, "there"),
            "",
        ),
        row(
            "redirect_to_another_host_is_never_local",
            to("//evil/"),
            Whole(302, ""),
            "",
        ),
    ]
}
