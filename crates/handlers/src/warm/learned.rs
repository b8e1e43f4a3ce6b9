//! Module names that children reported, in one revision of a program. Hostile code may have written these reports.

use std::collections::{BTreeSet, HashSet};

use galgo_spawn::template::{SearchPath, TemplateKind, module_name};

/// Reports that are accepted for one revision. Each costs the templates a load, and a bad report costs several.
const REPORTS: u32 = 6;
/// Limit of the kept names, in bytes.
const MOST: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Learned {
    /// Names in the order of their reports, one name a line.
    pub(super) names: Vec<u8>,
    /// A fit template has loaded this many bytes of the names. `None` if there was no template yet.
    pub(super) proven: Option<usize>,
    reports: u32,
    /// Names that are never taken again.
    dropped: HashSet<Vec<u8>>,
    /// Names that templates left to their children.
    left: BTreeSet<String>,
    /// The search path that the template without any learned names reported.
    pub(super) search: SearchPath,
}

impl Learned {
    /// Takes the names in a child's `report`. Returns whether there is a new name.
    pub(super) fn take(&mut self, kind: TemplateKind, report: &[u8]) -> bool {
        if report.is_empty() || self.reports >= REPORTS {
            return false;
        }
        let known: HashSet<&[u8]> = self.names.split(|&b| b == b'\n').collect();
        let new = |name: &&[u8]| !known.contains(name) && !self.dropped.contains(*name);
        let new = kind.module_names(report).into_iter().filter(new);
        let room = MOST - self.names.len();
        let mut taken = Vec::new();
        for name in new.take_while(|name| name.len() < room) {
            if taken.len() + name.len() < room {
                taken.extend_from_slice(name);
                taken.push(b'\n');
            }
        }
        self.names.extend_from_slice(&taken);
        self.reports += u32::from(!taken.is_empty());
        !taken.is_empty()
    }

    /// Notes that a template was loaded with the first `count` bytes of the names. Only a template without names sets
    /// the `search` path, because no request has influenced it. Returns the names that were left to children for the
    /// first time.
    pub(super) fn proved(
        &mut self,
        count: usize,
        search: SearchPath,
        left: Vec<String>,
    ) -> Vec<String> {
        if count == 0 {
            self.search = search;
        }
        self.proven = self.proven.max(Some(count));
        let new = |name: &String| self.left.insert(name.clone());
        left.into_iter().filter(new).collect()
    }

    /// Notes that the first `count` bytes did not load, or were not fit. Gives up half of the names that are not known
    /// to be good, the last ones first, and returns these for the log. `None` if no name can be the cause.
    pub(super) fn failed(&mut self, count: usize) -> Option<Vec<String>> {
        let proven = self.proven.unwrap_or(0);
        if count <= proven || self.names.len() <= proven {
            return None;
        }
        let doubtful = self.names.split_off(proven);
        let doubtful: Vec<&[u8]> = doubtful.split_inclusive(|&b| b == b'\n').collect();
        let (kept, gone) = doubtful.split_at(doubtful.len() / 2);
        self.names.extend(kept.concat());
        let gone: Vec<Vec<u8>> = gone
            .iter()
            .map(|line| line[..line.len() - 1].to_vec())
            .collect();
        let said = gone
            .iter()
            .map(|name| String::from_utf8_lossy(module_name(name)).into_owned());
        let said = said.collect();
        self.dropped.extend(gone);
        Some(said)
    }

    /// Returns the names that each child loads for itself.
    pub(super) fn left(&self) -> Vec<String> {
        let dropped = self
            .dropped
            .iter()
            .map(|name| String::from_utf8_lossy(module_name(name)).into_owned());
        let all: BTreeSet<String> = self.left.iter().cloned().chain(dropped).collect();
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(reports: &[&str]) -> Learned {
        let mut learned = Learned::default();
        for report in reports {
            learned.take(TemplateKind::Python, report.as_bytes());
        }
        learned
    }

    #[test]
    fn a_report_holds_names_and_is_bounded() {
        assert_eq!(told(&["os;x\nos\n../y", "os\nre"]).names, b"os\nre\n");
        let mut learned = Learned::default();
        for n in 0..REPORTS {
            assert!(learned.take(TemplateKind::Python, format!("m{n}").as_bytes()));
            assert!(!learned.take(TemplateKind::Python, b"m0\nno name"));
        }
        assert!(!learned.take(TemplateKind::Python, b"more"));
        let long: String = (0..20_000).map(|n| format!("module{n}\n")).collect();
        let learned = told(&[&long, &long]);
        assert!(learned.names.len() <= MOST && learned.names.ends_with(b"\n"));
    }

    /// Halving finds a name that keeps a program from being loaded, and the good names stay.
    #[test]
    fn what_does_not_load_is_given_up() {
        let mut learned = told(&["a\nb\n", "c\nd\ne\nf"]);
        assert_eq!(learned.failed(0), None);
        assert!(learned.proved(4, SearchPath::default(), vec![]).is_empty());
        assert_eq!(learned.failed(4), None, "it is not their fault");
        assert_eq!(learned.failed(12).unwrap(), ["e", "f"]);
        assert_eq!(learned.failed(8).unwrap(), ["d"]);
        assert_eq!(learned.failed(6).unwrap(), ["c"]);
        assert_eq!(learned.failed(4), None);
        assert_eq!(learned.names, b"a\nb\n");
        assert!(
            !learned.take(TemplateKind::Python, b"c\nf"),
            "they are not tried again"
        );
        assert_eq!(learned.left(), ["c", "d", "e", "f"]);
    }

    #[test]
    fn what_is_left_to_children_is_told_once() {
        let mut learned = told(&["a"]);
        let left = || vec!["a".to_owned()];
        assert_eq!(learned.proved(2, SearchPath::default(), left()), ["a"]);
        assert!(learned.proved(2, SearchPath::default(), left()).is_empty());
        assert_eq!(learned.left(), ["a"]);
    }
}
