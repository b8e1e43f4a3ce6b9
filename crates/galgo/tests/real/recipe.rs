//! What docs/recipes/ tells people to copy: the tests copy it too.

use std::path::Path;

use crate::site::root;

/// The first block of this language in a recipe, with each name replaced by what the test has in its
/// place. Every name must be there.
pub(crate) fn block(recipe: &str, language: &str, names: &[(&str, &dyn AsRef<Path>)]) -> String {
    let path = root().join("docs/recipes").join(recipe);
    let page = std::fs::read_to_string(path).unwrap();
    let fence = format!("```{language}\n");
    // Closing fences look like the opening ones of blocks without a language: every other one.
    let mut blocks = page.split("\n```").skip(1).step_by(2);
    let found = blocks.find_map(|b| format!("```{b}\n").strip_prefix(&fence).map(str::to_owned));
    let mut block = found.unwrap_or_else(|| panic!("{recipe} has no block of {language:?}"));
    for (name, here) in names {
        assert!(block.contains(name), "{recipe}: {name:?} in\n{block}");
        block = block.replace(name, here.as_ref().to_str().unwrap());
    }
    block
}
