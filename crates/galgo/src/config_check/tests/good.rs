//! Configurations that galgo accepts, and the values that come of them.

use std::{fs, os::unix::fs::symlink, time::Duration};

use super::*;

fn handlers(config: &Config) -> Vec<(Option<&str>, &str)> {
    config
        .routes
        .iter()
        .map(|r| {
            (
                r.host.as_ref().map(|hosts| hosts.first_name()),
                r.path.as_str(),
            )
        })
        .collect()
}

fn cgi(config: &Config, path: &str) -> usize {
    let at = config.routes.iter().position(|r| r.path == path).unwrap();
    assert!(
        matches!(config.routes[at].handler, Handler::Cgi(_)),
        "{path}"
    );
    at
}

#[test]
fn values_reach_their_place() {
    let dir = site();
    let source = r#"
        listen = ["[::1]:0", "proxy+unix:run/s"]
        workers = 3
        umask = "077"
        access_log = "logs/access"
        log_format = "json"
        error_log = "-"
        dev_errors = true
        head_timeout = 3
        keep_alive = 0
        min_rate = 0
        max_head = "8K"
        max_target = 1024
        encoded_slash = "decode"
        max_running = 7
        max_running_per_client = 3
        cpu_share = 20
        queue = 0
        queue_wait = "250ms"
        [defaults]
        idle_timeout = "2m"
        cpu = 10
        memory = "64M"
        max_running = 5
        open_files = "none"
        [[route]]
        path = "/cgi-bin"
        cgi = "./cgi-bin"
        env = { B = "", A = "x" }
        load_env = { PATH_INFO = "" }
        idle_timeout = 1
        memory = "none"
        body = "file"
    "#;
    let config = parse(dir.path(), source).unwrap();
    let shown: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(shown[0], "[::1]:0");
    assert_eq!(
        shown[1],
        format!("proxy+unix:{}/run/s", dir.path().display())
    );
    assert_eq!(
        (config.event_loops, config.umask, config.dev_errors),
        (3, 0o077, DevErrors::Is(true))
    );
    assert_eq!(
        config.log.access,
        Some(LogTo::File(dir.path().join("logs/access")))
    );
    assert_eq!(
        (config.log.format, &config.log.error),
        (LogFormat::Json, &LogTo::Stdout)
    );
    let http = &config.http;
    assert_eq!(
        (http.head_timeout, http.keep_alive),
        (Duration::from_secs(3), Duration::ZERO)
    );
    assert_eq!(
        (
            http.rates.least,
            http.max_head,
            http.max_target,
            http.encoded_slash
        ),
        (0, 8192, 1024, true)
    );
    let wait = Duration::from_millis(250);
    assert_eq!(
        config.admission,
        AdmissionSettings {
            running: 7,
            running_per_client: 3,
            cpu_share: 20,
            queue: 0,
            wait
        }
    );
    assert_eq!(config.options.limits.memory, Some(64 << 20));

    assert_eq!(handlers(&config), [(None, "/cgi-bin/")]);
    let Handler::Cgi(cgi) = &config.routes[0].handler else {
        panic!()
    };
    assert_eq!(cgi.root.path(), dir.path().join("cgi-bin"));
    assert_eq!(cgi.document_root, dir.path().join("cgi-bin"));
    assert_eq!(
        cgi.env,
        [("A".into(), "x".into()), ("B".into(), String::new())]
    );
    assert_eq!(cgi.load_env, [("PATH_INFO".into(), String::new())]);
    assert_eq!(cgi.options.idle_timeout, Duration::from_secs(1));
    assert_eq!(
        (cgi.options.body, cgi.options.max_running),
        (BodyMode::File, Some(5))
    );
    let limits = cgi.options.limits;
    assert_eq!(
        (limits.cpu, limits.memory, limits.open_files),
        (Some(10), None, None)
    );
}

#[test]
fn routes_stand_in_the_order_to_try_them() {
    let dir = site();
    let source = r#"
        [[route]]
        path = "/"
        files = "public"
        [[route]]
        path = "/pixel"
        respond = { file = "pixel.gif" }
        [[route]]
        path = "/"
        host = "Git.Example.org"
        cgi = "run"
        [[route]]
        path = "/app/"
        cgi = "run"
        [[route]]
        path = "/app"
        host = "git.example.org"
        cgi = "cgi-bin"
    "#;
    let config = parse(dir.path(), source).unwrap();
    let git = Some("git.example.org");
    let want = [
        (None, "/pixel"),
        (git, "/app/"),
        (None, "/app"),
        (git, "/"),
        (None, "/"),
    ];
    assert_eq!(handlers(&config), want);
    let Handler::Respond(pixel) = &config.routes[0].handler else {
        panic!()
    };
    assert_eq!(
        (pixel.status, pixel.content_type.as_deref()),
        (200, Some("image/gif"))
    );
    assert_eq!(&*pixel.body, b"GIF89a");
    let Handler::Cgi(run) = &config.routes[cgi(&config, "/app")].handler else {
        panic!()
    };
    assert!(matches!(run.root, CgiRoot::Program { .. }));
    assert_eq!(run.document_root, dir.path().join("public"));
}

