//! Program resolution, on real folders.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    sync::Arc,
};

use super::*;
use galgo_proto::target::{Target, UrlPath};

/// The path that is asked for, as it came; what no target holds is looked at all the same.
fn asked(path: &str) -> UrlPath<'static> {
    let target = Target::from_gateway(None, path.into(), None, usize::MAX, false)
        .unwrap_or(Target::from_decoded(String::new(), None, path.into()));
    Box::leak(Box::new(target)).url_path()
}

/// A folder of programs, and one with what lies outside.
struct Site {
    dir: tempfile::TempDir,
    cgi: Cgi,
}

fn site() -> Site {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    fs::create_dir_all(bin.join("sub/deep")).unwrap();
    fs::create_dir(bin.join(".git")).unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    let programs = [
        "bin/hello",
        "bin/nph-a",
        "bin/sub/prog",
        "bin/sub/deep/prog",
        "bin/.hidden",
        "bin/hello~",
        "bin/.git/hook",
        "out/prog",
        "bin/prog.bak",
        "bin/odd name\u{fc}",
    ];
    for name in programs {
        put(&dir.path().join(name), 0o755);
    }
    for name in [
        "bin/plain",
        "bin/page.php",
        "bin/sub/page.php",
        "bin/page.php.txt",
    ] {
        put(&dir.path().join(name), 0o644);
    }
    put(&bin.join("locked.php"), 0o000);
    symlink("hello", bin.join("alias")).unwrap();
    symlink("sub", bin.join("also")).unwrap();
    symlink("../out/prog", bin.join("up")).unwrap();
    symlink("../out", bin.join("outside")).unwrap();
    symlink(dir.path().join("bin/hello"), bin.join("absolute")).unwrap();
    symlink("/proc/self/exe", bin.join("magic")).unwrap();
    symlink("loop", bin.join("loop")).unwrap();
    symlink("nothing", bin.join("dangling")).unwrap();
    let fifo = rustix::fs::Mode::from_raw_mode(0o755);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bin.join("fifo"),
        rustix::fs::FileType::Fifo,
        fifo,
        0,
    )
    .unwrap();
    let mut cgi = Cgi::new(CgiRoot::open(&bin).unwrap(), "/srv/public".into());
    cgi.interpreters = Arc::new(vec![(".php".to_owned(), "/usr/bin/php-cgi".into())]);
    Site { dir, cgi }
}

