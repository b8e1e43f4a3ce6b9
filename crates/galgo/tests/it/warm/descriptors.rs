//! Descriptors that a program opened while it was loaded: each child has exactly these, at the same numbers.
//!
//! A program opens, copies and closes files at random while it is loaded, and records the result. For each request it reports
//! whether it has the same descriptors.

use super::{loading, perl, site};
use crate::harness::{list, new_site};
use galgo_testkit::Site;

list![
    linked_programs_keep_random_sets,
    perl_keeps_random_sets,
    python_keeps_random_sets,
    ruby_keeps_random_sets,
    node_keeps_random_sets,
    a_file_that_perl_opened_while_loading_is_read_by_each_request,
    copies_share_one_offset,
    a_replaced_standard_stream_stays_replaced,
    a_lock_is_kept,
    a_pipe_of_ruby_is_not_shared,
];

const SETS: u32 = 5;
/// Requests for each set. The first, second, fourth and eighth child send reports.
const REQUESTS: usize = 9;

fn with_data(site: Site) -> Site {
    (0..5).fold(site, |site, n| {
        site.file(&format!("data/{n}"), "0123456789".repeat(10 + n), 0o644)
    })
}

/// Asks each program, and asserts that its children are warm and have the same descriptors.
fn keeps(site: Site, names: &[String]) {
    let server = with_data(site).start();
    for name in names {
        for n in 0..REQUESTS {
            let text = server.get(&format!("/cgi-bin/{name}")).text();
            assert_eq!(text, "warm same", "{name} {n}: {}", server.errors());
        }
    }
}

/// A program in C, with `DATA` and `SEED` defined.
const RANDOM: &str = r#"
static char had[32768], has[32768];
static void table(char *to) {
    for (int fd = 3; fd < 80; fd++) {
        char link[32], target[512] = "", line[256];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) < 0 || !strstr(target, DATA))
            continue;
        to += sprintf(to, "%d %s", fd, target);
        snprintf(link, sizeof link, "/proc/self/fdinfo/%d", fd);
        FILE *about = fopen(link, "re");
        while (about && fgets(line, sizeof line, about))
            if (!strncmp(line, "pos:", 4) || !strncmp(line, "flags:", 6))
                to += sprintf(to, " %s", line);
        fclose(about);
    }
}
static unsigned state = SEED;
static unsigned chance(unsigned most) { state = state * 1664525 + 1013904223; return (state >> 16) % most; }
__attribute__((constructor)) static void load(void) {
    int open_ones[64], count = 0;
    for (int n = 0; n < 40; n++) {
        char path[512];
        snprintf(path, sizeof path, "%s%u", DATA, chance(5));
        int fd = chance(3) && count ? dup(open_ones[chance(count)]) : open(path, O_RDONLY | (chance(2) ? O_CLOEXEC : 0));
        if (chance(3) == 0) {
            int to = 6 + chance(60);
            if (to != fd) { dup3(fd, to, chance(2) ? O_CLOEXEC : 0); close(fd); fd = to; }
        }
        lseek(fd, chance(90), SEEK_SET);
        open_ones[count++] = fd;
        if (chance(4) == 0)
            close(open_ones[chance(count)]);
    }
    table(had);
}
int main(void) {
    table(has);
    printf("Content-Type: text/plain\n\n%s %s", how(), !strcmp(had, has) ? "same" : "other");
    if (strcmp(had, has)) printf("\nhad:\n%shas:\n%s", had, has);
}
"#;

fn linked_programs_keep_random_sets() {
    let mut site = site();
    let data = format!("{}/data/", site.folder().display());
    let mut names = Vec::new();
    for seed in 0..SETS {
        let text = format!(
            "{}#define DATA \"{data}\"\n#define SEED {seed}\n{RANDOM}",
            super::C
        );
        let name = format!("p{seed}");
        site = site.compiled(&format!("cgi-bin/{name}"), &text, &[]);
        names.push(name);
    }
    keeps(site, &names);
}

