//! PHP scripts run by php-cgi, stopped when its extensions have started: each run shows the same as a cold start.
#![allow(clippy::unwrap_used)]

mod compiled;
mod extensions;
mod page;
#[path = "../scene/mod.rs"]
mod scene;
mod scripts;

use galgo_spawn::{Status, template::Uses};
use page::{INI, Page, last, seen};
use scene::{Scene, warm::Warm};
use scripts::SCRIPTS;
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

/// Prints whether the script runs in a child of a template. The kernel still shows the first environment of the
/// process.
const HOW: &str = "echo strpos(file_get_contents('/proc/self/environ'), 'GALGO_TEMPLATE=') === false ? 'cold' : 'warm';";

/// Scripts whose output shows that they were compiled ahead (docs/warm.md).
const SEEN: [&str; 2] = ["resources", "opcache"];

#[test]
fn a_script_is_as_in_a_cold_start() {
    let failed: Vec<&str> = SCRIPTS
        .iter()
        .filter(|(name, text, ini)| {
            let mut page = Page::new(text, ini);
            page.set("QUERY_STRING", "a=1&b[]=two+words");
            page.set("HTTP_COOKIE", "x=y");
            let is_same = || {
                if SEEN.contains(name) {
                    drop(page.is_same_uncompiled(name))
                } else {
                    page.is_same(name)
                }
            };
            std::panic::catch_unwind(is_same).is_err()
        })
        .map(|(name, ..)| *name)
        .collect();
    assert_eq!(failed, [""; 0]);
}

#[test]
fn a_body_is_as_in_a_cold_start() {
    let shows = "var_dump($_POST, file_get_contents('php://input'), $_FILES === [], $HTTP_RAW_POST_DATA ?? null);";
    Page::new(shows, "")
        .posts("application/x-www-form-urlencoded", b"a=1&b[]=%41&c=d+e")
        .is_same("form");
    Page::new(shows, "")
        .posts("application/json", b"{\"a\": 1}")
        .is_same("json");
    // The rest of a body that the script does not read is read after the script.
    Page::new("echo 'x';", "")
        .posts("text/plain", &[b'x'; 40_000])
        .is_same("unread");
    Page::new(shows, "post_max_size = 8")
        .posts("application/x-www-form-urlencoded", b"a=123456789")
        .is_same("too long");
}

/// The file in which PHP keeps an upload is removed with the request.
#[test]
fn an_upload_is_removed_with_its_request() {
    let shows = "$f = $_FILES['f']; echo $f['name'], $f['size'], file_get_contents($f['tmp_name']), $_POST['t']; \
                 file_put_contents(__DIR__ . '/kept', $f['tmp_name'] . PHP_EOL, FILE_APPEND);";
    let body = b"--X\r\nContent-Disposition: form-data; name=\"t\"\r\n\r\nword\r\n--X\r\n\
                 Content-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\ntext\r\n--X--\r\n";
    let page = Page::new(shows, "").posts("multipart/form-data; boundary=X", body);
    page.is_same("upload");
    let kept = fs::read_to_string(page.folder.path().join("kept")).unwrap();
    let kept: Vec<_> = kept.lines().collect();
    assert_eq!(kept.len(), 7);
    assert!(
        kept.iter().all(|file| !Path::new(file).exists()),
        "{kept:?}"
    );
}

/// Queries that look like an option, and an empty query: the script runs.
#[test]
fn no_query_is_an_option() {
    let mut page = Page::new(
        "/* SECRET */ echo $_SERVER['QUERY_STRING'], $argc ?? '';",
        "",
    );
    for query in [
        "-s",
        "%2ds",
        "-d+auto_prepend_file=x",
        "-n",
        "--",
        "+-h",
        "",
    ] {
        page.set("QUERY_STRING", query);
        let (out, _, status) = page.ask(&page.load());
        assert!(out.ends_with(&format!("\n{query}")), "{query}: {out}");
        assert_eq!(status, Status::Code(0));
        page.is_same(query);
    }
}

/// If php-cgi itself refuses a script, the exit status is php-cgi's.
#[test]
fn a_script_that_is_not_there_is_refused_as_ever() {
    let mut page = Page::new("", "");
    let none = page.folder.path().join("none.php").display().to_string();
    page.set("SCRIPT_FILENAME", &none);
    page.is_same("no script");
    assert_eq!(page.cold().2, Status::Code(255));
    page.vars.retain(|(name, _)| name != "REDIRECT_STATUS");
    page.is_same("no REDIRECT_STATUS");
    Page::new("", "open_basedir = /nowhere").is_same("open_basedir");
}

