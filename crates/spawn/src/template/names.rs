//! Recognizes names of modules, in each language.
//!
//! A child that reports its modules has served a request: hostile code may have written every byte of the report. Lines that
//! are no names are dropped here, before anything else is done with them.

use crate::template_kind::TemplateKind;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

/// The longest path and the longest other name, bytes (PATH_MAX, NAME_MAX).
const PATH_LONGEST: usize = 4095;
const NAME_LONGEST: usize = 255;

impl TemplateKind {
    /// Returns the lines of a child's report that are names of modules, each once, in their order.
    pub fn module_names(self, report: &[u8]) -> Vec<&[u8]> {
        let mut seen = std::collections::HashSet::new();
        report
            .split(|&b| b == b'\n')
            .filter(|line| self.is_module_name(line) && seen.insert(*line))
            .collect()
    }

    fn is_module_name(self, line: &[u8]) -> bool {
        match self {
            Self::Elf => false,
            Self::Python => is_python_name(module_name(line)) && has_valid_file(line),
            Self::Perl => is_perl_name(module_name(line)) && has_valid_file(line),
            Self::Ruby => is_plain_path(line, &[b".rb", b".so"]),
            Self::Node => is_word_path(line) || is_package_file(line),
            Self::Php => is_php_script(line),
        }
    }
}

/// Returns the name of a module from a line `name` or `name\tfile`, without the file that was loaded.
pub fn module_name(line: &[u8]) -> &[u8] {
    line.split(|&b| b == b'\t').next().unwrap_or_default()
}

/// Returns the file that the child claims to have loaded under the name.
pub(super) fn module_file(line: &[u8]) -> Option<&Path> {
    let tab = line.iter().position(|&b| b == b'\t')?;
    Some(Path::new(OsStr::from_bytes(&line[tab + 1..])))
}

/// Accepts a line with no file or an absolute path. The path is only compared, and never opened.
fn has_valid_file(line: &[u8]) -> bool {
    module_file(line).is_none_or(|file| {
        let bytes = file.as_os_str().as_bytes();
        bytes.len() <= PATH_LONGEST && file.is_absolute() && !bytes.iter().any(u8::is_ascii_control)
    })
}

/// Accepts words with dots between them. A hyphen is not part of an identifier, but occurs in a module name of Python's own
/// (`_sysconfigdata__x86_64-linux-gnu`). `__main__` is the script, or runs a package.
fn is_python_name(name: &[u8]) -> bool {
    let part = |part: &[u8]| {
        is_word(part, b"_-") && part[0] != b'-' && !part[0].is_ascii_digit() && part != b"__main__"
    };
    name.len() <= NAME_LONGEST && name.split(|&b| b == b'.').all(part)
}

/// Accepts names as in `%INC`: `File/Temp.pm`.
fn is_perl_name(name: &[u8]) -> bool {
    name.len() <= NAME_LONGEST && name.strip_suffix(b".pm").is_some_and(is_word_path)
}

/// Accepts names like those in Node itself: `fs`, `fs/promises`.
fn is_word_path(name: &[u8]) -> bool {
    name.len() <= NAME_LONGEST && name.split(|&b| b == b'/').all(|part| is_word(part, b"_"))
}

fn is_package_file(name: &[u8]) -> bool {
    const ENDINGS: [&[u8]; 5] = [b".js", b".cjs", b".mjs", b".json", b".node"];
    let mut parts = name.split(|&b| b == b'/');
    is_plain_path(name, &ENDINGS) && parts.any(|part| part == b"node_modules")
}

/// Accepts a script with any extension. Another part of PHP opens archives (`.phar`), and would read more than this file.
fn is_php_script(name: &[u8]) -> bool {
    is_plain_path(name, &[b""])
        && !name
            .windows(5)
            .any(|part| part.eq_ignore_ascii_case(b".phar"))
}

/// Accepts an absolute path in its shortest form.
fn is_plain_path(name: &[u8], endings: &[&[u8]]) -> bool {
    let Some(rest) = name.strip_prefix(b"/") else {
        return false;
    };
    let control = |c: char| c.is_control();
    name.len() <= PATH_LONGEST
        && endings.iter().any(|end| name.ends_with(end))
        && str::from_utf8(name).is_ok_and(|text| !text.contains(control))
        && rest
            .split(|&b| b == b'/')
            .all(|part| !matches!(part, b"" | b"." | b".."))
}

