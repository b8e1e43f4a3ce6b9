//! Programs that are kept loaded as another user, and in strict sandboxes: their helpers hold the templates.

pub(super) mod children;

use std::{fs, path::Path};

use crate::{
    harness::list,
    secrets::STAYS,
    warm::{
        becomes,
        body::{answers_each_body, with_readers},
        c,
        modules::{PYTHON, same_as, with_python},
        parked::have_parked,
        perl, python,
        reports::{attack_at, writes_code},
        says,
        unheard::{Shown, module, soon},
    },
};
use galgo_testkit::{
    Server, Site, eventually,
    process::{command_line, parent, pids},
    wait_until,
};

use super::{GAMES, MAN, helpers, kill, mode, own};

list![
    each_kind_is_forked_as_its_user,
    each_owner_has_templates_of_its_own,
    a_program_that_the_server_may_not_read,
    what_cannot_be_forked_is_parked,
    one_template_of_php_serves_all_scripts,
    modules_are_learned_and_code_is_not,
    modules_are_those_of_a_cold_start,
    files_change_without_an_event,
    the_next_request_sees_a_change,
    a_helper_that_dies_takes_its_templates_along,
    a_helper_that_leaves_has_the_next_one_load,
    templates_end_with_their_route,
    helpers_leave_when_their_templates_have,
    a_crash_replaces_the_template,
    variables_of_loading_are_those_configured,
    a_body_is_read_by_its_request,
];

/// Returns a program that prints its user id and its parent's pid.
fn whose() -> String {
    python("import os", "os.getuid(), os.getppid()")
}

/// Returns a site with routes that start warm: `/warm/` as `games`, `/warm-strict/` the same in a strict sandbox,
/// `/warm-own/` as the files' owners.
fn site() -> Site {
    let route = |path: &str, folder: &str, keys: &str| {
        format!("[[route]]\npath = \"/{path}/\"\ncgi = \"{folder}\"\nstart = \"warm\"\n{keys}\n")
    };
    let strict = "user = \"games\"\nsandbox = \"strict\"";
    super::site()
        .config(&route("warm", "games", "user = \"games\""))
        .config(&route("warm-strict", "games", strict))
        .config(&route("warm-own", "own", "user = \"owner\""))
        .waiting()
        .with_same_accounts()
}

/// Adds a program of `games`.
fn with(site: Site, name: &str, text: &str) -> Site {
    let name = format!("games/{name}");
    let site = site.file(&name, text, 0o755);
    own(&site, &name, GAMES);
    site
}

fn each_kind_is_forked_as_its_user() {
    let site = with(site(), "python", &whose());
    let site = with(site, "perl", &perl("", "' ', $<, ' ', getppid"));
    // node overwrites its first environment. Children of the same template have the same time origin.
    let node = "#!/usr/bin/env node\nconsole.log('Content-Type: text/plain\\n\\n' + \
        performance.timeOrigin, process.getuid(), process.ppid);\n";
    let site = with(site, "node", node);
    let ruby = "#!/usr/bin/env ruby\nhow = File.binread('/proc/self/environ').include?('GALGO_TEMPLATE=') ? 'warm' : 'cold'\n\
        print \"Content-Type: text/plain\\n\\n#{how} #{Process.uid} #{Process.ppid}\"\n";
    let site = with(site, "ruby", ruby);
    let linked = c("").replace(
        "printf(\"Content-Type: text/plain\\n\\n%s %s\", how(), \"\")",
        "printf(\"Content-Type: text/plain\\n\\n%s %d %d\", how(), getuid(), getppid())",
    );
    let site = site.compiled("games/linked", &linked, &[]);
    own(&site, "games/linked", GAMES);
    let server = site.start();
    for route in ["warm", "warm-strict"] {
        for name in ["python", "perl", "ruby", "linked"] {
            becomes(&server, &format!("/{route}/{name}"), "warm");
        }
        for name in ["python", "perl", "node", "ruby", "linked"] {
            let asked = || server.get(&format!("/{route}/{name}")).text();
            let words =
                |said: &str| -> Vec<String> { said.split_whitespace().map(String::from).collect() };
            // Templates take turns, and a template that has learned modules replaces another.
            let mut all = Vec::new();
            wait_until("two requests of one template", || {
                all = (0..3).map(|_| words(&asked())).collect();
                let [first, second, third] = [0, 1, 2].map(|n| &all[n][0]);
                first == second || second == third || first == third
            });
            for said in &all {
                assert_eq!(said[1], "5", "{route} {name} {all:?}");
                // The parent of the process is its helper; in a PID namespace that is process 1.
                let parent: u32 = said[2].parse().unwrap();
                match route {
                    "warm" => assert!(helpers(&server).contains(&parent)),
                    _ => assert_eq!(parent, 1),
                }
            }
        }
    }
    let said = server.errors();
    assert!(
        !said.contains("started cold") && !said.contains("warn "),
        "{said}"
    );
}

