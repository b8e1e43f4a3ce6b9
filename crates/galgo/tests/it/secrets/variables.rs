//! Variables that a request must not set.

use std::{collections::BTreeSet, io::Read, os::unix::net::UnixStream};

use crate::harness::{
    list, new_site,
    upstream::{Application, document, hear, say},
};
use galgo_testkit::{Server, eventually};

list![
    httpoxy,
    s4_1_18_names_that_pose_as_others,
    names_that_proxies_do_not_know_reach_no_program,
    s4_1_the_environment_is_the_documented_list,
    hostile_names_change_nothing,
    s4_1_18_authorization_is_withheld,
    shellshock,
    s4_4_words_of_the_query,
];

/// Returns the environment of a program for a GET with `fields`.
fn environment(server: &Server, target: &str, fields: &str) -> Vec<String> {
    let reply = server.ask(format!(
        "GET {target}?head&env HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ));
    assert_eq!(reply.status, 200, "{fields}");
    reply.text().lines().map(str::to_owned).collect()
}

fn has_name(env: &[String], name: &str) -> bool {
    env.iter().any(|v| v.starts_with(&format!("{name}=")))
}

fn httpoxy() {
    let server = new_site().start();
    for field in [
        "Proxy: evil\r\n",
        "proxy: evil\r\n",
        "PROXY: evil\r\n",
        "pRoXy: evil\r\n",
        "Proxy: evil\r\nProxy: evil\r\n",
        "Proxy:evil\r\nX: y\r\nPROXY:\tevil\r\n",
        "HTTP_PROXY: evil\r\n",
        "Proxy_: evil\r\n",
        "_Proxy: evil\r\n",
    ] {
        let env = environment(&server, "/cgi-bin/t", field);
        assert!(!env.iter().any(|v| v.contains("evil")), "{field}: {env:?}");
        let named = env.iter().any(|v| v.to_ascii_uppercase().contains("PROXY"));
        assert!(!named, "{field}: {env:?}");
    }
    let reply = server.ask(
        "POST /cgi-bin/t?head&count&env HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
         Trailer: Proxy\r\n\r\n0\r\nProxy: evil\r\n\r\n",
    );
    assert_eq!(reply.status, 200);
    assert!(!reply.text().contains("evil"));
}

fn s4_1_18_names_that_pose_as_others() {
    let server = new_site().start();
    for name in [
        "X_Evil",
        "Content_Length",
        "Content_Type",
        "Transfer_Encoding",
        "Remote_User",
        "REMOTE_ADDR",
        "Http_Host",
        "X-Real_IP",
        "_",
    ] {
        let env = environment(&server, "/cgi-bin/t", &format!("{name}: evil\r\n"));
        assert!(!env.iter().any(|v| v.contains("evil")), "{name}: {env:?}");
    }
    // The field with the right spelling stays, whatever other fields imitate its name.
    let env = environment(
        &server,
        "/cgi-bin/t",
        "X-Real_IP: evil\r\nX-Real-IP: good\r\n",
    );
    assert!(env.contains(&"HTTP_X_REAL_IP=good".to_owned()), "{env:?}");
    // If a single-valued field has two values, neither can be believed.
    for field in ["Content-Type", "content-type"] {
        let reply = server.ask(format!(
            "GET /cgi-bin/t?head HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b\r\n{field}: c/d\r\n\r\n"
        ));
        assert_eq!(reply.status, 400);
    }
}

/// Spellings of X-Remote-User that pass a front proxy which was told to delete X-Remote-User.
pub const POSES: [&str; 8] = [
    "X.Remote.User",
    "X!Remote~User",
    "X_Remote_User",
    "X-Remote.User",
    "x_remote-USER",
    "X'Remote`User",
    "X|Remote^User",
    "X*Remote+User",
];

/// A CGI program, a FastCGI and an SCGI application all see X-Remote-User, and no field that imitates its name.
fn names_that_proxies_do_not_know_reach_no_program() {
    let site = new_site().config(
        "[[route]]\npath = \"/fastcgi/\"\nfastcgi = \"unix:f/app.sock\"\n\
         [[route]]\npath = \"/scgi/\"\nscgi = \"unix:s/app.sock\"\n",
    );
    let folder = |name: &str| {
        let folder = site.path(name);
        std::fs::create_dir(&folder).unwrap();
        folder
    };
    let _fastcgi = Application::start(&folder("f"), |_, stream| {
        let heard = hear(stream).unwrap();
        let lines = heard.params.iter().map(|(n, v)| format!("{n}={v}\n"));
        say(stream, document(lines.collect::<String>()));
    });
    let _scgi = Application::start(&folder("s"), |_, stream| {
        let lines = netstring(stream).replace('\0', "\n");
        say(stream, format!("Content-Type: text/plain\n\n{lines}"));
    });
    let server = site.start();
    for name in POSES {
        for target in ["/cgi-bin/t?head&env", "/fastcgi/a", "/scgi/a"] {
            for real in ["", "X-Remote-User: ada\r\n"] {
                for fields in [
                    format!("{name}: evil\r\n{real}"),
                    format!("{real}{name}: evil\r\n"),
                ] {
                    let reply = server.ask(format!(
                        "GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
                    ));
                    let text = reply.text();
                    assert_eq!(reply.status, 200, "{target} {fields}");
                    assert!(text.contains("SCRIPT_NAME"), "{target}: {text}");
                    assert!(!text.contains("evil"), "{target} {fields}: {text}");
                    let has = text.contains("HTTP_X_REMOTE_USER");
                    assert_eq!(has, !real.is_empty(), "{target} {fields}: {text}");
                }
            }
        }
    }
}

/// Reads the variables of an SCGI request from the netstring at its start.
fn netstring(stream: &mut UnixStream) -> String {
    let mut byte = || {
        let mut one = [0];
        stream.read_exact(&mut one).unwrap();
        one[0]
    };
    let digits = std::iter::repeat_with(&mut byte).take_while(|&b| b != b':');
    let length: String = digits.map(char::from).collect();
    let length: usize = length.parse().unwrap();
    // Closing a socket with unread bytes resets the connection, so the comma is read, too.
    let bytes = std::iter::repeat_with(byte).take(length + 1).collect();
    String::from_utf8(bytes).unwrap()
}

fn s4_1_the_environment_is_the_documented_list() {
    let server = new_site().start();
    let mut client = server.connect();
    let from = client.stream.local_addr().unwrap().port();
    client.send(
        "POST /cgi-bin/t/a%20b//c?take=5&head&env HTTP/1.1\r\nHost: LocalHost\r\nContent-Type: text/plain\r\n\
         Content-Length: 5\r\nCookie: a=1\r\nCookie: b=2\r\nX-Thing: 1\r\nX-Thing: 2\r\nEmpty:\r\n\
         Connection: keep-alive\r\nKeep-Alive: 9\r\nTE: gzip\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\
         Authorization: Basic x\r\nProxy-Authorization: Basic x\r\n\r\nhello",
    );
    let text = client.reply().text();
    let mut env: Vec<_> = text.lines().collect();
    env.sort_unstable();
    let line = eventually("the line of the request", || {
        let posts = |l: &serde_json::Value| l["method"] == "POST";
        server.access().into_iter().find(posts)
    });
    let dir = server.site.folder().display();
    let port = server.address().port();
    let id = line["id"].as_str().unwrap();
    let mut wanted = format!(
        "CONTENT_LENGTH=5\nCONTENT_TYPE=text/plain\nDOCUMENT_ROOT={dir}/public\n\
         GATEWAY_INTERFACE=CGI/1.1\nHTTP_COOKIE=a=1; b=2\nHTTP_EMPTY=\nHTTP_HOST=LocalHost\n\
         HTTP_X_THING=1, 2\nPATH=/usr/local/bin:/usr/bin:/bin\nPATH_INFO=/a b//c\n\
         PATH_TRANSLATED={dir}/public/a b//c\nQUERY_STRING=take=5&head&env\nREDIRECT_STATUS=200\n\
         REMOTE_ADDR=127.0.0.1\nREMOTE_HOST=127.0.0.1\nREMOTE_PORT={from}\nREQUEST_METHOD=POST\n\
         REQUEST_SCHEME=http\nREQUEST_URI=/cgi-bin/t/a%20b//c?take=5&head&env\n\
         SCRIPT_FILENAME={dir}/cgi-bin/t\nSCRIPT_NAME=/cgi-bin/t\nSERVER_ADDR=127.0.0.1\n\
         SERVER_NAME=localhost\nSERVER_PORT={port}\nSERVER_PROTOCOL=HTTP/1.1\n\
         SERVER_SOFTWARE=galgo/{}\nUNIQUE_ID={id}",
        env!("CARGO_PKG_VERSION")
    );
    let mut sorted: Vec<_> = wanted.lines().collect();
    sorted.sort_unstable();
    wanted = sorted.join("\n");
    assert_eq!(env.join("\n"), wanted);
}

fn hostile_names_change_nothing() {
    let server = new_site().start();
    let plain: BTreeSet<_> = names(&environment(&server, "/cgi-bin/t", ""));
    for name in [
        "LD_PRELOAD",
        "LD-PRELOAD",
        "PATH",
        "BASH_ENV",
        "ENV",
        "PERL5OPT",
        "PYTHONPATH",
        "IFS",
        "NODE_OPTIONS",
        "REMOTE-USER",
        "AUTH-TYPE",
        "SCRIPT-FILENAME",
        "REDIRECT-STATUS",
        "GATEWAY-INTERFACE",
        "HTTPS",
        "Content-Length-",
    ] {
        let env = environment(&server, "/cgi-bin/t", &format!("{name}: evil\r\n"));
        let mut more: Vec<_> = names(&env).difference(&plain).cloned().collect();
        more.retain(|n| !n.starts_with("HTTP_"));
        assert!(more.is_empty(), "{name}: {more:?}");
        for value in env.iter().filter(|v| v.contains("evil")) {
            assert!(value.starts_with("HTTP_"), "{name}: {value}");
        }
    }
}

fn names(env: &[String]) -> BTreeSet<String> {
    let name = |v: &String| v.split('=').next().unwrap().to_owned();
    env.iter().map(name).collect()
}

fn s4_1_18_authorization_is_withheld() {
    let server = new_site()
        .config("[[route]]\npath = \"/open/\"\ncgi = \"cgi-bin\"\npass_authorization = true")
        .start();
    let field = "Authorization: Basic c2VjcmV0\r\nProxy-Authorization: Basic c2VjcmV0\r\n";
    let env = environment(&server, "/cgi-bin/t", field);
    assert!(!env.iter().any(|v| v.contains("c2VjcmV0")), "{env:?}");
    let env = environment(&server, "/open/t", field);
    assert!(env.contains(&"HTTP_AUTHORIZATION=Basic c2VjcmV0".to_owned()));
    assert!(!has_name(&env, "HTTP_PROXY_AUTHORIZATION"));
    // The server has not verified the credentials.
    assert!(!has_name(&env, "REMOTE_USER") && !has_name(&env, "AUTH_TYPE"));
    // Other spellings do not reach the program either.
    let env = environment(&server, "/cgi-bin/t", "Authorization.: c2VjcmV0\r\n");
    assert!(!has_name(&env, "HTTP_AUTHORIZATION"));
}

fn shellshock() {
    let server = new_site()
        .config("[[route]]\npath = \"/open/\"\ncgi = \"cgi-bin\"\ndrop_shellshock = false")
        .start();
    for value in ["() { :;}; echo x", "() {", "\t() { _; } >_[$($())] { x; }"] {
        for name in ["User-Agent", "Referer", "X", "Cookie"] {
            let fields = format!("{name}: {value}\r\n");
            let env = environment(&server, "/cgi-bin/t", &fields);
            assert!(!env.iter().any(|v| v.contains("() {")), "{env:?}");
            let env = environment(&server, "/open/t", &fields);
            assert!(env.iter().any(|v| v.contains("=() {")), "{env:?}");
        }
    }
    server.says("() {");
    let env = environment(&server, "/cgi-bin/t", "X: a() { b\r\n");
    assert!(env.contains(&"HTTP_X=a() { b".to_owned()));
}

fn s4_4_words_of_the_query() {
    let script = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nfor a; do printf '[%s]' \"$a\"; done\n";
    let server = new_site()
        .file("cgi-bin/words", script, 0o755)
        .file("cgi-bin/words.php", script, 0o644)
        .config("[[route]]\npath = \"/words/\"\ncgi = \"cgi-bin\"\nquery_args = true")
        .config("[interpreters]\n\".php\" = \"/bin/sh\"")
        .start();
    for (target, wanted) in [
        ("/words/words?a+b", "[a][b]"),
        ("/words/words?a%20b+%24(id)", "[a b][$(id)]"),
        ("/words/words?a=b", ""),
        ("/words/words?-s", ""),
        ("/words/words?%2ds", ""),
        ("/words/words?a+-s", ""),
        ("/words/words?a%00b", ""),
        ("/words/words", ""),
        ("/cgi-bin/words?a+b", ""),
        ("/words/words.php?a+b", ""),
        ("/words/words.php?-s", ""),
        ("/cgi-bin/words.php?-x", ""),
    ] {
        let reply = server.get(target);
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, wanted),
            "{target}"
        );
    }
    let post =
        server.ask("POST /words/words?a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(post.text(), "");
}
