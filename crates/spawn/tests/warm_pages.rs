//! The code of a Perl or Python template lies in large pages of its own, with the rights that it had
//! before.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_testkit::file::script;
use scene::warm::Warm;
use std::{fs, path::Path};

const LARGE: usize = 2 << 20;
const MADV_COLLAPSE: i32 = 25;

/// Whether this kernel makes large pages on request (Linux 6.1), and has one free.
fn has_large_pages() -> bool {
    // SAFETY: the mapping is new, nothing else knows it, and the requested range lies within it.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let all = libc::mmap(std::ptr::null_mut(), 2 * LARGE, rights, kind, -1, 0);
        assert_ne!(all, libc::MAP_FAILED);
        let at = all.byte_add(all.align_offset(LARGE));
        at.cast::<u8>().write(1);
        let made = libc::madvise(at, LARGE, MADV_COLLAPSE) == 0;
        libc::munmap(all, 2 * LARGE);
        made
    }
}

/// Returns the mappings of a child: rights and file.
fn mappings(interpreter: &str, text: &str) -> Vec<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "script", format!("#!{interpreter}\n{text}"));
    let warm = Warm::load(&path);
    assert_eq!(warm.loaded.obstacle, None);
    let real = fs::canonicalize(interpreter).unwrap();
    assert!(warm.loaded.files.contains(&real), "it is still watched");
    let words = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (
            words[1].to_owned(),
            (*words.get(5).unwrap_or(&"")).to_owned(),
        )
    };
    warm.answer(&[], b"", false)
        .out
        .lines()
        .map(words)
        .collect()
}

fn check(interpreter: &str, text: &str) {
    let all = mappings(interpreter, text);
    let file = fs::canonicalize(interpreter).unwrap();
    let with = |rights: &str| {
        all.iter()
            .filter(|(has, path)| has == rights && Path::new(path) == file)
            .count()
    };
    assert!(
        !all.iter().any(|(rights, _)| rights.starts_with("rwx")),
        "code that can be written to: {all:?}"
    );
    assert!(with("r--p") > 0, "what is no code is the file's: {all:?}");
    let moved = all
        .iter()
        .any(|(rights, path)| rights == "r-xp" && path.is_empty());
    assert_eq!(moved, has_large_pages(), "{all:?}");
    assert_eq!(with("r-xp") == 0, moved, "{all:?}");
}

#[test]
fn code_lies_in_pages_of_the_template() {
    check(
        "/usr/bin/perl",
        "open my $maps, '<', '/proc/self/maps'; print <$maps>;",
    );
    check(
        "/usr/bin/python3",
        "print(open('/proc/self/maps').read(), end='')",
    );
}
