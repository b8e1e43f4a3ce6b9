//! Tests docs/migration/: each pair of configurations is an original for the real server and its translation for galgo.
//! Both servers get the same requests and must answer alike.

mod answer;
mod known;
mod log;
mod paths;
mod peers;
mod programs;
mod requests;
mod scene;
mod side;
mod tables;
mod upgraded;

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::site::root;
use galgo_testkit::wait_until;
use known::KNOWN;
use peers::Peer;
use requests::Asked;
use scene::Scene;
use side::Side;

/// A page of docs/migration.
struct Page {
    name: &'static str,
    /// Language that marks the code blocks of the originals.
    language: &'static str,
    pairs: usize,
    start: fn(&Pair, &Path) -> Peer,
}

static PAGES: [Page; 5] = [
    Page {
        name: "nginx.md",
        language: "nginx",
        pairs: 18,
        start: peers::nginx,
    },
    Page {
        name: "lighttpd.md",
        language: "lighttpd",
        pairs: 26,
        start: peers::lighttpd,
    },
    Page {
        name: "apache.md",
        language: "apache",
        pairs: 22,
        start: peers::apache,
    },
    Page {
        name: "fcgiwrap.md",
        language: "nginx",
        pairs: 9,
        start: peers::nginx,
    },
    Page {
        name: "suexec.md",
        language: "apache",
        pairs: 7,
        start: peers::suexec,
    },
];

/// A section of a page.
struct Pair {
    number: String,
    original: String,
    /// Command that starts the programs that the original names.
    command: Option<String>,
    /// Units of systemd that start these programs.
    units: String,
    translation: String,
    /// Other files that the original or the translation includes, by their names in the site.
    files: Vec<(String, String)>,
}

impl Pair {
    /// Whether the pair needs accounts, and therefore root's rights.
    fn has_users(&self) -> bool {
        self.translation.contains("alice")
    }

    /// Whether both servers speak TLS.
    fn is_secure(&self) -> bool {
        self.translation.contains("listen = [\"https://")
    }

    /// Whether connections begin with a header of the PROXY protocol.
    fn is_proxied(&self) -> bool {
        self.translation.contains("\"proxy+")
    }

    /// Whether the original, or a file that it includes, contains the word.
    fn says(&self, word: &str) -> bool {
        let originals = self.files.iter().filter(|(name, _)| !is_ours(name));
        let mut texts = originals.map(|(_, text)| text).chain([&self.original]);
        texts.any(|text| text.contains(word))
    }

    /// Whether there are files at `/`.
    fn has_files(&self) -> bool {
        let by_program = "path = \"/\"\ncgi";
        let has = |words| self.translation.contains(words);
        (has("path = \"/\"") && !has(by_program)) || has("sites = ") || has("include = ")
    }
}

impl Page {
    fn pairs(&self) -> Vec<Pair> {
        let path = root().join("docs/migration").join(self.name);
        let text = std::fs::read_to_string(path).unwrap();
        let block = |section: &str, language: &str| {
            let (_, rest) = section.split_once(&format!("```{language}\n"))?;
            Some(rest.split("```").next()?.to_owned())
        };
        let sections = text.split("\n## ").skip(1);
        let pairs = sections.filter_map(|section| {
            Some(Pair {
                number: section.split('.').next()?.to_owned(),
                original: block(section, self.language)?,
                command: block(section, "sh"),
                units: units(section),
                translation: block(section, "toml")?,
                files: included(section),
            })
        });
        let pairs: Vec<Pair> = pairs.collect();
        assert_eq!(pairs.len(), self.pairs, "{}", self.name);
        pairs
    }

    /// Returns the pairs that are compared here. Pairs with units need a machine that boots.
    fn compared(&self) -> Vec<Pair> {
        let mut pairs = self.pairs();
        pairs.retain(|pair| pair.units.is_empty());
        pairs
    }

    fn requests(&self, pair: &Pair) -> Vec<Asked> {
        Asked::all(self.name, &pair.number, pair.has_files())
    }

    /// Returns the number of requests for all pairs of the page.
    fn asked(&self) -> usize {
        let pairs = self.compared();
        pairs.iter().map(|pair| self.requests(pair).len()).sum()
    }

