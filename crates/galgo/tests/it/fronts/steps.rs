//! The steps of a route if a front names a program by its file.

use super::*;

list![
    a_program_named_by_its_file_is_guarded,
    the_steps_are_those_of_a_path,
    of_equal_folders_the_path_counts,
];

/// A front that names a program's file gets no further than a client: the server asks the authorizer of the route
/// before it looks for any file.
fn a_program_named_by_its_file_is_guarded() {
    let site = new_site()
        .config("[[route]]\npath = \"/in/\"\ncgi = \"guarded\"\nauthorizer = \"unix:app.sock\"\n");
    std::fs::create_dir(site.path("guarded")).unwrap();
    let site = site.own_binary("guarded/t");
    let _application = Application::start(site.folder(), |_, stream| {
        let heard = hear(stream).unwrap();
        let head = match heard.param("HTTP_X_KEY") {
            Some(_) => "Status: 200\nVariable-REMOTE_USER: ada\n\n",
            None => "Status: 403\nContent-Type: text/plain\n\nno",
        };
        let end = ended(galgo_proto::fcgi::Outcome::COMPLETE);
        say(stream, [stdout(head), stdout(""), end].concat());
    });
    let (server, fcgi, _) = serve(site);
    let watch = Watch::begin(&server);
    let file = |name: &str| format!("{}/guarded/{name}", server.site.folder().display());
    let ask = |file: &str, key: &[(&str, &str)]| {
        let user = [("REMOTE_USER", "eve"), ("AUTH_TYPE", "Basic")];
        let named = [&[("SCRIPT_FILENAME", file)], &user[..], key].concat();
        let mut front = Front::connect(&fcgi);
        let params = params("GET", "/elsewhere?head&env", &named);
        front.send(request(1, false, &params, b""));
        front.reply(1)
    };
    for name in ["t", "none"] {
        let reply = ask(&file(name), &[]);
        assert!(reply.head.starts_with("Status: 403"), "{}", reply.head);
        assert_eq!(reply.text(), "no");
    }
    let text = ask(&file("t"), &[("HTTP_X_KEY", "1")]).text();
    // The authorizer's REMOTE_USER replaces that of the front.
    assert!(text.contains("REMOTE_USER=ada\n"), "{text}");
    assert!(!text.contains("eve"), "{text}");
    let reply = ask(&file("none"), &[("HTTP_X_KEY", "1")]);
    assert!(reply.head.starts_with("Status: 404"), "{}", reply.head);
    watch.after(&["ok", "ok", "ok", "not_found"]);
}

/// Returns a site with a program in `own`, and these routes.
fn own(routes: &str) -> Site {
    let site = new_site().config(routes);
    std::fs::create_dir(site.path("own")).unwrap();
    site.own_binary("own/t")
}

/// Asks for `target` with `own/t` as the program's file.
fn ask(server: &Server, fcgi: &Path, method: &str, target: &str, more: &[(&str, &str)]) -> Reply {
    let file = format!("{}/own/t", server.site.folder().display());
    let named = [&[("SCRIPT_FILENAME", &file[..])], more].concat();
    let mut front = Front::connect(fcgi);
    front.send(request(1, false, &params(method, target, &named), b""));
    front.reply(1)
}

fn the_steps_are_those_of_a_path() {
    let site = own(r#"
[[route]]
path = "/in/"
cgi = "own"
access = { allow = ["203.0.113.7"] }
request_headers = { set = { X-Set = "set" }, remove = ["X-Gone"] }
redirect = { to = "https://www.example.org:8443/go/{rest}", scheme = "http" }
cors = { origins = ["https://app.example.org"] }
"#);
    let (server, fcgi, _) = serve(site);
    let ask = |method, target, more: &[_]| ask(&server, &fcgi, method, target, more);
    for target in ["/in/t?head&env", "/elsewhere?head&env"] {
        let text = ask("GET", target, &[("HTTP_X_GONE", "gone")]).text();
        assert!(text.contains("HTTP_X_SET=set\n"), "{target}: {text}");
        assert!(!text.contains("HTTP_X_GONE"), "{target}: {text}");
        // Clients are redirected, as for a program that is found by its path.
        let plain = [("HTTPS", "off"), ("REMOTE_ADDR", "203.0.113.9")];
        let head = ask("GET", target, &plain).head;
        assert!(head.starts_with("Status: 302 "), "{target}: {head}");
        let to = "Location: https://www.example.org:8443/go/t?head&env\r\n";
        assert!(head.contains(to), "{target}: {head}");
        // Browsers send a preflight without credentials, so the server answers it before it checks the access rules.
        let asks = [
            ("HTTP_ORIGIN", "https://app.example.org"),
            ("HTTP_ACCESS_CONTROL_REQUEST_METHOD", "GET"),
            ("REMOTE_ADDR", "203.0.113.9"),
        ];
        let reply = ask("OPTIONS", target, &asks);
        assert!(reply.head.starts_with("Status: 204 "), "{}", reply.head);
        let allowed = "Access-Control-Allow-Origin: https://app.example.org\r\n";
        assert!(reply.head.contains(allowed), "{}", reply.head);
    }
    let reply = ask("GET", "/in/t?head", &[("REMOTE_ADDR", "203.0.113.9")]);
    assert!(reply.head.starts_with("Status: 403 "), "{}", reply.head);
}

fn of_equal_folders_the_path_counts() {
    let site = own(r#"
[[route]]
path = "/adm/"
cgi = "own"
access = { deny = ["all"] }
[[route]]
path = "/public-cgi/"
cgi = "own"
"#);
    let (server, fcgi, _) = serve(site);
    for (target, status) in [
        ("/adm/t?head", 403),
        ("//adm//t?head", 403),
        ("/x/../adm/t?head", 400),
        ("/public-cgi/t?head", 200),
        // Neither route has this path, so the route with the longest path counts.
        ("/elsewhere?head", 200),
    ] {
        let head = ask(&server, &fcgi, "GET", target, &[]).head;
        let wanted = format!("Status: {status} ");
        assert!(head.starts_with(&wanted), "{target}: {head}");
    }
}