/// A template serves all scripts, each in its own folder.
#[test]
fn the_request_names_the_script() {
    let mut page = Page::new("echo 'own';", "");
    let warm = page.load();
    assert_eq!(page.ask(&warm).0.lines().next_back(), Some("own"));
    let other = page.folder.path().join("other.php");
    fs::write(&other, "<?php echo 'other'; include 'part.php';").unwrap();
    fs::write(page.folder.path().join("part.php"), "<?php echo ' part';").unwrap();
    page.set("SCRIPT_FILENAME", &other.display().to_string());
    assert_eq!(page.ask(&warm).0.lines().next_back(), Some("other part"));
}

#[test]
fn a_child_of_a_template_answers() {
    let page = Page::new(HOW, "");
    assert_eq!(last(&page.ask(&page.load())), "warm");
    assert_eq!(last(&page.cold()), "cold");
}

/// If php-cgi would find other settings than the template has, the child starts php-cgi anew.
#[test]
fn other_settings_are_a_cold_start() {
    let shows = format!("{HOW} echo ' ', ini_get('user_agent');");
    let mut page = Page::new(&shows, "user_agent = template");
    let warm = page.load();
    assert!(last(&page.ask(&warm)).starts_with("warm template"));
    let is_cold = |page: &Page, says: &str| {
        let (got, expected) = (page.ask(&warm), page.cold());
        assert_eq!(got, expected);
        assert!(last(&got).starts_with(says), "{got:?}");
    };
    // The file with the first name counts wherever it is. Of the files with the second name, only the file in PHPRC
    // counts.
    let local = page.folder.path().join("php-cgi-fcgi.ini");
    fs::write(&local, "user_agent = local").unwrap();
    is_cold(&page, "cold local");
    fs::remove_file(&local).unwrap();
    fs::write(page.folder.path().join("php.ini"), "user_agent = near").unwrap();
    assert!(last(&page.ask(&warm)).starts_with("warm template"));
    let other = page.folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("php.ini"), "user_agent = granted").unwrap();
    page.set("PHPRC", &other.display().to_string());
    is_cold(&page, "cold granted");
    page.vars.retain(|(name, _)| name != "PHPRC");
    is_cold(&page, "cold near");
    let ini = page.ini();
    page.set("PHPRC", &ini);
    page.set("PHP_INI_SCAN_DIR", &other.display().to_string());
    is_cold(&page, "cold granted");
}

/// A php.ini beside the script applies to scripts in the same folder.
#[test]
fn settings_beside_the_script_are_those_of_its_folder() {
    let mut page = Page::new(&format!("{HOW} echo ini_get('user_agent');"), "");
    page.vars.retain(|(name, _)| name != "PHPRC");
    page.vars.insert(0, ("PATH".into(), "/usr/bin:/bin".into()));
    fs::write(page.folder.path().join("php.ini"), "user_agent = beside").unwrap();
    let warm = page.load();
    assert_eq!(last(&page.ask(&warm)), "warmbeside");
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("page.php");
    fs::copy(&page.path, &file).unwrap();
    page.set("SCRIPT_FILENAME", &file.display().to_string());
    let answer = warm.answer_in(elsewhere.path(), &page.vars(), b"");
    assert_eq!(last(&seen(answer)), "cold");
}

#[test]
fn a_user_ini_is_read_by_each_request() {
    let shows = format!("{HOW} echo ini_get('user_agent');");
    let mut page = Page::new(&shows, "user_ini.cache_ttl = 300");
    let root = page.folder.path().display().to_string();
    page.set("DOCUMENT_ROOT", &root);
    let warm = page.load();
    assert_eq!(last(&page.ask(&warm)), "warm");
    for says in ["one", "two"] {
        fs::write(
            page.folder.path().join(".user.ini"),
            format!("user_agent = {says}"),
        )
        .unwrap();
        assert_eq!(last(&page.ask(&warm)), format!("warm{says}"));
    }
    fs::write(page.folder.path().join("first.php"), "<?php echo 'first ';").unwrap();
    fs::write(
        page.folder.path().join(".user.ini"),
        "auto_prepend_file = first.php",
    )
    .unwrap();
    assert_eq!(last(&page.ask(&warm)), "first warm");
}

