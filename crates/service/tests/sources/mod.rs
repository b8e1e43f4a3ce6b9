//! Reads the source files of all crates for tests.

use std::{collections::BTreeMap, fs, path::Path};

/// Texts of the files of a crate, by their names in `src`.
pub(crate) type Files = BTreeMap<String, String>;

/// Returns the files of each crate that has a folder `src`, by the name of the crate's folder.
pub(crate) fn crates() -> BTreeMap<String, Files> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(&crates).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let source = crates.join(&name).join("src");
        if source.is_dir() {
            read(&source, "", all.entry(name).or_default());
        }
    }
    all
}

/// Reads the files of a folder and of its subfolders, except tests.
fn read(folder: &Path, within: &str, files: &mut Files) {
    for path in fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = format!("{within}{}", path.file_name().unwrap().display());
        if path.is_dir() && !path.ends_with("tests") {
            read(&path, &format!("{name}/"), files);
        } else if name.ends_with(".rs") && !path.ends_with("tests.rs") {
            files.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}

/// Returns the lines of code with their numbers, without comments and the module of tests.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_tests = false;
    let mut attribute = false;
    let code = (1..).zip(text.lines()).filter(move |(_, line)| {
        let begins = attribute && line.starts_with("mod tests {");
        attribute = *line == "#[cfg(test)]";
        let was_in_tests = in_tests || begins;
        in_tests = was_in_tests && *line != "}";
        !was_in_tests
    });
    code.map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
}
