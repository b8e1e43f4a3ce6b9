//! Applications in PHP, unchanged, cold, warm, and from a pool of php-fpm behind nginx: the same pages.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use galgo_testkit::{Server, wait_until};

use crate::{
    curl::{Reply, curl},
    php_pool::Pool,
    site::{needed, new_site},
};

/// Says how a page came about, ahead of it.
const HOW: &str = "<?php header('X-How: ' . (strpos(file_get_contents('/proc/self/environ'), 'GALGO_TEMPLATE=') === false ? 'cold' : 'warm')); \
    header('X-Compiled: ' . count(opcache_get_status()['scripts'] ?? []));";

const SLIM: &str = r#"<?php
error_reporting(E_ALL & ~E_DEPRECATED);
require 'Slim/autoload.php';
$app = new \Slim\App(['settings' => ['displayErrorDetails' => true]]);
$app->get('/hello/{name}', fn ($request, $response, $args) => $response->write("hello $args[name]"));
$app->get('/json', fn ($request, $response) => $response->withJson($request->getQueryParams(), 201));
$app->get('/fails', function () { throw new RuntimeException('on purpose'); });
$app->run();
"#;

/// As its skeleton begins, in one file. Its first request compiles a container of services into `var`.
const SYMFONY: &str = r#"<?php
error_reporting(E_ALL & ~E_DEPRECATED);
require 'Symfony/Bundle/FrameworkBundle/autoload.php';
use Symfony\Component\HttpFoundation\{JsonResponse, Request, Response};
class Kernel extends Symfony\Component\HttpKernel\Kernel {
    use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
    public function registerBundles(): iterable { yield new Symfony\Bundle\FrameworkBundle\FrameworkBundle; }
    public function getProjectDir(): string { return dirname(__DIR__); }
    protected function configureContainer($container): void { $container->extension('framework', ['secret' => 'x', 'router' => ['utf8' => true]]); }
    protected function configureRoutes($routes): void {
        foreach (['hello' => '/hello/{name}', 'data' => '/data', 'fails' => '/fails'] as $name => $path)
            $routes->add($name, $path)->controller([$this, $name]);
    }
    public function hello(string $name) { return new Response("hello $name"); }
    public function data(Request $request) { return new JsonResponse($request->query->all(), 201); }
    public function fails() { throw new RuntimeException('on purpose'); }
}
$kernel = new Kernel('prod', false);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
"#;

/// Templates, a theme and a database in a file, as a weblog has them.
const BLOG: &str = r#"<?php
$db = new PDO('sqlite::memory:', null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$db->exec('create table post(id integer primary key, title text, body text)');
$put = $db->prepare('insert into post(title, body) values(?, ?)');
for ($i = 1; $i <= 20; $i++) $put->execute(["Title $i & more", str_repeat("word ", $i)]);
function posts() { global $db; yield from $db->query('select * from post order by id desc', PDO::FETCH_OBJ); }
foreach (posts() as $post) include __DIR__ . '/theme/post.php';
try { $db->query('select * from nowhere'); } catch (PDOException $e) { echo $e->getMessage(), $e->getLine(); }
"#;

/// Servers that have the pages of one folder.
struct Servers {
    /// Twice, beneath `/cold/` and `/warm/`.
    galgo: Server,
    pool: Pool,
}

fn serve(folder: &Path, env: &[(&str, &str)], files: &[(&str, &str)]) -> Servers {
    needed("/usr/bin/php-cgi");
    let site = new_site();
    let ini = format!(
        "output_buffering = 4194304\nopcache.file_update_protection = 0\nauto_prepend_file = {}\nsession.save_path = {}\n",
        site.path("how.php").display(),
        site.folder().display()
    );
    site.write("php.ini", ini);
    site.write("how.php", HOW);
    for (name, text) in files {
        site.write(name, text);
    }
    let folder = site.folder().join(folder);
    let ini = site.path("php.ini");
    let more = |(name, value): &(&str, &str)| format!(", {name} = \"{value}\"");
    let more: String = env.iter().map(more).collect();
    let route = |start: &str| {
        format!(
            "[[route]]\npath = \"/{start}/\"\ncgi = \"{}\"\nstart = \"{start}\"\nenv = {{ PHPRC = \"{}\"{more} }}\n",
            folder.display(),
            ini.display()
        )
    };
    let config = format!(
        "{}{}[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n",
        route("cold"),
        route("warm")
    );
    let pool = Pool::start(&folder, &ini, env);
    let galgo = site.config(&config).start();
    Servers { galgo, pool }
}

fn ask(servers: &Servers, start: &str, page: &str) -> Reply {
    get(&servers.galgo.url(&format!("/{start}/{page}")))
}

/// By a name that all servers have, for pages that name it.
fn get(url: &str) -> Reply {
    curl(&["-H", "Host: localhost", url])
}

/// A page without what is another one each time: numbers, tokens, and where it is.
fn lasting(reply: &Reply) -> String {
    let text = String::from_utf8_lossy(&reply.body).replace("/warm/", "/cold/");
    let letter = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| !letter(c)) {
        let name = word.trim_end_matches(|c: char| !letter(c));
        let number = name.chars().any(|c| c.is_ascii_digit()) && name.len() > 2;
        let varies = number || (name.len() > 20 && name.contains(['+', '=']));
        out.push_str(if varies { "#" } else { word });
    }
    out
}

