//! The hosts that a rule of the configuration is for.

/// Hosts as the configuration names them: at least one, each in lower case, without a port and without the dot of the DNS root.
/// `*.example.org` stands for every host below `example.org`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// The closest fit: the host is named itself.
    pub const EXACT: usize = usize::MAX;

    /// Makes the list of these hosts, which must be clean; `None`: the list is empty.
    pub fn new(names: Vec<String>) -> Option<Self> {
        (!names.is_empty()).then_some(Self(names))
    }

    /// Returns the first name, as it is typed.
    pub fn first_name(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Returns all names, as they are typed.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns an example of a host that fits the first name.
    pub fn example(&self) -> String {
        self.first_name().replacen('*', "www", 1)
    }

    /// Returns whether a name is a wildcard.
    pub fn has_wildcard(&self) -> bool {
        self.names().any(|name| name.starts_with('*'))
    }

    /// Returns how closely a name fits `host`, without a port: [`Hosts::EXACT`], or the length of the domain above the host.
    /// `None`: no name fits.
    pub fn match_closeness(&self, host: &str) -> Option<usize> {
        self.names()
            .filter_map(|name| name_closeness(name, host))
            .max()
    }
}

/// Returns whether a host may be the name of a folder. It must consist of labels of lower case letters, digits and inner
/// hyphens (RFC 1123, 2.1), as in the DNS. Other letters come as A-labels (RFC 5890, 2.3.2.1). Neither a dot nor a slash can
/// turn such a name into a path.
pub fn is_folder_name(host: &str) -> bool {
    /// Longest label and host (RFC 1035, 2.3.4).
    const LABEL: usize = 63;
    const HOST: usize = 253;
    let label = |label: &str| {
        let sound = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        (1..=LABEL).contains(&label.len())
            && label.bytes().all(sound)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= HOST && host.split('.').all(label)
}

fn name_closeness(name: &str, host: &str) -> Option<usize> {
    let Some(domain) = name.strip_prefix('*') else {
        return name.eq_ignore_ascii_case(host).then_some(Hosts::EXACT);
    };
    // The dot must follow a name.
    let at = host.len().checked_sub(domain.len()).filter(|&at| at > 0)?;
    let end = host.get(at..)?;
    end.eq_ignore_ascii_case(domain).then_some(domain.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders() {
        for host in [
            "example.org",
            "localhost",
            "xn--bcher-kva.example",
            "127.0.0.1",
            "a-b.c1",
        ] {
            assert!(is_folder_name(host), "{host}");
        }
        let long = format!("{}.org", "a".repeat(64));
        let longer = ["a"; 128].join(".");
        for host in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.",
            "../a",
            "a/b",
            "a\\b",
            "/a",
            "A.org",
            "a_b",
            "b\u{fc}cher.example",
            "-a.org",
            "a-.org",
            "[::1]",
            "a:80",
            "a\0",
            "a b",
            "~a",
            "%2e%2e",
            "*",
            &long,
            &longer,
        ] {
            assert!(!is_folder_name(host), "{host}");
        }
        assert!(is_folder_name(&["a"; 127].join(".")) && is_folder_name(&"a".repeat(63)));
    }

    #[test]
    fn closest_name() {
        let names = ["example.org", "*.example.org", "*.b.example.org"];
        let hosts = Hosts::new(names.map(str::to_owned).to_vec()).unwrap();
        for (host, fit) in [
            ("example.org", Some(Hosts::EXACT)),
            ("EXAMPLE.org", Some(Hosts::EXACT)),
            ("a.example.org", Some(12)),
            ("a.b.Example.org", Some(14)),
            ("b.example.org", Some(12)),
            (".example.org", None),
            ("badexample.org", None),
            ("example.org.evil", None),
            ("ä.org", None),
            ("", None),
        ] {
            assert_eq!(hosts.match_closeness(host), fit, "{host}");
        }
        assert_eq!(hosts.example(), "example.org");
        assert!(Hosts::new(Vec::new()).is_none());
    }
}
