//! The access log that both servers write for a pair, in the same format.

use galgo_testkit::{file::whole_lines, wait_until};

use super::{requests::Asked, scene::Scene};

/// Checks that both servers have logged each request for the hosts with a log of their own, and
/// nothing else.
pub(super) fn is_whole(scene: &Scene, requests: &[Asked]) {
    let path = scene.galgo.site.path("logs/a.example.log");
    let own = requests.iter().filter(|r| r.host.ends_with("a.example"));
    let line = |r: &Asked| format!("{} {} HTTP/{}", r.method, r.target, r.version);
    let mut wanted: Vec<_> = own
        .map(line)
        .flat_map(|line| [line.clone(), line])
        .collect();
    wanted.sort();
    wait_until("both have logged each request", || {
        let text = whole_lines(&path);
        let parts = text.lines().map(|line| line.split('"').collect::<Vec<_>>());
        // If a server cannot start its programs yet, the test asks again. Answers with 503
        // therefore do not count.
        let answered = parts.filter(|parts| !parts[2].starts_with(" 503"));
        let mut found: Vec<_> = answered.map(|parts| parts[1].to_owned()).collect();
        found.sort();
        found == wanted
    });
}
