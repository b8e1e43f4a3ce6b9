//! php-cgi kept loaded (`start = "warm"`): docs/recipes/php.md, docs/warm.md.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use galgo_testkit::{Server, Site, file::compile, wait_until};

use crate::{
    curl::curl,
    site::{needed, new_site},
};

/// Prints whether the script runs in a child of a template. The kernel still shows the first environment
/// of the process.
const HOW: &str = "<?php echo strpos(file_get_contents('/proc/self/environ'), 'GALGO_TEMPLATE=') === false ? 'cold' : 'warm';";

/// A site with a php.ini of its own, and a folder for further settings.
fn site() -> Site {
    needed("/usr/bin/php-cgi");
    let site = new_site();
    site.write("ini/php.ini", "user_agent = 0\n");
    fs::create_dir(site.path("more")).unwrap();
    site
}

fn serve(site: Site) -> Server {
    let root = site.folder().display().to_string();
    let config = format!(
        "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n\
         env = {{ PHPRC = \"{root}/ini\", PHP_INI_SCAN_DIR = \"{root}/more\" }}\n\
         [interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n"
    );
    site.config(&config).start()
}

fn text(server: &Server, path: &str) -> String {
    curl(&[&server.url(path)]).ok().text()
}

/// Returns how many times a template was loaded.
fn loaded(server: &Server) -> usize {
    let errors = server.errors();
    let lines = errors.lines();
    lines
        .filter(|l| l.contains("loaded for warm starts"))
        .count()
}

/// Scripts of a route share the templates of their interpreter. Each script runs in its own folder, with
/// its current text.
#[test]
fn one_template_serves_all_scripts() {
    let site = site();
    let page =
        format!("{HOW} echo ' ', __FILE__, ' ', getcwd(), ' ', basename($_SERVER['SCRIPT_NAME']);");
    let names = ["a.php", "b.php", "sub/c.php"];
    for name in names {
        site.write(&format!("cgi-bin/{name}"), &page);
    }
    let server = serve(site);
    for name in names.iter().chain(&names) {
        let file = server.path(&format!("cgi-bin/{name}"));
        let (file, folder) = (file.display(), file.parent().unwrap().display().to_string());
        let base = name.rsplit('/').next().unwrap();
        assert_eq!(
            text(&server, &format!("/cgi-bin/{name}")),
            format!("warm {file} {folder} {base}")
        );
    }
    for n in 0..3 {
        server
            .site
            .write("cgi-bin/new.php", format!("<?php echo {n};"));
        assert_eq!(text(&server, "/cgi-bin/new.php"), n.to_string());
    }
    assert!(loaded(&server) <= 2, "{}", server.errors());
    assert!(
        server
            .errors()
            .contains("/usr/bin/php-cgi: loaded for warm starts")
    );
}

/// Makes a file old: opcache does not keep scripts that were changed a moment ago.
fn age(path: &Path) {
    let before = SystemTime::now() - Duration::from_secs(3600);
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(before).unwrap();
}

/// Scripts that a request has run are compiled for the next request. A changed script is used as it is
/// now.
#[test]
fn scripts_come_compiled() {
    let site = site();
    site.write(
        "ini/php.ini",
        "zend_extension = opcache\nopcache.enable = 1\n",
    );
    site.write(
        "cgi-bin/page.php",
        format!(
            "{HOW} include 'lib/part.php'; echo opcache_get_status()['opcache_statistics']['hits'];"
        ),
    );
    site.write("cgi-bin/lib/part.php", "<?php echo ' old ';");
    for script in ["page.php", "lib/part.php"] {
        age(&site.path(&format!("cgi-bin/{script}")));
    }
    let server = serve(site);
    let page = || text(&server, "/cgi-bin/page.php");
    wait_until("compiled scripts", || page() == "warm old 2");
    let before = loaded(&server);
    let part = server.path("cgi-bin/lib/part.php");
    // The new file has the same time and length: opcache alone would not notice the change.
    server.site.write("other.php", "<?php echo ' now ';");
    let other = server.path("other.php");
    let file = File::options().append(true).open(&other).unwrap();
    file.set_modified(fs::metadata(&part).unwrap().modified().unwrap())
        .unwrap();
    fs::rename(&other, &part).unwrap();
    assert!(page().contains(" now "));
    wait_until("a template that knows of it", || {
        page().starts_with("warm now ")
    });
    fs::write(&part, "<?php echo ' new ';").unwrap();
    assert!(page().contains(" new "));
    fs::remove_file(&part).unwrap();
    assert!(!page().contains(" now "));
    assert!(loaded(&server) > before, "{}", server.errors());
}

