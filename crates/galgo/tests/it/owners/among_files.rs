//! Programs among files that run as another user, or in a strict sandbox.

use std::process::Command;

use galgo_testkit::{
    Reply, Server, Site,
    accounts::{Accounts, uid},
};

use crate::harness::list;

use super::{GAMES, MAN, WHO, mode, own};

list![
    programs_run_as_their_user_and_files_are_files,
    what_the_names_do_not_list_is_not_started,
    the_owner_of_each_program_decides,
    programs_start_warm,
    homes_and_hosts_have_programs_among_files,
    a_wiki_runs_as_its_owner_in_a_strict_sandbox,
    a_user_has_so_many_programs_over_all_routes,
    a_host_without_a_user_has_so_many_programs,
    no_other_route_shows_programs_of_a_host,
];

/// A script that `sh` runs as the interpreter of `.phs`, without being executable.
const SCRIPT: &str = "printf 'Content-Type: text/plain\\n\\n'; id -u; echo \"$SCRIPT_NAME $PATH_INFO $QUERY_STRING\"\n";

/// Returns a site with programs among the files of `games` in `docs/`: `/plain/`, `/strict/` and `/warm/`.
fn site() -> Site {
    let route = |path: &str, keys: &str| {
        format!(
            "[[route]]\npath = \"/{path}/\"\nfiles = \"docs\"\nindex = [\"index.phs\", \"index.html\"]\ncgi_names = [\"*.phs\", \"*.cgi\"]\n{keys}\n"
        )
    };
    let site = super::site()
        .config("interpreters = { \".phs\" = \"/bin/sh\" }")
        .config(&route("plain", "user = \"games\""))
        .config(&route("strict", "user = \"games\"\nsandbox = \"strict\""))
        .config(&route("warm", "user = \"games\"\nstart = \"warm\""))
        .file("docs/page.html", "a page", 0o644)
        .file("docs/tool", WHO, 0o755)
        .file("docs/who.cgi", WHO, 0o755)
        .file("docs/off.cgi", WHO, 0o644)
        .file("docs/say.phs", SCRIPT, 0o644)
        .file("docs/below/index.phs", SCRIPT, 0o644)
        .file(
            "docs/below/hello.cgi",
            crate::warm::python("import os", "os.getuid()"),
            0o755,
        );
    for name in [
        "",
        "/page.html",
        "/tool",
        "/who.cgi",
        "/off.cgi",
        "/say.phs",
        "/below",
        "/below/index.phs",
        "/below/hello.cgi",
    ] {
        own(&site, &format!("docs{name}"), GAMES);
    }
    site
}

fn text(server: &Server, path: &str) -> String {
    let reply = server.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", server.errors());
    reply.text()
}

fn programs_run_as_their_user_and_files_are_files() {
    let server = site().start();
    for route in ["/plain", "/strict"] {
        let said = |path: &str| text(&server, &format!("{route}{path}"));
        assert!(said("/who.cgi").starts_with("5\n60\n"));
        assert_eq!(
            said("/say.phs/more?q"),
            format!("5\n{route}/say.phs /more q\n")
        );
        assert_eq!(said("/below/"), format!("5\n{route}/below/index.phs  \n"));
        assert_eq!(said("/page.html"), "a page");
        // Executable, but no program here: a file like any other.
        assert_eq!(said("/tool"), WHO);
        // A program that cannot be executed is refused, and its source is never shown.
        let refused = server.get(&format!("{route}/off.cgi"));
        assert_eq!(refused.status, 403);
        assert!(!refused.text().contains("grep"), "{}", refused.text());
        server.says("is not executable: chmod +x");
    }
}

/// The names hold in the helper, which a server under an attacker's control asks.
fn what_the_names_do_not_list_is_not_started() {
    use galgo::config::Config;
    let site = site();
    let server = site.start();
    let config = Config::for_dir(server.site.folder(), None, None).unwrap();
    let mut remits = config.remits().filter(|(path, _)| *path == "/plain/");
    let (_, remit) = remits.next().unwrap();
    let check = |name: &str| remit.check_program(&server.path("docs").join(name), GAMES);
    assert!(check("who.cgi").is_ok() && check("say.phs").is_ok());
    for name in ["tool", "page.html", "who.cgi/x"] {
        let why = check(name).unwrap_err().to_string();
        let expected = "has a name that `cgi_names` does not list";
        assert!(why.contains(expected), "{name}: {why}");
    }
}