fn is_word(part: &[u8], more: &[u8]) -> bool {
    !part.is_empty()
        && part
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || more.contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of the columns below: Python, Perl, Ruby, Node.
    const KINDS: [TemplateKind; 4] = [
        TemplateKind::Python,
        TemplateKind::Perl,
        TemplateKind::Ruby,
        TemplateKind::Node,
    ];

    #[test]
    fn a_name_is_taken_in_its_own_language_only() {
        let rows: &[(&str, [bool; 4])] = &[
            ("os", [true, false, false, true]),
            ("os.path", [true, false, false, false]),
            (
                "_sysconfigdata__x86_64-linux-gnu",
                [true, false, false, false],
            ),
            ("File/Temp.pm", [false, true, false, false]),
            ("fs/promises", [false, false, false, true]),
            ("/usr/lib/ruby/3.1.0/json.rb", [false, false, true, false]),
            ("/usr/lib/caf\u{e9}/a b.so", [false, false, true, false]),
            (
                "/srv/node_modules/@a/b/index.js",
                [false, false, false, true],
            ),
            (
                "/srv/node_modules/b/build/b.node",
                [false, false, false, true],
            ),
            // These are not names.
            ("", [false; 4]),
            ("a;b", [false; 4]),
            ("a b", [false; 4]),
            ("os;exec(bytes.fromhex('00').decode())", [false; 4]),
            ("os\rsys", [false; 4]),
            ("os.__main__", [false; 4]),
            ("__main__", [false, false, false, true]),
            ("-c", [false; 4]),
            ("3to2", [false, false, false, true]),
            (".os", [false; 4]),
            ("os.", [false; 4]),
            ("os..path", [false; 4]),
            ("caf\u{e9}", [false; 4]),
            ("/tmp/x.pm", [false; 4]),
            ("../x", [false; 4]),
            ("../x.pm", [false; 4]),
            ("a/../x.pm", [false; 4]),
            ("A//B.pm", [false; 4]),
            (".pm", [false; 4]),
            ("A.pl", [true, false, false, false]),
            ("A/B.pm ", [false; 4]),
            ("/tmp/x", [false; 4]),
            ("tmp/x.rb", [false; 4]),
            ("/usr/../tmp/x.rb", [false; 4]),
            ("/usr//x.rb", [false; 4]),
            ("/usr/./x.rb", [false; 4]),
            ("/usr/a\u{85}b.rb", [false; 4]),
            ("/tmp/x.js", [false; 4]),
            ("/tmp/node_modules.js", [false; 4]),
            ("/srv/node_modules/../x.js", [false; 4]),
            ("./fs", [false; 4]),
            ("node:fs", [false; 4]),
        ];
        for (name, expected) in rows {
            let taken = KINDS.map(|kind| kind.module_names(name.as_bytes()) == [name.as_bytes()]);
            assert_eq!(taken, *expected, "{name:?}");
        }
    }

    #[test]
    fn what_is_no_text_is_no_name() {
        for kind in KINDS {
            assert!(
                kind.module_names(b"os\0\nA.pm\0\n/a/node_modules/b\0.js\n/a\0.rb")
                    .is_empty()
            );
            assert!(
                kind.module_names(b"\xff\n\xff.pm\n/\xff/node_modules/a.js\n/\xff.rb")
                    .is_empty()
            );
            assert!(kind.module_names(&[b'a'; 64 << 10]).is_empty());
            // Noise, the same each time.
            let mut state = 1u64;
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            })
            .take(64 << 10)
            .collect();
            // A line with one or two letters is a word in some languages, even in noise.
            let names = kind.module_names(&noise);
            assert!(names.iter().all(|name| name.len() < 8), "{names:?}");
        }
    }

    #[test]
    fn a_script_of_php_is_a_path() {
        let taken = [
            "/srv/www/index.php",
            "/srv/caf\u{e9}/a b.inc",
            "/etc/settings",
        ];
        let dropped = [
            "",
            "/",
            "index.php",
            "/srv//x.php",
            "/srv/../x.php",
            "/srv/./x.php",
            "/srv/a\tb.php",
            "/srv/app.phar",
            "/srv/app.PHAR/x.php",
            "phar:///srv/app/x.php",
            "http://localhost/x.php",
            "data:text/plain,<?php",
        ];
        for name in taken {
            assert_eq!(
                TemplateKind::Php.module_names(name.as_bytes()),
                [name.as_bytes()]
            );
        }
        for name in dropped {
            assert!(
                TemplateKind::Php.module_names(name.as_bytes()).is_empty(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_name_counts_once() {
        assert_eq!(
            TemplateKind::Perl.module_names(b"B.pm\nA.pm\nB.pm\n"),
            [b"B.pm", b"A.pm"]
        );
    }

    #[test]
    fn linked_programs_tell_nothing() {
        assert!(
            TemplateKind::Elf
                .module_names(b"os\nA.pm\n/a.rb")
                .is_empty()
        );
    }
}
