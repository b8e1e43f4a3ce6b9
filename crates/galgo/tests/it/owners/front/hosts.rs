//! An attacker in the server's place, and the folders of hosts: programs that the server may order from their helper.

use std::fs;

use super::{GAMES, HOSTS, MAN, NOBODY, Spawner, mode, own, start};
use crate::harness::list;
use galgo_testkit::Site;

list![a_helper_starts_programs_of_one_host_only];

/// Creates programs in and beside the folders of hosts, and links.
fn lay_hosts(site: &Site) {
    let echo = fs::read(site.path("games/echo")).unwrap();
    for name in [
        "a.example/cgi-bin/sub/echo",
        "a.example/cgi-bin/.hidden",
        "a.example/cgi-bin/theirs",
        "a.example/public/echo",
        "a.example/echo",
        "a.example/sub/cgi-bin/echo",
        "cgi-bin/cgi-bin/echo",
        "b.example/cgi-bin/echo",
        "_off/cgi-bin/echo",
        "Upper/cgi-bin/echo",
        "echo",
    ] {
        let name = format!("www/{name}");
        site.write(&name, &echo);
        mode(site, &name, 0o755);
        own(site, &name, NOBODY);
    }
    own(site, "www/a.example/cgi-bin/echo", NOBODY);
    own(site, "www/a.example/cgi-bin/theirs", MAN);
    own(site, "www/b.example/cgi-bin", MAN);
    fs::create_dir(site.path("www/c.example")).unwrap();
    for (to, link) in [
        ("a.example", "www.a.example"),
        ("a.example/sub", "sub.example"),
        ("../own", "out.example"),
        ("none", "none.example"),
        ("_off", "off.example"),
        (".", "here.example"),
        ("..", "up.example"),
        ("loop.example", "loop.example"),
        ("../../own/nobody", "a.example/cgi-bin/far"),
        ("../cgi-bin", "a.example/cgi-bin/near"),
        ("../a.example/cgi-bin", "c.example/cgi-bin"),
    ] {
        std::os::unix::fs::symlink(to, site.path("www").join(link)).unwrap();
    }
}

const BELOW: &str = "is not below";
const LINK: &str = "is a symbolic link";
const NOTHING: &str = "cannot be examined";

/// (host of the helper, path below the folder of hosts, reason why the helper does not start it)
const DENIED: &[(&str, &str, &str)] = &[
    ("a.example", "echo", BELOW),
    ("a.example", "a.example", BELOW),
    ("a.example", "a.example/echo", BELOW),
    ("a.example", "a.example/public/echo", BELOW),
    ("a.example", "a.example/sub/cgi-bin/echo", BELOW),
    ("a.example", "b.example/cgi-bin/echo", BELOW),
    ("a.example", "www.a.example/cgi-bin/echo", BELOW),
    ("www.a.example", "a.example/cgi-bin/echo", BELOW),
    ("a.example", "../own/nobody", BELOW),
    ("a.example", "../games/echo", BELOW),
    ("a.example", "a.example/cgi-bin/../echo", BELOW),
    (
        "a.example",
        "a.example/cgi-bin/../../a.example/cgi-bin/echo",
        BELOW,
    ),
    ("a.example", "a.example/cgi-bin", "is not a regular file"),
    ("a.example", "a.example/cgi-bin/.hidden", "has a name"),
    (
        "a.example",
        "a.example/cgi-bin/theirs",
        "belongs to the user 6",
    ),
    (
        "b.example",
        "b.example/cgi-bin/echo",
        "belongs to the user 6",
    ),
    ("a.example", "a.example/cgi-bin/none", NOTHING),
    ("none.example", "none.example/cgi-bin/echo", NOTHING),
    ("loop.example", "loop.example/cgi-bin/echo", NOTHING),
    ("sub.example", "sub.example/cgi-bin/echo", LINK),
    ("out.example", "out.example/cgi-bin/nobody", LINK),
    ("off.example", "off.example/cgi-bin/echo", LINK),
    ("here.example", "here.example/cgi-bin/cgi-bin/echo", LINK),
    ("up.example", "up.example/cgi-bin/who", LINK),
    ("c.example", "c.example/cgi-bin/echo", LINK),
    ("a.example", "a.example/cgi-bin/far", LINK),
    ("a.example", "a.example/cgi-bin/near/echo", LINK),
];

fn a_helper_starts_programs_of_one_host_only() {
    let spawner = Spawner::start();
    lay_hosts(&spawner.site);
    for uid in [0, GAMES, MAN, 12_345_678] {
        assert!(spawner.helper_of(uid, "a.example").is_err(), "{uid}");
    }
    // A helper for all hosts at once, and one for a host on a route, are refused.
    assert!(spawner.helper(NOBODY, HOSTS).is_err());
    let others = spawner.order_for("a.example", 1, NOBODY, spawner.digests[1]);
    assert!(others.is_err());
    for kind in [2, 3, 4, 5] {
        assert!(spawner.order_for("a.example", kind, 0, 0).is_err());
    }
    let long = "a".repeat(254);
    for name in [
        "_off", "Upper", ".", "..", "../own", "a..b", "a/b", "a.", " ", &long,
    ] {
        assert!(spawner.helper_of(NOBODY, name).is_err(), "{name}");
    }
    let start = |host: &str, name: &str| match spawner.helper_of(NOBODY, host) {
        Ok(helper) => start(&helper, 0, &[&spawner.path(&format!("www/{name}"))]),
        Err(why) => (why, String::new()),
    };
    for (host, name) in [
        ("a.example", "cgi-bin/echo"),
        ("a.example", "cgi-bin/sub/echo"),
        ("www.a.example", "cgi-bin/echo"),
        ("cgi-bin", "cgi-bin/echo"),
    ] {
        let (report, said) = start(host, &format!("{host}/{name}"));
        let fine = report == "started" && said.starts_with("65534 ");
        assert!(fine, "{host}: {report} {said}");
    }
    for (host, name, why) in DENIED {
        let (report, said) = start(host, name);
        assert!(
            report.contains(why) && said.is_empty(),
            "{host} {name}: {report} {said}"
        );
    }
    // A route's helper does not start a host's program.
    let others = spawner.helper(NOBODY, 1).unwrap();
    let (report, _) = self::start(&others, 0, &[&spawner.path("www/a.example/cgi-bin/echo")]);
    assert!(report.contains(BELOW), "{report}");
}