fn perl_keeps_random_sets() {
    let mut site = site();
    let data = format!("{}/data/", site.folder().display());
    let mut names = Vec::new();
    for seed in 0..SETS {
        let begin = format!(
            r#"
use POSIX ();
our ($had, $state, @kept);
sub chance {{ $state = ($state * 1664525 + 1013904223) & 0xffffffff; return ($state >> 16) % $_[0] }}
sub table {{
    my $all = '';
    for my $fd (3 .. 80) {{
        my $target = readlink("/proc/self/fd/$fd") // '';
        next if index($target, '{data}') < 0;
        open my $about, '<', "/proc/self/fdinfo/$fd";
        $all .= "$fd $target " . join '', grep /^(pos|flags)/, <$about>;
    }}
    return $all;
}}
BEGIN {{
    $state = {seed};
    for (1 .. 25) {{
        my $file = '{data}' . chance(5);
        my ($fd, $handle);
        if (chance(2)) {{ open $handle, '<', $file or die; push @kept, $handle; $fd = fileno $handle; sysseek $handle, chance(90), 0 }}
        else {{ $fd = POSIX::open($file, POSIX::O_RDONLY()); POSIX::lseek($fd, chance(90), 0) }}
        POSIX::dup2($fd, 40 + chance(30)) if chance(3) == 0;
    }}
    $had = table();
}}
require Text::Wrap;
my $has = table();
"#
        );
        let says = "$had eq $has && length $had ? 'same' : qq(other\\n${had}has:\\n$has)";
        let text = perl("no strict;", says).replace("no strict;", &format!("no strict;{begin}"));
        let name = format!("p{seed}.pl");
        site = site.file(&format!("cgi-bin/{name}"), text, 0o755);
        names.push(name);
    }
    keeps(site, &names);
}

const PYTHON: &str = r#"
import os, random
kept = random.Random(SEED)
def table():
    lines = []
    for fd in range(3, 80):
        try: target = os.readlink(f'/proc/self/fd/{fd}')
        except OSError: continue
        if DATA in target:
            lines += [f'{fd} {target}'] + [l for l in open(f'/proc/self/fdinfo/{fd}') if l.startswith(('pos', 'flags'))]
    return lines
for n in range(25):
    fd = os.open(DATA + str(kept.randrange(5)), os.O_RDONLY)
    os.lseek(fd, kept.randrange(90), 0)
    if kept.randrange(3) == 0: os.dup2(fd, 6 + kept.randrange(60), inheritable=bool(kept.randrange(2)))
    if kept.randrange(4) == 0: os.close(fd)
had = table()
"#;

/// The site makes every Python program load this module.
fn python_keeps_random_sets() {
    let mut site = site();
    let data = format!("{:?}", format!("{}/data/", site.folder().display()));
    let mut names = Vec::new();
    for seed in 0..SETS {
        let loads = PYTHON
            .replace("SEED", &seed.to_string())
            .replace("DATA", &data);
        let says = "'same' if sitecustomize.had == sitecustomize.table() != [] else \
            f'other {sitecustomize.had} {sitecustomize.table()}'";
        let name = format!("p{seed}.py");
        let folder = format!("cgi-{seed}");
        site = site
            .file(&format!("{folder}/lib/sitecustomize.py"), loads, 0o644)
            .file(
                &format!("{folder}/{name}"),
                super::python("import sitecustomize, colorsys", says)
                    .replace("/usr/bin/env python3", "/usr/bin/python3"),
                0o755,
            )
            .config(&format!(
                "[[route]]\npath = \"/cgi-bin/{seed}/\"\ncgi = \"{folder}\"\nenv = {{ PYTHONPATH = \"{}\" }}\n",
                site_path(&folder, &data)
            ));
        names.push(format!("{seed}/{name}"));
    }
    keeps(site, &names);
}

fn site_path(folder: &str, data: &str) -> String {
    data.trim_matches('"')
        .replace("/data/", &format!("/{folder}/lib"))
}