/// Returns the processes that helpers have started and keep.
fn kept(server: &Server) -> Vec<u32> {
    let helpers = helpers(server);
    let of_helper = |pid: &u32| parent(*pid).is_some_and(|of| helpers.contains(&of));
    pids().filter(of_helper).collect()
}

fn each_owner_has_templates_of_its_own() {
    let site = site()
        .file("own/of-man", whose(), 0o755)
        .file("own/of-nobody", whose(), 0o755);
    own(&site, "own/of-man", MAN);
    own(&site, "own/of-nobody", super::NOBODY);
    let server = site.start();
    // Programs of accounts below min_uid do not run as their owner.
    assert_eq!(server.get("/warm-own/of-man").status, 403);
    becomes(&server, "/warm-own/of-nobody", "warm 65534");
    // The current owner of the file counts.
    own(&server.site, "own/of-nobody", MAN);
    assert_eq!(server.get("/warm-own/of-nobody").status, 403);
}

/// The server cannot watch such a program for changes either.
fn a_program_that_the_server_may_not_read() {
    let site = with(site(), "private", &whose());
    mode(&site, "games/private", 0o700);
    let server = site.start();
    for route in ["warm", "warm-strict"] {
        becomes(&server, &format!("/{route}/private"), "warm 5");
    }
    server
        .site
        .write("games/private", whose().replace("os.getuid()", "'anew'"));
    assert!(server.get("/warm/private").text().contains("anew"));
    becomes(&server, "/warm/private", "warm anew");
}

/// The package of the program starts a thread.
fn what_cannot_be_forked_is_parked() {
    let package = "const { Worker } = require('worker_threads');\n\
        exports.told = new Promise((tell) => new Worker('require(\"worker_threads\").parentPort.postMessage(process.env.QUERY_STRING)',\n\
        { eval: true }).once('message', tell));\n";
    let script = "#!/usr/bin/env node\nrequire('pack').told.then((query) => console.log('Content-Type: text/plain\\n\\n' +\n\
        [process.pid, process.getuid(), query].join(' ')));\n";
    let site =
        with(site(), "parked", script).file("games/node_modules/pack/index.js", package, 0o644);
    own(&site, "games/node_modules", GAMES);
    let server = site.start();
    for route in ["warm", "warm-strict"] {
        let said = |times| says(&server, "games/parked", "parked for warm starts in") == times;
        wait_until("a program that is parked", || {
            let reply = server.get(&format!("/{route}/parked?x"));
            assert_eq!(reply.status, 200, "{}", server.errors());
            said(if route == "warm" { 1 } else { 2 })
        });
        for n in 0..3 {
            // In a PID namespace the processes have other numbers, and another parent.
            let seen = route == "warm";
            let before = if seen {
                have_parked(&helpers(&server), 2)
            } else {
                Vec::new()
            };
            let said = server.get(&format!("/{route}/parked?n={n}")).text();
            let (pid, rest) = said.split_once(' ').unwrap();
            assert_eq!(rest.trim(), format!("5 n={n}"));
            if seen {
                assert!(before.contains(&pid.parse().unwrap()), "{before:?} {said}");
            }
        }
    }
}

fn one_template_of_php_serves_all_scripts() {
    let script = |says: &str| {
        format!(
            "<?php header('Content-Type: text/plain'); $how = str_contains(file_get_contents('/proc/self/environ'), 'GALGO_TEMPLATE=');\n\
             echo $how ? 'warm' : 'cold', ' {says} ', posix_getuid(), ' ', getcwd(), ' ', $_SERVER['SCRIPT_FILENAME'];\n"
        )
    };
    let site = with(site(), "a.php", &script("a"));
    let site = with(site, "b.php", &script("b"));
    let site = site.config("[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n");
    let server = site.start();
    let folder = server.path("games").canonicalize().unwrap();
    let folder = folder.display();
    for route in ["warm", "warm-strict"] {
        for name in ["a", "b"] {
            let target = format!("/{route}/{name}.php");
            becomes(&server, &target, "warm");
            assert_eq!(
                server.get(&target).text(),
                format!("warm {name} 5 {folder} {folder}/{name}.php")
            );
        }
    }
    assert_eq!(says(&server, ".php:", "loaded"), 0, "{}", server.errors());
}

