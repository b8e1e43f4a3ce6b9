//! php-cgi chosen by the file's extension: docs/recipes/php.md.

use galgo_testkit::{Server, Site, wait_until};

use crate::{
    curl::{Begun, curl, curl_with},
    recipe::block,
    repository::{noise, sha256},
    site::{needed, new_site, serve_programs},
};

/// `page.php` has no executable bit: php-cgi reads it.
fn serve(page: &str) -> Server {
    serve_site(new_site(), page)
}

fn serve_site(site: Site, page: &str) -> Server {
    site.write("cgi-bin/sub/page.php", page);
    let ini = "upload_max_filesize = 32M\npost_max_size = 32M\nallow_url_include = 0\n";
    let ini = site.write("php.ini", ini);
    needed("/usr/bin/php-cgi");
    let config = block("php.md", "toml", &[("/srv/php.ini", &ini)]);
    site.config(&config).start()
}

const PAGE: &str = "/cgi-bin/sub/page.php";

#[test]
fn in_a_strict_sandbox() {
    let site = new_site();
    needed("/usr/bin/php-cgi");
    let page = r#"<?php $book = getenv('BOOK'); session_start(); header('Content-Type: text/plain');
        if ($_SERVER['REQUEST_METHOD'] === 'POST') file_put_contents($book, $_POST['entry'] . "\n", FILE_APPEND | LOCK_EX);
        echo @file_get_contents($book), json_encode(@file_get_contents('/etc/fstab')), @fsockopen('127.0.0.1', 1) ? 'net' : '';"#;
    site.write("cgi-bin/page.php", page);
    std::fs::create_dir(site.path("data")).unwrap();
    let config = format!(
        "[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n[[route]]\npath = \"/cgi-bin/\"\ncgi = \"cgi-bin\"\nstart = \"cold\"\n\
         env = {{ BOOK = {:?} }}\nsandbox = {{ write = [\"data\", \"/var/lib/php/sessions\"] }}\n",
        site.path("data/book")
    );
    let server = site.config(&config).start();
    let url = server.url("/cgi-bin/page.php");
    curl(&["-d", "entry=one", &url]).ok();
    let said = curl(&["-d", "entry=two", &url]).ok().text();
    assert_eq!(said, "one\ntwo\nfalse", "{}", server.errors());
}

/// If the test runs as root, the workers run as another user.
#[test]
fn workers_in_a_strict_sandbox() {
    let site = new_site();
    let run = needed("/usr/bin/php-cgi");
    let page = r#"<?php $book = getenv('BOOK'); header('Content-Type: text/plain');
        if ($_SERVER['REQUEST_METHOD'] === 'POST') file_put_contents($book, $_POST['entry'] . "\n", FILE_APPEND | LOCK_EX);
        echo @file_get_contents($book), json_encode(@file_get_contents('/etc/fstab')), @fsockopen('127.0.0.1', 1) ? 'net' : '',
            json_encode(@file_put_contents(__FILE__ . 'x', '')), ' ', exec('id -u');"#;
    site.write("php/page.php", page);
    std::fs::create_dir(site.path("data")).unwrap();
    let root = rustix::process::geteuid().is_root();
    let (user, uid) = if root {
        ("user = \"games\"\n", "5".to_owned())
    } else {
        ("", rustix::process::geteuid().as_raw().to_string())
    };
    if root {
        std::os::unix::fs::chown(site.path("data"), Some(5), Some(60)).unwrap();
    }
    let config = format!(
        "[[route]]\npath = \"/\"\nfastcgi = {{ run = [{run:?}], workers = 2 }}\nroot = \"php\"\n{user}\
         env = {{ BOOK = {:?} }}\nsandbox = {{ write = [\"data\"] }}\n",
        site.path("data/book")
    );
    let server = site.config(&config).start();
    let url = server.url("/page.php");
    curl(&["-d", "entry=one", &url]).ok();
    let said = curl(&["-d", "entry=two", &url]).ok().text();
    let want = format!("one\ntwo\nfalsefalse {uid}");
    assert_eq!(said, want, "{}", server.errors());
}

