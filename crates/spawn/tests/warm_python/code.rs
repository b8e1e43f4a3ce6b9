//! Code objects that a template has ready for its children.

use std::fs;

use super::{VARS, cold, seen, with_modules};

const LEFT_TO_CHILDREN: &str = "import os, sys\n\
    ready = sys.modules['_frozen_importlib_external']._compile_bytecode.__globals__.get('unmarshalled', {})\n\
    tell = lambda: 'TELL' in os.environ and print(sorted(ready))\n\
    tell()\nimport asks\ntell()\nprint(asks.QUERY, asks.TEXT, asks.f.__code__.co_filename)\n";

#[test]
fn code_that_is_ready_is_used_while_the_file_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let module = |text: &str| {
        let text = format!(
            "import os\nQUERY = os.environ.get('QUERY_STRING')\nTEXT = '{text}'\ndef f(): pass\n"
        );
        fs::write(folder.path().join("asks.py"), text).unwrap();
    };
    module("first");
    let warm = with_modules(folder.path(), LEFT_TO_CHILDREN, "asks\n");
    assert_eq!(warm.loaded.obstacle, None);
    let path = folder.path().join("program.py");
    assert_eq!(seen(warm.get(&VARS)), cold(&path, &VARS, b""));
    let told = warm.get(&[VARS[0], ("TELL", "1")]).out;
    assert!(told.starts_with("['asks']\n[]\n"), "{told}");
    // Before the template is known to be outdated: the file of the code is another one, too.
    module("another");
    let expected = cold(&path, &VARS, b"");
    assert!(expected.0.contains(" another "), "{expected:?}");
    assert_eq!(seen(warm.get(&VARS)), expected);
}
