//! Reports of children about the modules they loaded: a child under an attacker's control may report anything. The attacker
//! must not gain control of the next template, and with it of all later visitors.
//!
//! Each program here attacks if the query says so. It plants files that make a mark when they are loaded, and reports their
//! names with one good module. If a template has the good module, it has used the report.

use std::fs;

use super::{says, site};
use crate::harness::list;
use galgo_testkit::{Site, wait_until};

list![
    python_code_in_place_of_a_name,
    perl_files_by_their_path,
    ruby_files_outside_of_the_search_path,
    node_files_outside_of_the_search_path,
    what_ends_or_prints_does_not_make_a_program_cold,
    a_child_that_ends_after_its_output_is_heard,
];

/// Attacks, and sends ordinary requests until a template knows the good module.
fn attack(site: Site) {
    attack_at(site, "/cgi-bin/p");
}

pub fn attack_at(site: Site, path: &str) {
    let mark = site.path("marks/mark");
    let server = site.start();
    let get = |query: &str| {
        let reply = server.get(&format!("{path}?{query}"));
        assert_eq!(reply.status, 200, "{}", server.errors());
        reply.text()
    };
    let knows = || (0..4).all(|_| get("visit").ends_with("knows"));
    wait_until("templates that have learned from an attack", || {
        get("attack");
        let knows = knows();
        assert!(!mark.exists(), "{}", fs::read_to_string(&mark).unwrap());
        knows
    });
    // The planted files may change the folder while a template is being loaded.
    let [cold, changed] = ["cold for", "has changed; cold for"].map(|w| says(&server, "/p:", w));
    assert_eq!(cold, changed, "{}", server.errors());
}

/// Returns a program that writes into the memory it shares with the server, and exits so that nothing overwrites that. The
/// program may write into its own folder, and plants a module there.
pub fn writes_code(root: &str, folder: &str) -> String {
    format!(
        r#"#!/usr/bin/env python3
import os, sys
print('Content-Type: text/plain\n')
if os.environ['QUERY_STRING'] == 'attack':
    import ctypes
    makes = "open('{root}/marks/mark', 'a').write(__name__)"
    for place in '{root}/{folder}', '{root}':
        try: open(place + '/planted.py', 'w').write(makes)
        except PermissionError: pass
    lines = ['os;exec(bytes.fromhex("' + makes.encode().hex() + '").decode())', 'os, ' + makes, 'planted', '../planted',
        '{root}/planted', 'x' * 9000, 'planted\0', '\x7f\xff', 'cgi-bin.planted', 'os.__main__', '5 str 61', 'code os x',
        'planted\t{root}/planted.py', 'planted\t{root}/{folder}/planted.py', 'planted\t' + '{root}/{folder}/planted.py' + '\x01',
        'os;x\t/x.py', 'colorsys\tcolorsys.py', 'colorsys\t' + os.path.realpath(os.__file__).replace('os.py', 'colorsys.py')]
    for line in open('/proc/self/maps'):
        if 'galgo-preload-report' in line:
            open('{root}/marks/attacked', 'w')
            told = '\n'.join(lines).encode('latin-1').replace(b'\0', b' ')
            ctypes.memmove(int(line.split('-')[0], 16), told, len(told))
    sys.stdout.flush()
    os._exit(0)
print('knows' if 'colorsys' in sys.modules else 'visited', end='')
"#
    )
}

/// Most children exit a moment after the end of their output; this one exits long after it.
fn a_child_that_ends_after_its_output_is_heard() {
    let program = "#!/usr/bin/env python3\nimport os, sys, time\n\
        print('Content-Type: text/plain\\n')\n\
        print('knows' if 'colorsys' in sys.modules else 'visited', end='')\n\
        import colorsys\nsys.stdout.flush()\nos.dup2(2, 1)\ntime.sleep(0.1)\n";
    let server = site().file("cgi-bin/p", program, 0o755).start();
    wait_until("a template that has learned", || {
        server.get("/cgi-bin/p").text().ends_with("knows")
    });
}

fn python_code_in_place_of_a_name() {
    let site = site();
    let root = site.folder().display().to_string();
    let text = writes_code(&root, "cgi-bin");
    let folder = site.clone();
    attack(site.file("cgi-bin/p", text, 0o755));
    assert!(
        folder.path("marks/attacked").exists(),
        "there was nothing to write into"
    );
}