/// Scripts that name php-cgi in their `#!` line.
#[test]
fn a_script_that_names_php_cgi_itself() {
    let site = site();
    let page = format!("{HOW} echo ' ', $_GET['q'] ?? '-';");
    site.program("own", &format!("#!/usr/bin/php-cgi\n{page}"));
    site.program("env", &format!("#!/usr/bin/env php-cgi\n{page}"));
    site.program("option", &format!("#!/usr/bin/php-cgi -q\n{page}"));
    let server = serve(site);
    assert_eq!(text(&server, "/cgi-bin/own?q=1"), "warm 1");
    assert_eq!(text(&server, "/cgi-bin/own?-s"), "warm -");
    assert_eq!(text(&server, "/cgi-bin/env?q=1"), "warm 1");
    assert_eq!(text(&server, "/cgi-bin/option?q=1"), "cold 1");
    server.says("it gives php-cgi options in its `#!` line");
}

/// The very next request uses a setting that was changed, added or removed. Later requests are warm again.
#[test]
fn settings_that_change_are_those_of_the_next_request() {
    let site = site();
    site.write(
        "cgi-bin/page.php",
        format!("{HOW} echo ini_get('user_agent');"),
    );
    let server = serve(site);
    let is = |says: &str| {
        let got = text(&server, "/cgi-bin/page.php");
        assert_eq!(&got[4..], says, "{}", server.errors());
        wait_until("a template with the new settings", || {
            let got = text(&server, "/cgi-bin/page.php");
            assert_eq!(&got[4..], says);
            got.starts_with("warm")
        });
    };
    let root = server.site.folder();
    is("0");
    let set = |name: &str, says: &str| {
        fs::write(root.join(name), format!("user_agent = {says}\n")).unwrap()
    };
    set("ini/php.ini", "written");
    is("written");
    set("new.ini", "renamed");
    fs::rename(root.join("new.ini"), root.join("ini/php.ini")).unwrap();
    is("renamed");
    set("more/a.ini", "another");
    is("another");
    set("more/b.ini", "later");
    is("later");
    fs::remove_file(root.join("more/b.ini")).unwrap();
    is("another");
    fs::remove_file(root.join("more/a.ini")).unwrap();
    is("renamed");
    set("ini/php-cgi-fcgi.ini", "first");
    is("first");
    fs::remove_file(root.join("ini/php-cgi-fcgi.ini")).unwrap();
    is("renamed");
    fs::remove_file(root.join("ini/php.ini")).unwrap();
    is("");
    set("ini/php.ini", "back");
    is("back");
}

/// A setting can prevent warm starts. Once the setting is fixed, requests start warm.
#[test]
fn a_setting_that_keeps_php_cold_and_is_mended() {
    let site = site();
    site.write("cgi-bin/page.php", HOW);
    site.write("ini/php.ini", "error_log = \"/tmp/${SERVER_NAME}\"\n");
    let server = serve(site);
    assert_eq!(text(&server, "/cgi-bin/page.php"), "cold");
    server.says("it reads SERVER_NAME while loading");
    server.site.write("ini/php.ini", "");
    wait_until("a template", || {
        text(&server, "/cgi-bin/page.php") == "warm"
    });
}

