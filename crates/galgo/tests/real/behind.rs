//! galgo behind real web servers: docs/recipes/behind.md.

use std::{
    io::Read,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use galgo_testkit::{Beside, Server, free_address, wait_until};

use crate::{
    curl::{self, Begun, curl, curl_with},
    processes::{MARK, mark, marked},
    recipe::{block, blocks},
    repository::{git, noise, small},
    site::{demo, needed, new_site},
};

/// A front server, and galgo behind it.
struct Behind {
    _front: Beside,
    at: SocketAddr,
    galgo: Server,
    folder: tempfile::TempDir,
}

/// Returns the server's own part of the configuration, and the command that starts the server.
type Kind = fn(at: SocketAddr, folder: &Path, block: &str) -> (String, Command);

/// nginx. The configuration belongs in `front.conf` in that folder.
pub(crate) fn nginx(at: SocketAddr, folder: &Path, block: &str) -> (String, Command) {
    let folder = folder.display();
    let temp = ["client_body", "fastcgi", "scgi", "proxy", "uwsgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};"))
        .concat();
    let config = format!(
        "daemon off; master_process off; pid {folder}/pid; error_log {folder}/log; worker_processes 1;\n\
         events {{}}\nhttp {{ access_log off; {temp}\nserver {{ listen {at};\n{block}\n}} }}\n"
    );
    let mut command = Command::new(needed("/usr/sbin/nginx"));
    command.arg("-c").arg(format!("{folder}/front.conf"));
    (config, command)
}

fn apache(at: SocketAddr, folder: &Path, block: &str) -> (String, Command) {
    let modules = ["mpm_event", "authz_core", "proxy", "proxy_fcgi"].map(|name| {
        let path = needed(format!("/usr/lib/apache2/modules/mod_{name}.so"));
        format!("LoadModule {name}_module {}\n", path.display())
    });
    let user = if rustix::process::geteuid().is_root() {
        "User nobody\nGroup nogroup\n"
    } else {
        ""
    };
    let folder = folder.display();
    let config = format!(
        "ServerRoot {folder}\nServerName localhost\nListen {at}\nPidFile {folder}/pid\n\
         ErrorLog {folder}/log\nDefaultRuntimeDir {folder}\n{}{user}DocumentRoot {folder}\n{block}\n",
        modules.concat()
    );
    let mut command = Command::new(needed("/usr/sbin/apache2"));
    command
        .arg("-DFOREGROUND")
        .arg("-f")
        .arg(format!("{folder}/front.conf"));
    (config, command)
}

fn lighttpd(at: SocketAddr, folder: &Path, block: &str) -> (String, Command) {
    let folder = folder.display();
    let config = format!(
        "server.document-root = \"{folder}\"\nserver.bind = \"{}\"\nserver.port = {}\n\
         server.errorlog = \"{folder}/log\"\nserver.upload-dirs = ( \"{folder}\" )\n{block}\n",
        at.ip(),
        at.port()
    );
    let mut command = Command::new(needed("/usr/sbin/lighttpd"));
    command
        .arg("-D")
        .arg("-f")
        .arg(format!("{folder}/front.conf"));
    (config, command)
}

fn caddy(at: SocketAddr, folder: &Path, block: &str) -> (String, Command) {
    let own = folder.display();
    let config = format!(
        "{{\nadmin off\nauto_https off\nstorage file_system {own}\n}}\n\
         http://{at} {{\nbind {}\n{block}\n}}\n",
        at.ip()
    );
    let mut command = Command::new(needed("/usr/bin/caddy"));
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(format!("{own}/front.conf"))
        .env("XDG_CONFIG_HOME", folder)
        .env("XDG_DATA_HOME", folder);
    (config, command)
}

fn haproxy(at: SocketAddr, folder: &Path, block: &str) -> (String, Command) {
    let block = block.replace(":443 ssl crt /etc/haproxy/site.pem", &at.to_string());
    let config = format!(
        "global\n    log stdout format raw local0\n\
         defaults\n    mode http\n    timeout connect 10s\n    timeout client 60s\n    timeout server 60s\n{block}\n"
    );
    let mut command = Command::new(needed("/usr/sbin/haproxy"));
    command.arg("-f").arg(folder.join("front.conf"));
    (config, command)
}

const FRONTS: [(&str, Kind); 3] = [("nginx", nginx), ("apache", apache), ("lighttpd", lighttpd)];

