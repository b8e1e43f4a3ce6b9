//! docs/migration/: each pair of configurations, the original on the real server and the translation on galgo. Both get
//! the same requests, and answer alike.

mod known;
mod peers;
mod requests;
mod scene;

use std::path::Path;

use crate::site::root;
use known::KNOWN;
use peers::Peer;
use requests::{Answer, Asked};

/// The pairs of a page: the number and title, the original, the translation.
fn pairs(page: &str, language: &str) -> Vec<(String, String, String)> {
    let path = root().join("docs/migration").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let block = |section: &str, language: &str| {
        let (_, rest) = section.split_once(&format!("```{language}\n"))?;
        Some(rest.split("```").next()?.to_owned())
    };
    let sections = text.split("\n## ").skip(1);
    let pairs = sections.filter_map(|section| {
        let title = section.lines().next()?.to_owned();
        Some((title, block(section, language)?, block(section, "toml")?))
    });
    pairs.collect()
}

/// How often each known difference was met, and the differences that are not known, a line each.
#[derive(Default)]
struct Found {
    asked: usize,
    met: Vec<&'static str>,
    unknown: Vec<String>,
}

type Start = fn(&str, &Path) -> Peer;

fn compare(page: &str, peer: &'static str, start: Start, found: &mut Found) {
    let pairs = pairs(page, peer);
    assert_eq!(pairs.len(), 10, "{page}");
    for (title, original, translation) in pairs {
        let number = title.split('.').next().unwrap();
        let galgo = scene::galgo(&translation);
        let other = start(&original, galgo.site.folder());
        let has_files = translation.contains("path = \"/\"") || translation.contains("sites = ");
        for request in Asked::all(page, number, has_files) {
            found.asked += 1;
            let theirs = Answer::of(other.at, &request);
            let ours = Answer::of(galgo.address(), &request);
            for difference in ours.differs(&theirs, &request, peer) {
                match KNOWN.iter().find(|(_, is)| is(&request, &difference)) {
                    Some((name, _)) => found.met.push(name),
                    None => {
                        let line = format!("{peer} {number}: {request}: {difference}");
                        found.unknown.push(line);
                    }
                }
            }
        }
    }
}

/// Everything differs that the page says, and nothing else.
#[test]
fn other_servers_and_galgo_answer_alike() {
    let all: [(&str, &'static str, Start); 3] = [
        ("nginx.md", "nginx", peers::nginx),
        ("lighttpd.md", "lighttpd", peers::lighttpd),
        ("apache.md", "apache", peers::apache),
    ];
    let found = std::thread::scope(|threads| {
        let compare = |(page, peer, start)| {
            threads.spawn(move || {
                let mut found = Found::default();
                compare(page, peer, start, &mut found);
                found
            })
        };
        let running = all.map(compare);
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
        assert!(met, "{name:?} is no difference any more");
    }
    let asked: usize = found.iter().map(|found| found.asked).sum();
    assert!(
        page.contains(&format!(" {asked} in all")),
        "the page lacks {asked}"
    );
}
