//! No source file has more than 500 lines beside its tests: one that grows further holds more than one thing. Clippy holds
//! functions to 60 (clippy.toml).
#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // what other tests read
mod sources;

const MOST: usize = 500;

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let mut long = Vec::new();
    for (name, files) in sources::crates() {
        for (file, text) in files {
            let tests = text.find("\n#[cfg(test)]\nmod tests");
            let lines = text[..tests.unwrap_or(text.len())].lines().count();
            if lines > MOST {
                long.push(format!("crates/{name}/src/{file}: {lines}"));
            }
        }
    }
    assert!(
        long.is_empty(),
        "longer than {MOST} lines:\n{}",
        long.join("\n")
    );
}
