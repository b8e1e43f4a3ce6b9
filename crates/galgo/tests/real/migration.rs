//! docs/migration/: each pair of configurations, the original on the real server and the translation on galgo. Both get
//! the same requests, and answer alike.

mod known;
mod peers;
mod requests;
mod scene;

use std::path::Path;

use crate::site::root;
use galgo_testkit::wait_until;
use known::KNOWN;
use peers::Peer;
use requests::{Answer, Asked};
use scene::Scene;

/// A page of docs/migration.
struct Page {
    name: &'static str,
    /// How its originals are marked.
    language: &'static str,
    pairs: usize,
    start: fn(&Pair, &Path) -> Peer,
}

const PAGES: [Page; 5] = [
    Page {
        name: "nginx.md",
        language: "nginx",
        pairs: 10,
        start: peers::nginx,
    },
    Page {
        name: "lighttpd.md",
        language: "lighttpd",
        pairs: 10,
        start: peers::lighttpd,
    },
    Page {
        name: "apache.md",
        language: "apache",
        pairs: 10,
        start: peers::apache,
    },
    Page {
        name: "fcgiwrap.md",
        language: "nginx",
        pairs: 5,
        start: peers::nginx,
    },
    Page {
        name: "suexec.md",
        language: "apache",
        pairs: 5,
        start: peers::suexec,
    },
];

/// A section of a page.
struct Pair {
    number: String,
    original: String,
    /// How programs are started that the original names.
    command: Option<String>,
    translation: String,
}

impl Pair {
    /// It needs accounts, and root's rights.
    fn has_users(&self) -> bool {
        self.translation.contains("alice")
    }

    /// There are files at `/`.
    fn has_files(&self) -> bool {
        let by_program = "path = \"/\"\ncgi";
        let has = |words| self.translation.contains(words);
        (has("path = \"/\"") && !has(by_program)) || has("sites = ")
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
                translation: block(section, "toml")?,
            })
        });
        let pairs: Vec<Pair> = pairs.collect();
        assert_eq!(pairs.len(), self.pairs, "{}", self.name);
        pairs
    }

    fn requests(&self, pair: &Pair) -> Vec<Asked> {
        Asked::all(self.name, &pair.number, pair.has_files())
    }

    fn compare(&self) -> Found {
        let mut found = Found::default();
        for pair in self.pairs() {
            if pair.has_users() && !galgo_testkit::is_root() {
                eprintln!("{} {} is left out: it needs root", self.name, pair.number);
                continue;
            }
            let scene = Scene::new(&pair);
            let other = (self.start)(&scene.named(&pair), scene.galgo.site.folder());
            for request in self.requests(&pair) {
                let request = scene.asked(request);
                let mut theirs = Answer::of(other.at, &request);
                let ours = Answer::of(scene.galgo.address(), &request);
                // On a busy machine the daemon by which Apache starts programs comes later than Apache.
                if theirs.is_unavailable() && !ours.is_unavailable() {
                    wait_until("what starts the other server's programs", || {
                        theirs = Answer::of(other.at, &request);
                        !theirs.is_unavailable()
                    });
                }
                for difference in ours.differs(&theirs, &request, self.language) {
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
        }
        found
    }
}

/// How often each known difference was met, and the differences that are not known, a line each.
#[derive(Default)]
struct Found {
    met: Vec<&'static str>,
    unknown: Vec<String>,
}

/// Everything differs that the page says, and nothing else.
#[test]
fn other_servers_and_galgo_answer_alike() {
    let found = std::thread::scope(|threads| {
        let running = PAGES
            .each_ref()
            .map(|page| threads.spawn(|| page.compare()));
        running.map(|thread| thread.join().unwrap())
    });
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
    let asked = |page: &Page| -> usize {
        let pairs = page.pairs();
        pairs.iter().map(|pair| page.requests(pair).len()).sum()
    };
    let asked: usize = PAGES.iter().map(asked).sum();
    assert!(
        page.contains(&format!(" {asked} in all")),
        "the page lacks {asked}"
    );
}
