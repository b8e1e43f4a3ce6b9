//! Node scripts: what a cold run does, a child of a template does.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::Status;
use scene::warm::{Warm, script};

#[test]
fn first() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(
        folder.path(),
        "a.js",
        "#!/usr/bin/env node\nconsole.log('hi', process.env.QUERY_STRING, process.pid, process.argv, process.execArgv)\n",
    );
    let warm = Warm::load(&program);
    println!("{:?}", warm.loaded);
    for query in ["a", "b"] {
        let answer = warm.answer(&[("QUERY_STRING", query)], b"hello", false);
        println!("{answer:?}");
        assert_eq!(answer.exit.status, Status::Code(0));
    }
}
