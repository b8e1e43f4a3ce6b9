//! The table of routes: a line for each route, and a line for each program below it.

use std::{
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use crate::{
    command::{paint::Paint, screen::escape_lines},
    config::{Address, Cgi, Config, Listen, Route, Speaks},
    described::{describe, shorten_path},
    programs::{self, FileState, Seen, Severity},
};
use galgo_spawn::owners::RunsAs;

/// Limit of the programs that are shown, over all routes. Examining a program takes about a millisecond, and no client is
/// served meanwhile.
const SHOWN: usize = 50;

/// Prints the table. `base` is the beginning of each URL, without its last slash.
pub(crate) fn print_route_table(
    out: &mut impl Write,
    config: &Config,
    base: &str,
    paint: Paint,
) -> io::Result<()> {
    let names: Vec<_> = config.routes.iter().map(escape_lines).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    let mut room = SHOWN;
    writeln!(out)?;
    for (route, name) in config.routes.iter().zip(names) {
        let gap = width - name.chars().count();
        let what = describe(config, route);
        writeln!(out, "  {}{:gap$}   {what}", paint.strong(&name), "")?;
        if let Some(cgi) = route.programs() {
            print_programs(out, config, route, cgi, base, paint, &mut room)?;
        }
    }
    if let Some(sites) = &config.sites {
        let folder = shorten_path(&sites.path);
        let whose = match sites.remit.as_ref().map(|remit| remit.runs_as()) {
            Some(RunsAs::Owner { .. }) => ", programs as their owners",
            _ => "",
        };
        let host = paint.strong("HOST");
        writeln!(out, "  {host}   a folder for each host in {folder}{whose}")?;
    }
    writeln!(out)
}

/// Returns the beginning of the site's URLs on this machine, from the first TCP listener; empty if there is none.
pub(crate) fn base_url<'l>(listeners: impl IntoIterator<Item = &'l Listen>) -> String {
    let Some((at, speaks)) = first_tcp(listeners) else {
        return String::new();
    };
    let scheme = match speaks {
        Speaks::Https => "https",
        _ => "http",
    };
    let ip = match at.ip() {
        // A listener on every address also listens on this machine's own.
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, at.port()))
}

/// Returns the address and the protocol of the first TCP listener.
pub(crate) fn first_tcp<'l>(
    listeners: impl IntoIterator<Item = &'l Listen>,
) -> Option<(SocketAddr, Speaks)> {
    listeners.into_iter().find_map(|l| match l.address {
        Address::Tcp(at) => Some((at, l.speaks)),
        Address::Unix(_) => None,
    })
}

/// Prints the programs of a route, and for each program that would fail, why.
fn print_programs(
    out: &mut impl Write,
    config: &Config,
    route: &Route,
    cgi: &Cgi,
    base: &str,
    paint: Paint,
    room: &mut usize,
) -> io::Result<()> {
    let base = match (&route.host, base.rsplit_once(':')) {
        (Some(hosts), Some((_, port))) => format!("http://{}:{port}", hosts.example()),
        _ => base.to_owned(),
    };
    let (mut shown, mut more) = (0_usize, 0_usize);
    for file in programs::list_files(&cgi.root) {
        if *room == 0 {
            more += 1;
            continue;
        }
        let Some(seen) = programs::examine_file(config, route, cgi, file) else {
            continue;
        };
        if seen.verdict() == Severity::Note {
            continue;
        }
        *room -= 1;
        shown += 1;
        print_program(out, &seen, &base, paint)?;
    }
    match (shown, more) {
        (_, 1..) => writeln!(out, "    and {more} more files (galgo check shows all)"),
        (0, 0) => writeln!(
            out,
            "    no program yet: copy one in, and it is served at once"
        ),
        _ => Ok(()),
    }
}

fn print_program(out: &mut impl Write, seen: &Seen, base: &str, paint: Paint) -> io::Result<()> {
    let mark = paint.verdict_mark(seen.verdict());
    writeln!(
        out,
        "    {mark}  {base}{}",
        programs::percent_encode(&seen.url)
    )?;
    if let FileState::Program(found) = &seen.state {
        for finding in found.iter().take(2) {
            writeln!(out, "          {}", escape_lines(&finding.says))?;
            if !finding.mend.is_empty() {
                let mend = paint.faint(&format!("try: {}", finding.mend));
                writeln!(out, "          {mend}")?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{
        command::found::*,
        config::{CgiRoot, Files, Handler, UserDir},
    };
    use galgo_proto::hosts::Hosts;
    use std::{path::Path, sync::Arc};

    fn shown(config: &Config, base: &str) -> String {
        let mut out = Vec::new();
        print_route_table(&mut out, config, base, Paint::without_colour()).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn programs(folder: &Path, path: &str, host: Option<&str>) -> Arc<Route> {
        let cgi = Cgi::new(CgiRoot::open(folder).unwrap(), folder.to_owned());
        Arc::new(Route {
            host: host.and_then(|host| Hosts::new(vec![host.to_owned()])),
            ..Route::new(path, Handler::Cgi(Arc::new(cgi)))
        })
    }

    #[test]
    fn users_own_programs_say_whose_rights_they_have() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        let files = Route::new("/~ada/", Handler::Files(files));
        let config = Config {
            routes: vec![
                programs(dir.path(), "/~ada/cgi-bin/", None),
                programs(dir.path(), "/cgi-bin/", None),
                Arc::new(files),
            ],
            userdir: Some(UserDir {
                files: None,
                cgi_names: Vec::new(),
                cgi: None,
                runs_as: None,
                users: Vec::new(),
            }),
            ..Config::default()
        };
        let text = shown(&config, "http://127.0.0.1:1");
        let said: Vec<_> = text
            .lines()
            .filter(|l| l.contains("server's own user"))
            .collect();
        assert_eq!(said.len(), 1, "{text}");
        assert!(
            said[0].starts_with("  /~ada/cgi-bin/   programs in "),
            "{text}"
        );
    }

    #[test]
    fn columns_are_aligned_and_hosts_have_their_own_urls() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy("/bin/true", dir.path().join("a b")).unwrap();
        let config = Config {
            routes: vec![
                programs(dir.path(), "/x/", Some("git.example.org")),
                programs(dir.path(), "/", None),
            ],
            ..Config::default()
        };
        let text = shown(&config, "http://127.0.0.1:81");
        let columns: Vec<_> = text.lines().filter_map(|l| l.find("programs in")).collect();
        assert_eq!(columns, [23, 23], "{text}");
        assert!(
            text.contains("  http://git.example.org:81/x/a%20b\n"),
            "{text}"
        );
        assert!(text.contains("  http://127.0.0.1:81/a%20b\n"), "{text}");
    }

    #[test]
    fn every_address_is_this_machine_too() {
        let table = [
            (&["unix:/x", "0.0.0.0:80"][..], "http://127.0.0.1:80"),
            (&["[::]:81"], "http://[::1]:81"),
            (&["192.0.2.1:82"], "http://192.0.2.1:82"),
            (&["unix:/x"], ""),
        ];
        for (listen, want) in table {
            let listen: Vec<Listen> = listen.iter().map(|l| l.parse().unwrap()).collect();
            assert_eq!(base_url(&listen), want);
        }
    }
}
