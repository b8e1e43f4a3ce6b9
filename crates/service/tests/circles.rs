//! No source file may be in a circle of imports with another one of its crate: none of them can be read or moved alone.
//! This reads text and no more. An import is a path that begins with `crate`, `super`, `self` or a module of the file's
//! own, in a `use` or in code. It goes to the file it leads to: a name that `mod.rs` only exports again is imported from
//! `mod.rs`, so files beside it write where it is defined. A line `mod x;` is no import.
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

/// The shortest way from a file back to itself.
fn circle(files: &Files) -> Option<String> {
    let imports = BTreeMap::from_iter(files.keys().map(|file| (file, imports(file, files))));
    let back = |first: &String| {
        let (mut ways, mut seen) = (VecDeque::from([(first, first.clone())]), BTreeSet::new());
        while let Some((last, way)) = ways.pop_front() {
            if last == first && way != *first {
                return Some(way);
            }
            let new = imports[last].iter().filter(|next| seen.insert(**next));
            ways.extend(new.map(|next| (*next, format!("{way} -> {next}"))));
        }
        None
    };
    files.keys().filter_map(back).min_by_key(String::len)
}

/// The other files that a file imports from.
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

/// The code with white space around all but names, without comments and tests.
fn spaced(text: &str) -> String {
    let mut spaced = String::new();
    for (_, code) in sources::code(text) {
        for c in code.chars().chain(['\n']) {
            match c.is_alphanumeric() || c == '_' || c == ':' {
                true => spaced.push(c),
                false => spaced.extend([' ', c, ' ']),
            }
        }
    }
    spaced.replace("::", " :: ")
}

/// Takes a path, or all of a tree as `use` has them: `a::{b, c::{self, d as e}, f::*}`. A word alone is none.
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

/// The module that a file is: `h1::head` of `h1/head.rs`, `h1` of `h1/mod.rs`, and the root has no name.
fn module(file: &str) -> Vec<&str> {
    let mut names: Vec<_> = file.trim_end_matches(".rs").split('/').collect();
    names.retain(|name| !["mod", "lib", "main"].contains(name));
    names
}

/// The file that a path leads to; none, where that is not of this crate.
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
    // What follows the last module on the way is a thing in it.
    (0..=way.len()).rev().find_map(|len| file(&way[..len]))
}
