//! Python scripts, stopped before their first line: everything that a script can see or do is the same as in a cold start.
#![allow(clippy::unwrap_used)]

#[path = "../scene/mod.rs"]
mod scene;
mod scripts;
mod streams;

use galgo_spawn::Status;
use galgo_testkit::file::script;
use scene::warm::{Answer, Warm};
use scripts::SCRIPTS;
use std::{fs, path::Path, process::Command};

/// Returns the interpreter: the system's, unless GALGO_TEST_PYTHON names another.
fn python() -> String {
    std::env::var("GALGO_TEST_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".to_owned())
}

fn first_line(options: &str) -> String {
    format!("#!{} {options}", python()).trim_end().to_owned() + "\n"
}

const VARS: [(&str, &str); 3] = [
    ("QUERY_STRING", "a=b"),
    ("HTTP_X", "caf\u{e9}=1"),
    ("REQUEST_METHOD", "POST"),
];

fn cold(path: &Path, vars: &[(&str, &str)], body: &[u8]) -> (String, String, Status) {
    let (out, err, status) = scene::warm::cold(path, vars, body);
    (plain(&out), plain(&err), status)
}

fn seen(answer: Answer) -> (String, String, Status) {
    let (out, err) = (plain(&answer.out), plain(&answer.err));
    (out, err, answer.exit.status)
}

/// Removes addresses, which differ from run to run.
fn plain(text: &str) -> String {
    let mut parts = text.split(" at 0x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += " at ";
        plain += part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    plain
}

/// Runs a program cold, warm, and warm with the modules preloaded that it was seen to load.
fn compare(name: &str, path: &Path) -> (String, String, Status) {
    let body = b"line one\r\nline two caf\xc3\xa9\nend";
    let expected = cold(path, &VARS, body);
    let warm = Warm::load(path);
    assert_eq!(warm.loaded.obstacle, None, "{name}");
    let answer = warm.answer(&VARS, body, false);
    assert_eq!(seen(answer), expected, "{name}: as loaded first");
    let mut learned = warm.answer(&VARS, body, true).learned;
    for _ in 0..2 {
        let warm = Warm::load_with(path, &learned);
        assert_eq!(warm.loaded.obstacle, None, "{name}");
        for learn in [true, false] {
            let answer = warm.answer(&VARS, body, learn);
            learned += &format!("\n{}", answer.learned);
            assert_eq!(seen(answer), expected, "{name}: with {learned:?}");
        }
    }
    expected
}

#[test]
fn a_script_is_as_in_a_cold_start() {
    let only = std::env::var("GALGO_TEST_ONLY").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, options, text) in SCRIPTS.iter().filter(|row| row.0.contains(&only)) {
        let folder = tempfile::tempdir().unwrap();
        let path = script(folder.path(), "program.py", &(first_line(options) + text));
        if let Err(e) = std::panic::catch_unwind(|| compare(name, &path)) {
            failed.push((*name, e.downcast_ref::<String>().cloned()));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn sources_in_every_form_are_read_as_python_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let rows: [(&str, &[u8]); 6] = [
        (
            "latin",
            b"# -*- coding: latin-1 -*-\nprint(ascii('caf\xe9'))\n",
        ),
        ("undeclared", b"print(ascii('caf\xe9'))\n"),
        ("unknown", b"# -*- coding: nothing -*-\nprint(1)\n"),
        (
            "crlf",
            b"print(1)\r\nif 1:\r\n    print(\"\"\"a\r\nb\"\"\".encode())\r\n",
        ),
        ("unended", b"if 1:\n    print(3)"),
        ("formfeed", b"\x0cprint(__file__ and 4)\n"),
    ];
    for (name, text) in rows {
        let path = script(folder.path(), name, "");
        fs::write(&path, [first_line("").as_bytes(), text].concat()).unwrap();
        compare(name, &path);
    }
}

#[test]
fn modules_beside_the_script_and_in_a_virtual_environment_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let venv = folder.path().join("venv");
    let made = Command::new(python())
        .args(["-m", "venv", "--without-pip"])
        .arg(&venv)
        .status();
    assert!(made.unwrap().success());
    let lib = fs::read_dir(venv.join("lib")).unwrap().next().unwrap();
    let package = lib.unwrap().path().join("site-packages/inside");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("__init__.py"), "from . import deeper\n").unwrap();
    fs::write(package.join("deeper.py"), "VALUE = 42\n").unwrap();
    fs::write(
        folder.path().join("beside.py"),
        "import sys\nWHO = sys.argv[0]\n",
    )
    .unwrap();
    let text = "import sys, inside.deeper, beside\nprint(sys.prefix, sys.base_prefix, sys.executable, \
                inside.deeper.VALUE, inside.__file__, beside.WHO, beside.__file__, sys.path)\n";
    let first = format!("#!{}/bin/python\n", venv.display());
    let path = script(folder.path(), "program.py", &(first + text));
    let (out, err, status) = compare("venv", &path);
    assert!(
        out.starts_with(&format!("{} ", venv.display())),
        "{out}{err}"
    );
    assert_eq!(status, Status::Code(0));
}