const STREAM: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nfirst\\n'\n\
                      while [ ! -e go ]; do sleep 0.01; done\necho second\n";
/// Prints forever: Apache and lighttpd only notice that a client left when they write to it.
const HANG: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nfirst\\n'\n\
                    trap '' PIPE\nwhile :; do echo more; sleep 0.05; done\n";
/// Reads the whole body before it answers. Once a response begins, nginx sends no more of a body that it
/// has collected.
const COUNT: &str = "#!/bin/sh\nn=$(wc -c)\nprintf 'Content-Type: text/plain\\n\\n%s\\n' \"$n\"\n";
const FACTS: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\n\
                     echo \"$REMOTE_ADDR $SERVER_PROTOCOL $SCRIPT_NAME $PATH_INFO $QUERY_STRING $REQUEST_URI\"\n";
const WHO: &str =
    "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\necho \"user:$REMOTE_USER $AUTH_TYPE\"\n";

impl Behind {
    fn start(kind: Kind, block: &str, scheme: &str, mark: &str) -> Self {
        let site = new_site();
        for (name, source) in [
            ("stream", STREAM),
            ("hang", HANG),
            ("count", COUNT),
            ("facts", FACTS),
            ("who", WHO),
        ] {
            site.program(name, source);
        }
        let bare = small(&site.path("repos"), "small.git");
        git(&bare, &["config", "http.receivepack", "true"]);
        let socket = site.path("sock");
        let gitweb = site.write(
            "gitweb.conf",
            crate::recipe::block("gitweb.md", "perl", &[("/srv/git", &site.path("repos"))]),
        );
        let routes = crate::recipe::block("gitweb.md", "toml", &[("/srv/gitweb.conf", &gitweb)]);
        let config = format!(
            "[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nenv = {{ {MARK} = \"{mark}\" }}\n\
             [[route]]\npath = \"/cgi-bin/books/\"\ncgi = \"{}\"\nenv = {{ GUESTBOOK_DB = \"{}\" }}\n\
             [[route]]\npath = \"/git\"\nbody = \"file\"\ncgi = \"{}\"\nenv = {{ GIT_PROJECT_ROOT = \"{}\", GIT_HTTP_EXPORT_ALL = \"\" }}\n\
             {routes}",
            demo().join("cgi-bin").display(),
            site.path("book.db").display(),
            needed("/usr/lib/git-core/git-http-backend").display(),
            site.path("repos").display(),
        );
        let listen = format!("{scheme}+unix:{}", socket.display());
        // The front may run as another user.
        let site = site.config("socket_mode = \"666\"\n[defaults]\nstart = \"cold\"");
        let galgo = site
            .config(&config)
            .arguments(&["--listen", &listen])
            .start();
        let folder = tempfile::tempdir().unwrap();
        let at = free_address();
        let block = block.replace("/run/galgo/galgo.sock", socket.to_str().unwrap());
        let block = block.replace("SITE/cgi-bin", galgo.site.path("cgi-bin").to_str().unwrap());
        let (config, mut command) = kind(at, folder.path(), &block);
        std::fs::write(folder.path().join("front.conf"), config).unwrap();
        let output = std::fs::File::create(folder.path().join("output")).unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let front = Beside::start(&mut command, || {
            // Apache opens its socket twice, so only an answer counts.
            let url = format!("http://{at}/cgi-bin/facts");
            let mut curl = curl::command();
            let asked = curl.args(["-o", "/dev/null", &url]).stderr(Stdio::null());
            asked.status().unwrap().success()
        });
        Self {
            _front: front,
            at,
            galgo,
            folder,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }
}

#[allow(clippy::print_stderr, reason = "what a failed test is understood by")]
impl Drop for Behind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["front.conf", "output", "log"] {
                let text = std::fs::read(self.folder.path().join(name)).unwrap_or_default();
                eprintln!("--- {name}\n{}", String::from_utf8_lossy(&text));
            }
        }
    }
}