#[test]
fn variables() {
    let server = serve(
        r#"<?php header('Content-Type: text/plain');
        foreach (['PATH_INFO', 'SCRIPT_NAME', 'PHP_SELF', 'QUERY_STRING', 'REQUEST_METHOD', 'REQUEST_URI',
            'SERVER_PROTOCOL', 'DOCUMENT_ROOT', 'SCRIPT_FILENAME', 'HTTP_X_COLOUR', 'REMOTE_ADDR'] as $name)
            echo "$name=", $_SERVER[$name] ?? '(unset)', "\n";
        echo "q=", $_GET['q'] ?? '(unset)', "\n__DIR__=", __DIR__, "\ncwd=", getcwd(), "\n";
        echo "argc=", $_SERVER['argc'] ?? 0, "\n";"#,
    );
    let url = server.url(&format!("{PAGE}/a%20b/c?q=gr%C3%BC%C3%9Fe&x[]=1"));
    let reply = curl(&["-g", "-H", "X-Colour: red", &url]).ok();
    assert!(reply.field("X-Powered-By").starts_with("PHP/"));
    let told = reply.text();
    let sub = server.site.path("cgi-bin/sub");
    let sub = sub.display();
    let root = server.site.path("cgi-bin");
    let expected = format!(
        "PATH_INFO=/a b/c\nSCRIPT_NAME={PAGE}\nPHP_SELF={PAGE}/a b/c\nQUERY_STRING=q=gr%C3%BC%C3%9Fe&x[]=1\n\
         REQUEST_METHOD=GET\nREQUEST_URI={PAGE}/a%20b/c?q=gr%C3%BC%C3%9Fe&x[]=1\nSERVER_PROTOCOL=HTTP/1.1\n\
         DOCUMENT_ROOT={}\nSCRIPT_FILENAME={sub}/page.php\nHTTP_X_COLOUR=red\nREMOTE_ADDR=127.0.0.1\n\
         q=grüße\n__DIR__={sub}\ncwd={sub}\n",
        root.display()
    );
    assert!(told.starts_with(&expected), "{told}\nexpected\n{expected}");
    let without = curl(&[&server.url(PAGE)]).ok().text();
    assert!(
        without.contains("PATH_INFO=(unset)\n") || without.contains("PATH_INFO=\n"),
        "{without}"
    );
    assert!(
        without.contains(&format!("PHP_SELF={PAGE}\nQUERY_STRING=\n")),
        "{without}"
    );
}

#[test]
fn post_form() {
    let server = serve(
        "<?php header('Content-Type: text/plain; charset=utf-8'); ksort($_POST); echo json_encode($_POST, \
         JSON_UNESCAPED_UNICODE), ' ', file_get_contents('php://input'), ' ', $_SERVER['CONTENT_LENGTH'] ?? '-';",
    );
    let form = "name=Zo%C3%AB+%26+co&list[]=1&list[]=2";
    let reply = curl(&["-d", form, &server.url(PAGE)]).ok();
    let expected = format!(
        r#"{{"list":["1","2"],"name":"Zoë & co"}} {form} {}"#,
        form.len()
    );
    assert_eq!(reply.text(), expected);
}

/// php-cgi reads exactly CONTENT_LENGTH bytes. galgo therefore receives a body without a length completely first, in whatever
/// way php-cgi gets it.
#[test]
fn a_body_without_a_length_arrives_whole() {
    for keys in ["", "start = \"warm\"\n", "body = \"file\"\n"] {
        let site = new_site();
        site.write(
            "cgi-bin/page.php",
            "<?php echo $_POST['name'] ?? strlen(file_get_contents('php://input')), ' ', $_SERVER['CONTENT_LENGTH'] ?? '-';",
        );
        let config = format!("{keys}[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n");
        let server = serve_programs(site, &config);
        let url = server.url("/cgi-bin/page.php");
        let chunked = ["-H", "Transfer-Encoding: chunked"];
        // With warm starts, the first requests start cold.
        for _ in 0..5 {
            let form = curl(&[&chunked[..], &["-d", "name=Ada", &url]].concat()).ok();
            assert_eq!(form.text(), "Ada 8", "{keys}");
            let put = [&chunked[..], &["-X", "PUT", "--data-binary", "@-", &url]].concat();
            let put = curl_with(&put, &[b'x'; 300_000]).ok();
            assert_eq!(put.text(), "300000 300000", "{keys}");
        }
    }
}

