//! Two versions of a module: every request runs the version that a cold start would run, whatever earlier requests loaded.
//!
//! Each program has modules in its own folder, and other versions of some in `lib`. It is asked in many ways, cold and warm.

use std::fs;

use super::site;
use crate::harness::list;
use galgo_testkit::{Server, Site};

list![
    python_modules,
    perl_modules,
    ruby_modules,
    node_modules,
    php_includes,
    what_a_program_does_not_load_is_not_loaded_ahead,
    check_finds_both_alike,
];

/// Requests of each way; the same program gets the requests of all ways.
const ROUNDS: usize = 5;

/// Adds a Python program `t.py` and its modules to a folder.
pub fn with_python(site: Site, folder: &str) -> Site {
    let modules = [
        ("two.py", "which = 'beside'"),
        ("lib/two.py", "which = 'lib'"),
        ("uses.py", "import two, string, wave\nwhich = two.which"),
        (
            "optional.py",
            "try:\n    import maybe\n    which = 'maybe'\nexcept ImportError:\n    which = 'none'",
        ),
        ("lib/maybe.py", ""),
        ("pack/__init__.py", "from . import inner"),
        (
            "pack/inner.py",
            "import importlib\ntwo = importlib.import_module('two')",
        ),
        ("lib/colorsys.py", "which = 'lib'"),
    ];
    let program = r#"#!/usr/bin/python3
import os, sys
sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
LIB = here + '/lib'
way = os.environ['QUERY_STRING']
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == 'two':
            from importlib.util import spec_from_file_location
            return spec_from_file_location('two', LIB + '/two.py')
if way == 'plain': import two, uses; says = two.which, uses.which
elif way == 'insert': sys.path.insert(0, LIB); import two; says = two.which
elif way == 'after': import two; sys.path.insert(0, LIB); import two as again, uses; says = two.which, again is two, uses.which
elif way == 'indirect': sys.path.insert(0, LIB); import uses, two; says = uses.which, uses.two is two
elif way == 'import_module': sys.path.insert(0, LIB); import importlib; says = importlib.import_module('two').which
elif way == 'assign': sys.path = [LIB] + sys.path; import two; says = two.which
elif way == 'finder': sys.meta_path.insert(0, Finder()); import two; says = two.which
elif way == 'append': sys.path.append(LIB); import two, optional; says = two.which, optional.which
elif way == 'optional': import optional; says = optional.which
elif way == 'remove': sys.path.remove(here); sys.path.append(LIB); import two; says = two.which
elif way == 'library': sys.path.insert(0, LIB); import colorsys; says = getattr(colorsys, 'which', 'std')
elif way == 'std': import colorsys; says = getattr(colorsys, 'which', 'std')
elif way == 'package': sys.path.insert(0, LIB); import pack; says = pack.inner.two.which
elif way == 'inner': from pack import inner; says = inner.two.which
elif way == 'late': import pack; sys.path.insert(0, LIB); import pack.inner, two; says = pack.inner.two.which, two.which
elif way == 'missing':
    sys.path.insert(0, LIB)
    try: import nowhere
    except ImportError: import traceback; says = traceback.format_exc()
elif way == 'odd': sys.path = None; says = 'odd'
elif way == 'known': says = sorted({'two', 'uses', 'optional'} & {*sys.modules})
print('Content-Type: text/plain\n')
print(way, says)
"#;
    let site = site.file(&format!("{folder}/t.py"), program, 0o755);
    modules.iter().fold(site, |site, (name, text)| {
        site.file(&format!("{folder}/{name}"), format!("{text}\n"), 0o644)
    })
}

pub const PYTHON: &[&str] = &[
    "plain",
    "insert",
    "after",
    "indirect",
    "import_module",
    "assign",
    "finder",
    "append",
    "optional",
    "remove",
    "library",
    "std",
    "package",
    "inner",
    "late",
    "missing",
    "odd",
];

/// Asks in each way, cold and warm in turn.
fn same(server: &Server, warm: &str, ways: &[&str]) {
    let name = warm.rsplit_once('/').unwrap().1;
    same_as(server, warm, &format!("/cold/{name}"), ways);
}

