//! The same with the folders of hosts: what a server may have their helper start.

use std::fs;

use super::{GAMES, HOSTS, MAN, NOBODY, Spawner, mode, own, start};
use crate::harness::list;
use galgo_testkit::Site;

list![a_helper_starts_programs_of_hosts_only];

/// Programs in and beside the folders of hosts, and links.
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
    ] {
        std::os::unix::fs::symlink(to, site.path("www").join(link)).unwrap();
    }
}

fn a_helper_starts_programs_of_hosts_only() {
    let spawner = Spawner::start();
    lay_hosts(&spawner.site);
    for uid in [0, GAMES, MAN, 12_345_678] {
        assert!(spawner.helper(uid, HOSTS).is_err(), "{uid}");
    }
    let helper = spawner.helper(NOBODY, HOSTS).unwrap();
    let start = |name: &str| start(&helper, 0, &[&spawner.path(&format!("www/{name}"))]);
    for name in [
        "a.example",
        "www.a.example",
        "a.example/cgi-bin/../../a.example",
    ] {
        let (report, said) = start(&format!("{name}/cgi-bin/echo"));
        let fine = report == "started" && said.starts_with("65534 ");
        assert_eq!(fine, !name.contains(".."), "{name}: {report} {said}");
    }
    assert_eq!(start("a.example/cgi-bin/sub/echo").0, "started");
    let no_host = "is no program of a host";
    let no_link = "is a symbolic link";
    for (name, why) in [
        ("echo", no_host),
        ("a.example", no_host),
        ("a.example/echo", no_host),
        ("a.example/cgi-bin", no_host),
        ("a.example/public/echo", no_host),
        ("a.example/sub/cgi-bin/echo", no_host),
        ("_off/cgi-bin/echo", no_host),
        ("Upper/cgi-bin/echo", no_host),
        ("../own/nobody", "is not below"),
        ("a.example/cgi-bin/../echo", "is not below"),
        ("a.example/cgi-bin/.hidden", "has a name"),
        ("a.example/cgi-bin/theirs", "belongs to the user 6"),
        ("b.example/cgi-bin/echo", "belongs to the user 6"),
        ("a.example/cgi-bin/none", "cannot be looked at"),
        ("none.example/cgi-bin/echo", "cannot be looked at"),
        ("loop.example/cgi-bin/echo", "cannot be looked at"),
        ("sub.example/cgi-bin/echo", no_link),
        ("out.example/cgi-bin/nobody", no_link),
        ("off.example/cgi-bin/echo", no_link),
        ("here.example/cgi-bin/cgi-bin/echo", no_link),
        ("up.example/cgi-bin/who", no_link),
        ("a.example/cgi-bin/far", no_link),
        ("a.example/cgi-bin/near/echo", no_link),
    ] {
        let (report, said) = start(name);
        assert!(
            report.contains(why) && said.is_empty(),
            "{name}: {report} {said}"
        );
    }
    // Another route's program, and this one's by another route.
    assert!(start("../games/echo").0.contains("is not below"));
    let others = spawner.helper(NOBODY, 1).unwrap();
    let (report, _) = self::start(&others, 0, &[&spawner.path("www/a.example/cgi-bin/echo")]);
    assert!(report.contains("is not below"), "{report}");
}
