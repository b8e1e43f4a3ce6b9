//! git-http-backend: docs/recipes/git.md.

use std::{
    fs::File,
    io::{Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};

use galgo_testkit::{Server, Site, is_root, wait_until};

use crate::{
    curl::{curl, curl_with},
    processes::{MARK, mark, marked},
    recipe::block,
    repository::{self, git, noise, run, small},
    site::{needed, new_site},
};

/// Serves `repos/` of the site at `/git`, as the recipe says.
fn serve(site: Site, mark: &str) -> Server {
    needed("/usr/lib/git-core/git-http-backend");
    let marked = format!("GIT_HTTP_EXPORT_ALL = \"\"\n{MARK} = \"{mark}\"");
    let names: [(_, &dyn AsRef<Path>); 2] = [
        ("/srv/git", &site.path("repos")),
        ("GIT_HTTP_EXPORT_ALL = \"\"", &marked),
    ];
    let config = block("git.md", "toml", &names);
    site.config(&config).start()
}

/// Runs the recipe, line by line. The repository belongs to the user that runs the tests. If that is root, galgo runs as
/// another user.
#[test]
fn recipe() {
    needed("/usr/lib/git-core/git-http-backend");
    let site = new_site();
    let repositories = site.path("repos");
    std::fs::create_dir(&repositories).unwrap();
    let there: [(_, &dyn AsRef<Path>); 1] = [("/srv/git", &repositories)];
    let config = block("git.md", "toml", &there);
    let site = if is_root() {
        site.config("user = \"nobody\"\n[defaults]\nstart = \"cold\"")
    } else {
        site
    };
    let server = site.config(&config).start();
    let names: [(_, &dyn AsRef<Path>); 2] = [
        ("/srv/git", &repositories),
        ("http://127.0.0.1:8080", &server.listener(0)),
    ];
    let commands = block("git.md", "sh", &names);
    let here = client();
    let mut shell = Command::new("sh");
    shell.args(["-exc", &commands]).current_dir(here.path());
    shell
        .env("HOME", here.path())
        .env("GIT_CONFIG_NOSYSTEM", "1");
    shell.env("GIT_TERMINAL_PROMPT", "0");
    run(&mut shell);
    assert!(here.path().join("project/.git").is_dir());
}

/// Returns a git client that records its conversation: HTTP in `curl.trace`, packets in `packet.trace`.
fn traced(folder: &Path) -> Command {
    let mut git = repository::command(folder);
    git.env("GIT_TRACE_CURL", folder.join("curl.trace"))
        .env("GIT_TRACE_CURL_NO_DATA", "1")
        .env("GIT_TRACE_PACKET", folder.join("packet.trace"));
    git
}

fn trace(folder: &Path, name: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(folder.join(name)).unwrap()).into_owned()
}

fn client() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[track_caller]
fn sound(repository: &Path) {
    git(repository, &["fsck", "--full", "--strict"]);
}

#[test]
fn clone_speaks_protocol_version_2() {
    let site = new_site();
    let bare = small(&site.path("repos"), "small.git");
    let server = serve(site, &mark("clone"));
    let here = client();
    run(traced(here.path()).args([
        "-c",
        "protocol.version=2",
        "clone",
        "-q",
        &server.url("/git/small.git"),
        "copy",
    ]));
    let copy = here.path().join("copy");
    sound(&copy);
    assert_eq!(
        git(&copy, &["rev-parse", "HEAD"]),
        git(&bare, &["rev-parse", "HEAD"])
    );
    assert_eq!(
        std::fs::read(copy.join("noise.bin")).unwrap(),
        noise(100_000)
    );
    let packets = trace(here.path(), "packet.trace");
    assert!(packets.contains("< version 2"), "{packets}");
    assert!(packets.contains("> command=fetch"), "{packets}");
}

#[test]
fn clone_speaks_the_older_protocol_too() {
    let site = new_site();
    let bare = small(&site.path("repos"), "small.git");
    let server = serve(site, &mark("v0"));
    let here = client();
    run(traced(here.path()).args([
        "-c",
        "protocol.version=0",
        "clone",
        "-q",
        &server.url("/git/small.git"),
        "copy",
    ]));
    sound(&here.path().join("copy"));
    assert_eq!(
        git(&here.path().join("copy"), &["rev-parse", "HEAD"]),
        git(&bare, &["rev-parse", "HEAD"])
    );
    assert!(!trace(here.path(), "packet.trace").contains("version 2"));
}

#[test]
fn shallow_clone_has_one_commit_and_deepens() {
    let site = new_site();
    small(&site.path("repos"), "small.git");
    let server = serve(site, &mark("shallow"));
    let here = client();
    git(
        here.path(),
        &[
            "clone",
            "-q",
            "--depth",
            "1",
            &server.url("/git/small.git"),
            "copy",
        ],
    );
    let copy = here.path().join("copy");
    assert_eq!(git(&copy, &["rev-list", "--count", "HEAD"]), "1");
    sound(&copy);
    git(&copy, &["fetch", "-q", "--unshallow"]);
    assert_eq!(git(&copy, &["rev-list", "--count", "HEAD"]), "2");
    sound(&copy);
}

