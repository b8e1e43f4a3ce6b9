//! Files that change without an event of inotify(7): on a file system that others change, under a mount, or behind a swapped
//! link. New code runs within two seconds.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use rustix::{
    fs::Mode,
    mount::{UnmountFlags, mount_bind, unmount},
};

use super::{becomes, perl, python, says, site};
use crate::harness::{list, needs_root};
use galgo_testkit::{RunningTime, Server, Site, file::compile, wait_until};

list![
    a_module_that_others_change,
    a_program_and_its_modules_that_others_change,
    a_folder_behind_a_link_that_others_swap,
    a_module_that_others_add_and_remove,
    a_folder_that_is_mounted_over,
    files_of_this_machine_are_not_looked_at,
];

/// Longer than galgo takes, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A folder that a process shows at another place (fuse(4)).
pub struct Shown {
    process: Child,
    pub at: PathBuf,
}

impl Shown {
    pub fn new(site: &Site, folder: &str, at: &str) -> Self {
        needs_root();
        let flags = ["-I/usr/include/fuse3", "-D_FILE_OFFSET_BITS=64", "-lfuse3"];
        let program = compile(site.folder(), "through", include_str!("through.c"), &flags);
        let (folder, at) = (site.path(folder), site.path(at));
        fs::create_dir_all(&at).unwrap();
        let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
        let before = device(&at).unwrap();
        let process = Command::new(program).arg(folder).arg(&at).spawn().unwrap();
        let shown = Self { process, at };
        wait_until("a mounted folder", || device(&shown.at) != Ok(before));
        shown
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder that is mounted over a second folder.
pub struct Over(PathBuf);

impl Over {
    pub fn new(from: &Path, to: PathBuf) -> Self {
        needs_root();
        mount_bind(from, &to).unwrap();
        Self(to)
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

pub fn module(says: &str) -> String {
    format!("package M; sub says {{ '{says}' }} 1;\n")
}

/// Waits until every answer is new. Of two templates, one may have been loaded before the change.
pub fn soon(server: &Server, target: &str, text: &str) {
    let time = RunningTime::start();
    let is_new = || server.get(target).text().ends_with(text);
    wait_until("new code", || (0..4).all(|_| is_new()));
    assert!(
        time.elapsed() < SOON,
        "{:?} {}",
        time.elapsed(),
        server.errors()
    );
    becomes(server, target, &format!("warm {text}"));
}

fn a_module_that_others_change() {
    let site = site().file("real/M.pm", module("0"), 0o644);
    let shown = Shown::new(&site, "real", "shown");
    let uses = format!("use lib '{}'; use M;", shown.at.display());
    let server = site
        .file("cgi-bin/p", perl(&uses, "M::says()"), 0o755)
        .start();
    becomes(&server, "/cgi-bin/p", "warm 0");
    for n in 1..4 {
        let says = "x".repeat(n);
        fs::write(server.path("real/M.pm"), module(&says)).unwrap();
        soon(&server, "/cgi-bin/p", &says);
    }
    drop(server);
}

/// Another program may write files of the same length and with the previous modification time.
fn a_program_and_its_modules_that_others_change() {
    let site = site()
        .file("real/p.py", python("import m", "m.says"), 0o755)
        .file("real/m.py", "says = 'm0'\n", 0o644);
    fs::create_dir(site.path("shown")).unwrap();
    let shown = Shown::new(&site, "real", "shown");
    let server = site
        .config("[[route]]\npath = \"/shown/\"\ncgi = \"shown\"\nenv = { PYTHONDONTWRITEBYTECODE = \"1\" }\n")
        .start();
    becomes(&server, "/shown/p.py", "warm m0");
    wait_until("a template with the module", || {
        server.get("/shown/p.py");
        says(&server, "/p.py:", "loaded for warm starts") > 2
    });
    for n in 1..4 {
        fs::write(server.path("real/m.py"), format!("says = 'm{n}'\n")).unwrap();
        soon(&server, "/shown/p.py", &format!("m{n}"));
    }
    let new = server.path("real/new");
    fs::write(&new, python("import m", "'p'")).unwrap();
    rustix::fs::chmod(&new, Mode::from_raw_mode(0o755)).unwrap();
    fs::rename(new, server.path("real/p.py")).unwrap();
    soon(&server, "/shown/p.py", "p");
    drop(server);
    drop(shown);
}

fn a_folder_behind_a_link_that_others_swap() {
    let site =
        site()
            .file("real/v0/M.pm", module("0"), 0o644)
            .file("real/v1/M.pm", module("1"), 0o644);
    let link = |to: &str| {
        symlink(to, site.path("real/new")).unwrap();
        fs::rename(site.path("real/new"), site.path("real/current")).unwrap();
    };
    link("v0");
    let shown = Shown::new(&site, "real", "shown");
    let uses = format!("use lib '{}/current'; use M;", shown.at.display());
    let server = site
        .clone()
        .file("cgi-bin/p", perl(&uses, "M::says()"), 0o755)
        .start();
    becomes(&server, "/cgi-bin/p", "warm 0");
    for to in ["v1", "v0", "v1"] {
        link(to);
        soon(&server, "/cgi-bin/p", &to[1..]);
    }
    drop(server);
}

fn a_module_that_others_add_and_remove() {
    let site =
        site()
            .file("real/M.pm", module("remote"), 0o644)
            .file("lib/M.pm", module("local"), 0o644);
    let shown = Shown::new(&site, "real", "shown");
    let uses = format!(
        "use lib '{}'; use lib '{}'; use M;",
        site.path("lib").display(),
        shown.at.display()
    );
    let server = site
        .file("cgi-bin/p", perl(&uses, "M::says()"), 0o755)
        .start();
    becomes(&server, "/cgi-bin/p", "warm remote");
    fs::remove_file(server.path("real/M.pm")).unwrap();
    soon(&server, "/cgi-bin/p", "local");
    drop(server);
}

fn a_folder_that_is_mounted_over() {
    let server = site()
        .file("v1/M.pm", module("1"), 0o644)
        .file("lib/M.pm", module("0"), 0o644)
        .file("cgi-bin/p", "", 0o644)
        .start();
    let uses = format!("use lib '{}'; use M;", server.path("lib").display());
    let text = perl(&uses, "M::says()");
    fs::write(server.path("cgi-bin/p"), text).unwrap();
    rustix::fs::chmod(server.path("cgi-bin/p"), Mode::from_raw_mode(0o755)).unwrap();
    becomes(&server, "/cgi-bin/p", "warm 0");
    for _ in 0..2 {
        let over = Over::new(&server.path("v1"), server.path("lib"));
        soon(&server, "/cgi-bin/p", "1");
        drop(over);
        soon(&server, "/cgi-bin/p", "0");
    }
}

/// Inotify reports changes of these files. After a mount elsewhere galgo checks them once, and finds no change.
fn files_of_this_machine_are_not_looked_at() {
    let server = site()
        .file("v1/x", "", 0o644)
        .file("other/x", "", 0o644)
        .file("cgi-bin/p", perl("", "1"), 0o755)
        .start();
    becomes(&server, "/cgi-bin/p", "warm 1");
    let templates = super::has_templates(&server, 2);
    let over = Over::new(&server.path("v1"), server.path("other"));
    let time = RunningTime::start();
    while time.elapsed() < Duration::from_secs(3) {
        server.get("/cgi-bin/p");
    }
    drop(over);
    assert_eq!(super::templates(&server), templates, "{}", server.errors());
}
