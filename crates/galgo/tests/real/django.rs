//! Django with its admin: docs/recipes/django.md.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use galgo_testkit::{Server, wait_until};

use crate::{
    curl::curl,
    recipe::{block, blocks},
    site::new_site,
};

/// Debian's interpreter.
const PYTHON: &str = "/usr/bin/python3";

fn django(folder: &Path, args: &[&str]) {
    let done = Command::new(PYTHON)
        .args(args)
        .env("DJANGO_SUPERUSER_PASSWORD", "open sesame")
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{args:?}: {done:?}");
}

fn serve() -> Server {
    let site = new_site();
    let folder = site.path("project");
    fs::create_dir(&folder).unwrap();
    django(&folder, &["-m", "django", "startproject", "mysite", "."]);
    let wsgi = folder.join("mysite/wsgi.py");
    let ahead = &blocks("django.md", "python")[1];
    fs::write(&wsgi, fs::read_to_string(&wsgi).unwrap() + ahead).unwrap();
    django(&folder, &["manage.py", "migrate"]);
    let admin = [
        "manage.py",
        "createsuperuser",
        "--noinput",
        "--username=ada",
        "--email=a@b.example",
    ];
    django(&folder, &admin);
    django(&folder, &["-m", "compileall", "-q", "."]);
    let program = block("django.md", "python", &[("/srv/venv/bin/python", &PYTHON)]);
    let file = folder.join("site.cgi");
    fs::write(&file, program).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let route = block("django.md", "toml", &[("/srv/mysite/site.cgi", &file)]);
    site.config(&route).start()
}

#[test]
fn the_admin() {
    let server = serve();
    let jar = server.site.path("jar");
    let jar = jar.to_str().unwrap();
    let asked = |more: &[&str], path: &str| {
        let url = server.url(path);
        let args: Vec<&str> = ["-b", jar, "-c", jar]
            .iter()
            .chain(more)
            .chain([&url.as_str()])
            .copied()
            .collect();
        curl(&args)
    };
    let login = "/admin/login/?next=/admin/";
    assert_eq!(asked(&[], "/admin/").field("Location"), login);
    let form = asked(&[], login).ok().text();
    let token = form.split("csrfmiddlewaretoken\" value=\"").nth(1).unwrap();
    let token = format!("csrfmiddlewaretoken={}", token.split('"').next().unwrap());
    let wrong = ["-d", &token, "-d", "username=ada", "-d", "password=guess"];
    assert!(asked(&wrong, login).ok().text().contains("errornote"));
    let right = [
        "-d",
        &token,
        "-d",
        "username=ada",
        "-d",
        "password=open sesame",
    ];
    let entered = asked(&right, login);
    assert_eq!(
        (entered.status, entered.field("Location")),
        (302, "/admin/")
    );
    for _ in 0..6 {
        assert!(
            asked(&[], "/admin/")
                .ok()
                .text()
                .contains("Site administration")
        );
        assert!(
            asked(&[], "/admin/auth/user/")
                .ok()
                .text()
                .contains("a@b.example")
        );
    }
    assert!(
        !server.errors().contains("started cold"),
        "{}",
        server.errors()
    );
    // The modules that cost the most are preloaded by the third template at the latest.
    wait_until("a template with the models and the project", || {
        asked(&[], "/admin/").ok();
        let log = server.errors();
        let left = log
            .lines()
            .rfind(|line| line.contains("modules not loaded ahead"));
        let costly = ["django.contrib.auth.models", "mysite.wsgi"];
        let loaded = left.is_none_or(|line| !costly.iter().any(|module| line.contains(module)));
        loaded && log.matches("loaded for warm starts").count() > 2
    });
}
