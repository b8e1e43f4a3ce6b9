//! A type name stands for a single thing in all crates: a reader of `Piece` needs no `use` lines to know its meaning.
//! The test only reads text. Modules of tests may name their types freely. So may the crate `testkit`, whose `Client` and
//! `Server` are named after the things that they test. No other name is exempt: two types named `Error` are never needed.
#![allow(clippy::unwrap_used)]

mod sources;

use std::collections::BTreeMap;

#[test]
fn a_type_name_stands_for_one_thing() {
    let mut crates = sources::crates();
    crates.remove("testkit").unwrap();
    let files = crates.iter().flat_map(|(name, files)| {
        let path = move |file| format!("crates/{name}/src/{file}");
        files.iter().map(move |(file, text)| (path(file), &**text))
    });
    let (found, repeated) = repeated(files);
    assert!(found > 500, "only {found} types were found");
    assert!(
        repeated.is_empty(),
        "names of several types:\n{}",
        repeated.join("\n")
    );
}

/// A name of up to five letters is seldom a verb with its object: `take`, `of` and `said` make a reader open the function.
#[test]
fn few_function_names_are_short() {
    let mut crates = sources::crates();
    crates.remove("testkit").unwrap();
    let (mut all, mut short) = (0, Vec::new());
    for text in crates.values().flat_map(|files| files.values()) {
        let names = sources::code(text).filter_map(|(_, line)| function(line));
        for name in names {
            all += 1;
            if name.len() <= 5 {
                short.push(name);
            }
        }
    }
    assert!(all > 3000, "only {all} functions were found");
    let percent = 100 * short.len() / all;
    assert!(percent <= 15, "{percent} % are short: {short:?}");
}

/// Returns the name of the function that a line defines.
fn function(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("fn ")?;
    let words = before.split_whitespace();
    let is_keyword = |word: &str| {
        word.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "\"C\"", "crate)"].contains(&word)
    };
    if !words.clone().all(is_keyword) {
        return None;
    }
    name.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// Files of a folder begin in its `mod.rs`, so that a reader finds a module at one place.
#[test]
fn no_file_stands_beside_a_folder_of_its_name() {
    let mut beside = Vec::new();
    for (name, files) in sources::crates() {
        for file in files.keys() {
            let folder = format!("{}/", file.trim_end_matches(".rs"));
            if files.keys().any(|other| other.starts_with(&folder)) {
                beside.push(format!("crates/{name}/src/{file}"));
            }
        }
    }
    assert!(beside.is_empty(), "move to mod.rs: {beside:?}");
}

/// A reader who searches for a module by its name finds few others. Three files of one name are what is left.
#[test]
fn few_modules_share_a_name() {
    let mut crates = sources::crates();
    crates.remove("testkit").unwrap();
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for (name, files) in &crates {
        for file in files.keys() {
            let module = file.trim_end_matches("/mod.rs").trim_end_matches(".rs");
            let (_, last) = module.rsplit_once('/').unwrap_or(("", module));
            if !["lib", "main", "tests"].contains(&last) {
                let path = format!("crates/{name}/src/{file}");
                places.entry(last.to_owned()).or_default().push(path);
            }
        }
    }
    assert!(places.len() > 300, "only {} names were found", places.len());
    places.retain(|_, files| files.len() > 3);
    assert!(places.is_empty(), "name these apart: {places:#?}");
}

#[test]
fn each_definition_is_named() {
    let a =
        "pub struct A;\n// struct B;\nenum B {\n    C,\n}\nimpl D for A {\n    type E = A;\n}\n";
    let b = "mod c {\n    pub(in super::super) unsafe trait A {}\n}\npub(super) type E<'a> = &'a B;\n\
             #[cfg(test)]\nmod tests {\n    struct B;\n}\n\nunion E {}\n";
    let files = [("a.rs", a), ("b.rs", b)].map(|(file, text)| (file.to_owned(), text));
    let (found, repeated) = repeated(files);
    assert_eq!(found, 5);
    assert_eq!(repeated, ["A: a.rs:1, b.rs:2", "E: b.rs:4, b.rs:10"]);
}

/// Counts the types, and returns a line for each name that several types have.
fn repeated<'t>(files: impl IntoIterator<Item = (String, &'t str)>) -> (usize, Vec<String>) {
    let mut places = BTreeMap::<&str, Vec<String>>::new();
    for (file, text) in files {
        for (number, line) in sources::code(text) {
            if let Some(name) = defined(line) {
                places
                    .entry(name)
                    .or_default()
                    .push(format!("{file}:{number}"));
            }
        }
    }
    let found = places.values().map(Vec::len).sum();
    let several = places.iter().filter(|(_, places)| places.len() > 1);
    let lines = several.map(|(name, places)| format!("{name}: {}", places.join(", ")));
    (found, lines.collect())
}

/// Returns the name of the type that a line defines. An indented `type` belongs to a trait.
fn defined(line: &str) -> Option<&str> {
    let trimmed = line.trim_start();
    let rest = match trimmed.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => trimmed,
    };
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (kind, rest) = rest.split_once(' ')?;
    let kinds = ["struct", "enum", "trait", "union", "type"];
    if !kinds.contains(&kind) || kind == "type" && trimmed.len() < line.len() {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&rest[..end.unwrap_or(rest.len())])
}