/// Each request checks the interpreter, by the file's metadata.
#[test]
fn another_php_cgi_is_that_of_the_next_request() {
    let site = site();
    site.write("cgi-bin/page.php", format!("{HOW} echo PHP_BINARY;"));
    let file = site.path("php-cgi");
    fs::copy("/usr/bin/php-cgi", &file).unwrap();
    let server = site
        .config(&format!(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n[interpreters]\n\".php\" = \"{}\"\n",
            file.display()
        ))
        .start();
    let before = loaded(&server);
    assert_eq!(
        text(&server, "/cgi-bin/page.php"),
        format!("warm{}", file.display())
    );
    // Another file at the same path, which prints `new`.
    let new = server.path("new");
    fs::write(
        &new,
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nnew'\n",
    )
    .unwrap();
    fs::set_permissions(&new, fs::metadata(&file).unwrap().permissions()).unwrap();
    fs::rename(&new, &file).unwrap();
    assert_eq!(text(&server, "/cgi-bin/page.php"), "new");
    fs::copy("/usr/bin/php-cgi", &new).unwrap();
    fs::rename(&new, &file).unwrap();
    assert_eq!(
        text(&server, "/cgi-bin/page.php")[4..],
        file.display().to_string()
    );
    wait_until("a template of the new file", || {
        text(&server, "/cgi-bin/page.php").starts_with("warm")
    });
    assert!(loaded(&server) > before);
}

/// Compiles an extension that has only a version.
fn extension(folder: &Path, name: &str, version: &str) -> PathBuf {
    let c = format!(
        r#"
#include <stddef.h>
static struct {{
    unsigned short size; unsigned api; unsigned char debug, threads; const void *ini, *needs; const char *name; const void *functions;
    int (*calls[4])(int, int); void (*info)(void *); const char *version; size_t globals_size; void *globals; void (*make)(void *), (*end)(void *);
    int (*after)(void); int started; unsigned char type; void *handle; int number; const char *build;
}} module = {{sizeof module, 20220829, 0, 0, NULL, NULL, "ours", NULL, {{0}}, NULL, "{version}", 0, NULL, NULL, NULL, NULL, 0, 1, NULL, 0, "API20220829,NTS"}};
void *get_module(void) {{ return &module; }}
"#
    );
    compile(folder, name, &c, &["-shared", "-fPIC"])
}

/// An extension that is replaced, removed and added again.
#[test]
fn an_extension_that_changes_is_that_of_the_next_request() {
    let site = site();
    let file = extension(site.folder(), "ours.so", "first");
    let line = format!("extension = {}\n", file.display());
    site.write("ini/php.ini", &line);
    site.write(
        "cgi-bin/page.php",
        format!("{HOW} echo phpversion('ours');"),
    );
    let server = serve(site);
    let is = |says: &str| {
        let got = text(&server, "/cgi-bin/page.php");
        assert_eq!(&got[4..], says, "{}", server.errors());
        wait_until("a template with the new extension", || {
            let got = text(&server, "/cgi-bin/page.php");
            assert_eq!(&got[4..], says);
            got.starts_with("warm")
        });
    };
    is("first");
    let new = extension(server.site.folder(), "new.so", "second");
    fs::rename(new, &file).unwrap();
    is("second");
    server.site.write("ini/php.ini", "");
    is("");
    server.site.write("more/ours.ini", &line);
    is("second");
}

#[test]
fn check_says_how_php_starts() {
    let site = site();
    site.write(
        "cgi-bin/page.php",
        "<?php echo json_encode([$_GET, $_POST, $_SERVER['argc'] ?? 0]);",
    );
    site.write("cgi-bin/shares.php", "<?php echo APCu_fetch('x');");
    site.program("option", "#!/usr/bin/php-cgi -q\n<?php echo 1;");
    site.program(
        "cli",
        "#!/usr/bin/php\n<?php echo \"Content-Type: text/plain\\n\\n\";",
    );
    site.write(
        "galgo.toml",
        "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nstart = \"warm\"\n[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n",
    );
    let done = site.galgo(&["check"]);
    for line in [
        "cgi-bin/page.php: starts warm; runs as",
        "cgi-bin/shares.php: starts warm; calls apcu_fetch: it starts cold if apc.enabled is on, and keeps nothing",
        "cgi-bin/option: starts cold, because it gives php-cgi options in its `#!` line: put settings into a php.ini or a .user.ini",
        "cgi-bin/cli: starts cold, because it is run by PHP for the command line: php-cgi can start warm",
    ] {
        assert!(done.out.contains(line), "{line}\n{}", done.out);
    }
    let done = site.galgo(&["check", "--warm"]);
    let page = done.out.lines().find(|l| l.contains("page.php"));
    assert!(
        page.is_some_and(|l| l.contains("identical")),
        "{}",
        done.out
    );
}