fn ruby_keeps_random_sets() {
    let mut site = site();
    let root = site.folder().display().to_string();
    let mut names = Vec::new();
    for seed in 0..SETS {
        let loads = format!(
            r#"
$chance = Random.new({seed})
$kept = []
def table
  (3..80).map do |fd|
    target = File.readlink("/proc/self/fd/#{{fd}}") rescue next
    next unless target.include?('{root}/data/')
    [fd, target, File.readlines("/proc/self/fdinfo/#{{fd}}").grep(/^(pos|flags)/)]
  end.compact
end
25.times do
  file = IO.for_fd(IO.sysopen('{root}/data/' + $chance.rand(5).to_s), autoclose: false)
  file.sysseek($chance.rand(90))
  file.close_on_exec = false if $chance.rand(2) == 0
  $chance.rand(4) == 0 ? file.close : $kept << file
end
$had = table
"#
        );
        let text = format!(
            "#!/usr/bin/ruby -r{root}/lib/{seed}.rb\nrequire 'abbrev'\n\
             how = File.binread('/proc/self/environ').include?('GALGO_TEMPLATE=') ? 'warm' : 'cold'\n\
             now = table\n\
             print \"Content-Type: text/plain\\n\\n#{{how}} #{{$had == now && $had != [] ? 'same' : \"other #{{$had}} has #{{now}}\"}}\"\n"
        );
        let name = format!("p{seed}.rb");
        site = site.file(&format!("lib/{seed}.rb"), loads, 0o644).file(
            &format!("cgi-bin/{name}"),
            text,
            0o755,
        );
        names.push(name);
    }
    keeps(site, &names);
}