/// Each page, cold, from the pool, and warm with its scripts compiled, at least so many.
#[track_caller]
fn is_same(servers: &Servers, pages: &[(&str, u16, usize)]) {
    for (page, status, scripts) in pages {
        let cold = ask(servers, "cold", page).is(*status);
        assert_eq!(cold.field("x-how"), "cold");
        let same = |other: &Reply| {
            assert_eq!(lasting(other), lasting(&cold), "{page}");
            assert_eq!(other.fields("content-type"), cold.fields("content-type"));
        };
        same(&get(&servers.pool.url(page)).is(*status));
        let ready = || {
            let warm = ask(servers, "warm", page).is(*status);
            same(&warm);
            warm.field("x-how") == "warm"
                && warm.field("x-compiled").parse::<usize>().unwrap() >= *scripts
        };
        wait_until("a warm page whose scripts are compiled", ready);
    }
}

#[test]
fn dokuwiki() {
    needed("/usr/share/dokuwiki/doku.php");
    let server = serve(Path::new("/usr/share/dokuwiki"), &[], &[]);
    let pages = [
        ("doku.php", 200, 100),
        ("doku.php?do=search&q=wiki", 200, 100),
        ("doku.php?id=nowhere", 200, 100),
        ("feed.php", 200, 100),
    ];
    is_same(&server, &pages);
}

#[test]
fn adminer() {
    needed("/usr/share/adminer/adminer/index.php");
    let server = serve(Path::new("/usr/share/adminer/adminer"), &[], &[]);
    is_same(
        &server,
        &[
            ("index.php", 200, 5),
            ("index.php?sqlite=&username=", 403, 5),
        ],
    );
}

#[test]
fn roundcube() {
    needed("/usr/share/roundcube/index.php");
    // It makes its database itself.
    let data = tempfile::tempdir().unwrap();
    let data = data.path().display();
    let database = format!("sqlite:///{data}/mail.db?mode=0600");
    let temporary = data.to_string();
    let env = [
        ("ROUNDCUBE_DB_DSNW", &*database),
        ("ROUNDCUBE_TEMP_DIR", &*temporary),
        ("ROUNDCUBE_LOG_DRIVER", "stdout"),
    ];
    let servers = serve(Path::new("/usr/share/roundcube"), &env, &[]);
    let pages = [("index.php", 200, 40), ("index.php?_task=mail", 200, 40)];
    is_same(&servers, &pages);
}

#[test]
fn slim() {
    needed("/usr/share/php/Slim/autoload.php");
    let server = serve(Path::new("cgi-bin"), &[], &[("cgi-bin/app.php", SLIM)]);
    let pages = [
        ("app.php/hello/you", 200, 40),
        ("app.php/json?a=1&b[]=2", 201, 40),
        ("app.php/nowhere", 404, 40),
        ("app.php/fails", 500, 40),
    ];
    is_same(&server, &pages);
}

#[test]
fn symfony() {
    needed("/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php");
    let server = serve(Path::new("cgi-bin"), &[], &[("cgi-bin/app.php", SYMFONY)]);
    let pages = [
        ("app.php/hello/you", 200, 100),
        ("app.php/data?a=1&b[]=2", 201, 100),
        ("app.php/nowhere", 404, 100),
        ("app.php/fails", 500, 100),
    ];
    is_same(&server, &pages);
    assert!(server.galgo.path("var/cache/prod").is_dir());
}

#[test]
fn a_weblog_with_a_theme() {
    let theme = "<h2><?= htmlspecialchars($post->title) ?></h2><?php if ($post->id % 2): ?><p><?= nl2br($post->body) ?></p><?php endif ?>";
    let files = [
        ("cgi-bin/blog.php", BLOG),
        ("cgi-bin/theme/post.php", theme),
    ];
    let server = serve(Path::new("cgi-bin"), &[], &files);
    is_same(&server, &[("blog.php", 200, 3)]);
}

// ---- databases ----