/// Loads a program as if a cold run had been seen to load `modules`.
fn with_modules(folder: &Path, text: &str, modules: &str) -> Warm {
    let path = script(folder, "program.py", &(first_line("") + text));
    Warm::load_with(&path, modules)
}

#[test]
fn modules_that_do_more_than_load_are_left_to_the_children() {
    let rows = [
        ("prints", "print('loaded')\n"),
        ("complains", "import sys\nsys.stderr.write('loaded\\n')\n"),
        (
            "warns",
            "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n",
        ),
        ("asks", "import os\nprint(os.environ.get('QUERY_STRING'))\n"),
        (
            "asks_quietly",
            "import os\nQUERY = os.environ.get('HTTP_X')\n",
        ),
        (
            "copies",
            "import os\nQUERY = dict(os.environ).get('HTTP_X')\n",
        ),
        ("reads", "import sys\nQUERY = sys.stdin.readline()\n"),
        ("opens", "FILE = open('/etc/hostname')\n"),
        (
            "runs",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
        ),
        ("moves", "import os\nos.chdir('/')\n"),
        (
            "creates",
            "import os\nos.umask(0o77)\nos.environ['LEFT'] = '1'\nprint()\n",
        ),
        ("fails", "raise ValueError\n"),
        ("exits", "raise SystemExit\n"),
        ("listens", "import socket\nS = socket.socket()\n"),
    ];
    for (name, module) in rows {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(format!("{name}.py")), module).unwrap();
        fs::write(folder.path().join("quiet.py"), "VALUE = 1\n").unwrap();
        fs::write(folder.path().join("user.py"), format!("import {name}\n")).unwrap();
        let text = format!(
            "import sys\nprint(sorted({{'quiet', 'user', '{name}'}} & {{*sys.modules}}))\n\
             sys.stdout.flush()\ntry:\n    import quiet, {name}\nexcept BaseException as e: print(repr(e))\n\
             import os\nprint(getattr({name} if '{name}' in globals() else None, 'QUERY', None), os.getcwd())\n"
        );
        let modules = format!("quiet\n{name}\nuser\n");
        let warm = with_modules(folder.path(), &text, &modules);
        assert_eq!(warm.loaded.obstacle, None, "{name}");
        let path = folder.path().join("program.py");
        let (mut out, err, status) = seen(warm.answer(&VARS, b"input\n", false));
        assert!(out.starts_with("['quiet']\n"), "{name}: {out}{err}");
        out = out.replacen("['quiet']", "[]", 1);
        assert_eq!((out, err, status), cold(&path, &VARS, b"input\n"), "{name}");
    }
}

/// A module whose name is not an identifier of Python's grammar is loaded. So are the other modules if some are refused.
/// However many are refused, each good module is loaded once to be tried and once for good.
#[test]
fn what_is_refused_costs_the_others_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let counts = "import os\nwith open('loads', 'ab') as f: f.write(b'x')\n";
    fs::write(folder.path().join("a-b.py"), counts).unwrap();
    let mut modules = String::from("a-b\n");
    for n in 0..8 {
        fs::write(folder.path().join(format!("good{n}.py")), counts).unwrap();
        fs::write(
            folder.path().join(format!("bad{n}.py")),
            "print('loaded')\n",
        )
        .unwrap();
        modules += &format!("good{n}\nbad{n}\n");
    }
    let text = "import sys\nprint(*sorted({it for it in sys.modules if it[:3] in ('goo', 'bad', 'a-b')}))\n";
    let warm = with_modules(folder.path(), text, &modules);
    assert_eq!(warm.loaded.obstacle, None);
    let bad: Vec<String> = (0..8).map(|n| format!("bad{n}")).collect();
    assert_eq!(warm.loaded.left, bad);
    let good = "a-b good0 good1 good2 good3 good4 good5 good6 good7\n";
    assert_eq!(warm.get(&VARS).out, good);
    assert_eq!(fs::read(folder.path().join("loads")).unwrap().len(), 2 * 9);
}