    fn compare(&self, pair: &Pair) -> Found {
        let mut found = Found::default();
        let scene = Scene::new(pair);
        let other = (self.start)(&scene.named(pair), scene.galgo.site.folder());
        let [mut theirs, mut ours] =
            [other.at, scene.galgo.address()].map(|at| Side::new(at, pair));
        for request in self.requests(pair) {
            let request = scene.asked(request);
            let mut answer = theirs.ask(&request);
            let own = ours.ask(&request);
            // On a busy machine, the daemon through which Apache starts programs is ready later than Apache.
            if answer.is_unavailable() && !own.is_unavailable() {
                wait_until("what starts the other server's programs", || {
                    answer = theirs.ask(&request);
                    !answer.is_unavailable()
                });
            }
            for difference in own.differs(&answer, &request, (self, pair)) {
                match KNOWN.iter().find(|(_, is)| is(&request, &difference)) {
                    Some((name, _)) => found.met.push(name),
                    None => {
                        let (page, number) = (self.name, &pair.number);
                        let line = format!("{page} {number}: {request}: {difference}");
                        found.unknown.push(line);
                    }
                }
            }
        }
        if pair.says("CustomLog") {
            log::is_whole(&scene, &self.requests(pair));
        }
        found
    }
}

/// Returns the units of a section that start the other server.
fn units(section: &str) -> String {
    let blocks = section.split("```").skip(1).step_by(2);
    let units = blocks.filter_map(|block| block.strip_prefix("ini\n"));
    units
        .filter(|text| !text.contains("/galgo.service"))
        .collect()
}

/// Returns the blocks of a section that are files of their own.
fn included(section: &str) -> Vec<(String, String)> {
    let blocks = section.split("```").skip(1).step_by(2);
    let file = |block: &str| {
        let (_, text) = block.split_once('\n')?;
        let (name, text) = text.strip_prefix("# /srv/site/")?.split_once('\n')?;
        Some((name.to_owned(), text.to_owned()))
    };
    blocks.filter_map(file).collect()
}

/// Whether galgo reads the file, rather than the other server.
fn is_ours(name: &str) -> bool {
    name.ends_with(".toml")
}

/// The known differences that occurred, and the unknown differences, a line each.
#[derive(Default)]
struct Found {
    met: Vec<&'static str>,
    unknown: Vec<String>,
}

/// Number of pairs that run at once. Many of their requests wait for a program, or for the delay after a wrong
/// password.
const AT_ONCE: usize = 6;

/// Compares all pairs that can be compared here.
fn compare_all() -> Vec<Found> {
    let pairs = PAGES
        .iter()
        .flat_map(|page| page.compared().into_iter().map(move |pair| (page, pair)));
    let jobs: Vec<_> = pairs
        .filter(|(page, pair)| {
            let runs = !pair.has_users() || galgo_testkit::is_root();
            if !runs {
                eprintln!("{} {} is left out: it needs root", page.name, pair.number);
            }
            runs
        })
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let job = || jobs.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(job)
            .map(|(page, pair)| page.compare(pair))
            .collect::<Vec<_>>()
    };
    std::thread::scope(|threads| {
        let running = [(); AT_ONCE].map(|()| threads.spawn(work));
        running
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// The servers differ in everything that the page lists, and in nothing else.
#[test]
fn other_servers_and_galgo_answer_alike() {
    let found = compare_all();
    let unknown: Vec<_> = found.iter().flat_map(|found| &found.unknown).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    let page = std::fs::read_to_string(root().join("docs/migration/README.md")).unwrap();
    for (name, _) in KNOWN {
        assert!(
            page.contains(&format!("\n| {name} |")),
            "the page lacks {name:?}"
        );
        let met = found.iter().any(|found| found.met.contains(&name));
        let left_out = name == known::REFUSED && !galgo_testkit::is_root();
        assert!(met || left_out, "{name:?} is no difference any more");
    }
    let asked: usize = PAGES.iter().map(Page::asked).sum();
    let said = format!("more than {},000 in all", asked / 1000);
    assert!(page.contains(&said), "the page lacks {said:?}: {asked}");
}

/// Minimum number of different requests for each pair.
const LEAST: usize = 300;

#[test]
fn each_pair_is_asked_300_different_requests() {
    let asked = |page: &'static Page| {
        let pairs = page.compared().into_iter();
        pairs.map(|pair| (page.name, page.requests(&pair).len(), pair.number))
    };
    let few: Vec<_> = PAGES
        .iter()
        .flat_map(asked)
        .filter(|(_, n, _)| *n < LEAST)
        .collect();
    assert!(few.is_empty(), "{few:?}");
}