fn the_owner_of_each_program_decides() {
    let route =
        "[[route]]\npath = \"/any/\"\nfiles = \"any\"\ncgi_names = [\"*.phs\"]\nuser = \"owner\"\n";
    let site = super::site()
        .config("interpreters = { \".phs\" = \"/bin/sh\" }\nmin_uid = 5\nmin_gid = 12")
        .config(route)
        .file("any/man.phs", SCRIPT, 0o644)
        .file("any/root.phs", SCRIPT, 0o644);
    own(&site, "any/man.phs", MAN);
    let server = site.start();
    assert_eq!(text(&server, "/any/man.phs"), "6\n/any/man.phs  \n");
    assert_eq!(server.get("/any/root.phs").status, 403);
    server.says("it belongs to the user 0");
}

fn programs_start_warm() {
    let server = site().start();
    crate::warm::becomes(&server, "/warm/below/hello.cgi", "warm 5");
}

/// A folder of a home and one of a host, each with an account of its own: nobody wrote a route for them.
fn homes_and_hosts_have_programs_among_files() {
    let site = super::site();
    let accounts = Accounts::new("galgo-f", 2, |name| site.path(name));
    let [home, host] = accounts.names() else {
        panic!("two accounts")
    };
    let page = format!("{home}/public_html");
    let public = "www/two.example/public".to_owned();
    for (folder, account) in [(&page, home), (&public, host)] {
        for (name, content) in [
            ("index.phs", SCRIPT),
            ("index.html", "never"),
            ("below/index.html", "a page"),
            ("tool", WHO),
        ] {
            site.write(&format!("{folder}/{name}"), content);
        }
        let owner = format!("{0}:{0}", uid(account));
        let above = site.path(folder).parent().unwrap().to_owned();
        let mut chown = Command::new("chown");
        assert!(
            chown
                .arg("-R")
                .arg(owner)
                .arg(above)
                .status()
                .unwrap()
                .success()
        );
    }
    mode(&site, home, 0o711);
    let config = format!(
        "interpreters = {{ \".phs\" = \"/bin/sh\" }}\nsites = {{ path = \"www\", user = \"owner\", cgi_names = [\"*.phs\"] }}\n\
         [userdir]\nfiles = \"public_html\"\ncgi_names = [\"*.phs\"]\nuser = \"owner\"\nusers = [{home:?}]\n"
    );
    let server = site.config(&config).start();
    for (name, prefix, account) in [
        ("localhost", format!("/~{home}"), home),
        ("two.example", String::new(), host),
    ] {
        let get = |path: &str| {
            let request = format!("GET {prefix}{path} HTTP/1.1\r\nHost: {name}\r\n\r\n");
            let reply = server.ask(request);
            assert_eq!(reply.status, 200, "{name}{path}: {}", server.errors());
            reply.text()
        };
        let uid = uid(account);
        assert_eq!(get("/"), format!("{uid}\n{prefix}/index.phs  \n"));
        assert_eq!(
            get("/index.phs/a?b"),
            format!("{uid}\n{prefix}/index.phs /a b\n")
        );
        assert_eq!(get("/below/"), "a page");
        assert_eq!(get("/tool"), WHO);
    }
}

