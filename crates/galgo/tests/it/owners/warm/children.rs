//! The children of templates that a helper holds: their limits, sandboxes and leftover processes.

use super::*;

list![
    what_a_child_leaves_running_ends,
    limits_hold_for_children,
    files_are_renamed_from_folder_to_folder,
];

fn what_a_child_leaves_running_ends() {
    let source = STAYS.replace(
        "printf(\"Content-Type: text/plain\\n\\nleft\\n\")",
        "\
        printf(\"Content-Type: text/plain\\n\\n%s\\n\", how())",
    );
    let source = format!("{}{source}", c("").split("int main").next().unwrap());
    let site = site().compiled("games/stays", &source, &[]).config(
        "[[route]]\npath = \"/places/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\nsandbox = { write = [\"marks\"] }\n",
    );
    own(&site, "games/stays", GAMES);
    let server = site.start();
    for route in ["warm", "places"] {
        let mut n = 0;
        becomes_with(&server, "warm", || {
            n += 1;
            format!("/{route}/stays?session&{route}-first-{n}")
        });
        for way in ["session", "twice", "again", "deaf", "lower"] {
            let said = server.get(&format!("/{route}/stays?{way}&{route}-{way}"));
            assert_eq!(said.text(), "warm\n", "{}", server.errors());
        }
    }
    let folder = server.path("games").display().to_string();
    // At most templates and waiting children are left.
    wait_until("the end of what was left running", || {
        let left = pids().filter(|pid| command_line(*pid).contains(&folder));
        let kept = kept(&server);
        left.collect::<Vec<_>>()
            .iter()
            .all(|pid| kept.contains(pid))
            && kept.len() <= 12
    });
}

fn limits_hold_for_children() {
    let limits = "import os, resource\nlimit = lambda what: resource.getrlimit(what)[0]";
    let says = "limit(resource.RLIMIT_CPU), limit(resource.RLIMIT_AS), limit(resource.RLIMIT_NPROC), limit(resource.RLIMIT_FSIZE)";
    let site = with(site(), "limits", &python(limits, says));
    let site = with(
        site,
        "burns",
        &python(
            "import os",
            "os.getuid(), flush=True)\nwhile True: pass\nprint(''",
        ),
    );
    let site = site.config(
        "[[route]]\npath = \"/limited/\"\ncgi = \"games\"\nuser = \"games\"\nstart = \"warm\"\n\
         cpu = \"2s\"\nmemory = \"300M\"\nprocesses = 200\nfile_size = \"1M\"\n",
    );
    let server = site.start();
    becomes(&server, "/limited/limits", "warm");
    let groups = galgo_spawn::owners::are_delegated();
    let of_processes = if groups { "-1 -1" } else { "314572800 200" };
    let expected = format!("warm 2 {of_processes} 1048576");
    assert_eq!(server.get("/limited/limits").text(), expected);
    // Each child has its own limit of seconds, apart from the template's.
    let mut ended = 0;
    wait_until("a warm process that is ended for its seconds", || {
        let said = server.get("/limited/burns");
        ended += 1;
        said.text().starts_with("warm")
    });
    // The log is written after the response.
    wait_until("a line for each that was ended", || {
        crate::warm::says(&server, "burns", "SIGXCPU") == ended
    });
}

/// The same holds in a sandbox that controls access to files.
fn files_are_renamed_from_folder_to_folder() {
    let moves = "import os\nfor name in 'ab': os.makedirs('/tmp/moves-' + str(os.getpid()) + name)\n\
        a, b = ('/tmp/moves-' + str(os.getpid()) + name for name in 'ab')\n\
        open(a + '/f', 'w').close()\nos.rename(a + '/f', b + '/f')\nos.remove(b + '/f'); os.rmdir(a); os.rmdir(b)\n\
        try: open('/etc/passwd', 'a'); hole = 'hole'\n\
        except OSError: hole = 'closed'\n\
        try: os.listdir('/root'); hole = 'hole'\n\
        except OSError: pass";
    let site = with(site(), "moves", &python(moves, "'moved', hole"));
    let server = site.start();
    for route in ["warm", "warm-strict"] {
        becomes(&server, &format!("/{route}/moves"), "warm moved closed");
    }
}
