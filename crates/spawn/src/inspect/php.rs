//! Finds calls in a PHP script that share memory with other requests.

use super::format::read_beginning;
use std::{path::Path, str};

/// Bytes of a script that are read.
const MOST: u64 = 1 << 20;

const OF_SYSTEM: &str = "shares that memory with other requests, warm as cold";
const CALLS: [(&str, &str); 3] = [
    (
        "apcu_",
        "starts cold if apc.enabled is on, and keeps nothing for the next request",
    ),
    ("shmop_open", OF_SYSTEM),
    ("shm_attach", OF_SYSTEM),
];

/// Returns which function the script at `path` calls to share memory between requests, and the effect, in words to follow the
/// script's name. `None`: it calls no such function. A name in a comment counts, too.
pub fn shares_memory(path: &Path) -> Option<String> {
    find_sharing_call(&read_beginning(path, MOST).ok()?)
}

fn find_sharing_call(script: &[u8]) -> Option<String> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    // PHP ignores the case of function names.
    let mut words = script
        .split(|&b| !is_word(b))
        .filter_map(|word| str::from_utf8(word).ok().map(str::to_ascii_lowercase));
    words.find_map(|word| {
        let meant = |name: &str| word == name || (name.ends_with('_') && word.starts_with(name));
        let (_, says) = CALLS.iter().find(|(name, _)| meant(name))?;
        Some(format!("calls {word}: it {says}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_whole_names() {
        let apcu = "starts cold if apc.enabled is on, and keeps nothing for the next request";
        let rows = [
            (
                "<?php $x = \\APCU_fetch('x');",
                format!("calls apcu_fetch: it {apcu}"),
            ),
            (
                "<?php shm_attach(1);",
                format!("calls shm_attach: it {OF_SYSTEM}"),
            ),
            (
                "<?php f(shmop_open(1, 'a', 0, 0));",
                format!("calls shmop_open: it {OF_SYSTEM}"),
            ),
            (
                "<?php my_apcu_fetch(1); shm_attach2(); shmop_opened();",
                String::new(),
            ),
            ("<?php echo 'apcu';", String::new()),
        ];
        for (script, says) in rows {
            assert_eq!(
                find_sharing_call(script.as_bytes()).unwrap_or_default(),
                says,
                "{script}"
            );
        }
    }
}