pub fn same_as(server: &Server, warm: &str, cold: &str, ways: &[&str]) {
    for round in 0..ROUNDS {
        for way in ways {
            let [warm, cold] = [warm, cold].map(|target| {
                let reply = server.get(&format!("{target}?{way}"));
                (reply.status, reply.text())
            });
            assert_eq!(warm, cold, "{round} {way}: {}", server.errors());
        }
    }
}

/// Returns a site whose programs start cold at `/cold/`.
fn both(folder: &str) -> Site {
    site().config(&format!(
        "[[route]]\npath = \"/cold/\"\ncgi = \"{folder}\"\nstart = \"cold\"\n"
    ))
}

/// Swaps the two versions of a module.
fn swap(server: &Server, name: &str) {
    let folder = server.path("cgi-bin");
    let [beside, other, between] =
        [name, &format!("lib/{name}"), "between"].map(|n| folder.join(n));
    fs::rename(&beside, &between).unwrap();
    fs::rename(&other, &beside).unwrap();
    fs::rename(&between, &other).unwrap();
}

fn python_modules() {
    let server = with_python(both("cgi-bin"), "cgi-bin").start();
    same(&server, "/cgi-bin/t.py", PYTHON);
    let known = server.get("/cgi-bin/t.py?known").text();
    assert!(
        known.contains("'two', 'uses'"),
        "{known} {}",
        server.errors()
    );
    swap(&server, "two.py");
    same(&server, "/cgi-bin/t.py", PYTHON);
}

fn perl_modules() {
    let program = r#"#!/usr/bin/perl
use strict;
use FindBin;
use lib "$FindBin::Bin";
my $lib = "$FindBin::Bin/lib";
my $way = $ENV{QUERY_STRING};
my @says;
if ($way eq 'plain') { require Two; require Uses; @says = (Two::which(), Uses::which()) }
elsif ($way eq 'unshift') { unshift @INC, $lib; require Two; @says = Two::which() }
elsif ($way eq 'lib') { require lib; lib->import($lib); require Two; @says = Two::which() }
elsif ($way eq 'eval') { eval "use lib '$lib'; use Two; 1" or die; @says = Two::which() }
elsif ($way eq 'indirect') { unshift @INC, $lib; require Uses; @says = Uses::which() }
elsif ($way eq 'after') { require Two; unshift @INC, $lib; require Two; require Uses; @says = (Two::which(), Uses::which()) }
elsif ($way eq 'local') { local @INC = ($lib, @INC); require Two; @says = Two::which() }
elsif ($way eq 'push') { push @INC, $lib; require Two; @says = Two::which() }
elsif ($way eq 'code') {
    unshift @INC, sub { $_[1] eq 'Two.pm' or return; open my $in, '<', "$lib/Two.pm" or die; return $in };
    require Two; @says = Two::which();
}
elsif ($way eq 'library') { unshift @INC, $lib; require Text::Wrap; @says = (Text::Wrap->can('which') ? 'lib' : 'std') }
elsif ($way eq 'std') { require Text::Wrap; @says = (Text::Wrap->can('which') ? 'lib' : 'std') }
elsif ($way eq 'gone') { @INC = ($lib); require Two; @says = (Two::which(), eval { require Uses } ? 1 : 0) }
print "Content-Type: text/plain\n\n$way @says";
print exists $INC{'Two.pm'} ? 'known' : 'unknown' if $way eq 'known';
"#;
    let server = both("cgi-bin")
        .file("cgi-bin/t.pl", program, 0o755)
        .file(
            "cgi-bin/Two.pm",
            "package Two; sub which { 'beside' } 1;",
            0o644,
        )
        .file(
            "cgi-bin/lib/Two.pm",
            "package Two; sub which { 'lib' } 1;",
            0o644,
        )
        .file(
            "cgi-bin/Uses.pm",
            "package Uses; use Two; sub which { Two::which() } 1;",
            0o644,
        )
        .file(
            "cgi-bin/lib/Text/Wrap.pm",
            "package Text::Wrap; sub which { 'lib' } 1;",
            0o644,
        )
        .start();
    let ways = [
        "plain", "unshift", "lib", "eval", "indirect", "after", "local", "push", "code", "library",
        "std", "gone",
    ];
    same(&server, "/cgi-bin/t.pl", &ways);
    let known = server.get("/cgi-bin/t.pl?known").text();
    assert!(known.ends_with(" known"), "{known} {}", server.errors());
    swap(&server, "Two.pm");
    same(&server, "/cgi-bin/t.pl", &ways);
}