/// If http.postBuffer is exceeded, git sends chunks, because it does not know the length itself.
#[test]
fn push_of_50_mb_in_chunks() {
    let site = new_site();
    let bare = small(&site.path("repos"), "small.git");
    git(&bare, &["config", "http.receivepack", "true"]);
    let server = serve(site, &mark("push"));
    let here = client();
    git(
        here.path(),
        &["clone", "-q", &server.url("/git/small.git"), "copy"],
    );
    let copy = here.path().join("copy");
    std::fs::write(copy.join("large.bin"), noise(50_000_000)).unwrap();
    git(&copy, &["config", "core.compression", "0"]);
    git(&copy, &["add", "large.bin"]);
    git(&copy, &["commit", "-q", "-m", "50 MB"]);
    run(traced(&copy).args([
        "-c",
        "http.postBuffer=65536",
        "push",
        "-q",
        "origin",
        "main",
    ]));
    let said = trace(&copy, "curl.trace").to_lowercase();
    assert!(
        said.contains("post /git/small.git/git-receive-pack"),
        "{said}"
    );
    assert!(said.contains("transfer-encoding: chunked"), "{said}");
    assert_eq!(
        git(&bare, &["rev-parse", "main"]),
        git(&copy, &["rev-parse", "main"])
    );
    assert_eq!(
        git(&bare, &["cat-file", "-s", "main:large.bin"]),
        "50000000"
    );
    sound(&bare);
}

#[test]
fn push_is_refused_without_receivepack() {
    let site = new_site();
    small(&site.path("repos"), "small.git");
    let server = serve(site, &mark("refused"));
    let url = server.url("/git/small.git/info/refs?service=git-receive-pack");
    curl(&[&url]).is(403);
}

