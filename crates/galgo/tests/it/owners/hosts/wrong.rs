//! Programs of hosts whose owners, rights or folders are wrong.

use super::{CONFIG, accounts, host, runs_as};
use crate::{
    harness::list,
    owners::{MAN, WHO, mode, own, site},
};
use galgo_testkit::{accounts::uid, wait_until};

list![
    whose_programs_may_not_be_started,
    whose_folders_may_not_be,
    who_has_folders_of_roots,
    what_the_server_may_not_enter,
];

fn whose_programs_may_not_be_started() {
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "one.example", one);
    let below = |user: u32| {
        format!(
            "belongs to the user {user}, but programs run as their owner only from min_uid = 1000 on"
        )
    };
    let foreign = format!("one.example\" belongs to the user {}", uid(one));
    let programs = [
        ("root", 0, 0o755, &*below(0)),
        ("man", MAN, 0o755, &*below(MAN)),
        ("foreign", uid(two), 0o755, &*foreign),
        (
            "group",
            uid(one),
            0o775,
            "is writable for its group: chmod g-w",
        ),
        (
            "others",
            uid(one),
            0o757,
            "is writable for others: chmod o-w",
        ),
        ("setuid", uid(one), 0o4755, "is set-user-ID: chmod u-s"),
    ];
    for (name, uid, bits, _) in programs {
        let name = format!("www/one.example/cgi-bin/{name}");
        site.write(&name, WHO);
        own(&site, &name, uid);
        mode(&site, &name, bits);
    }
    let server = site.start();
    for (name, .., why) in programs {
        let ran = runs_as(&server, "one.example", &format!("/cgi-bin/{name}"));
        assert_eq!(ran, Err(403), "{name}");
        server.says(why);
    }
}

fn whose_folders_may_not_be() {
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "two.example", two);
    for name in ["www/two.example/cgi-bin/who", "www/two.example/cgi-bin"] {
        own(&site, name, uid(one));
    }
    let server = site.start();
    assert_eq!(runs_as(&server, "two.example", "/cgi-bin/who"), Err(403));
    server.says(&format!("two.example\" belongs to the user {}", uid(two)));
}

/// Root owns the folders, and two accounts have programs in them.
fn who_has_folders_of_roots() {
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 2);
    let [one, two] = [0, 1].map(|n| accounts.names()[n].as_str());
    host(&site, "roots.example", two);
    for name in ["", "/cgi-bin"] {
        own(&site, &format!("www/roots.example{name}"), 0);
    }
    own(&site, "www/roots.example/cgi-bin/read", uid(one));
    let server = site.start();
    for (path, account) in [("who", two), ("read", one)] {
        let ran = runs_as(&server, "roots.example", &format!("/cgi-bin/{path}"));
        assert_eq!(ran, Ok(uid(account)), "{}", server.errors());
    }
}

fn what_the_server_may_not_enter() {
    let site = site().config(CONFIG);
    let accounts = accounts(&site, 1);
    host(&site, "one.example", &accounts.names()[0]);
    let server = site.start();
    mode(&server.site, "www/one.example", 0o700);
    wait_until("the folder", || {
        runs_as(&server, "one.example", "/cgi-bin/who") == Err(403)
    });
    server.says("cannot enter this folder: chmod a+x");
}
