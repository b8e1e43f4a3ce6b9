//! Applications that keep running, in several languages and with the usual libraries.

mod libraries;
mod workers;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::Signal;

use galgo_testkit::{Beside, Repeated, Server, Site, wait_until};

use crate::{
    curl::{Begun, curl, curl_with},
    processes::{MARK, mark, marked, pids_of},
    recipe::block,
    repository::{noise, sha256},
    site::{needed, new_site, root},
};

/// Starts php-fpm with this number of children, on `fpm.sock` of the site.
fn php_fpm(site: &Site, children: usize) -> Beside {
    let program = needed("/usr/sbin/php-fpm8.2");
    let socket = site.path("fpm.sock");
    let (log, error) = (site.path("fpm.log"), site.path("fpm-error.log"));
    let conf = site.write(
        "fpm.conf",
        format!(
            "[global]\nerror_log = {}\nprocess_control_timeout = 60\n[www]\nlisten = {}\n\
             pm = static\npm.max_children = {children}\ncatch_workers_output = yes\naccess.log = {}\n\
             php_admin_value[upload_max_filesize] = 32M\nphp_admin_value[post_max_size] = 32M\n{}",
            error.display(),
            socket.display(),
            log.display(),
            // If php-fpm runs as root, it demands a user.
            if rustix::process::geteuid().is_root() { "user = root\ngroup = root\n" } else { "" },
        ),
    );
    let mut command = Command::new(program);
    command
        .args(["-F", "-R", "-y"])
        .arg(conf)
        .args(["-d", "output_buffering=0"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Beside::at(&mut command, &socket)
}

/// Serves the page by php-fpm, as in the recipe.
fn fpm(page: &str, children: usize, keys: &str) -> (Beside, Server) {
    let site = new_site();
    site.write("php/sub/page.php", page);
    let application = php_fpm(&site, children);
    let names: [(&str, &dyn AsRef<Path>); 2] = [
        ("/run/php/php8.2-fpm.sock", &site.path("fpm.sock")),
        ("/srv/php", &site.path("php")),
    ];
    let config = block("php-fpm.md", "toml", &names);
    (
        application,
        site.config(&format!("{config}\n{keys}")).start(),
    )
}

/// Serves the page by workers of galgo's own, as in the recipe.
fn workers(site: Site, page: &str, keys: &str) -> Server {
    needed("/usr/bin/php-cgi");
    site.write("php/sub/page.php", page);
    let ini = "upload_max_filesize = 32M\npost_max_size = 32M\n";
    let ini = site.write("php.ini", ini);
    let names: [(&str, &dyn AsRef<Path>); 2] = [
        ("/srv/php.ini", &ini),
        ("/srv/php\"", &quoted(&site.path("php"))),
    ];
    let config = block("php-workers.md", "toml", &names);
    site.config(&format!("{config}\n{keys}")).start()
}

fn quoted(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}\"", path.display()))
}

const PAGE: &str = "/app/sub/page.php";

/// Runs the test with php-fpm, and then with workers.
fn both(page: &str, test: impl Fn(&Server)) {
    let (_fpm, server) = fpm(page, 2, "");
    test(&server);
    drop(server);
    test(&workers(new_site(), page, ""));
}

#[test]
fn php_variables() {
    let page = r#"<?php header('Content-Type: text/plain');
        foreach (['PATH_INFO', 'SCRIPT_NAME', 'PHP_SELF', 'QUERY_STRING', 'REQUEST_METHOD', 'REQUEST_URI',
            'SERVER_PROTOCOL', 'HTTP_X_COLOUR', 'HTTP_PROXY', 'REMOTE_ADDR', 'CONTENT_LENGTH'] as $name)
            echo "$name=", $_SERVER[$name] ?? '(unset)', "\n";
        echo basename($_SERVER['SCRIPT_FILENAME']), ' ', basename(__DIR__), ' ', basename(getcwd());"#;
    both(page, |server| {
        let url = server.url(&format!("{PAGE}/a%20b/c?q=1&x[]=2"));
        let reply = curl(&["-g", "-H", "X-Colour: red", "-H", "Proxy: evil", &url]).ok();
        let expected = format!(
            "PATH_INFO=/a b/c\nSCRIPT_NAME={PAGE}\nPHP_SELF={PAGE}/a b/c\nQUERY_STRING=q=1&x[]=2\n\
             REQUEST_METHOD=GET\nREQUEST_URI={PAGE}/a%20b/c?q=1&x[]=2\nSERVER_PROTOCOL=HTTP/1.1\n\
             HTTP_X_COLOUR=red\nHTTP_PROXY=(unset)\nREMOTE_ADDR=127.0.0.1\nCONTENT_LENGTH=(unset)\n\
             page.php sub sub"
        );
        let told = reply.text();
        let told = told.replace("CONTENT_LENGTH=\n", "CONTENT_LENGTH=(unset)\n");
        assert_eq!(told, expected);
        // The server only asks PHP for scripts that exist.
        for missing in [
            "/app/",
            "/app/sub/",
            "/app/sub/no.php",
            "/app/sub/.php",
            "/app/%2e%2e/x",
        ] {
            let status = curl(&[&server.url(missing)]).status;
            assert!(matches!(status, 404 | 400), "{missing}: {status}");
        }
    });
}

