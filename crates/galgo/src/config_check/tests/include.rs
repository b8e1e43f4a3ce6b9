//! Tests of `include`, which reads files that hold sites.

use std::{fs, path::Path};

use galgo_service::log::route_logs::OwnLog;

use super::{parse, site};
use crate::config::LogTo;

const MAIN: &str = "include = \"sites/*.toml\"\n[[route]]\npath = \"/\"\nfiles = \"public\"\n";

/// Writes `sites/NAME.toml`.
fn write(dir: &Path, name: &str, text: &str) {
    fs::create_dir_all(dir.join("sites")).unwrap();
    fs::write(dir.join(format!("sites/{name}.toml")), text).unwrap();
}

#[test]
fn what_stands_at_the_top_holds_for_the_routes_of_the_file() {
    let dir = site();
    let own = "[[route]]\npath = \"/\"\nfiles = \"../public\"\n[[route]]\npath = \"/other/\"\nhost = \"b.example\"\nfiles = \"../public\"\naccess_log = \"off\"\n";
    let top = "host = \"a.example\"\naccess_log = \"a.log\"\nsecurity_headers = true\n";
    write(dir.path(), "a", &format!("{top}{own}"));
    fs::write(dir.path().join("sites/.hidden.toml"), "wrong").unwrap();
    fs::write(dir.path().join("sites/a.toml~"), "wrong").unwrap();
    let config = parse(dir.path(), MAIN).unwrap();
    let route = |name: &str| {
        let mut routes = config.routes.iter();
        routes.find(|route| route.to_string() == name).unwrap()
    };
    let log = |name: &str| {
        let to = route(name).log.as_deref().map(OwnLog::log_target);
        to.map(|to| to.cloned())
    };
    let file = LogTo::File(dir.path().join("sites/a.log"));
    assert_eq!(log("a.example/"), Some(Some(file.clone())));
    assert_eq!(log("b.example/other/"), Some(None));
    assert_eq!(log("/"), None);
    assert_eq!(config.log.own, [file]);
    assert!(route("a.example/").steps.is_some() && route("b.example/other/").steps.is_some());
    assert!(route("/").steps.is_none());
    assert_eq!(config.included, [dir.path().join("sites/a.toml")]);
}

#[test]
fn what_goes_together_stays_together() {
    let dir = site();
    fs::write(
        dir.path().join("one"),
        "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n",
    )
    .unwrap();
    let top = "passwords = \"../one\"\nrequire = [\"@all\"]\ngroups = { all = [\"ada\"] }\n";
    let own = "[[route]]\npath = \"/\"\nfiles = \"../public\"\n[[route]]\npath = \"/own/\"\nfiles = \"../public\"\npasswords = \"../one\"\n";
    write(dir.path(), "a", &format!("host = \"a\"\n{top}{own}"));
    parse(dir.path(), MAIN).unwrap();
}

#[test]
fn errors_name_the_included_file() {
    let dir = site();
    let fails = |files: &[(&str, &str)], wanted: &[&str]| {
        let _ = fs::remove_dir_all(dir.path().join("sites"));
        for (name, text) in files {
            write(dir.path(), name, text);
        }
        let said = parse(dir.path(), MAIN).unwrap_err().to_string();
        let folder = format!("{}/", dir.path().display());
        let said: Vec<_> = said.lines().map(|l| l.replace(&folder, "")).collect();
        assert_eq!(said, wanted);
    };
    let route = "[[route]]\npath = \"/\"\n";
    fails(
        &[
            ("b", &format!("{route}files = \"nowhere\"\n")),
            ("a", "\n\nhots = \"a\"\n"),
            ("c", "x = ["),
        ],
        &[
            "sites/a.toml:3:1: unknown key \"hots\"; did you mean \"host\"?",
            "sites/b.toml:3:9: files: sites/nowhere does not exist: create it or correct the path",
            "sites/c.toml:1:6: unclosed array, expected `]`",
        ],
    );
    fails(
        &[
            ("a", "listen = []\n"),
            ("b", "include = \"x\"\n"),
            ("c", " \n"),
        ],
        &[
            "sites/a.toml:1:1: listen applies to the whole server: write it in galgo.toml",
            "sites/b.toml:1:1: include applies to the whole server: write it in galgo.toml",
            "sites/c.toml:1:1: the file is empty: add routes to it, or remove it",
        ],
    );
    fails(
        &[
            ("a", "files = \"x\"\n"),
            ("b", "[defaults]\n"),
            ("c", "idle_timeout = 1\n"),
        ],
        &[
            "sites/a.toml:1:1: unknown key \"files\" here; it belongs in a [[route]]",
            "sites/b.toml:1:2: defaults applies to the whole server: write it in galgo.toml",
            "sites/c.toml:1:1: unknown key \"idle_timeout\" here; it belongs in a [[route]]",
        ],
    );
    // A key that holds for two routes causes one error.
    let two = format!("headers = {{ Date = \"x\" }}\n{route}files = \"../public\"\n");
    fails(
        &[(
            "a",
            &format!("{two}[[route]]\npath = \"/b/\"\nfiles = \"../public\"\n"),
        )],
        &["sites/a.toml:1:13: headers: Date is computed for each response: delete it"],
    );
    // Two files, one route.
    let same = format!("host = \"a\"\n{route}files = \"../public\"\n");
    fails(
        &[("a", &same), ("b", &same)],
        &[
            "sites/b.toml:2:1: another route has the path \"/\" and the host \"a\" already: delete one",
        ],
    );
}

