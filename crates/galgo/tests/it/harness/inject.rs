//! A server some of whose system calls fail (seccomp_unotify(2)).

use std::fs;

use galgo_testkit::{Server, Site, file::compile};

/// The system calls of a server that can be made to fail.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    /// With commas between them. With a `+` in front: also those of all processes that the server starts.
    pub name: &'static str,
    /// Only those with these bits in this argument.
    pub argument: u32,
    pub mask: u32,
}

impl Calls {
    pub const fn all(name: &'static str) -> Self {
        Self {
            name,
            argument: 0,
            mask: 0,
        }
    }

    /// Has the server of `site` ask before these.
    pub fn of(self, site: Site) -> Site {
        let words = self.wrapped(&site);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        site.through(&words)
    }

    /// The command line that a server of `site` is appended to.
    pub fn wrapped(self, site: &Site) -> [String; 5] {
        let inject = compile(site.folder(), "inject", include_str!("inject.c"), &[]);
        [
            inject.to_string_lossy().into_owned(),
            self.name.to_owned(),
            self.argument.to_string(),
            self.mask.to_string(),
            control(site),
        ]
    }
}

fn control(site: &Site) -> String {
    site.path("inject.control").to_string_lossy().into_owned()
}

/// From now on the server makes `skip` calls, then `count` fail with `error`, then it makes them again.
pub fn fail(server: &Server, skip: u64, count: u64, error: rustix::io::Errno) {
    let to = control(&server.site);
    let new = format!("{to}.new");
    fs::write(&new, format!("{skip} {count} {}\n", error.raw_os_error())).unwrap();
    fs::rename(new, to).unwrap();
}

/// From now on each call of that name fails.
pub fn fail_each(site: &Site, name: &str, error: rustix::io::Errno) {
    let to = control(site);
    let new = format!("{to}.new");
    let order = format!("0 {} {} {name}\n", u32::MAX, error.raw_os_error());
    fs::write(&new, order).unwrap();
    fs::rename(new, to).unwrap();
}

/// From now on no call fails.
pub fn heal(server: &Server) {
    fs::remove_file(control(&server.site)).unwrap();
}