#[test]
fn upload_of_20_mb() {
    let server = serve(
        "<?php header('Content-Type: text/plain'); $f = $_FILES['file']; echo $f['error'], ' ', $f['name'], ' ', \
         $f['size'], ' ', hash_file('sha256', $f['tmp_name']), ' ', $_POST['title'];",
    );
    let bytes = noise(20_000_000);
    let file = server.site.write("größe.bin", &bytes);
    let form = format!("file=@{}", file.display());
    let reply = curl(&["-F", "title=a title", "-F", &form, &server.url(PAGE)]).ok();
    let expected = format!("0 größe.bin 20000000 {} a title", sha256(&bytes));
    assert_eq!(reply.text(), expected);
}

#[test]
fn two_cookies_arrive_and_leave() {
    let server = serve(
        "<?php setcookie('a', '1'); setcookie('b', 'two words', ['httponly' => true]); \
         echo $_COOKIE['x'] ?? '-', $_COOKIE['y'] ?? '-';",
    );
    let reply = curl(&["-H", "Cookie: x=1", "-H", "Cookie: y=2", &server.url(PAGE)]).ok();
    assert_eq!(
        reply.fields("Set-Cookie"),
        ["a=1", "b=two%20words; HttpOnly"]
    );
    assert_eq!(reply.text(), "12");
}

/// The first part arrives while the script waits. Only then the test lets it go on.
#[test]
fn flush_sends_at_once() {
    let site = new_site();
    let fifo = site.fifo("go-on");
    let page = format!(
        "<?php header('Content-Type: text/plain');
         $how = strpos(file_get_contents('/proc/self/environ'), 'GALGO_TEMPLATE=') === false ? 'cold' : 'warm';
         echo \"$how\\n\"; if (isset($_GET['how'])) exit; flush(); echo file_get_contents('{}'), \"last\\n\";",
        fifo.display()
    );
    let server = serve_site(site, &page);
    let how = server.url(&format!("{PAGE}?how"));
    wait_until("a warm start", || curl(&[&how]).ok().text() == "warm\n");
    let begun = Begun::ask(&server.url(PAGE));
    assert_eq!(begun.first, "warm\n");
    assert_eq!(begun.go_on(&fifo, "went on\n"), "went on\nlast\n");
}

#[test]
fn response_code_redirect_and_error() {
    let server = serve(
        "<?php switch ($_SERVER['PATH_INFO'] ?? '') {
         case '/404': http_response_code(404); echo 'not here'; break;
         case '/201': header('X-A: b', true, 201); echo 'made'; break;
         case '/redirect': header('Location: /elsewhere?x=1'); break;
         case '/see-other': header('Location: https://example.org/', true, 303); break;
         case '/204': http_response_code(204); break;
         case '/304': header('ETag: \"a\"');
           if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '\"a\"') { http_response_code(304); exit; } echo 'whole'; break;
         case '/fatal': ini_set('display_errors', '0'); ini_set('log_errors', '1'); no_such_function();
         }",
    );
    let get = |path: &str| curl(&[&server.url(&format!("{PAGE}{path}"))]);
    assert_eq!(get("/404").is(404).text(), "not here");
    assert_eq!(get("/201").is(201).field("X-A"), "b");
    assert_eq!(get("/redirect").is(302).field("Location"), "/elsewhere?x=1");
    assert_eq!(
        get("/see-other").is(303).field("Location"),
        "https://example.org/"
    );
    assert!(get("/204").is(204).body.is_empty());
    assert_eq!(get("/304").ok().text(), "whole");
    let url = server.url(&format!("{PAGE}/304"));
    let same = curl(&["-H", "If-None-Match: \"a\"", &url]).is(304);
    assert!(same.body.is_empty() && same.field("ETag") == "\"a\"");
    get("/fatal").is(500);
    server.says("no_such_function");
}

/// The next request finds the session that a request has begun.
#[test]
fn session() {
    let server = serve(
        "<?php session_save_path(dirname(__DIR__, 2)); session_start(); echo $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;",
    );
    let url = server.url(PAGE);
    let first = curl(&[&url]).ok();
    assert_eq!(first.text(), "1");
    let cookie = first
        .field("Set-Cookie")
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(curl(&["-b", &cookie, &url]).ok().text(), "2");
    assert_eq!(curl(&["-b", &cookie, &url]).ok().text(), "3");
    assert_eq!(curl(&[&url]).ok().text(), "1");
}

