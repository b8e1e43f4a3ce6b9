//! The pages' tables of directives: they name the pairs that run each directive.

use super::{PAGES, Page, is_ours};
use crate::site::root;

/// A directive of a table.
struct Row {
    /// Code words in the first column, an entry for each.
    directives: Vec<String>,
    /// Numbers of the pairs in the last column.
    pairs: Vec<String>,
}

/// First lines of the tables of directives.
const TABLES: [&str; 5] = [
    "| nginx | galgo | pair |",
    "| lighttpd | galgo | pair |",
    "| Apache | galgo | pair |",
    "| fcgiwrap | galgo | pair |",
    "| suexec | galgo | pair |",
];

fn rows(page: &Page) -> Vec<Row> {
    let path = root().join("docs/migration").join(page.name);
    let text = std::fs::read_to_string(path).unwrap();
    let begins = |line: &&str| TABLES.contains(line);
    let mut lines = text.lines().skip_while(|line| !begins(line));
    assert!(lines.next().is_some(), "{} has no table", page.name);
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|line| row(page, line)).collect()
}

fn row(page: &Page, line: &str) -> Row {
    let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [directives, _, pairs] = cells[..] else {
        panic!("{}: not three columns: {line}", page.name);
    };
    let code = directives.split('`').skip(1).step_by(2);
    let numbers: Vec<_> = match pairs {
        "" => Vec::new(),
        "all" => (1..=page.pairs).map(|n| n.to_string()).collect(),
        some => some.split(", ").map(String::from).collect(),
    };
    Row {
        directives: code.map(String::from).collect(),
        pairs: numbers,
    }
}

/// Whether suexec was built with this setting, so that no configuration names it.
fn is_built_in(directive: &str) -> bool {
    directive.starts_with("AP_") || directive.starts_with("/etc/")
}

/// Whether a configuration contains the directive: all its words, with the first as a separate word.
fn has(configuration: &str, directive: &str) -> bool {
    let mut words = directive
        .split_whitespace()
        .map(|word| word.trim_end_matches(['…', '*']))
        .filter(|word| !word.is_empty());
    let is_inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let first = words.next().expect("a directive has words");
    let stands_alone = |at: usize| {
        let before = configuration[..at].chars().next_back();
        let after = configuration[at + first.len()..].chars().next();
        let goes_on = first.ends_with(is_inside) && !directive.contains(&format!("{first}*"));
        !(before.is_some_and(is_inside) || goes_on && after.is_some_and(is_inside))
    };
    let mut places = configuration.match_indices(first);
    places.any(|(at, _)| stands_alone(at)) && words.all(|word| configuration.contains(word))
}

/// Each row names existing pairs. Each of these pairs runs a directive of the row, and each directive of the row is
/// run by a pair.
#[test]
fn rows_name_the_pairs_that_run_them() {
    let mut wrong = Vec::new();
    for page in &PAGES {
        let pairs = page.pairs();
        let configuration = |number: &String| {
            let pair = pairs.iter().find(|pair| pair.number == *number)?;
            let command = pair.command.as_deref().unwrap_or(&pair.units);
            let files = pair.files.iter().filter(|(name, _)| !is_ours(name));
            let files: String = files.map(|(_, text)| &**text).collect();
            Some(format!("{command}\n{}\n{files}", pair.original))
        };
        for row in rows(page) {
            let named: Vec<_> = row.pairs.iter().map(|n| (n, configuration(n))).collect();
            let written = row.directives.iter().filter(|name| !is_built_in(name));
            let written: Vec<_> = written.collect();
            for (number, text) in &named {
                let runs = |text: &String| written.iter().any(|name| has(text, name));
                let is_right = text.as_ref().is_some_and(|t| written.is_empty() || runs(t));
                if !is_right {
                    let names = &row.directives;
                    wrong.push(format!(
                        "{}: pair {number} has none of {names:?}",
                        page.name
                    ));
                }
            }
            let texts: Vec<_> = named.iter().filter_map(|(_, text)| text.as_ref()).collect();
            let lacks = |name: &&&String| !texts.iter().any(|text| has(text, name));
            let lacking = written.iter().filter(lacks);
            wrong.extend(lacking.map(|name| format!("{}: no pair runs {name}", page.name)));
            if row.directives.is_empty() && row.pairs.is_empty() {
                wrong.push(format!(
                    "{}: a row has neither directive nor pair",
                    page.name
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Pairs with units of systemd need a machine that boots. A scene of `make vm` runs them.
#[test]
fn pairs_with_units_are_booted() {
    let with_units = PAGES.iter().flat_map(|page| {
        let pairs = page.pairs().into_iter();
        let booted = pairs.filter(|pair| !pair.units.is_empty());
        booted.map(|pair| (page.name, pair.number))
    });
    let text = |name| std::fs::read_to_string(root().join(name)).unwrap();
    let scene = text("scripts/vm/fcgiwrap");
    let numbers = scene.split("\npairs='").nth(1).expect("the pairs of it");
    let numbers = numbers.split('\'').next().unwrap().split(' ');
    let booted = numbers.map(|number| ("fcgiwrap.md", number.to_owned()));
    assert!(with_units.eq(booted));
    assert!(text("Makefile").contains("target/debug/galgo fcgiwrap "));
}