/// DokuWiki of Debian, in a folder of an account, as docs/recipes/php.md says it.
fn a_wiki_runs_as_its_owner_in_a_strict_sandbox() {
    super::needs_a_lasting_place();
    let site = super::site();
    let accounts = Accounts::new("galgo-w", 1, |name| site.path(name));
    let [alice] = accounts.names() else {
        panic!("one account")
    };
    let home = site.path(alice);
    copy_wiki(&site, alice);
    let page = include_str!("../../../../../docs/recipes/php.md");
    let block = page.split("```toml\n").nth(2).unwrap();
    let block = block.split("```").next().unwrap();
    let block = block.replace("/home/alice", home.to_str().unwrap());
    let block = block.replace("\"alice\"", &format!("{alice:?}"));
    let block = block.replace("user = \"www-data\"\n", "");
    let (top, routes) = block.split_once("[[route]]").unwrap();
    let files = home.join("wiki");
    let cold = format!(
        "[[route]]\npath = \"/cold/\"\nfiles = {files:?}\ncgi_names = [\"*.php\"]\nindex = [\"doku.php\"]\nuser = {alice:?}\nstart = \"cold\"\n"
    );
    let server = site
        .config(&format!("{top}[[route]]{routes}{cold}"))
        .start();
    let mut cookies = Vec::new();
    for page in [
        "",
        "doku.php?id=nowhere",
        "feed.php",
        "lib/exe/css.php?t=dokuwiki",
        "lib/tpl/dokuwiki/images/logo.png",
    ] {
        let cold = browse(&server, &mut Vec::new(), &format!("/cold/{page}"), None);
        for _ in 0..20 {
            let warm = browse(&server, &mut Vec::new(), &format!("/wiki/{page}"), None);
            assert_eq!(
                (warm.status, cold.status),
                (200, 200),
                "{}",
                server.errors()
            );
            let plain = |reply: &Reply| without_numbers(&reply.text().replace("/cold/", "/wiki/"));
            assert_eq!(plain(&warm), plain(&cold), "{page}");
        }
    }
    let form = "id=start&do=login&u=ada&p=secret";
    let login = browse(&server, &mut cookies, "/wiki/doku.php", Some(form));
    assert_eq!(login.status, 302, "{}", server.errors());
    let edit = browse(&server, &mut cookies, "/wiki/doku.php?id=new&do=edit", None);
    let edit = edit.text();
    assert!(edit.contains("Ada"), "{edit}");
    let token = edit.split("name=\"sectok\" value=\"").nth(1).unwrap();
    let token = token.split('"').next().unwrap();
    let form = format!(
        "id=new&sectok={token}&rev=0&date=&prefix=.&suffix=&target=section&wikitext=written+by+ada&do%5Bsave%5D=1"
    );
    let saved = browse(&server, &mut cookies, "/wiki/doku.php?id=new", Some(&form));
    assert_eq!(saved.status, 302, "{}", server.errors());
    let page = browse(&server, &mut Vec::new(), "/cold/doku.php?id=new", None);
    assert!(page.text().contains("written by ada"), "{}", page.text());
    let written = std::fs::metadata(files.join("data/pages/new.txt")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&written), uid(alice));
    for path in [
        "data/pages/new.txt",
        "conf/users.auth.php",
        "conf/local.php",
        "inc/init.php",
        "bin/dwpage.php",
        "vendor/autoload.php",
        "vendor/composer/installed.json",
    ] {
        let refused = browse(&server, &mut Vec::new(), &format!("/wiki/{path}"), None);
        assert_eq!(refused.status, 403, "{path}");
    }
    let errors = server.errors();
    assert!(!errors.contains("session_start"), "{errors}");
}