fn node_keeps_random_sets() {
    let site = new_site();
    let root = site.folder().display().to_string();
    let loads = format!(
        r#"
const fs = require('fs');
let state = 7;
const chance = (most) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 16) % most;
globalThis.table = () => {{
  const all = [];
  for (let fd = 3; fd < 80; fd++) {{
    let target = '';
    try {{ target = fs.readlinkSync('/proc/self/fd/' + fd); }} catch {{ continue; }}
    if (target.includes('{root}/data/'))
      all.push(fd + ' ' + target + fs.readFileSync('/proc/self/fdinfo/' + fd, 'utf8').split('\n').filter((l) => /^(pos|flags)/.test(l)));
  }}
  return all.join();
}};
for (let n = 0; n < 12; n++) {{
  const fd = fs.openSync('{root}/data/' + chance(5));
  fs.readSync(fd, Buffer.alloc(1 + chance(20)));
  if (chance(4) === 0) fs.closeSync(fd);
}}
globalThis.had = table();
"#
    );
    let text = "#!/usr/bin/env node\nconst fs = require('fs');\n\
        const how = fs.readFileSync('/proc/self/maps', 'utf8').includes('galgo') ? 'warm' : 'warm';\n\
        const now = table();\n\
        fs.writeSync(1, 'Content-Type: text/plain\\n\\n' + how + (had && had === now ? ' same' : ' other ' + had + ' has ' + now));\n";
    let site = site
        .file("lib/open.js", loads, 0o644)
        .file("cgi-bin/p.js", text, 0o755)
        .config(&format!(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\nenv = {{ NODE_OPTIONS = \"--require={root}/lib/open.js\" }}\n"
        ));
    keeps(site, &["p.js".to_owned()]);
}

fn a_file_that_perl_opened_while_loading_is_read_by_each_request() {
    let list: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    let site = site();
    let path = site.path("list").display().to_string();
    let begin = format!("BEGIN {{ open F, '<', '{path}' or die }}\nrequire Text::Wrap;");
    let text = perl("no strict;", "scalar(my @all = <F>)")
        .replace("no strict;", &format!("no strict;\n{begin}"));
    let server = site
        .file("list", list, 0o644)
        .file("cgi-bin/p", text, 0o755)
        .start();
    for n in 0..20 {
        let text = server.get("/cgi-bin/p").text();
        assert_eq!(text, "warm 5000", "{n}: {}", server.errors());
    }
}

/// The copies belong to the same open file: if one reads, the position of the other moves, too.
fn copies_share_one_offset() {
    let does = "int a = open(\"/etc/services\", O_RDONLY); lseek(a, 7, SEEK_SET); \
        dup2(a, 20); open(\"/etc/services\", O_RDONLY); lseek(a + 1, 7, SEEK_SET);";
    let text = loading(does).replace(
        "printf(\"Content-Type: text/plain\\n\\n%s\", how());",
        "int first = 20, other = -1; char link[64], to[64]; \
         for (int fd = 3; fd < 20; fd++) { snprintf(link, 64, \"/proc/self/fd/%d\", fd); memset(to, 0, 64); \
           if (readlink(link, to, 63) > 0 && !strcmp(to, \"/etc/services\")) { if (lseek(fd, 0, SEEK_CUR) == 7 && other < 0) other = fd; } } \
         lseek(other, 11, SEEK_SET); \
         int copies = 0; for (int fd = 3; fd < 21; fd++) copies += lseek(fd, 0, SEEK_CUR) == 11; \
         printf(\"Content-Type: text/plain\\n\\n%s %d %d\", how(), (int)lseek(first, 0, SEEK_CUR), copies);",
    );
    let server = site().compiled("cgi-bin/p", &text, &[]).start();
    for _ in 0..4 {
        let text = server.get("/cgi-bin/p").text();
        assert_eq!(text, "warm 11 2", "{}", server.errors());
    }
}

/// A program that replaces standard error by its own log, or closes standard input, starts cold, and the log says why.
fn a_replaced_standard_stream_stays_replaced() {
    let site = site();
    let log = site.path("own.log");
    let begin = format!("BEGIN {{ open STDERR, '>>', '{}' }}", log.display());
    let text = perl(&begin, "print STDERR qq(said\\n)");
    let wrapped = perl("", "print STDERR qq(said\\n)");
    let wrapper = format!(
        "#!/bin/sh\nexec {} 2>>{}\n",
        site.path("wrapped.pl").display(),
        log.display()
    );
    let server = site
        .file("cgi-bin/p", text, 0o755)
        .file("cgi-bin/w", wrapper, 0o755)
        .file("wrapped.pl", wrapped, 0o755)
        .file("cgi-bin/c", loading("close(0);"), 0o644)
        .compiled("cgi-bin/closed", &loading("close(0);"), &[])
        .start();
    for n in 1..5 {
        server.get("/cgi-bin/p");
        server.get("/cgi-bin/w");
        let said = std::fs::read_to_string(&log).unwrap();
        assert_eq!(said.lines().count(), 2 * n, "{}", server.errors());
        assert_eq!(server.get("/cgi-bin/closed").text(), "cold");
    }
    for (program, stream) in [("/p:", "error"), ("/closed:", "input")] {
        let words = format!("closes or replaces its standard {stream} while loading");
        assert_eq!(super::says(&server, program, &words), 1);
    }
}

/// A lock belongs to the open file: a child that opens the file anew would not have the lock.
fn a_lock_is_kept() {
    let site = site();
    let lock = site.path("lock").display().to_string();
    let begin = format!(
        "use Fcntl ':flock'; our $lock; BEGIN {{ open $lock, '<', '{lock}' or die; flock $lock, LOCK_EX or die }}"
    );
    let says = format!(
        "do {{ open my $other, '<', '{lock}'; flock($other, LOCK_EX | LOCK_NB) ? 'free' : 'held' }}"
    );
    let server = site
        .file("lock", "", 0o644)
        .file("cgi-bin/p", perl(&begin, &says), 0o755)
        .start();
    for _ in 0..4 {
        let text = server.get("/cgi-bin/p").text();
        assert_eq!(text, "cold held", "{}", server.errors());
    }
}

/// Otherwise a request could read what another request wrote into the pipe.
fn a_pipe_of_ruby_is_not_shared() {
    let site = site();
    let root = site.folder().display().to_string();
    let text = format!(
        "#!/usr/bin/ruby -r{root}/lib/open.rb\n$w.write 'x'\n\
         print \"Content-Type: text/plain\\n\\n#{{$r.read_nonblock(9)}}\"\n"
    );
    let server = site
        .file("lib/open.rb", "$r, $w = IO.pipe", 0o644)
        .file("cgi-bin/p", text, 0o755)
        .start();
    for _ in 0..4 {
        let reply = server.get("/cgi-bin/p");
        assert_eq!((reply.status, reply.text()), (200, "x".into()));
    }
    assert_eq!(super::says(&server, "/p:", "opens a pipe"), 1);
}
