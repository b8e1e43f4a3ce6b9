//! Scripts that are compiled ahead of a request.

use crate::page::{Page, Run};
use rustix::fs::{CWD, Mode, mknodat};
use std::{fs, path::Path};

const FRESH: &str = "opcache.enable = 1\nuser_ini.cache_ttl = 0";

/// Prints how many scripts a request found compiled.
const FOUND: &str = "echo ' found ', opcache_get_status()['opcache_statistics']['hits'];";

/// Makes a page that includes a part. Returns the page and the scripts that it runs.
fn pair(text: &str, part: &str) -> (Page, String) {
    let page = Page::new(text, FRESH);
    page.write("part.php", part);
    let scripts = page.told(&page.load());
    let folder = page.folder.path().display();
    assert_eq!(scripts, format!("{folder}/page.php\n{folder}/part.php\n"));
    (page, scripts)
}

/// Returns the output of a run without its header.
fn body(run: &Run) -> &str {
    run.0.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn what_a_child_ran_its_siblings_find_compiled() {
    let (page, scripts) = pair(
        &format!("include 'part.php'; {FOUND}"),
        "<?php echo 'part';",
    );
    assert_eq!(body(&page.ask(&page.load())), "part found 0");
    let warm = page.load_with(&scripts);
    for _ in 0..3 {
        assert_eq!(body(&page.ask(&warm)), "part found 2");
    }
    for script in scripts.lines() {
        assert!(warm.loaded.files.contains(Path::new(script)), "{script}");
    }
    // In a process that serves several requests, the first request would have changed the scripts.
    assert_eq!(page.told(&warm), scripts);
}

#[test]
fn a_script_that_changes_is_that_of_the_next_request() {
    let (page, scripts) = pair(
        "echo (include 'part.php') ?: 'none';",
        "<?php return 'old';",
    );
    let warm = page.load_with(&scripts);
    assert_eq!(body(&page.ask(&warm)), "old");
    let part = page.folder.path().join("part.php");
    for new in ["new", "newer", "newest"] {
        fs::write(&part, format!("<?php return '{new}';")).unwrap();
        assert_eq!(body(&page.ask(&warm)), new);
    }
    fs::rename(page.write("other.php", "<?php return 'other';"), &part).unwrap();
    let later = std::time::SystemTime::now();
    let file = fs::File::options().append(true).open(&part).unwrap();
    file.set_modified(later).unwrap();
    assert_eq!(body(&page.ask(&warm)), "other");
    fs::remove_file(&part).unwrap();
    assert_eq!(page.ask(&warm), page.cold());
    fs::write(&page.path, "<?php echo 'page';").unwrap();
    assert_eq!(body(&page.ask(&warm)), "page");
}

#[test]
fn a_script_that_changes_in_the_middle_of_a_request() {
    let text = "file_put_contents(__DIR__ . '/part.php', \"<?php return 'new';\"); echo include 'part.php'; \
        file_put_contents(__DIR__ . '/more.php', '<?php echo __FILE__;'); include 'more.php';";
    let page = Page::new(text, FRESH);
    let part = page.write("part.php", "<?php return 'old';");
    let warm = page.load_with(&format!("{}\n{}\n", page.path.display(), part.display()));
    assert!(body(&page.ask(&warm)).starts_with("new/"));
    assert_eq!(page.ask(&warm), page.cold());
}

/// If a child changes compiled code, the change is gone with the child.
#[test]
fn no_sibling_changes_what_is_compiled() {
    let text = format!(
        "include 'part.php'; if (isset($_GET['a'])) {{ opcache_invalidate(__DIR__ . '/part.php', true); opcache_reset(); \
         include 'part.php'; }} foreach (file('/proc/self/maps') as $map) if (preg_match('/^\\S+ .w.s /', $map)) echo $map; {FOUND}"
    );
    let (mut page, scripts) = pair(
        &text,
        "<?php echo 'part'; $x = ['a' => [1, 2]]; $x['a'][] = 3;",
    );
    let warm = page.load_with(&scripts);
    for _ in 0..3 {
        page.set("QUERY_STRING", "a=1");
        assert!(body(&page.ask(&warm)).starts_with("partpart"));
        page.set("QUERY_STRING", "");
        assert_eq!(body(&page.ask(&warm)), "part found 2");
    }
}

/// Several files, as in an application.
#[test]
fn many_scripts_are_as_in_a_cold_start() {
    let page = Page::new(
        "spl_autoload_register(function ($c) { require_once __DIR__ . \"/lib/$c.php\"; }); \
         require 'lib/functions.php'; require_once 'lib/functions.php'; echo helper(), Leaf::who(), (new Leaf)->told(), LIMIT; \
         try { include 'lib/broken.php'; } catch (ParseError $e) { echo $e->getMessage(), $e->getFile(), $e->getLine(); } \
         set_error_handler(fn ($n, $w, $f, $l) => print(\"$w $f $l \")); include 'lib/old.php'; \
         try { Leaf::fails(); } catch (Error $e) { echo $e; } \
         print_r(get_included_files()); print_r((new ReflectionClass('Leaf'))->getFileName()); include 'lib/end.php';",
        FRESH,
    );
    fs::create_dir(page.folder.path().join("lib")).unwrap();
    let files = [
        (
            "functions.php",
            "<?php\nif (function_exists('helper')) return;\nconst LIMIT = 3 * 7;\nfunction helper() { return __FUNCTION__ . __LINE__ . __DIR__; }\n",
        ),
        (
            "Root.php",
            "<?php\ninterface Root { const A = 'a' . PHP_VERSION; static function who(): string; }\n",
        ),
        (
            "Tells.php",
            "<?php\ntrait Tells { private $told = [self::class => __TRAIT__]; function told() { static $n = 1; return json_encode($this->told) . $n++; } }\n",
        ),
        (
            "Stem.php",
            "<?php\nabstract class Stem implements Root { static function who(): string { return static::class . self::A; } }\n",
        ),
        (
            "Leaf.php",
            "<?php\n\nfinal class Leaf extends Stem { use Tells;\n static function fails() {\n  nothing();\n } }\n",
        ),
        ("broken.php", "<?php\necho 1;\nfunction ( {\n"),
        (
            "old.php",
            "<?php\nfunction old($a = 1, $b) {}\nclass Old implements Serializable { function serialize() {} function unserialize($x) {} }\n",
        ),
        (
            "end.php",
            "<?php\nregister_shutdown_function(fn () => print('bye'));\nundefined_function(1);\n",
        ),
    ];
    for (name, text) in files {
        page.write(&format!("lib/{name}"), text);
    }
    page.is_same("many scripts");
    let warm = page.load_with(&page.told(&page.load()));
    let lib = |name: &str| page.folder.path().join("lib").join(name);
    assert!(warm.loaded.files.contains(&lib("Leaf.php")));
    assert!(
        !warm.loaded.files.contains(&lib("broken.php")),
        "nothing was compiled of it"
    );
}

/// A folder may have settings under which a script compiles differently.
#[test]
fn other_settings_are_those_of_the_request() {
    let (page, scripts) = pair(
        "include 'part.php'; echo 0.1 + 0.7;",
        "<?php echo 'one'; ?><? echo 'two' ?>",
    );
    let mut page = page;
    let warm = page.load_with(&scripts);
    let folder = page.folder.path().display().to_string();
    page.set("DOCUMENT_ROOT", &folder);
    assert_eq!(page.ask(&warm), page.cold());
    for setting in ["short_open_tag = 0", "precision = 3", "opcache.enable = 0"] {
        fs::write(page.folder.path().join(".user.ini"), setting).unwrap();
        let cold = page.cold();
        assert_eq!(page.ask(&warm), cold, "{setting}");
    }
    assert!(body(&page.ask(&warm)).starts_with("one"));
}

/// If the settings ask for something else, nothing is compiled ahead.
#[test]
fn where_nothing_is_compiled_ahead() {
    for setting in [
        "opcache.enable = 0",
        "opcache.validate_timestamps = 0",
        "opcache.file_cache = /tmp",
        "opcache.jit_buffer_size = 8M\nopcache.jit = tracing",
    ] {
        let page = Page::new("echo 1;", setting);
        let warm = page.load_with(&format!("{}\n", page.path.display()));
        assert_eq!(warm.loaded.obstacle, None, "{setting}");
        assert!(!warm.loaded.files.contains(&page.path), "{setting}");
        assert_eq!(page.ask(&warm), page.cold(), "{setting}");
        assert_eq!(page.told(&warm), "", "{setting}");
    }
}

/// A child may report any file as a script. Such a file costs time, but nothing else.
#[test]
fn what_is_no_script_is_left_alone() {
    let page = Page::new("echo 1;", FRESH);
    let folder = page.folder.path();
    mknodat(
        CWD,
        folder.join("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .unwrap();
    let large = fs::File::create(folder.join("large.php")).unwrap();
    large.set_len(1 << 30).unwrap();
    page.write("text", &"no script \u{0}".repeat(1000));
    page.write("deep.php", &format!("<?php {}", "[".repeat(100_000)));
    // PHP shows this first line if the file is included, and skips it if the file is the requested
    // script.
    page.write("program.php", "#!/usr/bin/php-cgi\n<?php echo 2;");
    let names = [
        "pipe",
        "large.php",
        "text",
        "deep.php",
        "program.php",
        "none",
        ".",
    ];
    let names: Vec<String> = names
        .iter()
        .map(|n| folder.join(n).display().to_string())
        .collect();
    let warm = page.load_with(&format!("{}\n{}\n", names.join("\n"), page.path.display()));
    assert_eq!(warm.loaded.obstacle, None);
    for name in ["pipe", "large.php", "deep.php", "program.php", "none"] {
        assert!(!warm.loaded.files.contains(&folder.join(name)), "{name}");
    }
    assert!(warm.loaded.files.contains(&page.path));
    assert_eq!(page.ask(&warm), page.cold());
}
