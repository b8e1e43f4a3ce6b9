//! Unchanged PHP applications show the same pages cold, warm, and from a pool of php-fpm behind nginx.

use std::path::Path;

use crate::{
    php_servers::{is_same, serve},
    site::needed,
};

const SLIM: &str = r#"<?php
error_reporting(E_ALL & ~E_DEPRECATED);
require 'Slim/autoload.php';
$app = new \Slim\App(['settings' => ['displayErrorDetails' => true]]);
$app->get('/hello/{name}', fn ($request, $response, $args) => $response->write("hello $args[name]"));
$app->get('/json', fn ($request, $response) => $response->withJson($request->getQueryParams(), 201));
$app->get('/fails', function () { throw new RuntimeException('on purpose'); });
$app->run();
"#;

/// An application like Symfony's skeleton, in a single file. The first request compiles a container of
/// services into `var`.
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

/// Templates, a theme and a database in a file, as in a weblog.
const BLOG: &str = r#"<?php
$db = new PDO('sqlite::memory:', null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
$db->exec('create table post(id integer primary key, title text, body text)');
$put = $db->prepare('insert into post(title, body) values(?, ?)');
for ($i = 1; $i <= 20; $i++) $put->execute(["Title $i & more", str_repeat("word ", $i)]);
function posts() { global $db; yield from $db->query('select * from post order by id desc', PDO::FETCH_OBJ); }
foreach (posts() as $post) include __DIR__ . '/theme/post.php';
try { $db->query('select * from nowhere'); } catch (PDOException $e) { echo $e->getMessage(), $e->getLine(); }
"#;
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
    // Roundcube makes its database itself.
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
