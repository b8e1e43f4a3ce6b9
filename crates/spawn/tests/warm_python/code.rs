//! Code objects that a template has ready for its children.

use std::fs;

use super::{VARS, cold, first_line, seen, with_modules};
use crate::scene::warm::{Warm, script};

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

const RUNS: &str = "import os, sys, used\n\
    exec('def typed5551234(): pass')\n\
    used.made = typed5551234\nused.made()\n\
    print(sys.version_info >= (3, 9), used.first(1), used.one(), used.other(), used.one.__code__ is used.other.__code__, used.Kind().method())\n\
    if 'TELL' in os.environ: print([id(code) for code in used.codes()] == used.before)\n\
    used.fails()\n";

const USED: &str = "def first(n): return n + 1\ndef never(): pass\n\
    def make():\n    def inner(): return 7\n    return inner\n\
    one, other = make(), make()\n\
    class Kind:\n    @property\n    def value(self): return 'property'\n    def method(self): return self.value\n\
    def fails(): raise ValueError\n\
    def codes(): return [it.__code__ for it in (first, Kind.method, Kind.value.fget, one, never)]\n\
    before = [id(code) for code in codes()]\n";

#[test]
fn code_that_children_run_lies_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "program.py", &(first_line("") + RUNS));
    fs::write(folder.path().join("used.py"), USED).unwrap();
    let expected = cold(&path, &VARS, b"");
    let mut learned = String::new();
    for _ in 0..3 {
        let warm = Warm::load_with(&path, &learned);
        let answer = warm.answer(&VARS, b"", true);
        learned += &format!("{}\n", answer.learned);
        assert_eq!(seen(answer), expected, "with {learned}");
    }
    let told: Vec<&str> = learned
        .lines()
        .filter(|l| l.starts_with("code used "))
        .collect();
    // Before Python 3.9 nobody can ask for the code of a frame from C.
    let asks = expected.0.starts_with("True ");
    let all = ["code used Kind.method Kind.value fails first make.<locals>.inner"];
    assert_eq!(told, all[..usize::from(asks)]);
    assert!(!learned.contains("typed5551234"), "{learned}");
    // It is elsewhere now, but what two functions have in common stays where it is.
    let out = Warm::load_with(&path, &learned)
        .get(&[VARS[0], ("TELL", "1")])
        .out;
    let moved = if asks { "False" } else { "True" };
    let end = format!(" True property\n{moved}\n");
    assert!(out.contains(&end), "{out}");
}