/// Children report modules in the order in which their loading ended: a module comes after its imports.
#[test]
fn what_fails_alone_may_load_with_another() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("settings.py", "ready = False\n");
    write(
        "model.py",
        "import settings\nif not settings.ready: raise RuntimeError('not ready')\n",
    );
    write(
        "site_of.py",
        "import settings\nsettings.ready = True\nimport model\n",
    );
    let text = "import sys\nprint('model' in sys.modules)\nimport site_of\n";
    let warm = with_modules(folder.path(), text, "settings\nmodel\nsite_of\nno_such\n");
    assert_eq!(warm.loaded.obstacle, None);
    assert_eq!(warm.loaded.left, ["no_such"]);
    assert_eq!(warm.get(&VARS).out, "True\n");
}

/// A module that leaves allocations on the heap, and a script that uses them in a child.
const HEAP: [&str; 2] = [
    "import ctypes\n\
     libc = ctypes.CDLL(None)\n\
     for name in 'malloc', 'realloc', 'sbrk': getattr(libc, name).restype = ctypes.c_void_p\n\
     def malloc(size): return libc.malloc(ctypes.c_size_t(size))\n\
     def realloc(at, size): return libc.realloc(ctypes.c_void_p(at), ctypes.c_size_t(size))\n\
     def free(at): libc.free(ctypes.c_void_p(at))\n\
     kept, grows, shrinks = malloc(3000), malloc(1000), malloc(5000)\n\
     ctypes.memset(grows, 103, 1000)\n\
     ctypes.memset(shrinks, 115, 5000)\n",
    "from heap import *\n\
     def end(): return libc.sbrk(0)\n\
     free(kept)\n\
     taken = sum(malloc(3000) == kept for _ in range(50))\n\
     grows, shrinks = realloc(grows, 100000), realloc(shrinks, 10)\n\
     lost = ctypes.string_at(grows, 1000) != b'g' * 1000 or ctypes.string_at(shrinks, 10) != b's' * 10\n\
     free(malloc(20000))\n\
     before = end()\n\
     for _ in range(10000): free(realloc(malloc(10000), 20000))\n\
     print('taken', taken, 'lost', lost, 'reused', end() - before < 100000)\n",
];

#[test]
fn a_child_leaves_the_heap_of_its_template_alone_and_reuses_its_own() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("heap.py"), HEAP[0]).unwrap();
    let warm = with_modules(folder.path(), HEAP[1], "heap\n");
    assert_eq!(warm.loaded.obstacle, None);
    let path = folder.path().join("program.py");
    assert_eq!(
        cold(&path, &VARS, b"").0,
        "taken 1 lost False reused True\n"
    );
    assert_eq!(warm.get(&VARS).out, "taken 0 lost False reused True\n");
}

#[test]
fn what_a_module_does_to_the_environment_while_it_loads_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let module = "import os\nos.environ['SET'] = 'by module'\nos.environ.setdefault('GIVEN', 'default')\n\
                  os.environ.pop('PATH', None)\n";
    fs::write(folder.path().join("settings.py"), module).unwrap();
    let text =
        "import settings, os\nprint(os.environ, flush=True)\nos.execl('/usr/bin/env', 'env')\n";
    let path = script(folder.path(), "program.py", &(first_line("") + text));
    let vars = [("GIVEN", "value")];
    // If a request has a variable and the template does not, the variable keeps the request's value.
    let warm = Warm::load_with(&path, "settings");
    let (out, _, _) = seen(warm.answer(&vars, b"", false));
    assert!(
        out.contains("'GIVEN': 'value'") && out.contains("GIVEN=value\n"),
        "{out}"
    );
    assert!(
        out.contains("'SET': 'by module'") && out.contains("SET=by module\n"),
        "{out}"
    );
    assert!(!out.contains("PATH"), "{out}");
}

#[test]
fn what_is_no_script_is_left_cold() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("__main__.py"), "open('ran', 'w')\n").unwrap();
    let made = Command::new(python())
        .args(["-m", "zipapp", "-p", &python(), "-o"])
        .args([&archive, &source])
        .status();
    assert!(made.unwrap().success());
    let inspected = script(
        folder.path(),
        "i",
        &(first_line("-i") + "open('ran', 'w')\n"),
    );
    for path in [archive, inspected] {
        let warm = Warm::load(&path);
        assert!(warm.loaded.obstacle.is_some(), "{}", path.display());
        assert!(!folder.path().join("ran").exists(), "{}", path.display());
    }
}

