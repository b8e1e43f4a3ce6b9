//! The messages of galgo stand in one file, `messages.txt`, so that a person can read them all: lines of the logs, pages,
//! output of commands, errors. A message is a literal of three or more words in code that is not a test. `{}` stands for the
//! value that the code puts there.
//!
//! `UPDATE_MESSAGES=1 cargo test --workspace --test messages` writes the file anew.
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // other tests use the rest
mod sources;

use std::{env, fmt::Write as _, fs, path::Path};

#[test]
fn all_messages_are_in_one_file() {
    let mut crates = sources::crates();
    crates.remove("testkit").unwrap();
    let mut all = String::new();
    for (name, files) in &crates {
        for (file, text) in files {
            let tests = text.find("\n#[cfg(test)]\nmod tests {");
            let messages = literals(&text[..tests.unwrap_or(text.len())]);
            let messages: Vec<_> = messages.iter().filter(|m| is_message(m)).collect();
            if !messages.is_empty() {
                writeln!(all, "\n{name}/{}", file.trim_end_matches(".rs")).unwrap();
            }
            for message in messages {
                writeln!(all, "    {}", message.trim().replace('\n', "\n    ")).unwrap();
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages.txt");
    if env::var_os("UPDATE_MESSAGES").is_some() {
        fs::write(&file, all.trim_start()).unwrap();
    }
    let known = fs::read_to_string(&file).unwrap();
    let differs = known
        .lines()
        .zip(all.trim_start().lines())
        .find(|(a, b)| a != b);
    assert!(
        known == all.trim_start(),
        "messages.txt is not what the code says, first at {differs:?}: UPDATE_MESSAGES=1 cargo test --workspace --test messages"
    );
}

#[test]
fn literals_are_found_in_code_alone() {
    let text = r##"
        // no "comment"
        let a = '"'; let b = "one \"two\" \
            three"; /* "no" */ let c: &'static str = r#"raw "text""#; let d = b'\''; let e = "four";
        x.expect("no panic"); #[expect(lint, reason = "no reason")]
    "##;
    assert_eq!(
        literals(text),
        ["one \"two\" three", "raw \"text\"", "four"]
    );
}

/// Whether a literal is a sentence, or a part of one.
fn is_message(literal: &str) -> bool {
    let words = literal.split(|c: char| !c.is_alphabetic());
    literal.trim().contains(' ') && words.filter(|word| word.len() > 1).count() >= 3
}

/// Returns the literals of text in `code`, without those that only a programmer sees.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    let mut before = String::new();
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if rest.starts_with("/*") {
            rest = rest.split_once("*/").map_or("", |(_, rest)| rest);
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            let (literal, after) = raw.split_once("\"#").unwrap();
            found.push(literal.to_owned());
            rest = after;
        } else if c == '"' {
            let (literal, after) = quoted(&rest[1..]);
            if !is_for_programmers(&before) {
                found.push(literal);
            }
            rest = after;
            before.clear();
        } else if c == '\'' {
            rest = after_quote(&rest[1..]);
        } else {
            before.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    found
}

/// Whether the code before a literal makes it the text of a panic, or the reason of a lint.
fn is_for_programmers(before: &str) -> bool {
    let before = before.trim_end();
    ["expect(", "reason =", "unreachable!(", "assert!("]
        .iter()
        .any(|end| before.ends_with(end))
}

/// Returns the literal that begins after a quotation mark, and the code after the literal.
fn quoted(text: &str) -> (String, &str) {
    let mut literal = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (literal, &text[at + 1..]),
            '\\' => match chars.next().unwrap().1 {
                '\n' => {
                    let left = chars.as_str();
                    let skipped = left.len() - left.trim_start().len();
                    for _ in 0..left[..skipped].chars().count() {
                        chars.next();
                    }
                }
                'n' => literal.push('\n'),
                escaped @ ('"' | '\\') => literal.push(escaped),
                other => literal.extend(['\\', other]),
            },
            other => literal.push(other),
        }
    }
    panic!("no end of the literal {literal:?}");
}

/// Returns the code after the apostrophe of a lifetime, or after a literal of one character.
fn after_quote(text: &str) -> &str {
    if let Some(escape) = text.strip_prefix('\\') {
        let escaped = escape.chars().next().unwrap().len_utf8();
        return escape[escaped..].split_once('\'').unwrap().1;
    }
    let first = text.chars().next().unwrap().len_utf8();
    text[first..].strip_prefix('\'').unwrap_or(text)
}
