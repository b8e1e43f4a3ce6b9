//! Checks the claims of the documents about tests.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

/// Files of crates/spawn/tests that docs/security.md names by their first word.
const OF_SPAWN: [&str; 3] = ["start", "warm_draws", "warm_php"];

/// Returns the folder of the tests that docs/security.md names by this first word.
fn folder(suite: &str) -> Option<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = match suite {
        "it" | "cli" | "real" => format!("galgo/tests/{suite}"),
        suite if OF_SPAWN.contains(&suite) => "spawn/tests".to_owned(),
        "galgo-wasm-host" => "wasm-host/tests".to_owned(),
        "galgo" => "galgo/src".to_owned(),
        package => format!("{}/src", package.strip_prefix("galgo-")?),
    };
    Some(crates.join(folder))
}

/// Collects the paths of all functions and modules below a folder, whose module is `above`. If a file contains modules,
/// each function counts for each module of the file.
fn paths(folder: &Path, above: &str, found: &mut HashSet<String>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let module = match name {
            "mod" | "main" | "lib" => above.to_owned(),
            name => format!("{above}{name}::"),
        };
        found.insert(module.trim_end_matches("::").to_owned());
        if path.is_dir() {
            paths(&path, &module, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let words: Vec<_> = text.split_whitespace().collect();
            let inner = words.windows(3).filter(|w| w[0] == "mod" && w[2] == "{");
            let inner = inner.map(|w| format!("{}::", w[1]));
            let modules: Vec<_> = inner.chain([String::new()]).collect();
            for named in words.windows(2).filter(|w| w[0] == "fn") {
                let end = named[1].find(|c: char| !c.is_alphanumeric() && c != '_');
                let function = &named[1][..end.unwrap_or(named[1].len())];
                let paths = modules.iter().map(|m| format!("{module}{m}{function}"));
                found.extend(paths);
            }
        }
    }
}

/// Returns the names of all tests with this first word.
fn known(suite: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    paths(&folder(suite).unwrap(), "", &mut found);
    if !OF_SPAWN.contains(&suite) {
        return found;
    }
    let file = format!("{suite}::");
    let found = found.iter().filter_map(|path| path.strip_prefix(&file));
    found.map(str::to_owned).collect()
}

#[test]
fn each_test_that_is_named_is_there() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(here.join("../../docs/security.md")).unwrap();
    let quoted = document.split('`').skip(1).step_by(2);
    let mut suites = HashMap::new();
    let (mut named, mut wrong, mut before) = (0, Vec::new(), None);
    for text in quoted {
        let (suite, path) = match (text.split_once(' '), before) {
            (Some((suite, path)), _)
                if !path.contains(' ') && (path.contains("::") || OF_SPAWN.contains(&suite)) =>
            {
                (suite, path.to_owned())
            }
            (None, Some((suite, path))) if text.starts_with("…::") => {
                let (module, _) = str::rsplit_once(path, "::").unwrap_or_default();
                (suite, text.replace('…', module))
            }
            _ => continue,
        };
        if let Some((suite, path)) = text.split_once(' ') {
            before = Some((suite, path));
        }
        named += 1;
        let known = suites.entry(suite).or_insert_with(|| known(suite));
        if !known.contains(path.trim_end_matches("::")) {
            wrong.push(format!("{suite} {path}"));
        }
    }
    assert!(named > 300, "{named}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_attack_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let quoted = document.split('`').skip(1).step_by(2);
    let named = quoted.filter(|text| text.starts_with("attack/") && !text.contains(['…', ' ']));
    let named: Vec<_> = named.collect();
    assert!(named.len() > 40, "{named:?}");
    let wrong: Vec<_> = named
        .iter()
        .filter(|name| !root.join(name).is_file())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