/// Makes hundreds of branches, none of them part of another. A fetch names them all, and git compresses that request.
fn many_branches(site: &Site) -> PathBuf {
    let bare = small(&site.path("repos"), "many.git");
    let mut import = String::new();
    for n in 0..300 {
        import.push_str(&format!(
            "commit refs/heads/branch-{n}\ncommitter A <a@example.org> {} +0000\ndata 2\n{}\n",
            1_700_000_000 + n,
            n % 10,
        ));
        import.push_str(&format!("M 644 inline file\ndata <<END\n{n}\nEND\n\n"));
    }
    let mut process = repository::command(&bare)
        .args(["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    process
        .stdin
        .take()
        .unwrap()
        .write_all(import.as_bytes())
        .unwrap();
    assert!(process.wait().unwrap().success());
    bare
}

#[test]
fn compressed_requests_are_understood() {
    let site = new_site();
    let bare = many_branches(&site);
    let server = serve(site, &mark("gzip"));
    for version in ["0", "2"] {
        let here = client();
        let version = format!("protocol.version={version}");
        run(traced(here.path()).args([
            "-c",
            &version,
            "clone",
            "-q",
            "--mirror",
            &server.url("/git/many.git"),
            "copy",
        ]));
        let said = trace(here.path(), "curl.trace").to_lowercase();
        assert!(said.contains("content-encoding: gzip"), "{version}: {said}");
        let copy = here.path().join("copy");
        sound(&copy);
        let refs = ["for-each-ref", "--format=%(objectname) %(refname)"];
        assert_eq!(git(&copy, &refs), git(&bare, &refs), "{version}");
        assert!(git(&copy, &refs).lines().count() > 300);
    }
}

/// A compressed request by hand: the bytes of the body reach the backend unchanged, and the backend unpacks them.
#[test]
fn compressed_and_chunked_body_reaches_the_backend() {
    let site = new_site();
    small(&site.path("repos"), "small.git");
    let server = serve(site, &mark("gzip-chunked"));
    let line = |s: &str| format!("{:04x}{s}", s.len() + 4);
    let request = [
        &line("command=ls-refs\n"),
        "0001",
        &line("ref-prefix refs/heads/\n"),
        "0000",
    ]
    .concat();
    let mut gzip = Command::new("gzip")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    gzip.stdin
        .take()
        .unwrap()
        .write_all(request.as_bytes())
        .unwrap();
    let packed = gzip.wait_with_output().unwrap().stdout;
    let url = server.url("/git/small.git/git-upload-pack");
    let mut args = vec![
        "-H",
        "Git-Protocol: version=2",
        "-H",
        "Content-Type: application/x-git-upload-pack-request",
        "-H",
        "Content-Encoding: gzip",
        "--data-binary",
        "@-",
        &url,
    ];
    let told = curl_with(&args, &packed).ok();
    assert!(told.text().contains("refs/heads/main"), "{told:?}");
    assert_eq!(
        told.field("Content-Type"),
        "application/x-git-upload-pack-result"
    );
    args.extend(["-H", "Transfer-Encoding: chunked"]);
    assert_eq!(curl_with(&args, &packed).ok().body, told.body);
}

/// The dumb protocol: every object is a file, sent by the backend.
#[test]
fn dumb_protocol_serves_plain_files() {
    let site = new_site();
    let packed = small(&site.path("repos"), "packed.git");
    let loose = small(&site.path("repos"), "loose.git");
    git(&packed, &["repack", "-q", "-a", "-d"]);
    // Unpacks the pack, so that each object becomes a file of its own.
    for pack in std::fs::read_dir(loose.join("objects/pack"))
        .unwrap()
        .flatten()
    {
        if pack.path().extension().is_some_and(|e| e == "pack") {
            let aside = loose.join("aside.pack");
            std::fs::rename(pack.path(), &aside).unwrap();
            let input = File::open(&aside).unwrap();
            run(repository::command(&loose)
                .args(["unpack-objects", "-q"])
                .stdin(input));
            std::fs::remove_file(aside).unwrap();
        }
    }
    for bare in [&packed, &loose] {
        git(bare, &["update-server-info"]);
    }
    let server = serve(site, &mark("dumb"));
    for (name, bare, file) in [
        ("packed.git", &packed, "/objects/pack/pack-"),
        ("loose.git", &loose, "/objects/"),
    ] {
        let here = client();
        run(traced(here.path()).env("GIT_SMART_HTTP", "0").args([
            "clone",
            "-q",
            &server.url(&format!("/git/{name}")),
            "copy",
        ]));
        let copy = here.path().join("copy");
        sound(&copy);
        assert_eq!(
            git(&copy, &["rev-parse", "HEAD"]),
            git(bare, &["rev-parse", "HEAD"])
        );
        let said = trace(here.path(), "curl.trace");
        assert!(said.contains(&format!("GET /git/{name}{file}")), "{said}");
        assert!(!said.contains("POST "), "{said}");
    }
    let head = curl(&[&server.url("/git/loose.git/HEAD")]).ok();
    assert_eq!(head.text(), "ref: refs/heads/main\n");
    assert_eq!(head.field("Content-Type"), "text/plain");
    curl(&[&server.url("/git/loose.git/config")]).is(404);
    // The server reads this path as /stderr, which no route serves.
    curl(&[&server.url("/git/../stderr")]).is(404);
    curl(&[&server.url("/git/../../stderr")]).is(400);
}

/// A client that is killed while it receives leaves no process behind on the server.
#[test]
fn killed_client_leaves_no_process() {
    let site = new_site();
    let bare = small(&site.path("repos"), "large.git");
    git(&bare, &["config", "core.compression", "0"]);
    let blob = site.write("blob", noise(50_000_000));
    let blob = git(&bare, &["hash-object", "-w", blob.to_str().unwrap()]);
    let tree = {
        let mut tree = repository::command(&bare)
            .arg("mktree")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(tree.stdin.take().unwrap(), "100644 blob {blob}\tlarge.bin").unwrap();
        let output = tree.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let commit = git(&bare, &["commit-tree", "-m", "large", &tree]);
    git(&bare, &["update-ref", "refs/heads/main", &commit]);

    // The client writes its trace into a pipe. If the test does not read the pipe, the client stops half-way.
    let fifo = site.fifo("trace");
    let mark = mark("killed");
    let server = serve(site, &mark);
    let here = client();
    let mut clone = repository::command(here.path())
        .args(["clone", "-q", &server.url("/git/large.git"), "copy"])
        .env("GIT_TRACE_CURL", &fifo)
        .env("GIT_TRACE_CURL_COMPONENTS", "1")
        .process_group(0)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut trace = File::open(&fifo).unwrap();
    let mut seen = Vec::new();
    let mut block = vec![0; 64 << 10];
    let received = b"Recv data";
    let result = b"x-git-upload-pack-result";
    while seen.len() < 2_000_000
        || !seen.windows(received.len()).any(|w| w == received)
        || !seen.windows(result.len()).any(|w| w == result)
    {
        let n = trace.read(&mut block).unwrap();
        assert!(n > 0, "the clone ended: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&block[..n]);
    }
    assert!(!marked(&mark).is_empty(), "nothing sends any more");
    kill_process_group(Pid::from_child(&clone), Signal::KILL).unwrap();
    clone.wait().unwrap();
    drop(trace);
    let mut left = Vec::new();
    wait_until("every process of the request has ended", || {
        left = marked(&mark);
        left.is_empty()
    });
    // The server works as before.
    git(here.path(), &["ls-remote", &server.url("/git/large.git")]);
}
