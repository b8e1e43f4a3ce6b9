//! PHP and database servers give the same answers cold, warm, and from a pool of php-fpm behind
//! nginx.

use std::path::Path;

use galgo_testkit::wait_until;

use crate::{
    curl::{Reply, curl},
    databases::{mariadb, postgresql},
    php_servers::{Servers, ask, is_same, is_warm, serve},
    site::needed,
};

/// Works with a database in a request, and prints the connection's number there.
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
// Kept by name, too, by the extension that knows this server alone.
[$host, $mysql] = [getenv('AT'), str_starts_with(getenv('DSN'), 'mysql')];
$other = $mysql ? mysqli_connect('p:localhost', 'root', '', 'mysql', 0, $host) : pg_pconnect("host=$host dbname=postgres user=postgres");
$ask = fn ($sql) => $mysql ? array_column(mysqli_fetch_all(mysqli_query($other, $sql)), 0) : pg_fetch_all_columns(pg_query($other, $sql));
header('X-Other: ' . $ask(getenv('WHO'))[0]);
header('X-All: ' . implode(' ', $ask(getenv('ALL'))));
"#;
/// The way in which PHP reaches a database server.
struct Reached<'a> {
    dsn: &'a str,
    user: &'a str,
    at: &'a str,
    /// Query for the connection's number; `all` asks for the numbers of all connections.
    who: &'a str,
    all: &'a str,
}

/// Checks that the answers are the same. No connection serves two requests or stays open, even if the
/// script asks for a persistent connection.
fn answers(reached: &Reached) {
    let env = [
        ("DSN", reached.dsn),
        ("DB_USER", reached.user),
        ("AT", reached.at),
        ("WHO", reached.who),
        ("ALL", reached.all),
    ];
    let server = serve(Path::new("cgi-bin"), &env, &[("cgi-bin/db.php", DATABASE)]);
    let ready = || ask(&server, "cold", "db.php").status == 200;
    wait_until("a database that answers", ready);
    is_same(&server, &[("db.php", 200, 2), ("db.php?keep", 200, 2)]);
    let mut sessions = Vec::new();
    for _ in 0..4 {
        let reply = ask(&server, "warm", "db.php?keep").ok();
        assert_eq!(reply.field("x-how"), "warm");
        for name in ["x-session", "x-other"] {
            let session = reply.field(name).to_owned();
            assert!(!sessions.contains(&session), "{session} in {sessions:?}");
            sessions.push(session);
        }
    }
    wait_until("connections that went with their requests", || {
        let reply = ask(&server, "cold", "db.php").ok();
        let all: Vec<&str> = reply.field("x-all").split(' ').collect();
        assert!(all.contains(&reply.field("x-other")));
        sessions.iter().all(|session| !all.contains(&&**session))
    });
}

#[test]
fn mariadb_and_its_extensions() {
    let database = mariadb();
    let socket = database.folder.path().join("sock").display().to_string();
    answers(&Reached {
        dsn: &format!("mysql:unix_socket={socket};dbname=mysql;charset=utf8mb4"),
        user: "root",
        at: &socket,
        who: "select connection_id()",
        all: "select id from information_schema.processlist",
    });
}

#[test]
fn postgresql_and_its_extensions() {
    let database = postgresql();
    let folder = database.folder.path().display().to_string();
    answers(&Reached {
        dsn: &format!("pgsql:host={folder};dbname=postgres"),
        user: "postgres",
        at: &folder,
        who: "select pg_backend_pid()",
        all: "select pid from pg_stat_activity",
    });
}

// ---- Adminer ----

/// A user that looks at a database with a browser: the browser's cookies, and the token of the last
/// form.
struct Visitor<'a> {
    url: &'a dyn Fn(&str) -> String,
    cookies: tempfile::NamedTempFile,
    token: Option<String>,
}

impl Visitor<'_> {
    fn new(url: &dyn Fn(&str) -> String) -> Visitor<'_> {
        let cookies = tempfile::NamedTempFile::new().unwrap();
        Visitor {
            url,
            cookies,
            token: None,
        }
    }

    /// Asks for a page: by GET if `form` is empty.
    fn ask(&mut self, page: &str, form: &[String]) -> Reply {
        let jar = self.cookies.path().to_str().unwrap();
        let url = (self.url)(page);
        let mut args = vec!["-g", "-H", "Host: localhost", "-b", jar, "-c", jar, &url];
        let token = self.token.as_ref().map(|token| format!("token={token}"));
        let given = token.as_deref().filter(|_| !form.is_empty());
        for field in form.iter().map(String::as_str).chain(given) {
            args.extend(["--data-urlencode", field]);
        }
        let reply = curl(&args);
        let text = String::from_utf8_lossy(&reply.body);
        let token = text.split("name='token' value='").nth(1);
        if let Some((token, _)) = token.and_then(|token| token.split_once('\'')) {
            self.token = Some(token.to_owned());
        }
        reply
    }
}

struct Step {
    page: String,
    form: Vec<String>,
    status: u16,
    /// Text that the page must contain.
    says: &'static str,
}

fn see(page: &str, says: &'static str) -> Step {
    send(page, "", 200, says)
}

