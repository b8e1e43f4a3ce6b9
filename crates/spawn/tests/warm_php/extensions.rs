//! Actions of extensions as they start.

use galgo_testkit::file::compile;
use std::fs;

use crate::page::{Page, last};

/// Registers the switch `apc.enabled`, as APCu does.
const APCU: &str = r#"
    static const struct { const char *name; void *change, *more[3]; const char *value; void *show; unsigned length; unsigned short size; unsigned char rights; }
        settings[] = {{"apc.enabled", 0, {0}, "1", 0, 1, 11, 4}, {0}};
    int zend_register_ini_entries(const void *, int);
    zend_register_ini_entries(settings, number)"#;

/// Adds an extension to the page. `starts` is C code that runs at its start, `request` at each
/// request.
fn extension(page: &Page, starts: &str, request: &str) {
    let c = format!(
        r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
struct module {{
    unsigned short size; unsigned api; unsigned char debug, zts; const void *ini, *deps; const char *name; const void *functions;
    int (*start)(int, int), (*stop)(int, int), (*begin)(int, int), (*end)(int, int); void (*info)(void *); const char *version;
    size_t globals_size; void *globals; void (*make)(void *), (*unmake)(void *); int (*after)(void);
    int started; unsigned char type; void *handle; int number; const char *build;
}};
static int children;
static void child(void) {{ children++; }}
static int start(int type, int number) {{ (void)type, (void)number; (void)child; {starts}; return 0; }}
static int begin(int type, int number) {{ (void)type, (void)number; {request}; return 0; }}
static struct module module = {{sizeof module, 20220829, 0, 0, NULL, NULL, "ours", NULL, start, NULL, begin, NULL, NULL, "1",
    0, NULL, NULL, NULL, NULL, 0, 1, NULL, 0, "API20220829,NTS"}};
void *get_module(void) {{ return &module; }}
"#
    );
    let file = compile(page.folder.path(), "ours.so", &c, &["-shared", "-fPIC"]);
    let ini = page.folder.path().join("ini/php.ini");
    let text = fs::read_to_string(&ini).unwrap();
    fs::write(ini, format!("{text}extension = {}\n", file.display())).unwrap();
}

/// PHP hides the names of extensions from the shim. The shim must notice their actions
/// nevertheless.
#[test]
fn a_handler_that_an_extension_registers_for_a_fork_is_called() {
    let page = Page::new("echo extension_loaded('ours');", "");
    extension(
        &page,
        "pthread_atfork(NULL, NULL, child)",
        "dprintf(2, \"%d\", children)",
    );
    let warm = page.load();
    assert_eq!(warm.loaded.obstacle, None);
    for _ in 0..2 {
        let run = page.ask(&warm);
        assert_eq!((last(&run), &*run.1), ("1", "1"));
    }
}

#[test]
fn what_an_extension_does_can_stand_in_the_way() {
    let rows = [
        (
            "mmap(NULL, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0)",
            "shares memory with other processes",
        ),
        (
            "getenv(\"QUERY_STRING\")",
            "reads QUERY_STRING while loading",
        ),
        ("getenv(\"HTTP_HOST\")", "reads HTTP_HOST while loading"),
        ("alarm(1000)", "sets an alarm while loading"),
        (
            "int ends[2]; if (pipe(ends)) return -1",
            "opens a pipe while loading",
        ),
        ("printf(\"x\")", "prints while loading"),
        (
            APCU,
            "shares memory between requests by APCu: apc.enabled = 0 in its php.ini lets it start warm",
        ),
        (
            "long *zend_get_constant_str(const char *, size_t); *zend_get_constant_str(\"PHP_VERSION_ID\", 14) = 80301",
            "runs under PHP 8.2.",
        ),
    ];
    for (does, says) in rows {
        let page = Page::new("", "");
        extension(&page, does, "");
        let obstacle = page.load().loaded.obstacle.unwrap_or_default();
        assert!(obstacle.starts_with(says), "{does}: {obstacle:?}");
    }
    let page = Page::new("", "apc.enabled = 0");
    extension(&page, APCU, "");
    assert_eq!(page.load().loaded.obstacle, None);
    // A setting may also be a variable.
    let page = Page::new("", "error_log = \"/tmp/${SERVER_NAME}\"");
    let obstacle = page.load().loaded.obstacle.unwrap_or_default();
    assert!(
        obstacle.starts_with("reads SERVER_NAME while loading"),
        "{obstacle:?}"
    );
}

/// No part of the library can be written to, so no part of it is still mapped from its file. The
/// file is watched nevertheless.
#[test]
fn a_library_that_lies_in_memory_is_watched() {
    let page = Page::new("", "");
    let folder = page.folder.path();
    let c = "int answer(int x) { return x * 42; } const char *const words[] = {\"a\", \"b\"};";
    let flags = [
        "-shared",
        "-fPIC",
        "-nostartfiles",
        "-Wl,-z,relro,-z,now,-z,separate-code",
    ];
    let library = compile(folder, "library.so", c, &flags);
    let opens = format!(
        "void *dlopen(const char *, int); if (!dlopen(\"{}\", 2)) return -1",
        library.display()
    );
    extension(&page, &opens, "");
    let warm = page.load();
    assert_eq!(warm.loaded.obstacle, None);
    assert!(warm.loaded.files.contains(&library));
}

/// The library's former name is now the name of another file. A check of that file shows that the
/// library has changed.
#[test]
fn an_extension_that_is_replaced_while_it_is_loaded_is_watched() {
    let page = Page::new("", "");
    let file = page.folder.path().join("ours.so");
    let other = page.write("other.so", "");
    let moves = format!("rename(\"{}\", \"{}\")", other.display(), file.display());
    extension(&page, &moves, "");
    let warm = page.load();
    assert_eq!(warm.loaded.obstacle, None);
    assert!(warm.loaded.files.contains(&file));
}