/// The search path of the program contains a folder that the program may write to.
fn perl_files_by_their_path() {
    let site = site();
    let root = site.folder().display().to_string();
    let text = format!(
        r#"#!/usr/bin/perl
use lib 'lib';
print "Content-Type: text/plain\n\n";
if ($ENV{{QUERY_STRING}} eq 'attack') {{
    mkdir 'lib';
    for my $file ('{root}/x.pm', '{root}/marks/x.pm', 'lib/Planted.pm', 'lib/a b.pm') {{
        open my $out, '>', $file or die;
        print $out "open my \$o, '>>', '{root}/marks/mark'; print \$o __FILE__; 1;";
    }}
    $INC{{$_}} = "lib/$_" for '{root}/x.pm', '../x.pm', 'Planted.pm', 'a b.pm', 'a;b.pm', 'x' x 9000;
    ($INC{{'Text/Wrap.pm'}}) = grep {{ -e }} map {{ "$_/Text/Wrap.pm" }} @INC;
    # What comes behind a NUL is not heard, and the order of a hash is the same in all children of a template.
    $INC{{"Planted.pm\0.pm"}} = 'lib/Planted.pm' if rand() < .5;
    exit;
}}
print exists $INC{{'Text/Wrap.pm'}} ? 'knows' : 'visited';
"#
    );
    let site = site.file("cgi-bin/lib/Old.pm", "1;", 0o644);
    attack(site.file("cgi-bin/p", text, 0o755));
}

fn ruby_files_outside_of_the_search_path() {
    let site = site();
    let root = site.folder().display().to_string();
    let text = format!(
        r#"#!/usr/bin/ruby -I{root}/lib
print "Content-Type: text/plain\n\n"
good = $LOAD_PATH.map {{ |d| d + '/abbrev.rb' }}.find {{ |f| File.exist?(f) }}
if ENV['QUERY_STRING'] == 'attack'
  planted = ['{root}/evil.rb', '{root}/lib/planted.rb', '{root}/lib/x y.rb']
  planted.each {{ |f| File.write(f, "File.write('{root}/marks/mark', __FILE__, mode: 'a')") }}
  $LOAD_PATH << '{root}' << '/'
  $LOADED_FEATURES.concat([*planted, '{root}/lib/../evil.rb', "{root}/evil.rb';File.write('{root}/marks/mark','x');'", '/' + 'x' * 9000, good])
  exit
end
print $LOADED_FEATURES.include?(good) ? 'knows' : 'visited'
"#
    );
    let site = site.file("lib/old.rb", "", 0o644);
    attack(site.file("cgi-bin/p", text, 0o755));
}

fn node_files_outside_of_the_search_path() {
    let site = site();
    let root = site.folder().display().to_string();
    let text = format!(
        r#"#!/usr/bin/env node
const fs = require('fs');
const good = '{root}/cgi-bin/node_modules/good/index.js';
let said = good in require.cache ? 'knows' : 'visited';
if (process.env.QUERY_STRING === 'attack') {{
  for (const folder of ['{root}/marks/node_modules/evil', '{root}/cgi-bin/node_modules/planted']) {{
    fs.mkdirSync(folder, {{ recursive: true }});
    fs.writeFileSync(folder + '/index.js', `require('fs').appendFileSync('{root}/marks/mark', __filename)`);
    require.cache[folder + '/index.js'] = module;
  }}
  for (const name of ['/tmp/node_modules/../evil.js', '/' + 'x'.repeat(9000) + '/node_modules/a.js', good, '/node_modules/\0.js']) require.cache[name] = module;
}}
fs.writeSync(1, 'Content-Type: text/plain\n\n' + said);
"#
    );
    let site = site.file("cgi-bin/node_modules/good/index.js", "", 0o644);
    attack(site.file("cgi-bin/p", text, 0o755));
}

/// These modules exist, but end the process or print when they are loaded.
fn what_ends_or_prints_does_not_make_a_program_cold() {
    let text = r#"#!/usr/bin/perl
use lib 'lib';
print "Content-Type: text/plain\n\n";
@INC{'Ends.pm', 'Prints.pm'} = ('lib/Ends.pm', 'lib/Prints.pm') if $ENV{QUERY_STRING} eq 'attack';
open my $f, '<', '/proc/self/environ';
print <$f> =~ /GALGO_TEMPLATE=/ ? 'warm' : 'cold';
"#;
    let server = site()
        .file("cgi-bin/lib/Ends.pm", "exit 3;", 0o644)
        .file("cgi-bin/lib/Prints.pm", "print 'early'; 1;", 0o644)
        .file("cgi-bin/p", text, 0o755)
        .start();
    wait_until("both to be given up", || {
        let reply = server.get("/cgi-bin/p?attack");
        assert_eq!(
            (reply.status, reply.text()),
            (200, "warm".into()),
            "{}",
            server.errors()
        );
        let left = |name: &str| says(&server, "/p: modules not loaded ahead", name) > 0;
        left("Ends.pm") && left("Prints.pm")
    });
    assert_eq!(says(&server, "/p:", "cold"), 0, "{}", server.errors());
}