/// What a request does with a database, and who serves it there.
const DATABASE: &str = r#"<?php
$db = new PDO(getenv('DSN'), getenv('DB_USER'), '', [PDO::ATTR_PERSISTENT => isset($_GET['keep']), PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$db->exec('create temporary table note(id integer primary key, text varchar(99))');
$put = $db->prepare('insert into note values(:id, :text)');
$db->beginTransaction();
foreach (["caf\u{e9}", "it's", null] as $id => $text) $put->execute(['id' => $id, 'text' => $text]);
$db->commit();
try { $put->execute(['id' => 1, 'text' => 'twice']); } catch (PDOException $e) { echo $e->getCode(); }
echo json_encode($db->query('select * from note order by id')->fetchAll(PDO::FETCH_ASSOC)), $db->getAttribute(PDO::ATTR_DRIVER_NAME);
header('X-Session: ' . $db->query(getenv('WHO'))->fetchColumn());
"#;

/// A database server in a folder of its own, gone with the test.
struct Database {
    process: Child,
    folder: tempfile::TempDir,
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            galgo_testkit::process::pid(self.process.id()),
            rustix::process::Signal::QUIT,
        );
        let _ = self.process.wait();
    }
}

/// `None`: this user.
fn command(user: Option<&str>, program: &Path) -> Command {
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command
                .args([format!("--reuid={user}"), format!("--regid={user}")])
                .args(["--clear-groups", "--"])
                .arg(program);
            command
        }
        None => Command::new(program),
    };
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.current_dir("/");
    command
}

/// The folder of a database server whose user is `user` where this one is root.
fn folder(user: &'static str) -> (tempfile::TempDir, Option<&'static str>) {
    let folder = tempfile::tempdir().unwrap();
    let user = rustix::process::geteuid().is_root().then_some(user);
    if let Some(user) = user {
        let done = Command::new("chown").arg(user).arg(folder.path()).status();
        assert!(done.unwrap().success());
        let shown = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), shown).unwrap();
    }
    (folder, user)
}

fn mariadb() -> Database {
    let install = needed("/usr/bin/mariadb-install-db");
    let server = needed("/usr/sbin/mariadbd");
    let (folder, user) = folder("mysql");
    let data = format!("--datadir={}/data", folder.path().display());
    let made = command(user, &install)
        .args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            &data,
        ])
        .status();
    assert!(made.unwrap().success());
    let socket = folder.path().join("sock");
    let process = command(user, &server)
        .args([
            "--no-defaults",
            "--skip-networking",
            "--skip-grant-tables",
            &data,
        ])
        .arg(format!("--socket={}", socket.display()))
        .spawn()
        .unwrap();
    wait_until("MariaDB", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    Database { process, folder }
}

fn postgresql() -> Database {
    let versions = fs::read_dir(needed("/usr/lib/postgresql")).unwrap();
    let newest: PathBuf = versions.map(|v| v.unwrap().path()).max().unwrap();
    let (folder, user) = folder("postgres");
    let data = folder.path().join("data");
    let made = command(user, &needed(newest.join("bin/initdb")))
        .args(["-A", "trust", "-U", "postgres", "--no-sync", "-D"])
        .arg(&data)
        .status();
    assert!(made.unwrap().success());
    let process = command(user, &needed(newest.join("bin/postgres")))
        .args(["-F", "-c", "listen_addresses=", "-k"])
        .arg(folder.path())
        .arg("-D")
        .arg(&data)
        .spawn()
        .unwrap();
    let socket = folder.path().join(".s.PGSQL.5432");
    wait_until("PostgreSQL", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    Database { process, folder }
}

/// The same answers; and no connection serves two requests, whatever the script asks for.
fn answers(dsn: &str, user: &str, who: &str) {
    let env = [("DSN", dsn), ("DB_USER", user), ("WHO", who)];
    let server = serve(Path::new("cgi-bin"), &env, &[("cgi-bin/db.php", DATABASE)]);
    let ready = || ask(&server, "cold", "db.php").status == 200;
    wait_until("a database that answers", ready);
    is_same(&server, &[("db.php", 200, 2), ("db.php?keep", 200, 2)]);
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let reply = ask(&server, "warm", "db.php?keep").ok();
        assert_eq!(reply.field("x-how"), "warm");
        let session = reply.field("x-session").to_owned();
        assert!(!sessions.contains(&session), "{session} in {sessions:?}");
        sessions.push(session);
    }
}

#[test]
fn pdo_with_mariadb() {
    let database = mariadb();
    let socket = database.folder.path().join("sock");
    let dsn = format!("mysql:unix_socket={}", socket.display());
    answers(
        &format!("{dsn};dbname=mysql;charset=utf8mb4"),
        "root",
        "select connection_id()",
    );
}

#[test]
fn pdo_with_postgresql() {
    let database = postgresql();
    let dsn = format!(
        "pgsql:host={};dbname=postgres",
        database.folder.path().display()
    );
    answers(&dsn, "postgres", "select pg_backend_pid()");
}