/// Sends a form; `form` has a field on each line.
fn send(page: &str, form: &str, status: u16, says: &'static str) -> Step {
    Step {
        page: page.to_owned(),
        form: form.lines().map(str::to_owned).collect(),
        status,
        says,
    }
}

fn visit(url: &dyn Fn(&str) -> String, steps: &[Step]) -> Vec<Reply> {
    let mut visitor = Visitor::new(url);
    let visits = steps.iter().map(|step| {
        let reply = visitor.ask(&step.page, &step.form).is(step.status);
        let (text, says) = (reply.text(), step.says);
        assert!(text.contains(says), "{}: no {says:?} in {text}", step.page);
        reply
    });
    visits.collect()
}

/// Between these words each of Adminer's pages differs from time to time: its nonce, its token, and
/// times.
const VARIES: [(&str, &str); 6] = [
    (" nonce=\"", "\""),
    ("name='token' value='", "'"),
    ("name=\"token\" value=\"", "\""),
    ("verifyVersion,", ")"),
    ("<span class='time'", "</span>"),
    ("\n-- 20", "\n"),
];

/// Returns a page without the parts that vary, and without its address.
fn same_each_time(reply: &Reply) -> String {
    let text = reply.text().replace("/warm/", "/cold/");
    VARIES.iter().fold(text, |text, (before, behind)| {
        let mut parts = text.split(before);
        let mut out = parts.next().unwrap().to_owned();
        for part in parts {
            out.push_str(before);
            out.push_str(part.split_once(behind).unwrap().1);
        }
        out
    })
}

/// Checks a visit of many pages. Each page depends on the state that the previous page left in the
/// browser.
fn is_same_visit(servers: &Servers, steps: &[Step]) {
    let cold = visit(&|page| servers.galgo.url(&format!("/cold/{page}")), steps);
    assert!(cold.iter().all(|reply| reply.field("x-how") == "cold"));
    let same = |other: &[Reply]| {
        for ((other, cold), Step { page, .. }) in other.iter().zip(&cold).zip(steps) {
            let texts = (same_each_time(other), same_each_time(cold));
            for (other, cold) in texts.0.split('\n').zip(texts.1.split('\n')) {
                assert_eq!(other, cold, "{page}");
            }
            assert_eq!(texts.0.len(), texts.1.len(), "{page}");
            for name in ["content-type", "content-disposition"] {
                assert_eq!(other.fields(name), cold.fields(name), "{page}");
            }
            let to = other
                .fields("location")
                .concat()
                .replace("/warm/", "/cold/");
            assert_eq!(to, cold.fields("location").concat(), "{page}");
        }
    };
    same(&visit(&|page| servers.pool.url(page), steps));
    wait_until("a visit that is all warm", || {
        let warm = visit(&|page| servers.galgo.url(&format!("/warm/{page}")), steps);
        same(&warm);
        warm.iter().all(|reply| is_warm(reply, SCRIPTS))
    });
}

/// Minimum number of scripts for each of Adminer's pages.
const SCRIPTS: usize = 20;

/// A user logs in with Adminer, sees tables, edits rows, runs queries and takes a copy. Everything
/// stays the same cold, warm and from the pool.
#[test]
fn adminer_with_mariadb() {
    needed("/usr/share/adminer/adminer/index.php");
    let database = mariadb();
    let socket = database.folder.path().join("sock").display().to_string();
    let servers = serve(Path::new("/usr/share/adminer/adminer"), &[], &[]);
    let page = |more: &str| format!("index.php?server=localhost:{socket}&username=root{more}");
    let login = format!(
        "auth[driver]=server\nauth[server]=localhost:{socket}\nauth[username]=root\nauth[password]=any\nauth[db]="
    );
    let make = "query=create database shop character set utf8mb4; use shop; create table note (name varchar(20) primary key, text text); \
        insert into note values ('a', 'caf\u{e9} <b>'), ('b', null), ('c', repeat('long ', 99)); select 6 * 7 as answer; select nothing";
    let row = page("&db=shop&edit=note&where[name]=b");
    let rows = page("&db=shop&select=note&order[0]=name&desc[0]=1");
    let dump = "output=file\nformat=sql\ntable_style=DROP+CREATE\ndata_style=INSERT\ntables[]=note\ndata[]=note";
    let steps = [
        see("index.php", "auth[driver]"),
        send("index.php", &login, 302, ""),
        see(&page(""), "information_schema"),
        send(&page("&sql="), make, 200, "<td>42"),
        see(&page("&db=shop"), "Search data in tables"),
        see(&page("&db=shop&table=note"), "varchar(20)"),
        see(&rows, "caf\u{e9} &lt;b&gt;"),
        see(&row, "Save"),
        send(&row, "fields[name]=b\nfields[text]=now & then", 302, ""),
        see(&rows, "now &amp; then"),
        send(
            &page("&db=shop&dump=note"),
            dump,
            200,
            "('b',\t'now & then')",
        ),
        send(
            &page("&sql="),
            "query=drop database shop",
            200,
            "Query executed OK",
        ),
    ];
    is_same_visit(&servers, &steps);
}