/// Checks everything that a front passes on, with the block of the recipe.
fn all_of_it(behind: &Behind, mark: &str, chunks: bool) {
    // Variables that the program gets.
    let facts = curl(&[&behind.url("/cgi-bin/facts/in%20fo?a=b")])
        .ok()
        .text();
    assert_eq!(
        facts,
        "127.0.0.1 HTTP/1.1 /cgi-bin/facts /in fo a=b /cgi-bin/facts/in%20fo?a=b\n"
    );
    curl(&[&behind.url("/cgi-bin/missing")]).is(404);
    // The guestbooks.
    for book in ["guestbook-c", "guestbook.py"] {
        let url = behind.url(&format!("/cgi-bin/books/{book}"));
        curl(&["-d", "name=Ada&message=Hello", &url]).is(303);
        assert!(curl(&[&url]).ok().text().contains("<p>Hello</p>"), "{book}");
    }
    // gitweb, with its parts.
    let list = curl(&[&behind.url("/gitweb")]).ok().text();
    assert!(list.contains("small.git"), "{list}");
    curl(&[&behind.url("/gitweb/static/gitweb.css")]).ok();
    let plain = curl(&[&behind.url("/gitweb/small.git/blob_plain/HEAD:/README")]).ok();
    assert_eq!(plain.text(), "first line\n<b>bold & more</b>\nlast line\n");
    // 20 MB, of known length and in chunks.
    let body = noise(20_000_000);
    let url = behind.url("/cgi-bin/count");
    let plain = ["-H", "Expect:", "--data-binary", "@-", &url];
    assert_eq!(curl_with(&plain, &body).ok().text().trim(), "20000000");
    if chunks {
        let chunks = [&["-H", "Transfer-Encoding: chunked"], &plain[..]].concat();
        assert_eq!(curl_with(&chunks, &body).ok().text().trim(), "20000000");
        push(behind);
    }
    streams(behind);
    abort(behind, mark);
}

fn push(behind: &Behind) {
    let here = tempfile::tempdir().unwrap();
    git(
        here.path(),
        &["clone", "-q", &behind.url("/git/small.git"), "copy"],
    );
    let copy = here.path().join("copy");
    std::fs::write(copy.join("large.bin"), noise(5_000_000)).unwrap();
    git(&copy, &["add", "large.bin"]);
    git(&copy, &["commit", "-q", "-m", "large"]);
    git(
        &copy,
        &[
            "-c",
            "http.postBuffer=65536",
            "push",
            "-q",
            "origin",
            "main",
        ],
    );
    let head = git(&copy, &["rev-parse", "HEAD"]);
    assert!(git(&copy, &["ls-remote", "origin", "main"]).starts_with(&head));
}

/// A line that the program flushed arrives before the program ends.
fn streams(behind: &Behind) {
    let begun = Begun::ask(&behind.url("/cgi-bin/stream"));
    assert_eq!(begun.first, "first\n");
    let rest = begun.go_on(&behind.galgo.path("cgi-bin/go"), "");
    assert_eq!(rest, "second\n");
}

