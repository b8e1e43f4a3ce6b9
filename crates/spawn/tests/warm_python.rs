//! Python scripts, stopped before their first line: whatever a script can see or do is as in a cold
//! start.
#![allow(clippy::unwrap_used)]

mod scene;

use scene::warm::{Warm, script};

#[test]
fn first() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "a.py", "#!/usr/bin/python3\nimport sys,os,json\nprint(sys.argv,os.environ,__file__,sys.stdin.read(), len(sys.modules));sys.exit(3)\n");
    let warm = Warm::load(&path);
    assert_eq!(warm.loaded.obstacle, None);
    let a = warm.answer(&[("QUERY_STRING", "x")], b"hello", true);
    eprintln!("{a:?}");
    let warm = Warm::load_with(&path, &a.learned);
    eprintln!("{:?}", warm.loaded);
    let a = warm.answer(&[("QUERY_STRING", "x")], b"hello", true);
    eprintln!("{a:?}");
}
