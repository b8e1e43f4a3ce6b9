//! Makes system calls of a server fail (seccomp_unotify(2)).

use std::fs;

use galgo_testkit::{Server, Site, file::compile};

/// The system calls of a server that can be made to fail.
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    /// Names, with commas between them. A `+` in front adds the calls of all processes that the server starts.
    pub name: &'static str,
    /// Only calls with these bits in this argument fail.
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

    /// Makes the server of `site` ask before each of these calls.
    pub fn of(self, site: Site) -> Site {
        let words = self.wrapped(&site);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        site.through(&words)
    }

    /// Returns the command line that starts a server of `site`; the server's own is appended to it.
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

/// From now on the server makes `skip` calls, then `count` calls fail with `error`, then calls succeed again.
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