/// If a file cannot be used, errors that may follow from that are not reported: the file may have had the missing route, or
/// the route that covers programs.
#[test]
fn errors_that_are_only_consequences() {
    let dir = site();
    let fails = |include: &str, rest: &str, wanted: &str| {
        let source = format!("include = {include:?}\n{rest}");
        let said = parse(dir.path(), &source).unwrap_err().to_string();
        let said = said.replace(&format!("{}/", dir.path().display()), "");
        assert_eq!(said, wanted, "{source}");
    };
    let unfit = "galgo.toml:1:11: include: no file matches this pattern, so galgo has no routes: create a file, or correct the pattern";
    fails("sit**/*.toml", "", unfit);
    fails(
        "nowhere/*.toml",
        "",
        "galgo.toml:1:11: include: nowhere does not exist: create it or correct the path",
    );
    fails(
        "site.toml",
        "workers = 9999\n",
        "galgo.toml:1:11: include: site.toml does not exist: create it or correct the path\n\
         galgo.toml:2:11: workers: 9999 is out of range: 0 to 1024",
    );
    fails(
        "",
        "",
        "galgo.toml:1:11: include: is empty: name files: \"sites/*.toml\"",
    );
    write(dir.path(), "a", "hots = \"a\"\n");
    let unknown = "sites/a.toml:1:1: unknown key \"hots\"; did you mean \"host\"?";
    fails("sites/*.toml", "", unknown);
    let uncovered = "[[route]]\npath = \"/\"\nfiles = \".\"\n[[route]]\npath = \"/programs/\"\ncgi = \"cgi-bin\"\n";
    fails("sites/*.toml", uncovered, unknown);
    // A file without a route is not a file with an error.
    write(dir.path(), "a", "host = \"a\"\n");
    fails(
        "sites/*.toml",
        "",
        "galgo.toml: there is no route: add a [[route]] with `path` and one of `cgi`, `fastcgi`, `scgi`, `files`, `respond`",
    );
}

#[test]
fn names_of_files() {
    let dir = site();
    let fails = |include: &str| {
        let source = MAIN.replace("sites/*.toml", include);
        let said = parse(dir.path(), &source).unwrap_err().to_string();
        said.replace(&format!("{}/", dir.path().display()), "")
    };
    assert_eq!(
        fails("nowhere/*.toml"),
        "galgo.toml:1:11: include: nowhere does not exist: create it or correct the path"
    );
    assert_eq!(
        fails("site.toml"),
        "galgo.toml:1:11: include: site.toml does not exist: create it or correct the path"
    );
    assert_eq!(
        fails(""),
        "galgo.toml:1:11: include: is empty: name files: \"sites/*.toml\""
    );
    // Each site has a folder; not every folder has such a file.
    for name in ["www/b/site.toml", "www/a/site.toml", "www/c/other"] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = format!(
            "host = \"{}\"\n[[route]]\npath = \"/\"\nfiles = \".\"\n",
            &name[4..5]
        );
        fs::write(path, text).unwrap();
    }
    let config = parse(dir.path(), &MAIN.replace("sites/*.toml", "www/*/site.toml")).unwrap();
    let names: Vec<_> = config.routes.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a/", "b/", "/"]);
}
