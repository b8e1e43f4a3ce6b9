//! Workers of FastCGI routes while the server reads its configuration again and again.

use std::collections::BTreeSet;

use galgo_testkit::{Repeated, Server, wait_until};

use crate::{
    curl::{Begun, curl},
    fastcgi::{WORKED, load},
    processes::{MARK, mark, pids_of},
    site::{needed, new_site},
};

const PATH: &str = "/app/";

/// Returns a route whose workers have a generation in their environment.
fn route(mark: &str, path: &str, workers: usize, generation: u32, keys: &str) -> String {
    let run = needed("/usr/bin/php-cgi");
    format!(
        "[[route]]\npath = \"{path}\"\nroot = \"php\"\n\
         env = {{ {MARK} = \"{mark}\", GENERATION = \"{generation}\" }}\n\
         fastcgi = {{ run = [{run:?}], workers = {workers}, max_requests = 0 }}\n{keys}"
    )
}

/// Serves PHP on workers of galgo's own. The pages print their process or a generation; a page waits.
fn php(route: &str) -> Server {
    let site = new_site();
    site.write("php/page.php", "<?php echo getmypid();");
    site.write(
        "php/wait.php",
        "<?php while (ob_get_level()) ob_end_flush(); echo getmypid(), \"\\n\"; flush(); echo file_get_contents($_GET['fifo']), getenv('GENERATION');",
    );
    site.write("php/generation.php", "<?php echo getenv('GENERATION');");
    site.config(route).start()
}

/// Changes the routes, and thereby the workers.
fn change(server: &Server, route: &str) {
    server.configure(route);
    assert!(server.reload());
}

fn all(mark: &str) -> BTreeSet<u32> {
    pids_of(mark).into_iter().collect()
}

/// A request that waits until the test writes to its pipe, and the worker that runs it.
struct Waiting {
    begun: Begun,
    fifo: std::path::PathBuf,
    worker: u32,
}

impl Waiting {
    fn begin(server: &Server) -> Self {
        let fifo = server.site.fifo("go-on");
        let begun = Begun::ask(&server.url(&format!("/app/wait.php?fifo={}", fifo.display())));
        let worker = begun.first.trim().parse().unwrap();
        Self {
            begun,
            fifo,
            worker,
        }
    }

    /// Lets the request go on. Returns the rest of its response.
    fn end(self) -> String {
        self.begun.go_on(&self.fifo, "went on ")
    }
}

/// Clients ask all the time, over new and kept connections to the workers. Every worker is replaced, no request
/// fails, and a request that has begun ends first.
#[test]
fn workers_are_replaced_without_losing_a_request() {
    for keys in ["", "keep_connections = 0\n"] {
        let mark = mark("reloaded");
        let server = php(&route(&mark, PATH, 3, 1, keys));
        curl(&[&server.url(WORKED)]).ok();
        wait_until("three workers", || all(&mark).len() == 3);
        let loads = [(); 3].map(|()| load(server.url(WORKED)));
        let waiting = Waiting::begin(&server);
        for _ in 0..5 {
            let mut before = all(&mark);
            before.remove(&waiting.worker);
            assert!(server.reload());
            wait_until("others", || {
                let now = all(&mark);
                now.len() == 3 && now.is_disjoint(&before)
            });
        }
        assert!(all(&mark).contains(&waiting.worker));
        let old = waiting.worker;
        assert_eq!(waiting.end(), "went on 1");
        wait_until("the end of the last old one", || {
            let now = all(&mark);
            now.len() == 3 && !now.contains(&old)
        });
        loads.into_iter().for_each(Repeated::end);
    }
}

/// With other settings, new workers start at once. The old workers end with their last request.
#[test]
fn workers_of_a_route_that_changed() {
    let mark = mark("changed");
    let server = php(&route(&mark, PATH, 2, 1, ""));
    let generation = || curl(&[&server.url("/app/generation.php")]).ok().text();
    assert_eq!(generation(), "1");
    let old = all(&mark);
    let waiting = Waiting::begin(&server);
    change(&server, &route(&mark, PATH, 2, 2, ""));
    assert_eq!(generation(), "2");
    assert_eq!(waiting.end(), "went on 1");
    wait_until("the end of the old ones", || {
        let now = all(&mark);
        now.len() == 2 && now.is_disjoint(&old)
    });
    change(&server, &route(&mark, PATH, 4, 2, ""));
    wait_until("four", || all(&mark).len() == 4);
    assert_eq!(generation(), "2");
    server.reconfigure(|config| config.remove_route(PATH));
    change(&server, &route(&mark, "/elsewhere/", 4, 2, ""));
    curl(&[&server.url("/elsewhere/generation.php")]).ok();
    curl(&[&server.url(WORKED)]).is(404);
    wait_until("four again", || all(&mark).len() == 4);
}

/// A reload starts the first workers, and another reload ends them.
#[test]
fn workers_that_come_and_go() {
    let mark = mark("come-and-go");
    let server = php("[[route]]\npath = \"/fine\"\nrespond = { body = \"fine\" }\n");
    change(&server, &route(&mark, PATH, 2, 1, ""));
    curl(&[&server.url(WORKED)]).ok();
    server.reconfigure(|config| config.remove_route(PATH));
    assert!(server.reload());
    curl(&[&server.url(WORKED)]).is(404);
    wait_until("their end", || all(&mark).is_empty());
}

/// Fifty reloads with changed and unchanged routes while clients ask all the time: no request fails, and nothing is
/// left over.
#[test]
fn nothing_of_workers_leaks() {
    let mark = mark("leaks");
    let kept = |generation| route(&mark, PATH, 2, generation, "keep_connections = 1\n");
    let server = php(&kept(1));
    let held = || {
        let of = |what: &str| {
            let folder = format!("/proc/{}/{what}", server.pid());
            std::fs::read_dir(folder).unwrap().count()
        };
        (of("fd"), of("task"), all(&mark).len())
    };
    let sockets = || {
        let table = std::fs::read_to_string("/proc/net/unix").unwrap();
        let inode = |fd: std::fs::DirEntry| {
            let link = std::fs::read_link(fd.path()).ok()?;
            let name = link.to_str()?.strip_prefix("socket:[")?.to_owned();
            Some(name.trim_end_matches(']').to_owned())
        };
        let fds = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
        let own: BTreeSet<_> = fds.flatten().filter_map(inode).collect();
        let line = |l: &&str| l.split_whitespace().nth(6).is_some_and(|i| own.contains(i));
        let paths = table
            .lines()
            .filter(line)
            .filter_map(|l| l.split_whitespace().nth(7));
        paths.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    curl(&[&server.url(WORKED)]).ok();
    wait_until("two workers", || all(&mark).len() == 2);
    let (before, old) = (held(), sockets());
    let loads = [(); 2].map(|()| load(server.url(WORKED)));
    for n in 1..=50_u32 {
        change(&server, &kept((n + 1).div_ceil(2)));
    }
    loads.into_iter().for_each(Repeated::end);
    wait_until("as much as before", || {
        let now = held();
        now.0 <= before.0 && now.1 <= before.1 && now.2 == before.2
    });
    wait_until("the end of the sockets of before", || {
        sockets().is_disjoint(&old)
    });
    // The last sockets, too, have no name by which other users could find them.
    for path in sockets().union(&old) {
        assert!(!std::path::Path::new(path).exists(), "{path}");
    }
}