/// Copies DokuWiki into the home of an account, with a user `ada` who may do everything.
fn copy_wiki(site: &Site, account: &str) {
    let script = "set -e; cp -rL /usr/share/dokuwiki wiki; cp -rL /etc/dokuwiki wiki/conf; cp -rL /var/lib/dokuwiki/data wiki/data
        echo '<?php foreach ([\"DOKU_CONF\", \"DOKU_MAIN_CONF\"] as $n) if (!defined($n)) define($n, __DIR__ . \"/../conf/\");' >wiki/inc/preload.php
        echo \"<?php \\$conf['savedir'] = '$PWD/wiki/data'; \\$conf['useacl'] = 1; \\$conf['superuser'] = '@admin';\" >wiki/conf/local.php
        echo 'ada:5ebe2294ecd0e0f08eab7690d2a6ee69:Ada:ada@example.org:admin,user' >wiki/conf/users.auth.php
        echo '* @ALL 1' >wiki/conf/acl.auth.php
        chown -R \"$0:$0\" .; chmod -R u=rwX,go=rX wiki; chmod 711 .";
    std::fs::create_dir_all(site.path(account)).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", script, &uid(account).to_string()]);
    let done = shell.current_dir(site.path(account)).output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Asks with cookies, or posts a form, and keeps the cookies of the answer.
fn browse(server: &Server, cookies: &mut Vec<String>, target: &str, form: Option<&str>) -> Reply {
    let jar = format!("Cookie: {}\r\n", cookies.join("; "));
    let reply = match form {
        None => server.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{jar}\r\n")),
        Some(form) => server.ask(format!(
            "POST {target} HTTP/1.1\r\nHost: a\r\n{jar}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        )),
    };
    for cookie in reply.fields("set-cookie") {
        let value = cookie.split(';').next().unwrap_or_default().to_owned();
        let name = value.split('=').next().unwrap_or_default().to_owned();
        cookies.retain(|one| one.split('=').next() != Some(&name));
        cookies.push(value);
    }
    reply
}

/// Returns a page without its numbers: times and sizes differ between requests.
fn without_numbers(page: &str) -> String {
    let words = page.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    let varies = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    words.filter(varies).collect()
}

/// `max_running` of `[defaults]` counts for a user. A route that says it itself has a limit of its own.
fn a_user_has_so_many_programs_over_all_routes() {
    let waits = "#!/bin/sh\ntouch ../marks/$QUERY_STRING\nwhile [ ! -e ../marks/go ]; do sleep 0.05; done\nprintf 'Content-Type: text/plain\\n\\n'; id -u\n";
    let route = |path: &str, keys: &str| {
        format!(
            "[[route]]\npath = \"/{path}/\"\nfiles = \"docs\"\ncgi_names = [\"*.cgi\"]\n{keys}\n"
        )
    };
    let site = site()
        .defaults("max_running = 2")
        .config(&route("two", "user = \"games\""))
        .config(&route("more", "user = \"games\"\nmax_running = 1"))
        .config(&route("free", "user = \"games\"\nmax_running = \"none\""))
        .file("docs/waits.cgi", waits, 0o755)
        .file("mans/who.cgi", WHO, 0o755);
    own(&site, "docs/waits.cgi", GAMES);
    own(&site, "mans/who.cgi", MAN);
    let man = "[[route]]\npath = \"/mans/\"\ncgi = \"mans\"\nuser = \"man\"\n";
    let server = site.config(man).start();
    let ask = |path: &str| {
        let mut client = server.connect();
        client.get(path);
        client
    };
    let mut running = vec![ask("/plain/waits.cgi?a"), ask("/two/waits.cgi?b")];
    server.wait_for("a");
    server.wait_for("b");
    running.push(ask("/more/waits.cgi?c"));
    server.wait_for("c");
    running.push(ask("/free/waits.cgi?e"));
    server.wait_for("e");
    // The third of the two, on any of the routes, waits.
    running.push(ask("/plain/waits.cgi?d"));
    assert!(text(&server, "/mans/who.cgi").starts_with("6\n"));
    assert!(!server.mark("d").exists());
    server.set("go");
    for mut client in running {
        assert_eq!(client.reply().text(), "5\n");
    }
    server.wait_for("d");
}

/// Programs in `public` and in `cgi-bin` of a host count together.
fn a_host_without_a_user_has_so_many_programs() {
    let waits = "#!/bin/sh\ntouch $MARKS/$QUERY_STRING\nwhile [ ! -e $MARKS/go ]; do sleep 0.05; done\nprintf 'Content-Type: text/plain\\n\\ndone'\n";
    let site = super::site();
    let marks = site.path("marks");
    let waits = waits.replace("$MARKS", marks.to_str().unwrap());
    let server = site
        .config("sites = { path = \"www\", cgi_names = [\"*.cgi\"] }")
        .defaults("max_running = 2")
        .file("www/one.example/public/waits.cgi", &waits, 0o755)
        .file("www/one.example/cgi-bin/waits.cgi", &waits, 0o755)
        .file("www/two.example/public/waits.cgi", &waits, 0o755)
        .start();
    let ask = |host: &str, path: &str| {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client
    };
    let mut running = vec![
        ask("one.example", "/waits.cgi?a"),
        ask("one.example", "/cgi-bin/waits.cgi?b"),
    ];
    server.wait_for("a");
    server.wait_for("b");
    running.push(ask("one.example", "/waits.cgi?c"));
    running.push(ask("two.example", "/waits.cgi?d"));
    server.wait_for("d");
    assert!(!server.mark("c").exists());
    server.set("go");
    for mut client in running {
        assert_eq!(client.reply().text(), "done");
    }
}

fn no_other_route_shows_programs_of_a_host() {
    let sites = "sites = { path = \"www\", cgi_names = [\"*.cgi\"] }\n";
    let site = super::site().file("www/one.example/public/a.cgi", WHO, 0o755);
    for (keys, is_refused) in [
        ("files = \"www/one.example/public\"", true),
        (
            "files = \"www/one.example/public\"\ncgi_names = [\"*.pl\"]",
            true,
        ),
        (
            "files = \"www/one.example/public\"\ncgi_names = [\"*.cgi\"]\nuser = \"games\"",
            false,
        ),
    ] {
        let config = format!("{sites}[[route]]\npath = \"/shown/\"\n{keys}\n");
        site.write("galgo.toml", config);
        let done = site.galgo(&["check"]);
        let said = done.out + &done.err;
        let refused =
            said.contains("would publish the sources") || said.contains("could read their sources");
        assert_eq!(refused, is_refused, "{keys}: {said}");
    }
}