/// Ruby treats a feature as loaded if a file of that name was loaded from any folder in the current search path.
fn ruby_modules() {
    let program = r#"#!/usr/bin/ruby
lib = File.join(File.dirname(File.expand_path(__FILE__)), 'lib')
way = ENV['QUERY_STRING']
case way
when 'own' then $LOAD_PATH.unshift(lib); require 'abbrev'; require 'two'
when 'after' then require 'abbrev'; $:.unshift(lib); require 'abbrev'; require 'two'
when 'hidden' then require './search'; require 'abbrev'
else require 'abbrev'
end
print "Content-Type: text/plain\n\n#{way} #{defined?(Abbrev::WHICH) && Abbrev::WHICH} #{defined?(Two) && Two}"
"#;
    let steady = r#"#!/usr/bin/ruby
print "Content-Type: text/plain\n\n", $LOADED_FEATURES.any? { |f| f.end_with?('/ostruct.rb') }
require 'ostruct'
"#;
    // Another file changes the search path, so the script itself does not show it.
    let hidden = program.replace("$LOAD_PATH.unshift(lib)", "require './search'");
    let hidden = hidden.replace("$:.unshift(lib)", "require './search'");
    let server = both("cgi-bin")
        .file("cgi-bin/t.rb", program, 0o755)
        .file("cgi-bin/hidden.rb", hidden, 0o755)
        .file("cgi-bin/steady.rb", steady, 0o755)
        .file(
            "cgi-bin/search.rb",
            "$LOAD_PATH.unshift(File.join(__dir__, 'lib'))",
            0o644,
        )
        .file(
            "cgi-bin/lib/abbrev.rb",
            "module Abbrev; WHICH = 'lib'; end",
            0o644,
        )
        .file("cgi-bin/lib/two.rb", "Two = 'lib'", 0o644)
        .start();
    for name in ["/cgi-bin/t.rb", "/cgi-bin/hidden.rb"] {
        same(&server, name, &["std", "own", "after", "hidden"]);
    }
    fs::write(server.path("cgi-bin/lib/two.rb"), "Two = 'another'").unwrap();
    same(&server, "/cgi-bin/t.rb", &["own"]);
    galgo_testkit::wait_until("a template that has learned", || {
        server.get("/cgi-bin/steady.rb").text().ends_with("true")
    });
}

fn node_modules() {
    let program = r#"#!/usr/bin/env node
const path = require('path');
const Module = require('module');
const way = process.env.QUERY_STRING;
const lib = path.join(__dirname, 'lib');
let says;
if (way === 'plain') says = [require('two').which, require('uses').which];
else if (way === 'paths') { module.paths.unshift(lib); says = [require('two').which]; }
else if (way === 'global') { process.env.NODE_PATH = lib; Module._initPaths(); says = [require('two').which, require('three').which]; }
else if (way === 'resolve') says = [require(require.resolve('two', { paths: [lib] })).which];
else if (way === 'nested') says = [require('uses').which, require('nested').which];
else if (way === 'known') says = [Object.keys(require.cache).some((f) => f.endsWith('node_modules/uses/index.js')) ? 'known' : 'unknown'];
require('fs').writeSync(1, 'Content-Type: text/plain\n\n' + way + ' ' + says);
"#;
    let which = |text: &str| format!("exports.which = {text};");
    let server = both("cgi-bin")
        .file("cgi-bin/t.js", program, 0o755)
        .file(
            "cgi-bin/node_modules/two/index.js",
            which("'beside'"),
            0o644,
        )
        .file("cgi-bin/lib/two/index.js", which("'lib'"), 0o644)
        .file(
            "cgi-bin/lib/node_modules/two/index.js",
            which("'lib'"),
            0o644,
        )
        .file("cgi-bin/lib/three/index.js", which("'lib'"), 0o644)
        .file(
            "cgi-bin/node_modules/uses/index.js",
            which("require('two').which"),
            0o644,
        )
        .file(
            "cgi-bin/node_modules/nested/index.js",
            which("require('two').which"),
            0o644,
        )
        .file(
            "cgi-bin/node_modules/nested/node_modules/two/index.js",
            which("'nested'"),
            0o644,
        )
        .start();
    let ways = ["plain", "paths", "global", "resolve", "nested"];
    same(&server, "/cgi-bin/t.js", &ways);
    let known = server.get("/cgi-bin/t.js?known").text();
    assert!(known.ends_with(" known"), "{known} {}", server.errors());
    fs::write(
        server.path("cgi-bin/node_modules/two/index.js"),
        which("'another one'"),
    )
    .unwrap();
    same(&server, "/cgi-bin/t.js", &ways);
}

