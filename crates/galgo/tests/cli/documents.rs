//! What the documents claim of the tests.

use std::{collections::HashSet, fs, path::Path};

/// The crates, and binaries of tests, by which docs/security.md names tests.
const SUITES: &[&str] = &[
    "cli", "front", "galgo", "handlers", "io", "it", "proto", "real", "service", "spawn", "wasm",
];

/// Words behind `fn ` and `mod ` in the sources below a folder.
fn names(folder: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            names(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let words: Vec<_> = text.split_whitespace().collect();
            let named = words.windows(2).filter(|w| matches!(w[0], "fn" | "mod"));
            let name = |word: &str| {
                let end = word.find(|c: char| !c.is_alphanumeric() && c != '_');
                word[..end.unwrap_or(word.len())].to_owned()
            };
            found.extend(named.map(|w| name(w[1])));
        }
    }
}

#[test]
fn each_test_that_is_named_is_there() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = HashSet::new();
    names(&here.join(".."), &mut known);
    let document = fs::read_to_string(here.join("../../docs/security.md")).unwrap();
    let quoted = document.split('`').skip(1).step_by(2);
    let path = |quoted: &str| match quoted.split_once(' ') {
        Some((suite, path)) => SUITES.contains(&suite).then(|| path.to_owned()),
        None => quoted.strip_prefix("…::").map(str::to_owned),
    };
    let paths: Vec<_> = quoted.filter_map(path).collect();
    assert!(paths.len() > 200, "{}", paths.len());
    let segments = |path: &str| path.split("::").all(|s| s.is_empty() || known.contains(s));
    let wrong: Vec<_> = paths.iter().filter(|path| !segments(path)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
