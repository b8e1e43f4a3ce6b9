//! gitweb: docs/recipes/gitweb.md.

use galgo_testkit::Server;

use crate::{
    curl::curl,
    recipe::block,
    repository::{git, noise, run, sha256, small},
    site::{needed, new_site},
};

fn serve() -> (Server, std::path::PathBuf) {
    needed("/usr/share/gitweb/gitweb.cgi");
    let site = new_site();
    let bare = small(&site.path("repos"), "small.git");
    let conf = block("gitweb.md", "perl", &[("/srv/git", &site.path("repos"))]);
    let conf = site.write("gitweb.conf", conf);
    let config = block("gitweb.md", "toml", &[("/srv/gitweb.conf", &conf)]);
    (site.config(&config).start(), bare)
}

/// Checks that the server has every file that a page names in these attributes.
pub(crate) fn parts_are_served(server: &Server, page: &str) {
    let mut parts = 0;
    for attribute in [
        "rel=\"stylesheet\" type=\"text/css\" href",
        "rel='stylesheet' type='text/css' href",
        "src",
    ] {
        for quote in ["'", "\""] {
            for rest in page.split(&format!("{attribute}={quote}")).skip(1) {
                let part = rest.split(quote).next().unwrap();
                assert!(part.starts_with('/'), "{part}");
                curl(&[&server.url(part)]).ok();
                parts += 1;
            }
        }
    }
    assert!(parts >= 2, "{page}");
}

#[test]
fn lists_projects_and_shows_blobs() {
    let (server, bare) = serve();
    let list = curl(&[&server.url("/gitweb")]).ok().text();
    parts_are_served(&server, &list);
    assert!(
        list.contains("small.git") && list.contains("a small repository"),
        "{list}"
    );
    let summary = curl(&[&server.url("/gitweb?p=small.git;a=summary")])
        .ok()
        .text();
    assert!(summary.contains("the second commit"), "{summary}");
    assert!(summary.contains("Ada"), "{summary}");
    let blob = curl(&[&server.url("/gitweb?p=small.git;a=blob;f=README;hb=HEAD")])
        .ok()
        .text();
    assert!(
        blob.contains("&lt;b&gt;bold&nbsp;&amp;&nbsp;more&lt;/b&gt;"),
        "{blob}"
    );
    // Names the file by a path, which gitweb takes from PATH_INFO.
    let plain = curl(&[&server.url("/gitweb/small.git/blob_plain/HEAD:/README")]).ok();
    assert_eq!(plain.text(), "first line\n<b>bold & more</b>\nlast line\n");
    assert!(plain.field("Content-Type").starts_with("text/plain"));
    let path = server.url("/gitweb/small.git/blob_plain/HEAD:/src/gr%C3%B6%C3%9Fe.txt");
    assert_eq!(curl(&[&path]).ok().text(), "naïve\n");
    let bytes = curl(&[&server.url("/gitweb?p=small.git;a=blob_plain;f=noise.bin;hb=HEAD")]).ok();
    assert_eq!(bytes.body, noise(100_000));
    let feed = curl(&[&server.url("/gitweb?p=small.git;a=atom")]).ok();
    assert!(
        feed.field("Content-Type")
            .starts_with("application/atom+xml"),
        "{feed:?}"
    );
    let missing = curl(&[&server.url("/gitweb?p=nothing.git")]).is(404);
    assert!(missing.text().contains("404 - "), "{}", missing.text());
    assert_eq!(git(&bare, &["rev-list", "--count", "main"]), "2");
}

#[test]
fn snapshot_is_what_git_archive_makes() {
    let (server, bare) = serve();
    let commit = git(&bare, &["rev-parse", "main"]);
    for (format, suffix) in [("tgz", ".tar.gz"), ("zip", ".zip")] {
        let url = server.url(&format!(
            "/gitweb?p=small.git;a=snapshot;h={commit};sf={format}"
        ));
        let snapshot = curl(&[&url]).ok();
        let name = snapshot.field("Content-Disposition").to_owned();
        let name = name
            .split('"')
            .nth(1)
            .unwrap()
            .strip_suffix(suffix)
            .unwrap();
        assert!(name.starts_with("small-"), "{name}");
        // gitweb's tgz is `tar`, then gzip without name and time.
        let archive = format!(
            "git archive --format={} --prefix={name}/ {commit} {}",
            if format == "tgz" { "tar" } else { format },
            if format == "tgz" { "| gzip -n" } else { "" },
        );
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &archive])
            .current_dir(&bare)
            // A zip holds local times. gitweb has no time zone unless the server sets TZ.
            .env_remove("TZ");
        let expected = run(&mut shell).stdout;
        assert!(expected.len() > 100_000);
        assert_eq!(sha256(&snapshot.body), sha256(&expected), "{format}");
    }
}

#[test]
fn unmodified_snapshot_and_feed_are_304() {
    let (server, bare) = serve();
    let commit = git(&bare, &["rev-parse", "main"]);
    for path in [
        format!("/gitweb?p=small.git;a=snapshot;h={commit};sf=tgz"),
        "/gitweb?p=small.git;a=atom".to_owned(),
    ] {
        let url = server.url(&path);
        let first = curl(&[&url]).ok();
        let modified = format!("If-Modified-Since: {}", first.field("Last-Modified"));
        let second = curl(&["-H", &modified, &url]).is(304);
        assert!(second.body.is_empty(), "{second:?}");
        let older = "If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT";
        assert_eq!(curl(&["-H", older, &url]).ok().body, first.body);
    }
}