/// php-cgi has options that show the source of a script or change its settings. No request can set them.
#[test]
fn no_query_becomes_an_option() {
    let server = serve(
        "<?php /* SECRET */ header('Content-Type: text/plain'); echo 'ran ', ini_get('allow_url_include');",
    );
    for query in [
        "-s",
        "%2ds",
        "-s+",
        "+-s",
        "--syntax-highlight",
        "-n",
        "-h",
        "-i",
        "-T+3",
        "%AD-s",
        "%ads",
        "s",
        "-",
        "-d+allow_url_include%3d1",
        "-d+allow_url_include=1+-d+auto_prepend_file=php://input",
        "%ADd+allow_url_include%3d1+%ADd+auto_prepend_file%3dphp://input",
        "-c+/etc",
        "-z+page.php",
    ] {
        let url = server.url(&format!("{PAGE}?{query}"));
        let got = curl(&[&url]).ok();
        assert_eq!(got.text(), "ran 0", "{query}");
        let injected = curl_with(&["--data-binary", "@-", &url], b"<?php echo 'INJECTED'; ?>").ok();
        assert_eq!(injected.text(), "ran 0", "{query}");
    }
    for path in [
        "/cgi-bin/sub/page.phps",
        "/cgi-bin/sub/page.php~",
        "/cgi-bin/sub/page.PHP",
        "/cgi-bin/sub/page.php%00",
        "/cgi-bin/sub/",
    ] {
        let got = curl(&[&server.url(path)]);
        assert!(
            got.status >= 400 && !String::from_utf8_lossy(&got.body).contains("SECRET"),
            "{path}: {got:?}"
        );
    }
}

/// In a folder of files, a script would show its source. The server refuses it there.
#[test]
fn among_files_a_script_is_refused() {
    let site = new_site();
    for name in ["page.php", "other.PhP", "index.php"] {
        site.write(&format!("public/{name}"), "<?php /* SECRET */");
    }
    let config = "[[route]]\npath = \"/\"\nfiles = \"public\"\nindex = [\"index.php\"]\n[interpreters]\n\".php\" = \"/usr/bin/php-cgi\"\n";
    let server = site.config(config).start();
    for path in ["/page.php", "/page.PHP", "/other.PhP", "/", "/page.php?-s"] {
        let got = curl(&[&server.url(path)]);
        let expected = if path == "/page.PHP" { 404 } else { 403 };
        assert!(!got.is(expected).text().contains("SECRET"), "{path}");
    }
}

/// A script that is missing gives 404. REDIRECT_STATUS is set on every request: php-cgi runs nothing without it.
#[test]
fn missing_script_is_not_found() {
    let server = serve("<?php echo 1;");
    curl(&[&server.url("/cgi-bin/sub/nothing.php")]).is(404);
}

/// Beside REDIRECT_URL, PHP would take the file of PATH_TRANSLATED for its script, and show a file that has no PHP in it.
#[test]
fn a_path_behind_a_script_is_never_its_source() {
    let run = needed("/usr/bin/php-cgi");
    let front =
        "files = \"site\"\ncgi_names = [\"*.php\"]\ntry = [\"{path}\", \"/index.php{path}\"]\n";
    let page = "[errors]\n404 = \"/php/index.php/.env\"\n[[route]]\npath = \"/\"\nfiles = \"empty\"\n[[route]]\npath = \"/php/\"\n";
    let worker = format!("{page}fastcgi = {{ run = [{run:?}] }}\nroot = \"site\"\n");
    for (routes, path) in [
        (&*format!("[[route]]\npath = \"/\"\n{front}"), "/.env"),
        (
            &format!("[[route]]\npath = \"/\"\nstart = \"warm\"\n{front}"),
            "/.env",
        ),
        (&format!("{page}cgi = \"site\"\n"), "/none"),
        (&worker, "/none"),
    ] {
        let site = new_site();
        site.write("empty/page", "");
        site.write("site/.env", "SECRET");
        site.write(
            "site/index.php",
            "<?php echo 'info ', $_SERVER['PATH_INFO'];",
        );
        let interpreters = format!("[interpreters]\n\".php\" = {run:?}\n");
        let server = site.config(&[&interpreters, routes].concat()).start();
        // The later requests are to a warm program.
        for _ in 0..3 {
            let said = curl(&[&server.url(path)]).text();
            assert_eq!(said, "info /.env", "{routes}: {}", server.errors());
        }
    }
}