#[test]
fn document_root_is_that_of_the_same_host() {
    let dir = site();
    fs::create_dir(dir.path().join("other")).unwrap();
    let source = r#"
        route = [
            { path = "/", files = "public" },
            { path = "/", files = "other", host = "a" },
            { path = "/a", cgi = "run", host = "A." },
            { path = "/b", cgi = "run", host = "b" },
        ]
    "#;
    let config = parse(dir.path(), source).unwrap();
    for (path, want) in [("/a", "other"), ("/b", "public")] {
        let Handler::Cgi(run) = &config.routes[cgi(&config, path)].handler else {
            panic!()
        };
        assert_eq!(run.document_root, dir.path().join(want), "{path}");
    }
}

#[test]
fn sources_are_not_served_as_files() {
    let dir = site();
    symlink(
        dir.path().join("public/programs"),
        dir.path().join("linked"),
    )
    .unwrap();
    let files = "{ path = \"/\", files = \"public\" }";
    let table = [
        // Programs that a `cgi` route covers at the URL where the files route would show them.
        (r#"{ path = "/programs/", cgi = "public/programs" }"#, true),
        (r#"{ path = "/programs/", cgi = "linked" }"#, true),
        // Programs that the files route would show at /programs/.
        (r#"{ path = "/cgi-bin/", cgi = "public/programs" }"#, false),
        (r#"{ path = "/cgi-bin/", cgi = "linked" }"#, false),
        (r#"{ path = "/cgi-bin/", cgi = "public" }"#, false),
        (r#"{ path = "/app", cgi = "public/index.html" }"#, false),
        (
            r#"{ path = "/index.html", cgi = "public/index.html" }"#,
            true,
        ),
        // Programs that are covered on one host only.
        (
            r#"{ path = "/programs/", cgi = "public/programs", host = "a" }"#,
            false,
        ),
        // A sibling folder whose name begins with the same letters.
        (r#"{ path = "/cgi-bin/", cgi = "cgi-bin" }"#, true),
    ];
    for (cgi, good) in table {
        let result = parse(dir.path(), &format!("route = [{files}, {cgi}]"));
        assert_eq!(result.is_ok(), good, "{cgi}: {:?}", result.err());
    }
    // The operator chose to serve files inside the folder of programs.
    let inside = r#"route = [{ path = "/a/", cgi = "." }, { path = "/", files = "public" }]"#;
    assert!(parse(dir.path(), inside).is_ok());
}

#[test]
fn convention_of_a_folder() {
    let dir = site();
    let config = Config::from_convention(dir.path()).unwrap();
    assert_eq!(handlers(&config), [(None, "/cgi-bin/"), (None, "/")]);
    let Handler::Cgi(cgi) = &config.routes[0].handler else {
        panic!()
    };
    assert_eq!(cgi.document_root, dir.path().join("public"));

    fs::remove_dir_all(dir.path().join("public")).unwrap();
    let config = Config::from_convention(dir.path()).unwrap();
    assert_eq!(handlers(&config), [(None, "/cgi-bin/")]);

    fs::remove_dir_all(dir.path().join("cgi-bin")).unwrap();
    let error = Config::from_convention(dir.path()).unwrap_err().to_string();
    let path = dir.path().display();
    assert!(
        error.contains("holds nothing to serve")
            && error.contains(&format!("mkdir -p {path}/cgi-bin"))
    );

    fs::write(dir.path().join("cgi-bin"), "").unwrap();
    let error = Config::from_convention(dir.path()).unwrap_err().to_string();
    assert_eq!(error, format!("{path}/cgi-bin is not a folder: name one"));
    let error = Config::from_convention(&dir.path().join("none"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        format!("{path}/none does not exist: create it or correct the path")
    );
}

#[test]
fn a_file_without_routes_keeps_those_of_the_folder() {
    let dir = site();
    let convention = Config::from_convention(dir.path()).unwrap();
    for source in [
        "# words\n",
        "max_running = 7\n",
        "[defaults]\nmax_body = \"1K\"\n",
    ] {
        let config = parse(dir.path(), source).unwrap();
        assert_eq!(handlers(&config), handlers(&convention), "{source}");
        let Handler::Cgi(cgi) = &config.routes[0].handler else {
            panic!("{source}");
        };
        let most = if source.contains("1K") {
            1 << 10
        } else {
            CgiOptions::default().max_body
        };
        assert_eq!(cgi.options.max_body, most);
    }
    let interpreters = "[interpreters]\n\".sh\" = \"/bin/sh\"\n";
    let config = parse(dir.path(), interpreters).unwrap();
    let Handler::Files(files) = &config.routes[1].handler else {
        panic!("{config:?}");
    };
    assert!(files.is_source(b"a.sh"));
    // A file with any route of its own replaces all conventional routes.
    let one = parse(dir.path(), "[[route]]\npath = \"/x\"\nfiles = \"public\"\n").unwrap();
    assert_eq!(one.routes.len(), 1);
    std::fs::remove_dir_all(dir.path().join("cgi-bin")).unwrap();
    std::fs::remove_dir_all(dir.path().join("public")).unwrap();
    let error = parse(dir.path(), "max_running = 7\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("there is no route"), "{error}");
}

#[test]
fn a_file_in_the_folder_goes_before_the_convention_and_a_named_file_before_both() {
    let dir = site();
    let file = |name: &str, path: &str| {
        let source = format!("[[route]]\npath = \"{path}\"\nfiles = \"public\"");
        fs::write(dir.path().join(name), source).unwrap();
        dir.path().join(name)
    };
    assert_eq!(
        Config::for_dir(dir.path(), None, None)
            .unwrap()
            .routes
            .len(),
        2
    );
    file("galgo.toml", "/own/");
    let named = file("named.toml", "/named/");
    let own = Config::for_dir(dir.path(), None, None).unwrap();
    assert_eq!(handlers(&own), [(None, "/own/")]);
    let explicit = Config::for_dir(dir.path(), Some(&named), None).unwrap();
    assert_eq!(handlers(&explicit), [(None, "/named/")]);
    let error = Config::load(&dir.path().join("no.toml"))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("no.toml does not exist: create it or correct the path"));
    fs::write(&named, b"# \xff").unwrap();
    let error = Config::load(&named).unwrap_err().to_string();
    assert!(
        error.ends_with("named.toml:1: is not UTF-8: save it as UTF-8"),
        "{error}"
    );
}

#[test]
fn interpreters_are_tried_longest_ending_first() {
    let dir = site();
    let source = "route = [{ path = \"/\", files = \"public\" }]\n\
        [interpreters]\n\".a\" = \"/bin/sh\"\n\".b.a\" = \"/bin/cat\"";
    let config = parse(dir.path(), source).unwrap();
    let endings: Vec<_> = config
        .interpreters
        .iter()
        .map(|(ending, _)| ending.as_str())
        .collect();
    assert_eq!(endings, [".b.a", ".a"]);
    let Handler::Files(files) = &config.routes[0].handler else {
        panic!("a route of files");
    };
    for source in ["x/y.a", "y.A", "y.a~", "y.a.bak", "y.b.a.ORIG", ".a"] {
        assert!(files.is_source(source.as_bytes()), "{source}");
    }
    for other in ["", "a", "y.a.txt", "y.a/z", "~", "y.bak"] {
        assert!(!files.is_source(other.as_bytes()), "{other}");
    }
}

#[test]
fn homes_become_routes_and_a_missing_folder_a_warning() {
    let dir = site();
    let raw = "route = [{ path = \"/\", files = \"public\" }]\n\
        [userdir]\nfiles = \"no-such-folder\"\nusers = [\"daemon\"]";
    let config = parse(dir.path(), raw).unwrap();
    assert_eq!(handlers(&config), [(None, "/")]);
    assert_eq!(config.warnings.len(), 1);
    assert!(
        config.warnings[0].starts_with("~daemon: /"),
        "{:?}",
        config.warnings
    );
    // A home that is the only route, and an account that is gone.
    for user in ["daemon", "no-such-account"] {
        let raw = format!("[userdir]\nfiles = \"no-such-folder\"\nusers = [{user:?}]");
        let config = parse(dir.path(), &raw).unwrap();
        assert_eq!((config.routes.len(), config.warnings.len()), (0, 1));
    }
}

#[test]
fn homes_are_not_left_by_links() {
    use crate::config_check::userdir::{HomeRouteKind, open_home_route};
    let home = site();
    let userdir = UserDir {
        files: Some("public".into()),
        cgi_names: Vec::new(),
        cgi: None,
        runs_as: None,
        users: Vec::new(),
    };
    let open = |name: &str, kind| {
        open_home_route(
            "alice",
            home.path(),
            Path::new(name),
            kind,
            &userdir,
            &Config::default(),
        )
    };
    let programs = open("cgi-bin", HomeRouteKind::Cgi).unwrap();
    assert_eq!(programs.path, "/~alice/cgi-bin/");
    let Handler::Cgi(cgi) = &programs.handler else {
        panic!()
    };
    assert_eq!(cgi.document_root, home.path().join("public"));
    assert_eq!(
        open("public", HomeRouteKind::Files).unwrap().path,
        "/~alice/"
    );

    symlink("public", home.path().join("inside")).unwrap();
    assert!(open("inside", HomeRouteKind::Files).is_ok());
    for target in ["/etc", "../../etc", ".."] {
        let link = home.path().join("outside");
        symlink(target, &link).unwrap();
        assert!(open("outside", HomeRouteKind::Files).is_err(), "{target}");
        fs::remove_file(link).unwrap();
    }
}

#[test]
fn a_part_of_a_processor_is_no_time() {
    let dir = site();
    let of = |cpu: &str| {
        let text = format!("[defaults]\ncpu = {cpu}\n[[route]]\npath = \"/\"\nrespond = {{}}\n");
        let limits = parse(dir.path(), &text).unwrap().options.limits;
        (limits.cpu, limits.cpu_percent)
    };
    assert_eq!(of("\"150%\""), (None, Some(150)));
    assert_eq!(of("\"10s\""), (Some(10), None));
    assert_eq!(of("\"none\""), (None, None));
}