#[test]
fn the_files_that_settings_came_from_are_told() {
    let page = Page::new("", "browscap = BROWSCAP");
    let (ini, scanned) = (
        page.folder.path().join("ini/php.ini"),
        page.folder.path().join("scanned"),
    );
    let browsers = page.folder.path().join("browscap.ini");
    fs::write(&browsers, "[x]\nparent = y\n").unwrap();
    let text = fs::read_to_string(&ini)
        .unwrap()
        .replace("BROWSCAP", &browsers.display().to_string());
    fs::write(&ini, text).unwrap();
    fs::create_dir(&scanned).unwrap();
    fs::write(scanned.join("a.ini"), "").unwrap();
    fs::write(scanned.join("b.ini"), "").unwrap();
    let mut scene = Scene::new();
    for (name, value) in &page.vars[..3] {
        scene.env.set_variable(name.as_bytes(), value.as_bytes());
    }
    let none = page.folder.path().join("none");
    let scans = format!("{}:{}:", scanned.display(), none.display());
    scene
        .env
        .set_variable(b"PHP_INI_SCAN_DIR", scans.as_bytes());
    let warm = Warm::load_in(scene, Uses::Many, &page.program, "");
    assert_eq!(warm.loaded.obstacle, None);
    let files = &warm.loaded.files;
    let expected = [
        ini.clone(),
        scanned.join("a.ini"),
        scanned.join("b.ini"),
        scanned,
        browsers,
        "/usr/bin/php-cgi".into(),
        "/etc/php/8.2/cgi/conf.d".into(),
    ];
    let known =
        |file: &PathBuf| files.contains(file) || files.contains(&fs::canonicalize(file).unwrap());
    for file in expected {
        assert!(known(&file), "{file:?} is not among {files:?}");
    }
    let absent = [
        none,
        ini.with_file_name("php-cgi-fcgi.ini"),
        "/usr/bin/php.ini".into(),
    ];
    for file in absent {
        assert!(warm.loaded.absent.contains(&file), "{file:?}");
    }
}

/// Nothing is seeded before the fork: no two children draw the same.
#[test]
fn no_child_draws_what_another_draws() {
    const CHILDREN: usize = 10_000;
    // Name of a generator, whether its seed has more than 32 bits, and PHP code that draws.
    let draws = [
        ("random_bytes", true, "bin2hex(random_bytes(12))"),
        ("openssl", true, "bin2hex(openssl_random_pseudo_bytes(12))"),
        ("random_int", true, "random_int(0, PHP_INT_MAX)"),
        ("session", true, "session_create_id()"),
        ("uniqid", true, "uniqid('', true)"),
        (
            "engine",
            true,
            "bin2hex((new Random\\Engine\\PcgOneseq128XslRr64)->generate())",
        ),
        ("mt_rand", false, "mt_rand() . mt_rand()"),
        ("rand", false, "rand() . rand()"),
        (
            "shuffle",
            false,
            "(function () { $a = range(0, 35); shuffle($a); return implode($a); })()",
        ),
        (
            "str_shuffle",
            false,
            "str_shuffle('abcdefghijklmnopqrstuvwxyz0123456789')",
        ),
        ("lcg_value", false, "lcg_value()"),
    ];
    let all: Vec<&str> = draws.iter().map(|(.., php)| *php).collect();
    // The line is printed by a single write because several children run at a time.
    let shows = format!(
        "echo PHP_EOL . 'X: ' . implode(' ', [{}]) . PHP_EOL;",
        all.join(", ")
    );
    let page = Page::new(&shows, "");
    let warm = page.load();
    assert_eq!(warm.loaded.obstacle, None);
    let lines = warm.lines_of(&page.vars(), CHILDREN);
    let lines: Vec<Vec<&str>> = lines
        .iter()
        .filter_map(|line| Some(line.strip_prefix("X: ")?.trim().split(' ').collect()))
        .collect();
    assert_eq!(lines.len(), CHILDREN);
    for (at, (name, wide, _)) in draws.iter().enumerate() {
        let seen: HashSet<&str> = lines.iter().map(|line| line[at]).collect();
        // Among 10,000 seeds of 32 bits, a pair of equal seeds occurs once in 86 runs, three pairs once in four
        // million.
        let least = CHILDREN - if *wide { 0 } else { 2 };
        assert!(seen.len() >= least, "{name}: {}", seen.len());
    }
}

/// The read-only parts of a small library are a mapping of a memory file that no process can write to.
#[test]
fn a_small_library_is_in_memory() {
    let shows = "echo PHP_EOL; $file = 0; foreach (file('/proc/self/maps') as $map) { \
        if (str_contains($map, '/ctype.so')) echo explode(' ', $map)[1], ' '; \
        if (str_contains($map, 'memfd:libraries')) { $file++; if (explode(' ', $map)[1] !== 'r-xp') echo $map; } } \
        echo $file > 10 ? 'copies ' : 'files ', ctype_digit('12') ? 'works' : '';";
    let page = Page::new(shows, "");
    let warm = page.load();
    assert_eq!(warm.loaded.obstacle, None);
    assert_eq!(last(&page.cold()), "r--p r-xp r--p r--p rw-p files works");
    assert_eq!(last(&page.ask(&warm)), "rw-p copies works");
}