/// `index.php` answers for its folder, and for no other path.
#[test]
fn php_answers_for_a_folder() {
    let page = "<?php echo $_SERVER['PHP_SELF'], ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '-', ' ',
         $_SERVER['REQUEST_URI'], ' ', basename($_SERVER['SCRIPT_FILENAME']), ' ', basename(getcwd()), ' ', $_GET['a'] ?? '';";
    both(page, |server| {
        server.site.write("php/sub/index.php", page);
        std::fs::create_dir(server.site.path("php/empty")).unwrap();
        let reply = curl(&[&server.url("/app/sub/?a=b")]).ok();
        let own = "/app/sub/index.php";
        let expected = format!("{own} {own} - /app/sub/?a=b index.php sub b");
        assert_eq!(reply.text(), expected);
        let reply = curl(&["-d", "x", &server.url("/app/sub/")]).ok();
        assert!(reply.text().starts_with(own));
        let reply = curl(&[&server.url("/app/sub?a=b")]).is(301);
        assert_eq!(reply.field("Location"), "/app/sub/?a=b");
        for missing in ["/app/", "/app/empty/", "/app/empty", "/app/sub/none/"] {
            curl(&[&server.url(missing)]).is(404);
        }
    });
}

/// Uploaded files of other kinds are not run, whatever their content is and whatever follows their name
/// in the path.
#[test]
fn php_runs_nothing_but_scripts() {
    let evil = "<?php echo 'run';";
    for (keys, runs) in [
        ("", &[][..]),
        ("scripts = [\".php\", \".page\"]\n", &["a.page"][..]),
        ("scripts = [\"*\"]\n", &["a.page", "x.jpg"][..]),
    ] {
        let server = workers(new_site(), PAGE_RUN, keys);
        for name in [
            "x.jpg",
            "a.page",
            "php",
            "b.PHP",
            "c.php.bak",
            "d.php/e.jpg",
        ] {
            server.site.write(&format!("php/sub/{name}"), evil);
        }
        assert_eq!(curl(&[&server.url(PAGE)]).ok().text(), "page");
        for name in ["x.jpg", "a.page"] {
            let status = if runs.contains(&name) { 200 } else { 404 };
            for behind in ["", "/", "/page.php", "/x/page.php"] {
                let reply = curl(&[&server.url(&format!("/app/sub/{name}{behind}"))]);
                assert_eq!(reply.status, status, "{keys}{name}{behind}");
            }
        }
        if runs.len() < 2 {
            for name in [
                "php",
                "b.PHP",
                "c.php.bak",
                "d.php/e.jpg",
                "d.php/e.jpg/page.php",
            ] {
                let url = server.url(&format!("/app/sub/{name}"));
                assert_eq!(curl(&[&url]).status, 404, "{keys}{name}");
            }
        }
    }
}

const PAGE_RUN: &str = "<?php echo 'page';";

#[test]
fn php_forms_uploads_and_errors() {
    let page = "<?php switch ($_SERVER['PATH_INFO'] ?? '') {
         case '/form': echo $_POST['name'], ' ', $_SERVER['CONTENT_LENGTH']; break;
         case '/upload': $f = $_FILES['file']; echo $f['size'], ' ', hash_file('sha256', $f['tmp_name']); break;
         case '/404': http_response_code(404); echo 'not here'; break;
         case '/redirect': header('Location: /elsewhere?x=1'); break;
         case '/fatal': ini_set('display_errors', '0'); ini_set('log_errors', '1'); no_such_function();
         }";
    both(page, |server| {
        let at = |path: &str| server.url(&format!("{PAGE}{path}"));
        let reply = curl(&["-d", "name=Zo%C3%AB", &at("/form")]).ok();
        assert_eq!(reply.text(), "Zoë 13");
        let bytes = noise(20_000_000);
        let file = server.site.write("big.bin", &bytes);
        let form = format!("file=@{}", file.display());
        let reply = curl(&["-F", &form, &at("/upload")]).ok();
        assert_eq!(reply.text(), format!("20000000 {}", sha256(&bytes)));
        assert_eq!(curl(&[&at("/404")]).is(404).text(), "not here");
        let reply = curl(&[&at("/redirect")]).is(302);
        assert_eq!(reply.field("Location"), "/elsewhere?x=1");
        curl(&[&at("/fatal")]).is(500);
        server.says("no_such_function");
    });
}

