//! Patterns for the names of files: `*.cgi`.

/// A pattern for one name: `*` stands for any bytes, every other byte for itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glob(String);

impl Glob {
    /// Reads a pattern; `None`: it cannot be the name of a file.
    pub fn parse(text: &str) -> Option<Self> {
        let none = text.is_empty() || text.starts_with('.') || text.contains(['/', '\0']);
        (!none).then(|| Self(text.to_owned()))
    }

    /// Returns the pattern as it was typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the pattern fits a name. Takes at most as many steps as the pattern has stars, each over
    /// the whole name.
    pub fn matches_name(&self, name: &[u8]) -> bool {
        self.matches_by(name, |a, b| a == b)
    }

    /// Returns whether the pattern fits a name in any letter case.
    pub fn matches_any_case(&self, name: &[u8]) -> bool {
        self.matches_by(name, |a, b| a.eq_ignore_ascii_case(b))
    }

    fn matches_by(&self, mut name: &[u8], same: impl Fn(&[u8], &[u8]) -> bool) -> bool {
        let mut parts = self.0.as_bytes().split(|&b| b == b'*');
        let first = parts.next().unwrap_or_default();
        match name.split_at_checked(first.len()) {
            Some((start, rest)) if same(start, first) => name = rest,
            _ => return false,
        }
        let Some(last) = parts.next_back() else {
            return name.is_empty();
        };
        for part in parts {
            let mut at = 0..name.len().saturating_sub(part.len()) + 1;
            let found = at.find(|&at| {
                let piece = name.get(at..at + part.len());
                piece.is_some_and(|piece| same(piece, part))
            });
            match found {
                Some(at) => name = &name[at + part.len()..],
                None => return false,
            }
        }
        let end = name.len().checked_sub(last.len());
        end.is_some_and(|end| same(&name[end..], last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (pattern, name, fits) in [
            ("*.cgi", "a.cgi", true),
            ("*.cgi", ".cgi", true),
            ("*.cgi", "a.cgi~", false),
            ("*.cgi", "a.CGI", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("index.*", "index.pl", true),
            ("index.*", "index", false),
            ("run", "run", true),
            ("run", "runs", false),
            ("*aa*aa", "aaa", false),
            ("*ab*", "aab", true),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!(glob.matches_name(name.as_bytes()), fits, "{pattern} {name}");
        }
        assert!(Glob::parse("*.cgi").unwrap().matches_any_case(b"A.CGI"));
        for wrong in ["", "a/b", ".x", "\0"] {
            assert_eq!(Glob::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn stars_cost_little() {
        let glob = Glob::parse(&format!("{}b", "a*".repeat(100))).unwrap();
        assert!(!glob.matches_name("a".repeat(10_000).as_bytes()));
    }
}