fn php_includes() {
    let program = "<?php header('Content-Type: text/plain');\n\
        if ($_SERVER['QUERY_STRING'] == 'own') set_include_path(__DIR__ . '/lib' . PATH_SEPARATOR . get_include_path());\n\
        require 'two.php'; echo $which;\n";
    let server = both("cgi-bin")
        .file("cgi-bin/t.php", program, 0o755)
        .file("cgi-bin/two.php", "<?php $which = 'beside';", 0o644)
        .file("cgi-bin/lib/two.php", "<?php $which = 'lib';", 0o644)
        .config("[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n")
        .start();
    same(&server, "/cgi-bin/t.php", &["plain", "own"]);
    swap(&server, "two.php");
    same(&server, "/cgi-bin/t.php", &["plain", "own"]);
}

/// The library's version makes a mark when it is loaded, but no request loads it.
fn what_a_program_does_not_load_is_not_loaded_ahead() {
    let site = site();
    let root = site.folder().display().to_string();
    let python = "#!/usr/bin/python3\nimport sys\nsys.path.insert(0, 'lib')\nimport two, colorsys\n\
        print('Content-Type: text/plain\\n\\n' + two.which)\n";
    let perl = "#!/usr/bin/perl\nuse lib '.';\nunshift @INC, 'lib';\nrequire Two; require Text::Wrap;\n\
        print \"Content-Type: text/plain\\n\\n\", Two::which();\n";
    let server = site
        .file("cgi-bin/p.py", python, 0o755)
        .file(
            "cgi-bin/two.py",
            format!("open('{root}/marks/py', 'w')"),
            0o644,
        )
        .file("cgi-bin/lib/two.py", "which = 'lib'", 0o644)
        .file("cgi-bin/p.pl", perl, 0o755)
        .file(
            "cgi-bin/Two.pm",
            format!("open F, '>', '{root}/marks/pl'; 1;"),
            0o644,
        )
        .file(
            "cgi-bin/lib/Two.pm",
            "package Two; sub which { 'lib' } 1;",
            0o644,
        )
        .start();
    for name in ["p.py", "p.pl"] {
        for _ in 0..20 {
            let text = server.get(&format!("/cgi-bin/{name}")).text();
            assert_eq!(text.trim_end(), "lib", "{}", server.errors());
        }
    }
    for mark in ["marks/py", "marks/pl"] {
        assert!(!server.path(mark).exists(), "{mark}: {}", server.errors());
    }
}

/// `galgo check --warm` asks cold and warm, and prints the differences.
fn check_finds_both_alike() {
    let program = "#!/usr/bin/python3\nimport sys\nsys.path.insert(0, 'lib')\nimport colorsys, wave\n\
        print('Content-Type: text/plain\\n\\n' + getattr(colorsys, 'which', 'std'))\n";
    let site = site()
        .file("p.py", program, 0o755)
        .file("lib/colorsys.py", "which = 'lib'", 0o644);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_galgo"))
        .args(["check", "--warm", "p.py"])
        .current_dir(site.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("identical"), "{said} {output:?}");
}