/// PHP needs the length of a body. galgo therefore receives a body without a length completely first.
#[test]
fn php_takes_a_form_in_chunks() {
    let page = "<?php echo $_POST['name'] ?? '-', $_SERVER['CONTENT_LENGTH'] ?? '-';";
    for keys in ["", "body = \"file\""] {
        let (_fpm, server) = fpm(page, 1, keys);
        let chunked = "Transfer-Encoding: chunked";
        let reply = curl(&["-H", chunked, "-d", "name=Ada", &server.url(PAGE)]).ok();
        assert_eq!(reply.text(), "Ada8", "{keys}");
    }
}

/// The first part arrives while the script waits. Only then the test lets it go on.
#[test]
fn php_flush_sends_at_once() {
    let page = "<?php header('Content-Type: text/plain'); echo \"first\\n\"; flush(); \
         echo file_get_contents($_GET['fifo']), \"last\\n\";";
    both(page, |server| {
        let fifo = server.site.fifo("go-on");
        let url = server.url(&format!("{PAGE}?fifo={}", fifo.display()));
        let begun = Begun::ask(&url);
        assert_eq!(begun.first, "first\n");
        assert_eq!(begun.go_on(&fifo, "went on\n"), "went on\nlast\n");
    });
}

/// The client gets its answer while the script still runs.
#[test]
fn php_finish_request() {
    let page = "<?php echo 'done'; fastcgi_finish_request(); \
         file_put_contents($_GET['after'], file_get_contents($_GET['fifo']));";
    let (_fpm, server) = fpm(page, 2, "keep_connections = 1");
    let (fifo, after) = (server.site.fifo("go-on"), server.site.path("after"));
    let query = format!("after={}&fifo={}", after.display(), fifo.display());
    let reply = curl(&[&server.url(&format!("{PAGE}?{query}"))]).ok();
    assert_eq!(reply.text(), "done");
    assert!(!after.exists());
    std::fs::write(&fifo, "later").unwrap();
    wait_until("the rest of the script", || {
        std::fs::read(&after).is_ok_and(|b| b == b"later")
    });
}

/// There is a single child for two requests. The second request waits for the child, and the log names
/// the limit that it met.
#[test]
fn php_pool_exhausted() {
    let page = "<?php echo \"first\\n\"; flush(); echo file_get_contents($_GET['fifo']);";
    for (keys, status, words) in [
        ("first_byte_timeout = \"5s\"", 504, "first_byte_timeout"),
        ("max_running = 1\n", 503, "within queue_wait"),
    ] {
        let site = new_site();
        site.write("php/page.php", page);
        let _fpm = php_fpm(&site, 1);
        let route = "[[route]]\npath = \"/app/\"\nfastcgi = \"unix:fpm.sock\"\nroot = \"php\"\n";
        let site = site.config("queue_wait = \"500ms\"");
        let server = site.config(&format!("{route}{keys}")).start();
        let fifo = server.site.fifo("go-on");
        let url = server.url(&format!("/app/page.php?fifo={}", fifo.display()));
        let begun = Begun::ask(&url);
        assert_eq!(begun.first, "first\n");
        curl(&[&server.url("/app/page.php")]).is(status);
        server.says(words);
        assert_eq!(begun.go_on(&fifo, "went on"), "went on");
    }
}

/// Asks again and again. Every answer must be 200.
pub(crate) fn load(url: String) -> Repeated {
    Repeated::start(move || drop(curl(&[&url]).ok()))
}

/// php-fpm reloads while clients ask all the time. No request is lost, neither on new connections nor on
/// kept ones.
#[test]
fn php_fpm_restarts_under_load() {
    for keys in ["", "keep_connections = 2"] {
        let (fpm, server) = fpm("<?php echo getmypid();", 2, keys);
        let before = curl(&[&server.url(PAGE)]).ok().text();
        let loads = [(); 2].map(|()| load(server.url(PAGE)));
        fpm.signal(Signal::USR2);
        wait_until("other children", || {
            curl(&[&server.url(PAGE)]).ok().text() != before
        });
        loads.into_iter().for_each(Repeated::end);
    }
}

pub(crate) fn worker_pool(
    site: &Site,
    run: &str,
    workers: usize,
    max_requests: usize,
    mark: &str,
) -> String {
    site.write("php/page.php", "<?php echo getmypid();");
    format!(
        "[[route]]\npath = \"/app/\"\nroot = \"php\"\nenv = {{ {MARK} = \"{mark}\" }}\n\
         fastcgi = {{ run = [\"{run}\"], workers = {workers}, max_requests = {max_requests} }}\n"
    )
}

pub(crate) const WORKED: &str = "/app/page.php";
