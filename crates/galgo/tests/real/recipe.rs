//! The blocks that docs/recipes/ tells users to copy. The tests copy them, too.

use std::path::Path;

use crate::site::root;

/// Returns the first block of this language in a recipe, with each name replaced by the test's own value. The block
/// must contain every name.
pub(crate) fn block(recipe: &str, language: &str, names: &[(&str, &dyn AsRef<Path>)]) -> String {
    let mut block = blocks(recipe, language).swap_remove(0);
    for (name, here) in names {
        assert!(block.contains(name), "{recipe}: {name:?} in\n{block}");
        block = block.replace(name, here.as_ref().to_str().unwrap());
    }
    block
}

/// Returns all blocks of this language in a recipe. There must be at least one.
pub(crate) fn blocks(recipe: &str, language: &str) -> Vec<String> {
    let path = root().join("docs/recipes").join(recipe);
    let page = std::fs::read_to_string(path).unwrap();
    let fence = format!("```{language}\n");
    // Closing fences look like opening fences of blocks without a language, so only every other fence counts.
    let all = page.split("\n```").skip(1).step_by(2);
    let all = all.filter_map(|b| format!("```{b}\n").strip_prefix(&fence).map(str::to_owned));
    let found: Vec<_> = all.collect();
    assert!(!found.is_empty(), "{recipe} has no block of {language:?}");
    found
}

/// Every block of every recipe is tried unchanged by the tests of its programs, except blocks that would change the
/// machine.
#[test]
fn every_block_is_known_to_a_test() {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root().join("docs/recipes")).unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let fences = page.lines().filter_map(|l| l.strip_prefix("```"));
        let blocks = fences
            .step_by(2)
            .map(|language| format!("{name} {language}"));
        all.extend(blocks);
    }
    all.sort();
    let mut known = vec![
        "accounts.md sh",
        "accounts.md toml",
        "behind.md apache",
        "behind.md caddy",
        "behind.md haproxy",
        "behind.md haproxy",
        "behind.md lighttpd",
        "behind.md nginx",
        "behind.md nginx",
        "behind.md toml",
        "cgit.md ",
        "cgit.md toml",
        "django.md python",
        "django.md python",
        "django.md toml",
        "flask.md python",
        "git.md sh",
        "git.md toml",
        "gitweb.md perl",
        "gitweb.md toml",
        "https.md ", // `it acme::a_host_on_the_command_line_is_a_public_site`
        "https.md toml",
        "mojolicious.md perl",
        "mojolicious.md toml",
        "perl.md perl",
        "php-fpm.md toml",
        "php-workers.md toml",
        "php.md sh",
        "php.md toml",
        "php.md toml", // `it owners::among_files`
        "service.md ", // makes a user, installs the binary
        "service.md ", // starts the service
        "service.md ini",
        "service.md ini", // the socket: scripts/vm/service
        "service.md toml",
        "service.md toml", // `it upgrade::passed`
        "tilde.md sh",     // `it owners::homes`, except making accounts
        "tilde.md toml",   // `it owners::homes`
    ];
    known.sort_unstable();
    assert_eq!(all, known);
}