fn modules_are_learned_and_code_is_not() {
    for sandbox in ["\"standard\"", "{ write = [\"games\", \"marks\"] }"] {
        let route = format!(
            "[[route]]\npath = \"/attacked/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\nsandbox = {sandbox}\n"
        );
        let site = site().config(&route);
        let root = site.folder().display().to_string();
        let site = with(site, "p", &writes_code(&root, "games"));
        let folder = site.clone();
        attack_at(site, "/attacked/p");
        assert!(folder.path("marks/attacked").exists() && folder.path("games/planted.py").exists());
    }
}

/// The compared modules are part of the template.
fn modules_are_those_of_a_cold_start() {
    let site = with_python(site(), "games");
    own(&site, "games/t.py", GAMES);
    let server = site.start();
    for route in ["warm", "warm-strict"] {
        let warm = format!("/{route}/t.py");
        same_as(&server, &warm, "/games/t.py", PYTHON);
        let known = server.get(&format!("{warm}?known")).text();
        assert!(
            known.contains("'two', 'uses'"),
            "{known} {}",
            server.errors()
        );
    }
}

fn files_change_without_an_event() {
    let site = site().file("real/M.pm", module("0"), 0o644);
    let shown = Shown::new(&site, "real", "games/shown");
    let uses = |folder: &Path| {
        perl(
            &format!("use lib '{}'; use M;", folder.display()),
            "M::says()",
        )
    };
    let site = with(site, "p", &uses(&shown.at));
    let server = site.start();
    becomes(&server, "/warm/p", "warm 0");
    fs::write(server.path("real/M.pm"), module("1")).unwrap();
    soon(&server, "/warm/p", "1");
    drop(server);
}

fn the_next_request_sees_a_change() {
    let program = perl("use lib '.'; use Says;", "$Says::says, ' ', $<");
    let site = with(site(), "p", &program);
    let module = |n| format!("package Says; our $says = {n}; 1;\n");
    let site = with(site, "Says.pm", &module(0));
    let server = site.start();
    // In one step, because a template that is loading could read half a module, and the program would be cold for a while.
    let change = |n| {
        let new = server.site.write("games/new", module(n));
        std::fs::rename(new, server.path("games/Says.pm")).unwrap();
    };
    for route in ["warm", "warm-strict"] {
        let target = format!("/{route}/p");
        becomes(&server, &target, "warm 0 5");
        for n in 1..6 {
            change(n);
            let said = server.get(&target).text();
            assert!(said.ends_with(&format!("{n} 5")), "{n}: {said}");
            becomes(&server, &target, &format!("warm {n} 5"));
        }
        change(0);
    }
    // This does not count as a failure of the template.
    let said = server.errors();
    assert!(!said.contains("started no child"), "{said}");
}

fn a_helper_that_dies_takes_its_templates_along() {
    let site = with(site(), "p", &whose());
    let server = site.start();
    for route in ["warm", "warm-strict"] {
        let target = format!("/{route}/p");
        becomes(&server, &target, "warm");
        let (old, kept) = (helpers(&server), kept(&server));
        assert!(!kept.is_empty());
        old.iter().for_each(|pid| kill(*pid));
        wait_until("their end", || {
            !pids().any(|pid| old.contains(&pid) || kept.contains(&pid))
        });
        // No request is lost.
        assert_eq!(server.get(&target).status, 200, "{}", server.errors());
        becomes(&server, &target, "warm");
    }
}

