//! Checks for circles of imports. Source files of a crate must not import each other in a circle, and neither must the modules
//! of a folder. In a circle, no file can be read or moved alone. A folder counts as one module, whatever is in it; the modules
//! in it are checked separately.
//! The test only reads text. An import is a path that begins with `crate`, `super`, `self` or a module of the file's own, in a
//! `use` or in code. The import goes to the file that the path leads to. A name that `mod.rs` only exports again is imported
//! from `mod.rs`, so files beside it must name the module that defines it. A line `mod x;` is not an import.
#![allow(clippy::unwrap_used)]

mod sources;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sources::Files;

#[test]
fn no_file_is_in_a_circle_with_another() {
    let crates = sources::crates();
    let circles = crates.iter().filter_map(|(name, files)| {
        let way = circle(files)?;
        Some(format!("crates/{name}/src/{way}"))
    });
    let found: Vec<_> = circles.collect();
    assert!(found.is_empty(), "in a circle:\n{}", found.join("\n"));
}

#[test]
fn no_module_is_in_a_circle_with_one_beside_it() {
    let crates = sources::crates();
    let circles = crates.iter().flat_map(|(name, files)| {
        let found = circles_of_modules(files);
        found.into_iter().map(move |way| format!("{name}: {way}"))
    });
    let found: Vec<_> = circles.collect();
    assert!(found.is_empty(), "in a circle:\n{}", found.join("\n"));
}

#[test]
fn a_circle_of_modules_is_named_by_its_folder() {
    let sources = [
        "lib.rs: mod a; mod b;",
        "a/mod.rs: mod c; mod d; mod e;",
        "a/c.rs: use super::d::inner::X;",
        "a/d/mod.rs: mod inner; mod other;",
        "a/d/inner.rs:",
        "a/d/other.rs: use crate::a::c::Y;",
        "a/e.rs: use crate::b::Z;",
        "b.rs: use crate::a::c::Y;",
    ];
    let files = sources.map(|source| source.split_once(':').unwrap());
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    let circles = circles_of_modules(&files.into());
    assert_eq!(circles, ["a -> b -> a", "a::c -> a::d -> a::c"]);
}

#[test]
fn the_shortest_circle_is_named() {
    let sources = [
        "lib.rs: mod a; pub use a::B;",
        "a/mod.rs: mod b; mod c; fn f() { c::f() }",
        "a/b.rs: use std::io;\nuse super::{\n    c as e,\n    d::{self, D},\n};",
        "a/c.rs: // super::b\n#[cfg(test)]\nmod tests {\n    use super::b;\n}\n",
        "a/d.rs: use crate::B; pub(super) fn f() -> super::b::B {}",
    ];
    let files = sources.map(|source| source.split_once(": ").unwrap());
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(circle(&files.into()).unwrap(), "a/b.rs -> a/d.rs -> a/b.rs");
}

/// Returns the shortest way from a file back to itself.
fn circle(files: &Files) -> Option<String> {
    let names = files.keys().map(String::as_str);
    let imports = names.map(|file| {
        (
            file.to_owned(),
            imports(file, files).into_iter().cloned().collect(),
        )
    });
    shortest(&imports.collect())
}

/// Returns, for each folder with a circle, the shortest way from a module in the folder back to itself.
fn circles_of_modules(files: &Files) -> Vec<String> {
    let mut folders: BTreeMap<String, Graph> = BTreeMap::new();
    for file in files.keys() {
        for target in imports(file, files) {
            let (from, to) = (module(file), module(target));
            let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            // A module contains the other.
            if same == from.len() || same == to.len() {
                continue;
            }
            let [from, to] = [&from, &to].map(|way| way[..=same].join("::"));
            let folder = folders.entry(module(file)[..same].join("::")).or_default();
            folder.entry(from).or_default().insert(to.clone());
            folder.entry(to).or_default();
        }
    }
    folders.values().filter_map(shortest).collect()
}

/// The imports of each file or module.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the shortest way from a node back to itself.
fn shortest(imports: &Graph) -> Option<String> {
    let back = |first: &String| {
        let (mut ways, mut seen) = (VecDeque::from([(first, first.clone())]), BTreeSet::new());
        while let Some((last, way)) = ways.pop_front() {
            if last == first && way != *first {
                return Some(way);
            }
            let new = imports[last].iter().filter(|next| seen.insert(*next));
            ways.extend(new.map(|next| (next, format!("{way} -> {next}"))));
        }
        None
    };
    imports.keys().filter_map(back).min_by_key(String::len)
}

/// Returns the other files that a file imports from.
fn imports<'f>(file: &str, files: &'f Files) -> BTreeSet<&'f String> {
    let (from, spaced) = (module(file), spaced(&files[file]));
    let words: Vec<_> = spaced.split_whitespace().collect();
    let (mut rest, mut paths) = (&words[..], Vec::new());
    while !rest.is_empty() {
        tree(&mut rest, Vec::new(), &mut paths);
    }
    let targets = paths.iter().filter_map(|path| target(&from, path, files));
    targets.filter(|target| *target != file).collect()
}

/// Returns the code with white space around everything except names, without comments and tests.
fn spaced(text: &str) -> String {
    let mut spaced = String::new();
    for (_, code) in sources::code(text) {
        for c in code.chars().chain(['\n']) {
            if c.is_alphanumeric() || c == '_' || c == ':' {
                spaced.push(c)
            } else {
                spaced.extend([' ', c, ' '])
            }
        }
    }
    spaced.replace("::", " :: ")
}

/// Takes a path, or a whole tree of paths as in `use`: `a::{b, c::{self, d as e}, f::*}`. A single word is not a path.
fn tree<'w>(rest: &mut &[&'w str], mut path: Vec<&'w str>, paths: &mut Vec<Vec<&'w str>>) {
    while let [name, "::", after @ ..] = *rest {
        path.push(name);
        *rest = after;
    }
    if path.is_empty() || rest[0] != "{" {
        path.push(rest[0]);
        paths.extend((path.len() > 1).then_some(path));
    } else {
        *rest = &rest[1..];
        while rest[0] != "}" {
            match *rest {
                [",", after @ ..] | ["as", _, after @ ..] => *rest = after,
                _ => tree(rest, path.clone(), paths),
            }
        }
    }
    *rest = &rest[1..];
}

/// Returns the path of a file's module: `h1::head` for `h1/head.rs`, `h1` for `h1/mod.rs`, and an empty path for the root.
fn module(file: &str) -> Vec<&str> {
    let mut names: Vec<_> = file.trim_end_matches(".rs").split('/').collect();
    names.retain(|name| !["mod", "lib", "main"].contains(name));
    names
}

/// Returns the file that a path leads to, or `None` if the path leads out of this crate.
fn target<'f>(from: &[&str], path: &[&str], files: &'f Files) -> Option<&'f String> {
    let file = |way: &[&str]| files.keys().find(|file| module(file) == way);
    let mut way = from.to_vec();
    if !["crate", "super", "self"].contains(&path[0]) {
        file(&[from, &path[..1]].concat())?; // a name in scope, or another crate's
    }
    for &name in path.iter().filter(|name| **name != "self") {
        match name {
            "crate" => way.clear(),
            "super" => drop(way.pop()),
            _ => way.push(name),
        }
    }
    // The words after the last module name an item in that module.
    (0..=way.len()).rev().find_map(|len| file(&way[..len]))
}
