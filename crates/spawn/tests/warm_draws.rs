//! Random numbers: no two children draw the same. All languages are in one binary so that their
//! tests share the processors.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_testkit::file::{compile, script};
use scene::warm::Warm;
use std::{collections::HashSet, fs, path::Path};

const CHILDREN: usize = 10_000;

/// Returns the output of `count` children, `words` words from each.
fn drawn(warm: &Warm, count: usize, words: usize) -> Vec<Vec<String>> {
    assert_eq!(warm.loaded.obstacle, None);
    let split = |line: &String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = warm.lines(count).iter().map(split).collect();
    assert_eq!(lines.len(), count);
    for line in &lines {
        assert_eq!(line.len(), words, "{line:?}");
    }
    lines
}

fn all_differ(lines: &[Vec<String>]) {
    let mut seen = HashSet::new();
    for word in lines.iter().flatten() {
        assert!(seen.insert(word), "{word} twice");
    }
}

/// A program that has seeded and used OpenSSL before its template forks.
const OPENSSL: &str = r#"
#include <stdio.h>
#include <unistd.h>
int RAND_bytes(unsigned char *to, int count);
int RAND_priv_bytes(unsigned char *to, int count);
static void draw(int (*from)(unsigned char *, int), char end) {
    unsigned char bytes[12];
    from(bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof bytes; i++)
        printf("%02x", bytes[i]);
    putchar(end);
}
__attribute__((constructor)) static void load(void) {
    unsigned char bytes[32];
    RAND_bytes(bytes, sizeof bytes);
    RAND_priv_bytes(bytes, sizeof bytes);
}
int main(void) {
    draw(RAND_bytes, ' ');
    draw(RAND_priv_bytes, '\n');
    fflush(stdout);
    _exit(0);
}
"#;

#[test]
fn openssl() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "draws", OPENSSL, &["-l:libcrypto.so.3"]);
    all_differ(&drawn(&Warm::load(&program), CHILDREN, 2));
}

#[test]
fn perl() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "#!/usr/bin/perl\nBEGIN { srand 5; rand } print join(' ', rand(), int rand 1e15), qq(\n);";
    let lines = drawn(
        &Warm::load(&script(folder.path(), "s.pl", text)),
        CHILDREN,
        2,
    );
    // A seed of Perl has 32 bits, cold or warm. Among 10,000 seeds, a pair of equal seeds occurs
    // once in 86 runs, three pairs once in four million.
    for at in 0..2 {
        let seen: HashSet<&String> = lines.iter().map(|line| &line[at]).collect();
        assert!(
            seen.len() >= CHILDREN - 2,
            "{} repeats",
            CHILDREN - seen.len()
        );
    }
}

fn python(folder: &Path, modules: &str, words: &str) -> Warm {
    let own =
        "import random, ssl\nmine = random.Random()\nfixed = random.Random(7)\nssl.RAND_bytes(8)\n";
    fs::write(folder.join("own.py"), own).unwrap();
    let python = std::env::var("GALGO_TEST_PYTHON").unwrap_or_else(|_| "/usr/bin/python3".into());
    let text = format!(
        "#!{python}\nimport os, {modules}\nwords = ' '.join(map(str, ({words})))\n\
         os.write(1, (words + '\\n').encode())\nos._exit(0)\n"
    );
    Warm::load_with(&script(folder, "s.py", &text), &modules.replace(", ", "\n"))
}

#[test]
fn python_modules() {
    let folder = tempfile::tempdir().unwrap();
    let words = "random.random(), random.SystemRandom().random(), own.mine.random(), secrets.token_hex(8), \
                 uuid.uuid4(), own.ssl.RAND_bytes(8).hex()";
    let warm = python(folder.path(), "random, own, secrets, uuid", words);
    all_differ(&drawn(&warm, CHILDREN, 6));
}

/// Python modules that keep no state between children, or keep all their state in a generator
/// tested above.
#[test]
fn more_python_modules() {
    let folder = tempfile::tempdir().unwrap();
    let words = "uuid.uuid1(), next(tempfile._get_candidate_names()), \
                 bytes(multiprocessing.process.current_process().authkey).hex(), own.fixed.random()";
    let modules = "random, own, uuid, tempfile, multiprocessing.process";
    let mut lines = drawn(&python(folder.path(), modules, words), 500, 4);
    for line in &mut lines {
        assert!(line.pop().unwrap().starts_with("0.3238"), "{line:?}");
    }
    all_differ(&lines);
}

#[test]
fn ruby() {
    let folder = tempfile::tempdir().unwrap();
    // The library is preloaded: its generators are made before the fork.
    let library = folder.path().join("own.rb");
    fs::write(&library, "MINE = Random.new\nclass Other < Random; def initialize; super; end; end\nOTHER = Other.new\nFIXED = Random.new(7)\n").unwrap();
    let text = format!("#!/usr/bin/ruby\nahead = defined?(MINE)\nrequire 'securerandom'; require 'tempfile'; require '{}'
        exit 1 if ENV['QUERY_STRING'] == 'leave' && !ahead
        words = MINE.rand, OTHER.rand, Dir::Tmpname.create('x') {{ |path| path }}, Random.new(7).rand == FIXED.rand ? rand : 0, Random.rand, Random.new.rand, SecureRandom.hex(8), [*1..99].shuffle.first(9).join('-')
        STDOUT.syswrite words.join(' ') + 10.chr
        exit! if ENV['QUERY_STRING'] == 'leave'", library.display());
    let path = script(folder.path(), "s.rb", &text);
    let mut learned = Warm::load(&path).answer(&[], b"", true).learned;
    learned += &format!("\n{}", library.display());
    all_differ(&drawn(&Warm::load_with(&path, &learned), CHILDREN, 8));
}

#[test]
fn node() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("node_modules/pack");
    fs::create_dir_all(&package).unwrap();
    let draws = "exports.first = Math.random(); const { random } = Math; exports.random = random;";
    fs::write(package.join("index.js"), draws).unwrap();
    let text = "#!/usr/bin/env node
        const c = require('crypto'), p = require('pack');
        const drawn = [Math.random(), Math.random(), p.random(), c.randomUUID(), c.randomBytes(8).toString('hex'),
            crypto.getRandomValues(new Uint32Array(2)).join('-'), c.randomInt(2 ** 47)];
        require('fs').writeSync(1, drawn.join(' ') + '\\n');
        if (process.env.QUERY_STRING === 'leave') process.reallyExit(0);";
    let path = script(folder.path(), "s.js", text);
    let learned = Warm::load(&path).answer(&[], b"", true).learned;
    assert!(learned.contains("/pack/index.js"), "{learned}");
    all_differ(&drawn(&Warm::load_with(&path, &learned), CHILDREN, 7));
}