/// If the front's client leaves, the front closes its connection and the program ends.
fn abort(behind: &Behind, mark: &str) {
    let mut client = curl::command()
        .args(["-N", &behind.url("/cgi-bin/hang")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe stays open: a client that cannot write would leave by itself.
    let mut output = client.stdout.take().unwrap();
    let mut first = [0; 6];
    output.read_exact(&mut first).unwrap();
    assert!(!marked(mark).is_empty());
    client.kill().unwrap();
    client.wait().unwrap();
    wait_until("the program has ended", || marked(mark).is_empty());
}

fn behind(name: &str) {
    let (_, kind) = FRONTS.into_iter().find(|(n, _)| *n == name).unwrap();
    let mark = mark(name);
    let front = Behind::start(kind, &block("behind.md", name, &[]), "fastcgi", &mark);
    all_of_it(&front, &mark, true);
}

#[test]
fn behind_nginx() {
    behind("nginx");
}

#[test]
fn behind_apache() {
    behind("apache");
}

#[test]
fn behind_lighttpd() {
    behind("lighttpd");
}

#[test]
fn behind_caddy() {
    let mark = mark("caddy");
    let front = Behind::start(caddy, &block("behind.md", "caddy", &[]), "fastcgi", &mark);
    all_of_it(&front, &mark, false);
    // Caddy says CONTENT_LENGTH=0 for a body that came in chunks, and sends the body. Because this is
    // ambiguous, galgo refuses the request.
    let url = front.url("/cgi-bin/count");
    let chunks = ["-H", "Transfer-Encoding: chunked", "--data-binary", "@-"];
    curl_with(&[&chunks[..], &[&url]].concat(), b"body").is(400);
}

#[test]
fn behind_haproxy() {
    let mark = mark("haproxy");
    let block = block("behind.md", "haproxy", &[]);
    let front = Behind::start(haproxy, &block, "fastcgi", &mark);
    let facts = curl(&[&front.url("/cgi-bin/facts/in%20fo?a=b")])
        .ok()
        .text();
    assert_eq!(
        facts,
        "127.0.0.1 HTTP/1.1 /cgi-bin/facts /in fo a=b /cgi-bin/facts/in%20fo?a=b\n"
    );
    // The body has a known length, because HAProxy passes on no other body.
    let body = noise(20_000_000);
    let url = front.url("/cgi-bin/count");
    let plain = ["-H", "Expect:", "--data-binary", "@-", &url];
    assert_eq!(curl_with(&plain, &body).ok().text().trim(), "20000000");
    // HAProxy turns a redirect with 303 into 302.
    let book = front.url("/cgi-bin/books/guestbook-c");
    curl(&["-d", "name=Ada&message=Hello", &book]).is(302);
    streams(&front);
    abort(&front, &mark);
}

/// nginx and HAProxy pass on as REMOTE_USER any name that the client claims.
#[test]
fn a_client_that_no_front_has_asked_for_a_password_is_no_user() {
    let fronts = [("nginx", nginx as Kind), ("haproxy", haproxy)];
    for (name, kind) in fronts {
        let front = Behind::start(kind, &block("behind.md", name, &[]), "fastcgi", &mark(name));
        let url = front.url("/cgi-bin/who");
        let who = |claim: &[&str]| curl(&[claim, &[&url]].concat()).ok().text();
        assert_eq!(who(&[]), "user: \n", "{name}");
        assert_eq!(who(&["-u", "x:y"]), "user: \n", "{name}");
    }
}

/// The recipe's configuration for users that the front has verified.
#[test]
fn users_whom_a_front_has_verified_are_told_to_programs() {
    let members = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&members, "ada:{PLAIN}secret\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&members, mode).unwrap();
    let members = members.path().display().to_string();
    let fronts = [
        ("nginx", nginx as Kind, "user:ada Basic\n"),
        ("haproxy", haproxy, "user:ada Checked\n"),
    ];
    for (name, kind, wanted) in fronts {
        let block = blocks("behind.md", name).swap_remove(1);
        let block = block.replace("/etc/nginx/members.htpasswd", &members);
        let front = Behind::start(kind, &block, "fastcgi", &mark(name));
        let url = front.url("/cgi-bin/who");
        assert_eq!(
            curl(&["-u", "ada:secret", &url]).ok().text(),
            wanted,
            "{name}"
        );
        for claim in ["ada:wrong", "x:y"] {
            curl(&["-u", claim, &url]).is(401);
        }
    }
}

/// Checks everything once over SCGI.
#[test]
fn behind_nginx_over_scgi() {
    let block = block("behind.md", "nginx", &[])
        .replace("fastcgi_request_buffering off;", "")
        .replace("fastcgi_", "scgi_");
    let mark = mark("scgi");
    let front = Behind::start(nginx, &block, "scgi", &mark);
    // nginx only counts the part of a body that it has collected. It counts nothing of a body that came in
    // chunks.
    all_of_it(&front, &mark, false);
}

/// fcgiwrap's contract: the front names the program by its file, which must lie in a folder of programs.
#[test]
fn behind_nginx_by_script_filename() {
    let mark = mark("filename");
    let block = "location ~ ^(/[^/]+)(/.*)?$ { include /etc/nginx/fastcgi.conf;\n\
                 fastcgi_pass unix:/run/galgo/galgo.sock; root SITE/cgi-bin; }\n\
                 location ^~ /etc/ { include /etc/nginx/fastcgi.conf;\n\
                 fastcgi_pass unix:/run/galgo/galgo.sock; root /; }";
    let front = Behind::start(nginx, block, "fastcgi", &mark);
    let facts = curl(&[&front.url("/facts/in%20fo?a=b")]).ok().text();
    assert_eq!(
        facts,
        "127.0.0.1 HTTP/1.1 /facts /in fo a=b /facts/in%20fo?a=b\n"
    );
    curl(&[&front.url("/etc/passwd")]).is(403);
    front
        .galgo
        .says("\"/etc/passwd\", which no folder of a `cgi` route contains");
}