fn put(path: &Path, mode: u32) {
    fs::write(path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_of_php_cgi_share_its_template() {
    let mut site = site();
    put(&site.dir.path().join("bin/page.php"), 0o644);
    put(&site.dir.path().join("bin/page.pyx"), 0o644);
    let php = (".php".to_owned(), "/opt/php/bin/php-cgi8.2".into());
    let python = (".pyx".to_owned(), "/usr/bin/python3".into());
    site.cgi.interpreters = Arc::new(vec![php, python]);
    let of = |name: &str| {
        let found = find_program(&site.cgi, "/", UrlPath::from_clean(name.as_bytes())).unwrap();
        let file = found.template_file().into_string().unwrap();
        (found.shares_template(), file)
    };
    let own = |name: &str| format!("{}/bin{name}", site.dir.path().display());
    assert_eq!(of("/page.php"), (true, "/opt/php/bin/php-cgi8.2".into()));
    assert_eq!(of("/page.pyx"), (false, own("/page.pyx")));
    assert_eq!(of("/hello"), (false, own("/hello")));
}

#[test]
fn s4_1_5_the_first_existing_file_on_the_path_is_the_program() {
    let site = site();
    let long = format!("/hello/{}", "x/".repeat(5000));
    let wide = format!("/hello/{}", "x".repeat(300));
    // (path below the route, SCRIPT_NAME below it, PATH_INFO)
    let table = [
        ("/hello", "/hello", ""),
        ("/hello/", "/hello", "/"),
        ("/hello//", "/hello", "//"),
        ("/hello/a/b", "/hello", "/a/b"),
        ("/hello//a///b/", "/hello", "//a///b/"),
        ("/hello/.git/x~", "/hello", "/.git/x~"),
        ("/hello/sub/prog", "/hello", "/sub/prog"),
        ("/hello/hello", "/hello", "/hello"),
        ("/sub/prog", "/sub/prog", ""),
        ("/sub/prog/i", "/sub/prog", "/i"),
        ("/sub/deep/prog/i/j", "/sub/deep/prog", "/i/j"),
        ("//hello", "/hello", ""),
        ("///sub//prog//i", "/sub/prog", "//i"),
        ("/also/deep/prog/i", "/also/deep/prog", "/i"),
        ("/alias/i", "/alias", "/i"),
        ("/absolute", "/absolute", ""),
        ("/absolute/i", "/absolute", "/i"),
        ("/nph-a", "/nph-a", ""),
        ("/prog.bak", "/prog.bak", ""),
        ("/odd name\u{fc}/\u{fc}", "/odd name\u{fc}", "/\u{fc}"),
        (&long, "/hello", &long[6..]),
        (&wide, "/hello", &wide[6..]),
    ];
    for prefix in ["/cgi-bin", ""] {
        for (path, script, info) in table {
            let path = format!("{prefix}{path}");
            let found = find_program(&site.cgi, &format!("{prefix}/"), asked(&path)).unwrap();
            assert_eq!(
                found.script_name,
                format!("{prefix}{script}").as_bytes(),
                "{path}"
            );
            assert_eq!(found.path_info, info.as_bytes(), "{path}");
            let file = site.dir.path().join(format!("bin{script}"));
            assert_eq!(
                found.script_filename.as_bytes(),
                file.as_os_str().as_bytes()
            );
            assert_eq!(
                OsStr::from_bytes(found.dir.as_bytes()),
                file.parent().unwrap()
            );
            let translated = (!info.is_empty()).then(|| format!("/srv/public{info}").into_bytes());
            assert_eq!(found.path_translated, translated, "{path}");
            assert_eq!(found.nph, script == "/nph-a");
            assert_eq!(found.interpreter, None);
        }
    }
}

#[test]
fn what_is_no_program_is_not_found() {
    let site = site();
    let long = format!("/{}", "x".repeat(300));
    let table = [
        "",
        "/",
        "/nothing",
        "/nothing/hello",
        "/Hello",
        "/hello ",
        "/hello~",
        "/hello~/x",
        "/.hidden",
        "/.hidden/x",
        "/.git/hook",
        "/sub",
        "/sub/",
        "/sub/.",
        "/sub/deep/",
        "/sub/./prog",
        "/sub/../hello",
        "/../bin/hello",
        "/dangling",
        "/dangling/x",
        "/sub/nothing/x",
        "/plai",
        "/hello\0",
        "/\0",
        &long,
    ];
    for path in table {
        let path = format!("/cgi-bin{path}");
        let found = find_program(&site.cgi, "/cgi-bin/", asked(&path));
        assert_eq!(found, Err(Fault::NotFound), "{path}");
    }
}

#[test]
fn what_may_not_run_is_forbidden_in_words() {
    let site = site();
    let table = [
        ("/plain", "plain\" is not executable: chmod +x"),
        ("/plain/i", "plain\" is not executable: chmod +x"),
        ("/page.php.txt", "is not executable: static files"),
        ("/locked.php", "is not readable: chmod a+r"),
        ("/fifo", "is not a regular file"),
        (
            "/up",
            "leads out of the program folder by a symbolic link, to \"/",
        ),
        (
            "/up",
            "/out/prog\": give that a route of its own ([[route]] path = \"/cgi-bin/up\", cgi = \"/",
        ),
        ("/up/i", "([[route]] path = \"/cgi-bin/up\", cgi = \"/"),
        ("/up/i", "leads out of the program folder"),
        ("/outside/prog", "leads out of the program folder"),
        ("/outside/prog/i", "leads out of the program folder"),
        ("/loop", "loop of symbolic links"),
        ("/magic", ""),
    ];
    for (path, want) in table {
        let path = format!("/cgi-bin{path}");
        match find_program(&site.cgi, "/cgi-bin/", asked(&path)) {
            Err(Fault::Refused(why)) => assert!(why.contains(want), "{path}: {why}"),
            other => panic!("{path}: {other:?}"),
        }
    }
}

#[test]
fn interpreted_files_need_no_executable_bit() {
    let site = site();
    for (path, info) in [("/page.php", ""), ("/sub/page.php/a", "/a")] {
        let path = format!("/cgi-bin{path}");
        let found = find_program(&site.cgi, "/cgi-bin/", asked(&path)).unwrap();
        assert_eq!(
            found.interpreter.as_deref(),
            Some(Path::new("/usr/bin/php-cgi"))
        );
        assert_eq!(found.path_info, info.as_bytes());
    }
}

#[test]
fn a_route_of_one_program_hands_it_all_the_rest() {
    let site = site();
    let file = site.dir.path().join("bin/hello");
    let cgi = Cgi::new(CgiRoot::open(&file).unwrap(), "/".into());
    let table = [
        ("/app", "/app", "/app", ""),
        ("/app", "/app/", "/app", "/"),
        ("/app", "/app//x", "/app", "//x"),
        ("/", "/", "", "/"),
        ("/", "/x/y", "", "/x/y"),
    ];
    for (route, path, script, info) in table {
        let found = find_program(&cgi, route, asked(path)).unwrap();
        assert_eq!(
            (found.script_name, found.path_info),
            (script.as_bytes(), info.as_bytes())
        );
        assert_eq!(
            found.script_filename.as_bytes(),
            file.as_os_str().as_bytes()
        );
        let translated = (!info.is_empty()).then(|| info.as_bytes().to_owned());
        assert_eq!(found.path_translated, translated);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(
        find_program(&cgi, "/app", asked("/app")),
        Err(Fault::NotFound)
    );
}

#[test]
fn new_and_replaced_programs_are_found_at_once() {
    let site = site();
    let bin = site.dir.path().join("bin");
    assert_eq!(
        find_program(&site.cgi, "/", asked("/new")),
        Err(Fault::NotFound)
    );
    put(&bin.join("new"), 0o755);
    assert!(find_program(&site.cgi, "/", asked("/new")).is_ok());
    fs::rename(bin.join("plain"), bin.join("new")).unwrap();
    assert!(matches!(
        find_program(&site.cgi, "/", asked("/new")),
        Err(Fault::Refused(_))
    ));
}

#[test]
fn so_many_folders_are_looked_into() {
    let site = site();
    for (depth, is_found) in [(MAX_FOLDERS - 1, true), (MAX_FOLDERS, false)] {
        let folders = "d/".repeat(depth);
        fs::create_dir_all(site.dir.path().join("bin").join(&folders)).unwrap();
        put(&site.dir.path().join(format!("bin/{folders}prog")), 0o755);
        let with_info = find_program(&site.cgi, "/", asked(&format!("/{folders}prog/info")));
        assert_eq!(with_info.is_ok(), is_found, "{depth}");
        // Without PATH_INFO it is found by one look.
        assert!(find_program(&site.cgi, "/", asked(&format!("/{folders}prog"))).is_ok());
    }
}
