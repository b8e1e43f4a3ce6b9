//! Programs that read their standard input while they are loaded: each request's program reads the request's own body.

use super::{loading, perl, says, site};
use crate::harness::list;
use galgo_testkit::{Server, Site, wait_until};

list![a_program_reads_it, a_module_reads_it];

const READS: &str = "reads its standard input while loading";

/// Posts a body of its own to a program until the log says `words` of it, then a few more. Asserts that each is answered.
pub fn answers_each_body(server: &Server, path: &str, words: &str) {
    let mut sent = 0;
    let mut post = || {
        sent += 1;
        let body = format!("body-{sent}");
        let mut client = server.connect();
        client.post(path, body.as_bytes());
        let reply = client.reply();
        let text = reply.text();
        assert_eq!(reply.status, 200, "{path}: {}", server.errors());
        assert!(text.ends_with(&body), "{path} {body}: {text}");
    };
    let (_, name) = path.rsplit_once('/').unwrap();
    let file = format!("/{name}: ");
    wait_until(&format!("{path}: {words}"), || {
        post();
        says(server, &file, words) > 0
    });
    (0..8).for_each(|_| post());
}

/// Adds programs that read their body while they are loaded.
pub fn with_readers(mut site: Site, folder: &str) -> (Site, Vec<String>) {
    let linked = |reads: &str| {
        loading(reads)
            .replace(
                "extern char **environ;",
                "extern char **environ;\nstatic char body[99];",
            )
            .replace("%s\", how()", "%s %s\", how(), body")
    };
    let mut names = Vec::new();
    for (name, reads) in [
        ("read", "(void)!read(0, body, 98);"),
        ("stdio", "(void)!fgets(body, 99, stdin);"),
    ] {
        let name = format!("{folder}/{name}");
        site = site.compiled(&name, &linked(reads), &[]);
        names.push(name);
    }
    for (name, begin) in [
        ("line.pl", "our $body; BEGIN { $body = <STDIN> }"),
        ("all.pl", "our $body; BEGIN { $body = join '', <> }"),
        ("raw.pl", "our $body; BEGIN { sysread STDIN, $body, 99 }"),
        ("process.pl", "our $body; BEGIN { $body = `cat` }"),
        (
            "use.pl",
            "use lib 'lib'; use Early; our $body = $Early::body;",
        ),
    ] {
        let name = format!("{folder}/{name}");
        site = site.file(&name, perl(begin, "$body"), 0o755);
        names.push(name);
    }
    let site = site.file(&format!("{folder}/lib/Early.pm"), EARLY, 0o644);
    (site, names)
}

const EARLY: &str = "package Early; our $body = <STDIN>; 1;";

fn a_program_reads_it() {
    let (site, names) = with_readers(site(), "cgi-bin");
    let root = site.folder().display().to_string();
    let ruby = format!(
        "#!/usr/bin/ruby -r{root}/early.rb\nprint \"Content-Type: text/plain\\n\\n\", $body\n"
    );
    let server = site
        .file("early.rb", "$body = STDIN.read", 0o644)
        .file("cgi-bin/early.rb", ruby, 0o755)
        .start();
    let ruby = "cgi-bin/early.rb".to_owned();
    for name in names.iter().chain([&ruby]) {
        answers_each_body(&server, &format!("/{name}"), &format!("it {READS}"));
        assert_eq!(says(&server, &format!("/{name}:"), "started cold"), 1);
    }
}

/// A module that galgo has learned, and loads ahead.
fn a_module_reads_it() {
    let site = site();
    let root = site.folder().display().to_string();
    let package = "cgi-bin/node_modules";
    let ruby = |module: &str| {
        format!(
            "#!/usr/bin/ruby -I{root}/lib\nrequire '{module}'\nprint \"Content-Type: text/plain\\n\\n\", $body.call\n"
        )
    };
    let python = "#!/usr/bin/python3\nimport early\nprint('Content-Type: text/plain\\n')\nprint(early.body, end='')\n";
    let node = "#!/usr/bin/env node\nconst body = require('early');\n\
        require('fs').writeSync(1, 'Content-Type: text/plain\\n\\n' + body);\n";
    let server = site
        .file("cgi-bin/lib/Early.pm", EARLY, 0o644)
        .file(
            "cgi-bin/p.pl",
            perl("use lib 'lib'; require Early;", "$Early::body"),
            0o755,
        )
        .file(
            "lib/early.rb",
            "body = STDIN.read; $body = lambda { body }",
            0o644,
        )
        .file(
            "lib/copied.rb",
            "copy = STDIN.dup; $body = lambda { copy.read }",
            0o644,
        )
        .file("cgi-bin/early.rb", ruby("early"), 0o755)
        .file("cgi-bin/copied.rb", ruby("copied"), 0o755)
        .file(
            "cgi-bin/early.py",
            "import os\nbody = os.read(0, 99).decode()\n",
            0o644,
        )
        .file("cgi-bin/p.py", python, 0o755)
        .file(
            &format!("{package}/early/index.js"),
            "module.exports = require('fs').readFileSync(0).toString();",
            0o644,
        )
        .file("cgi-bin/p.js", node, 0o755)
        .start();
    let learned = format!("the program {READS}");
    answers_each_body(&server, "/cgi-bin/p.pl", &learned);
    answers_each_body(&server, "/cgi-bin/early.rb", &learned);
    answers_each_body(&server, "/cgi-bin/copied.rb", "/lib/copied.rb");
    answers_each_body(&server, "/cgi-bin/p.py", "more than load, or fail: early");
    answers_each_body(
        &server,
        "/cgi-bin/p.js",
        &format!("parked, because it cannot be forked: it {READS}"),
    );
}
