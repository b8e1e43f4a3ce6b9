//! Tests that `galgo.example.toml` and `docs/configuration.md` agree with the code.

use std::collections::BTreeSet;

use super::{parse, site};
use crate::{
    config::{Config, Handler},
    config_text::raw::{
        RawAccess, RawAutomatic, RawCertificate, RawChanges, RawConfig, RawConfinement, RawCors,
        RawHeaderRule, RawOptions, RawRate, RawRedirect, RawRespond, RawRewrite, RawRoute,
        RawSitesTable, RawTls, RawUserDir, RawVariableRule, RawWorkers,
    },
};

const EXAMPLE: &str = include_str!("../../../../../galgo.example.toml");
const DOCS: &str = include_str!("../../../../../docs/configuration.md");

/// Returns the example with every key active. A setting follows its `#` directly, a sentence does not.
fn live() -> String {
    let setting =
        |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase() || "[\"".contains(c));
    let line = |line| str::strip_prefix(line, '#').filter(setting).unwrap_or(line);
    EXAMPLE.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Keys without a default.
const EXAMPLES: [&str; 6] = [
    "user",
    "group",
    "socket_group",
    "pid_file",
    "include",
    "sites",
];

fn keys(table: &toml::Table) -> BTreeSet<&str> {
    table.keys().map(String::as_str).collect()
}

fn known(keys: &[&'static str]) -> BTreeSet<&'static str> {
    keys.iter()
        .map(|key| key.trim_start_matches("r#"))
        .collect()
}

#[test]
fn the_example_as_it_stands_is_the_convention() {
    let dir = site();
    let config = parse(dir.path(), EXAMPLE).unwrap();
    let paths: Vec<_> = config
        .routes
        .iter()
        .map(|route| route.path.as_str())
        .collect();
    assert_eq!(paths, ["/cgi-bin/", "/"]);
    assert_eq!(config.options, Config::default().options);
}

#[test]
fn the_example_holds_every_key() {
    let live = live();
    toml::from_str::<RawConfig>(&live).unwrap();
    let table: toml::Table = live.parse().unwrap();
    assert_eq!(keys(&table), known(RawConfig::KEYS));
    assert_eq!(
        keys(table["defaults"].as_table().unwrap()),
        known(RawOptions::KEYS)
    );
    assert_eq!(
        keys(table["userdir"].as_table().unwrap()),
        known(RawUserDir::KEYS)
    );
    assert_eq!(keys(table["tls"].as_table().unwrap()), known(RawTls::KEYS));
    let routes = || {
        table["route"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r.as_table().unwrap())
    };
    let mut in_routes: BTreeSet<_> = routes().flat_map(keys).collect();
    in_routes.extend(RawOptions::KEYS);
    assert_eq!(in_routes, known(RawRoute::KEYS));
    let responds = routes().filter_map(|route| route.get("respond")?.as_table());
    assert_eq!(
        responds.flat_map(keys).collect::<BTreeSet<_>>(),
        known(RawRespond::KEYS)
    );
}

#[test]
fn the_example_shows_the_defaults() {
    let live = live();
    // These keys have no default, and name accounts and programs that a system may not have.
    let examples = [
        "user ",
        "group ",
        "host ",
        "authorizer ",
        "passwords ",
        "realm ",
        "require ",
        "groups ",
        "access ",
        "redirect ",
        "headers ",
        "cgi_names ",
        "header_rules ",
        "request_headers ",
        "expires ",
        "cors ",
        "errors ",
        "pass_env ",
        "env_file ",
        "compress_types ",
        "compress_min ",
        "try ",
        "cache = \"2s\"",
        "env ",
        "env_rules ",
        "include ",
        "sites ",
        "load_env ",
        "root ",
        "scripts ",
        "socket_group ",
        "pid_file ",
    ];
    let (settings, _) = live.split_once("[interpreters]").unwrap();
    let kept = settings
        .lines()
        .filter(|line| !examples.iter().any(|key| line.starts_with(key)));
    let source = kept.collect::<Vec<_>>().join("\n");

    let dir = site();
    let mut typed = parse(dir.path(), &source).unwrap();
    let default = parse(dir.path(), EXAMPLE).unwrap();
    for route in &typed.routes {
        match &route.handler {
            Handler::Cgi(cgi) => assert_eq!(cgi.options, default.options),
            Handler::Files(files) => {
                let untouched = crate::config::Files::open(&files.path).unwrap();
                let shown = |files| format!("{files:?}").replace(char::is_numeric, "");
                assert_eq!(shown(files), shown(&untouched));
            }
            Handler::Upstream(up) => {
                let mut untouched = crate::config::Application::new(
                    up.protocol,
                    up.to.clone(),
                    default.options.clone(),
                );
                untouched.document_root = up.document_root.clone();
                assert_eq!(format!("{up:?}"), format!("{untouched:?}"));
            }
            Handler::Respond(respond) => assert_eq!(respond.status, 200),
        }
    }
    typed.routes.clear();
    typed.read.clear();
    let bare = Config {
        dev_errors: typed.dev_errors,
        // The example names an address, although it is the default one.
        listens_by_default: false,
        ..Config::default()
    };
    assert_eq!(format!("{typed:?}"), format!("{bare:?}"));
}

#[test]
fn the_reference_names_every_key_with_its_default() {
    let all = [
        RawConfig::KEYS,
        RawOptions::KEYS,
        RawRoute::KEYS,
        RawRespond::KEYS,
        RawUserDir::KEYS,
        RawSitesTable::KEYS,
        RawWorkers::KEYS,
        RawTls::KEYS,
        RawAutomatic::KEYS,
        RawCertificate::KEYS,
        RawAccess::KEYS,
        RawRedirect::KEYS,
        RawRewrite::KEYS,
        RawHeaderRule::KEYS,
        RawVariableRule::KEYS,
        RawChanges::KEYS,
        RawCors::KEYS,
        RawRate::KEYS,
        RawConfinement::KEYS,
    ];
    let tables = [
        "defaults",
        "route",
        "rewrite",
        "interpreters",
        "userdir",
        "tls",
    ];
    for key in all
        .into_iter()
        .flat_map(known)
        .filter(|key| !tables.contains(key))
    {
        assert!(
            DOCS.contains(&format!("\n| `{key}` |")),
            "docs/configuration.md lacks {key}"
        );
    }
    for table in tables {
        assert!(
            DOCS.contains(&format!("`{table}`")),
            "docs/configuration.md lacks {table}"
        );
    }
    let live = live();
    let (with_defaults, _) = live.split_once("[[route]]").unwrap();
    for line in with_defaults
        .lines()
        .filter(|line| !line.starts_with(['#', '[']))
    {
        let Some((key, value)) = line.split_once(" = ") else {
            continue;
        };
        let value = value.split("  ").next().unwrap();
        let row = |row: &&str| row.starts_with(&format!("| `{key}` |"));
        let shown = DOCS
            .lines()
            .filter(row)
            .any(|row| row.contains(&format!("| `{value}` |")));
        assert!(
            shown || EXAMPLES.contains(&key),
            "docs: {key} is not shown as {value}"
        );
    }
}
