//! Linked programs, stopped before `main`.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::Status;
use scene::warm::{Warm, compile};

const ECHO: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
extern char **environ;
int count;
int main(int argc, char **argv) {
    printf("%d %s %s count=%d\n", argc, argv[0], getenv("QUERY_STRING"), count++);
    char body[100];
    size_t n = fread(body, 1, sizeof body, stdin);
    printf("body=%.*s pid=%d group=%d\n", (int)n, body, getpid() > 0, getpgrp() == getpid());
    for (char **e = environ; *e; e++)
        puts(*e);
    fputs("oops\n", stderr);
    return 3;
}
"#;

#[test]
fn each_request_has_a_process_that_knows_nothing_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "echo", ECHO, &[]);
    let warm = Warm::load(&program);
    assert_eq!(warm.loaded.obstacle, None);
    assert!(warm.loaded.files.contains(&program), "{:?}", warm.loaded);
    let name = program.display();
    for query in ["a", "b"] {
        let answer = warm.answer(&[("QUERY_STRING", query)], b"hello", false);
        let expected = format!(
            "1 {name} {query} count=0\nbody=hello pid=1 group=1\nPATH=/usr/bin:/bin\nQUERY_STRING={query}\n"
        );
        assert_eq!(answer.out, expected);
        assert_eq!(answer.err, "oops\n");
        assert_eq!(answer.exit.status, Status::Code(3));
    }
}
