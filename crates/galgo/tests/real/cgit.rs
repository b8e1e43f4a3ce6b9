//! cgit: docs/recipes/cgit.md.

use std::process::{Command, Stdio};

use galgo_testkit::Server;

use crate::{
    curl::curl,
    gitweb::parts_are_served,
    recipe::block,
    repository::{git, run, sha256, small},
    site::{needed, new_site},
};

fn serve() -> (Server, std::path::PathBuf) {
    needed("/usr/lib/cgit/cgit.cgi");
    let site = new_site();
    let bare = small(&site.path("repos"), "small.git");
    let rc = block("cgit.md", "", &[("/srv/git", &site.path("repos"))]);
    let rc = site.write("cgitrc", rc);
    let config = block("cgit.md", "toml", &[("/srv/cgitrc", &rc)]);
    (site.config(&config).start(), bare)
}

#[test]
fn index_log_and_blob() {
    let (server, bare) = serve();
    let commit = git(&bare, &["rev-parse", "main"]);
    let index = curl(&[&server.url("/cgit/")]).ok().text();
    parts_are_served(&server, &index);
    assert!(
        index.contains("/cgit/small.git/") && index.contains("a small repository"),
        "{index}"
    );
    let log = curl(&[&server.url("/cgit/small.git/log/")]).ok().text();
    assert!(
        log.contains("the first commit") && log.contains("the second commit"),
        "{log}"
    );
    let page = curl(&[&server.url(&format!("/cgit/small.git/commit/?id={commit}"))])
        .ok()
        .text();
    assert!(page.contains("+last line"), "{page}");
    let plain = curl(&[&server.url("/cgit/small.git/plain/README")]).ok();
    assert_eq!(plain.text(), "first line\n<b>bold & more</b>\nlast line\n");
    let accent = curl(&[&server.url("/cgit/small.git/plain/src/gr%C3%B6%C3%9Fe.txt")]).ok();
    assert_eq!(accent.text(), "naïve\n");
    curl(&[&server.url("/cgit/small.git/plain/nothing")]).is(404);
    let head = curl(&["-I", &server.url("/cgit/small.git/log/")]).ok();
    assert!(
        head.body.is_empty() || head.body.starts_with(b"HTTP/"),
        "{head:?}"
    );
}

#[test]
fn snapshot_is_what_git_archive_makes() {
    let (server, bare) = serve();
    let commit = git(&bare, &["rev-parse", "main"]);
    let archive = [
        "archive",
        "--format=tar",
        &format!("--prefix=small-{commit}/"),
        &commit,
    ];
    let expected = run(crate::repository::command(&bare).args(archive)).stdout;
    let url =
        |suffix: &str| server.url(&format!("/cgit/small.git/snapshot/small-{commit}{suffix}"));
    let tar = curl(&[&url(".tar")]).ok();
    assert_eq!(sha256(&tar.body), sha256(&expected));
    let packed = curl(&[&url(".tar.gz")]).ok();
    assert!(
        packed
            .field("Content-Disposition")
            .contains(&format!("small-{commit}.tar.gz"))
    );
    let mut gzip = Command::new("gzip");
    let file = server.site.write("snapshot.gz", &packed.body);
    gzip.arg("-dc").arg(file).stdin(Stdio::null());
    assert_eq!(sha256(&run(&mut gzip).stdout), sha256(&expected));
}

/// cgit answers the dumb protocol itself.
#[test]
fn clone_from_cgit() {
    let (server, bare) = serve();
    git(&bare, &["update-server-info"]);
    let here = tempfile::tempdir().unwrap();
    git(
        here.path(),
        &["clone", "-q", &server.url("/cgit/small.git"), "copy"],
    );
    let copy = here.path().join("copy");
    git(&copy, &["fsck", "--full", "--strict"]);
    assert_eq!(
        git(&copy, &["rev-parse", "HEAD"]),
        git(&bare, &["rev-parse", "main"])
    );
}