#[test]
fn nothing_that_a_script_leaves_behind_reaches_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import os, sys, signal, json, builtins, subprocess, locale, gc, random, threading, atexit, time\n\
        print(hasattr(json, 'left'), os.umask(0o22), os.getcwd() == sys.path[0], signal.getsignal(signal.SIGTERM),\n\
              hasattr(builtins, 'left'), 'LEFT' in os.environ, gc.isenabled(), sys.getrecursionlimit(), globals().get('left'),\n\
              threading.active_count(), time.tzname, len(sys.path), sys.flags.optimize, os.nice(0), flush=True)\n\
        json.left = builtins.left = left = 1\njson.loads = None\nos.umask(0)\nos.chdir('/')\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        os.environ['LEFT'] = '1'\ngc.disable()\nsys.setrecursionlimit(99)\nsys.path.append('/left')\nos.nice(1)\n\
        subprocess.Popen(['sleep', '60'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n\
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nos.environ['TZ'] = 'Asia/Tokyo'\ntime.tzset()\n\
        os.close(0)\nsys.stdin = None\nopen('left', 'w').write('x') if 0 else None\natexit.register(print, 'left')\n";
    let path = script(folder.path(), "program.py", &(first_line("") + text));
    let expected = cold(&path, &[], b"");
    let learned = Warm::load(&path).answer(&[], b"", true).learned;
    let warm = Warm::load_with(&path, &learned);
    for _ in 0..3 {
        assert_eq!(seen(warm.get(&[])), expected);
    }
}

/// SQLite cleans up when a connection is closed. A journal that stays makes the next connection recover it.
#[test]
fn what_a_script_holds_is_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import os, sqlite3, store\n\
        store.open('kept.db') if 'KEPT' in os.environ else print(store.book('left.db').execute('select 1').fetchone())\n";
    let store = "import sqlite3\nkept = None\ndef book(path):\n    db = sqlite3.connect(path)\n    db.execute('pragma journal_mode = wal')\n\
        \x20   db.execute('create table if not exists t (x)')\n    db.commit()\n    return db\n\
        def open(path):\n    global kept\n    kept = book(path)\n";
    fs::write(folder.path().join("store.py"), store).unwrap();
    let warm = with_modules(folder.path(), text, "sqlite3\nstore");
    assert_eq!(warm.loaded.obstacle, None);
    for (vars, name) in [(&[][..], "left.db"), (&[("KEPT", "1")], "kept.db")] {
        assert_eq!(warm.get(vars).exit.status, Status::Code(0));
        assert!(folder.path().join(name).exists());
        let journal = folder.path().join(format!("{name}-wal"));
        assert!(!journal.exists(), "{name}: not closed");
    }
}

#[test]
fn wrappers_around_the_interpreter_do_what_they_do() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import os, sys\nprint(sorted(os.environ.items()), sys.argv, open('/proc/self/comm').read(), flush=True)\n\
                os.execl('/bin/sh', 'sh', '-c', 'env | sort')\n";
    let shell = script(folder.path(), "python", "");
    let wrapper = "export ADDED='a b' PATH=/opt:$PATH\nexec";
    fs::write(
        &shell,
        format!("#!/bin/sh\n{wrapper} {} -B \"$@\"\n", python()),
    )
    .unwrap();
    let program = script(
        folder.path(),
        "wrapped",
        format!("#!{}\n{text}", shell.display()),
    );
    let (out, ..) = compare("wrapped", &program);
    assert!(out.contains("ADDED=a b"), "{out}");
    let program = script(
        folder.path(),
        "through_env",
        format!("#!/usr/bin/env python3\n{text}"),
    );
    compare("env", &program);
}

#[test]
fn a_module_may_start_programs_while_it_loads() {
    let folder = tempfile::tempdir().unwrap();
    let module = "import subprocess, sys\ncode = 'import os; print(sorted(os.environ))'\n\
                  OUT = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n";
    fs::write(folder.path().join("starts.py"), module).unwrap();
    let text = "import sys\nthere = 'starts' in sys.modules\nimport starts\n\
                print(there, starts.OUT.returncode, 'LD_PRELOAD' in starts.OUT.stdout)\n";
    let path = script(folder.path(), "program.py", &(first_line("") + text));
    let warm = Warm::load_with(&path, "subprocess\nstarts");
    assert_eq!(warm.loaded.obstacle, None);
    assert_eq!(warm.get(&[]).out, "True 0 False\n");
}