/// If the limit of file sizes forbids the memory file, libraries stay unchanged. A signal would end the template.
#[test]
fn a_limit_of_file_sizes_leaves_libraries_as_they_are() {
    let page = Page::new(HOW, "");
    let mut scene = Scene::new();
    for (name, value) in &page.vars[..3] {
        scene.env.set_variable(name.as_bytes(), value.as_bytes());
    }
    scene.limits.file_size = Some(1 << 20);
    let warm = Warm::load_in(scene, Uses::Many, &page.program, "");
    assert_eq!(warm.loaded.obstacle, None);
    assert_eq!(last(&page.ask(&warm)), "warm");
}

/// The read-only parts of a library are a single mapping. No mapping is both writable and executable.
#[test]
fn libraries_are_few_mappings() {
    let shows = "echo PHP_EOL; $before = ['', '', '']; $parts = 0; foreach (file('/proc/self/maps') as $map) { \
        [$at, $rights, , , $inode] = preg_split('/ +/', $map); [$from, $to] = explode('-', $at); \
        if (str_contains($rights, 'wx')) echo $map; \
        $parts += $inode != 0 && $inode === $before[1] && $from === $before[0] && $rights . $before[2] === 'r-xpr--p'; \
        $before = [$to, $inode, $rights]; } \
        echo $parts;";
    let page = Page::new(shows, "");
    let warm = page.load();
    assert_eq!(warm.loaded.obstacle, None);
    let parts: Vec<String> = [page.cold(), page.ask(&warm)]
        .iter()
        .map(|run| last(run).to_owned())
        .collect();
    let parts: Vec<usize> = parts.iter().map(|n| n.parse().unwrap()).collect();
    // Code that was copied into large pages is no longer part of the file.
    assert!(parts[0] > 20 && parts[1] == 0, "{parts:?}");
}

/// Each child has opcache memory and locks of its own, as each cold process does.
#[test]
fn siblings_share_nothing_of_opcache() {
    let shows = "$maps = file('/proc/self/maps'); foreach ($maps as $map) if (preg_match('/^\\S+ .w.s /', $map)) echo $map; \
        foreach (glob('/proc/self/fd/*') as $fd) if (str_contains((string) @readlink($fd), 'ZendSem')) echo fstat_of($fd), ' '; \
        function fstat_of($fd) { $s = stat($fd); return \"{$s['dev']}:{$s['ino']}\"; } \
        $s = opcache_get_status(); echo $s['opcache_enabled'] ? 'on ' : 'off ', implode(' ', array_keys($s['scripts'])); include 'part.php';";
    let page = Page::new(
        shows,
        "opcache.enable = 1\nopcache.file_update_protection = 0",
    );
    fs::write(page.folder.path().join("part.php"), "<?php").unwrap();
    let warm = page.load();
    assert_eq!(warm.loaded.obstacle, None);
    let mut locks = Vec::new();
    for _ in 0..3 {
        let run = page.ask(&warm);
        let words: Vec<&str> = last(&run).split(' ').collect();
        assert_eq!(words.len(), 3, "{run:?}");
        assert_eq!(words[1..], ["on", &page.path.display().to_string()]);
        assert!(
            !locks.contains(&words[0].to_owned()),
            "{words:?} and {locks:?}"
        );
        locks.push(words[0].to_owned());
    }
}

/// If opcache would do work for the first request, or cannot be kept apart, each child does it itself.
#[test]
fn what_opcache_does_beyond_caching_is_as_in_a_cold_start() {
    let page = Page::new(
        "f(); $s = opcache_get_status(); echo $s['preload_statistics']['functions'][0];",
        "",
    );
    let preloaded = page.folder.path().join("preload.php");
    fs::write(&preloaded, "<?php function f() { echo 'f'; }").unwrap();
    let ini = format!(
        "{INI}opcache.preload = {}\nopcache.preload_user = root\n",
        preloaded.display()
    );
    fs::write(page.folder.path().join("ini/php.ini"), ini).unwrap();
    page.is_same("preload");
    Page::new(
        "echo 1;",
        "opcache.jit_buffer_size = 8M\nopcache.jit = tracing",
    )
    .is_same("jit");
    Page::new(
        "echo 1;",
        "opcache.file_cache_only = 1\nopcache.file_cache = /tmp",
    )
    .is_same("file cache");
}
