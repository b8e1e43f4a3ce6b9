//! No source file has more than 500 lines, not counting its tests, no top module of a crate more than 2,500, and no crate more
//! than `budget.toml` allows. A longer file has several responsibilities. Clippy limits functions to 60 lines (clippy.toml).
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // other tests use the rest
mod sources;

use std::{collections::BTreeMap, fs, path::Path};

const MOST: usize = 500;
/// Limit of a module directly below a crate's root, with all files in its folder.
const MOST_OF_MODULE: usize = 2500;

/// Returns the lines of a file without its module of tests.
fn lines(text: &str) -> usize {
    let tests = text.find("\n#[cfg(test)]\nmod tests {");
    text[..tests.unwrap_or(text.len())].lines().count()
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let mut long = Vec::new();
    for (name, files) in sources::crates() {
        for (file, text) in files {
            if lines(&text) > MOST {
                long.push(format!("crates/{name}/src/{file}: {}", lines(&text)));
            }
        }
    }
    assert!(
        long.is_empty(),
        "longer than {MOST} lines:\n{}",
        long.join("\n")
    );
}

#[test]
fn no_top_module_is_larger_than_a_reader_can_learn() {
    let mut large = Vec::new();
    for (name, files) in sources::crates() {
        let mut modules = BTreeMap::<_, usize>::new();
        for (file, text) in &files {
            let module = file.split('/').next().unwrap();
            *modules.entry(module.trim_end_matches(".rs")).or_default() += lines(text);
        }
        let too_large = modules.iter().filter(|(_, n)| **n > MOST_OF_MODULE);
        large.extend(too_large.map(|(module, n)| format!("{name}::{module}: {n} lines")));
    }
    assert!(
        large.is_empty(),
        "larger than {MOST_OF_MODULE} lines:\n{}",
        large.join("\n")
    );
}

#[test]
fn no_crate_is_larger_than_its_budget() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../budget.toml");
    let text = fs::read_to_string(file).unwrap();
    let entries = text.lines().filter_map(|line| line.split_once(" = "));
    let budget: BTreeMap<_, usize> = entries
        .map(|(name, most)| (name, most.parse().unwrap()))
        .collect();
    let mut beyond = Vec::new();
    for (name, files) in sources::crates() {
        let count = files.values().map(|text| lines(text)).sum::<usize>();
        match budget.get(&*name) {
            Some(most) if count <= *most => {}
            most => beyond.push(format!(
                "{name}: {count} lines, budget.toml allows {most:?}"
            )),
        }
    }
    assert!(beyond.is_empty(), "{}", beyond.join("\n"));
}