/// A strict helper leaves if a listed file is replaced. If it was loading a template, that is no failure of the program.
fn a_helper_that_leaves_has_the_next_one_load() {
    let site = super::site()
        .with_same_accounts()
        .file("listed", "", 0o644)
        .config(
            "[[route]]\npath = \"/table/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\n\
         sandbox = { read = [\"listed\"], write = [\"marks\"] }\n",
        );
    let waits = "package Gate; open my $own, '<', '/proc/self/environ';\n\
        if (<$own> =~ /GALGO_TEMPLATE=/) { open my $on, '>', '../marks/on'; select undef, undef, undef, 0.01 until -e '../marks/go' }\n1;\n";
    let site = with(site, "p", &perl("use lib '.'; use Gate;", "''"));
    let site = with(site, "Gate.pm", waits);
    let server = site.without_waiting().start();
    assert_eq!(server.get("/table/p").text(), "cold ");
    server.wait_for("on");
    let old = helpers(&server);
    assert_eq!(old.len(), 1);
    let new = server.site.write("new", "");
    fs::rename(new, server.path("listed")).unwrap();
    wait_until("the end of the helper", || helpers(&server) != old);
    server.set("go");
    becomes(&server, "/table/p", "warm");
    let said = server.errors();
    assert!(!said.contains("not loaded"), "{said}");
}

fn templates_end_with_their_route() {
    let site = with(site(), "p", &whose());
    let server = site.start();
    becomes(&server, "/warm/p", "warm");
    let old = kept(&server);
    server.reconfigure(|config| {
        config.merge(
            "[[route]]\npath = \"/warm/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"cold\"\n",
        );
    });
    assert!(server.reload());
    assert!(server.get("/warm/p").text().starts_with("cold 5"));
    wait_until("the end of the templates", || {
        !pids().any(|pid| old.contains(&pid))
    });
}

fn helpers_leave_when_their_templates_have() {
    let site = with(site(), "p", &whose());
    let site = site
        .env("GALGO_TEST_HELPER_IDLE", "10")
        .config("template_idle = \"2s\"\n");
    let server = site.start();
    becomes(&server, "/warm/p", "warm");
    // The helper stays as long as its templates.
    assert_eq!(helpers(&server).len(), 1);
    assert!(server.get("/warm/p").text().starts_with("warm"));
    wait_until("the end of a helper that nobody asks", || {
        helpers(&server).is_empty()
    });
    becomes(&server, "/warm/p", "warm");
}

fn becomes_with(server: &Server, how: &str, mut target: impl FnMut() -> String) {
    wait_until(&format!("a {how} start"), || {
        let reply = server.get(&target());
        assert_eq!(reply.status, 200, "{}", server.errors());
        reply.text().starts_with(how)
    });
}

fn a_crash_replaces_the_template() {
    let site = with(
        site(),
        "p",
        &python(
            "import os",
            "os.environ['QUERY_STRING'] == 'crash' and os.kill(os.getpid(), 11)",
        ),
    );
    let server = site.start();
    becomes(&server, "/warm/p", "warm");
    assert_eq!(server.get("/warm/p?crash").status, 502);
    eventually("the end of its template", || {
        (says(
            &server,
            "games/p",
            "was killed by a signal: replacing the template",
        ) == 1)
            .then_some(())
    });
    becomes(&server, "/warm/p", "warm");
}

/// `load_env` sets a variable that otherwise only requests have.
fn variables_of_loading_are_those_configured() {
    let module = "import os\nfound = [os.environ.get(n) for n in ('FOO', 'PATH_INFO', 'HTTP_X')]\n";
    let site = with(site(), "seen.py", module);
    let site = with(
        site,
        "p",
        &python(
            "import seen, os",
            "*seen.found, os.environ['FOO'], os.environ.get('PATH_INFO')",
        ),
    );
    let site = site.config(
        "[[route]]\npath = \"/variables/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\n\
         env = { FOO = \"bar\" }\nload_env = { PATH_INFO = \"/none\" }\n",
    );
    let server = site.start();
    becomes(&server, "/variables/p/here", "warm bar");
    let said = server.get("/variables/p/here").text();
    // A module that reads a request's variable is not kept in the template; each child loads it.
    assert!(said.ends_with("bar /here"), "{said}");
    let loaded = fs::read_to_string(server.path("galgo.toml")).unwrap();
    assert!(loaded.contains("load_env"));
}

fn a_body_is_read_by_its_request() {
    let (site, names) = with_readers(site(), "games");
    for name in &names {
        own(&site, name, GAMES);
    }
    let server = site.start();
    for name in names
        .iter()
        .map(|name| name.strip_prefix("games/").unwrap())
    {
        for route in ["warm", "warm-strict"] {
            let path = format!("/{route}/{name}");
            answers_each_body(&server, &path, "it reads its standard input while loading");
        }
    }
}
