//! The order of the steps, without a server and without a process. If several steps would answer a request, the first of
//! them does.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use galgo_handlers::{
    application,
    resources::{Resources, open_null},
};
use galgo_proto::h1::HeadLimits;
use galgo_service::{
    body::Body,
    client::Whole,
    id::Ids,
    log::{Logs, access::AccessEntry},
    phase::Phase,
};
use galgo_spawn::Spawner;
use tokio::sync::watch;

use super::*;
use crate::config::{Config, LogSettings, LogTo};

/// The largest size for which glibc's `malloc` uses its thread's cache; a larger allocation costs three times as much.
const CACHED: usize = 1032;

/// Each request allocates its future, so a handler that needs more room is boxed at the call.
#[test]
fn the_futures_of_a_request_stay_small() {
    fn of<A, B, C, D, E, F>(_answer: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }
    let sizes = [
        galgo_front::future_size::<Dispatch>(),
        of(application::answer),
    ];
    assert!(sizes.iter().all(|size| *size <= CACHED), "{sizes:?} bytes");
}

/// Each route has a step and all steps after it: a request to the route shows that this step comes before the others.
const SITE: &str = r#"
listen = ["127.0.0.1:0"]
[[rewrite]]
pattern = "^/rate/moved$"
to = "/rewritten"
status = 307
[[route]]
path = "/rate/"
files = "public"
rate_limit = { requests = 1, per = "1h", burst = 1 }
redirect = { to = "/redirected" }
access = { deny = ["all"] }
passwords = "who"
[[route]]
path = "/redirect/"
files = "public"
redirect = { to = "/redirected" }
access = { deny = ["all"] }
passwords = "who"
[[route]]
path = "/access/"
files = "public"
access = { deny = ["all"] }
passwords = "who"
try = ["/tried"]
[[route]]
path = "/passwords/"
files = "public"
passwords = "who"
try = ["/tried"]
[[route]]
path = "/slash/"
files = "public"
try = ["/tried"]
[[route]]
path = "/tried"
respond = { body = "tried" }
[[route]]
path = "/guarded"
respond = { body = "guarded" }
access = { deny = ["all"] }
[[route]]
path = "/to-guarded/"
files = "public"
try = ["/guarded"]
[[route]]
path = "/error/"
files = "public"
errors = { 404 = "/page" }
headers = { X-Of = "error", Vary = "X-Own" }
compress = true
[[route]]
path = "/page"
respond = { type = "text/plain", body = "PAGE" }
headers = { X-Of = "page" }
"#;

/// Returns a page that is long enough to be compressed.
fn page() -> String {
    "the page of the error".repeat(20)
}

/// Returns a site in its own folder.
fn dispatch(folder: &Path) -> Dispatch {
    std::fs::create_dir(folder.join("public")).unwrap();
    std::fs::write(folder.join("public/file"), "file").unwrap();
    std::fs::write(folder.join("who"), "").unwrap();
    let config = Config::parse(&SITE.replace("PAGE", &page()), &folder.join("galgo.toml")).unwrap();
    let log = LogSettings {
        access: None,
        error: LogTo::Stderr,
        ..config.log.clone()
    };
    let logs = Logs::open(&log, None).unwrap();
    let site = Arc::new(Site::new(config, None, &logs));
    let config = &site.config;
    let settings = Settings {
        listen: config.listen.clone(),
        http: config.http.clone(),
        trusted: config.trusted.clone(),
        max_connections: (1, 1),
        spool: site.shared.spool.clone(),
        shutdown_grace: config.shutdown_grace,
        tls: None,
        upgrades: false,
        access_log: None,
        own_logs: false,
    };
    let (_, serving) = watch::channel(Phase::Serving);
    let spawner = Spawner::direct().unwrap();
    let templates = config.templates.clone();
    let errors = logs.error.clone();
    let null = open_null().unwrap();
    Dispatch {
        resources: Resources::new(0, (spawner, None), null, errors, templates, serving),
        settings: Arc::new(settings),
        site,
        trace: None,
    }
}

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1);

/// Sends a GET; returns the status, the values of these fields, and the body if it is text.
async fn asked(
    dispatch: &Dispatch,
    path: &str,
    more: &str,
    fields: &[&str],
) -> (u16, Vec<String>, String) {
    let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n");
    let head = Rc::new(Head::parse(text.as_bytes(), &HeadLimits::default()).unwrap());
    let (link, mut client) = (Link::between(Some(CLIENT), None), Whole::new(Vec::new()));
    let entry = AccessEntry::new(Ids::new().next(), link.remote.clone(), Some(head.clone()));
    let mut request = Request::new(head, &link, &mut client, Rc::new(RefCell::new(entry)));
    let response = dispatch.call(&mut request).await.unwrap();
    let value = |name: &&str| {
        let value = response.fields.first_value(name).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let body = match &response.body {
        Body::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Body::Shared(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    (response.status, fields.iter().map(value).collect(), body)
}

fn on_a_loop<T>(run: impl AsyncFnOnce(&mut Dispatch) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let mut dispatch = dispatch(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime.unwrap(), run(&mut dispatch))
}

#[test]
fn the_first_step_answers() {
    on_a_loop(async |dispatch| {
        for (path, status, to) in [
            // The rate limit does not count the rewrite; it refuses the second request after it.
            ("/rate/moved", 307, "/rewritten"),
            ("/rate/moved", 307, "/rewritten"),
            ("/rate/file", 302, "/redirected"),
            ("/rate/file", 429, ""),
            ("/rate/moved", 307, "/rewritten"),
            ("/redirect/file", 302, "/redirected"),
            // A client that may not come in does not learn that only a slash is missing.
            ("/access", 403, ""),
            ("/access/none", 403, ""),
            ("/passwords", 401, ""),
            ("/passwords/none", 401, ""),
            ("/slash", 301, "/slash/"),
            ("/slash/none", 200, ""),
            // A tried path starts again at its own route.
            ("/to-guarded/none", 403, ""),
        ] {
            let (got, fields, body) = asked(dispatch, path, "", &["Location"]).await;
            assert_eq!((got, &*fields[0]), (status, to), "{path}: {body}");
        }
        let (_, _, body) = asked(dispatch, "/slash/none", "", &[]).await;
        assert_eq!(body, "tried");
    });
}

#[test]
fn to_https_comes_before_every_rule() {
    on_a_loop(async |dispatch| {
        let site = Arc::get_mut(&mut dispatch.site).unwrap();
        site.config.tls.redirect = true;
        site.https_port = Some(443);
        let (status, fields, _) = asked(dispatch, "/rate/moved", "", &["Location"]).await;
        assert_eq!((status, &*fields[0]), (308, "https://a/rate/moved"));
    });
}

#[test]
fn an_error_has_its_page_and_then_its_fields_and_its_coding() {
    on_a_loop(async |dispatch| {
        let fields = ["X-Of", "Content-Encoding", "Vary"];
        let (status, plain, body) = asked(dispatch, "/error/none", "", &fields).await;
        assert_eq!((status, &*body), (404, &*page()));
        assert_eq!((&*plain[0], &*plain[1]), ("error", ""));
        let coded = "Accept-Encoding: gzip\r\n";
        let (_, coded, body) = asked(dispatch, "/error/none", coded, &fields).await;
        assert_eq!((&*coded[0], &*coded[1]), ("error", "gzip"), "{body}");
        // Compression adds to the `Vary` field that the rules have set.
        assert!(coded[2].contains("X-Own"), "{coded:?}");
    });
}
