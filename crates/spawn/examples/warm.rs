//! Shows the costs of a program, started cold and as a child of a template: `warm PROGRAM [COUNT
//! [VARIABLE=VALUE…]]`. The variable `BODY` gives the program's request body. Children first report the
//! modules to preload. For development.
#![allow(clippy::unwrap_used, missing_docs)]

use galgo_spawn::{
    Child, EnvBlock, Launch, Limits, Priority, Sandbox, Spawner, Start, inspect,
    template::{ChildRequest, PreforkedChild, PreloadReport, Template, Uses},
};
use rustix::event::{PollFd, PollFlags, poll};
use std::{
    ffi::CString,
    io::{Read, Write},
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    time::Instant,
};

#[derive(Default)]
struct Cost {
    wall: Vec<f64>,
    cpu: Vec<f64>,
    faults: Vec<f64>,
}

impl Cost {
    fn report(&mut self, what: &str) {
        let median = |v: &mut Vec<f64>| {
            v.sort_by(f64::total_cmp);
            v[v.len() / 2]
        };
        let (wall, cpu, faults) = (
            median(&mut self.wall),
            median(&mut self.cpu),
            median(&mut self.faults),
        );
        println!("{what}: wall {wall:.2} ms, cpu {cpu:.2} ms, faults {faults}");
    }
}

fn usage() -> (f64, f64) {
    // SAFETY: a struct of integers.
    let mut u: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `u` is a valid rusage that getrusage may write to.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut u) };
    let ms = |t: libc::timeval| t.tv_sec as f64 * 1e3 + t.tv_usec as f64 / 1e3;
    (ms(u.ru_utime) + ms(u.ru_stime), u.ru_minflt as f64)
}

struct World {
    spawner: Spawner,
    path: CString,
    dir: CString,
    env: EnvBlock,
    body: Vec<u8>,
}

impl World {
    fn run(&mut self, template: Option<(&Template, bool)>, cost: &mut Cost) -> (String, String) {
        let (theirs_in, mut stdin) = std::io::pipe().unwrap();
        let (mut stdout, theirs_out) = std::io::pipe().unwrap();
        let stderr = std::fs::File::options()
            .write(true)
            .open("/dev/stderr")
            .unwrap();
        stdin.write_all(&self.body).unwrap();
        drop(stdin);
        let null = std::fs::File::open("/dev/null").unwrap();
        let preforked = template.map(|(t, _)| {
            let mut preforked = t.prefork().unwrap();
            while !preforked.is_ready().unwrap() {
                poll(&mut [PollFd::new(&preforked, PollFlags::IN)], None).unwrap();
            }
            preforked
        });
        let before = usage();
        let begin = Instant::now();
        // The same standard input as from the server.
        let stdin = if self.body.is_empty() {
            null.as_fd()
        } else {
            theirs_in.as_fd()
        };
        let stdio = [stdin, theirs_out.as_fd(), stderr.as_fd()];
        let learns = template.is_some_and(|(_, learns)| learns);
        let (mut child, report) = self.start(preforked, learns, stdio);
        drop((theirs_in, theirs_out));
        let mut out = String::new();
        stdout.read_to_string(&mut out).unwrap();
        let exit = child.wait().unwrap();
        cost.wall.push(begin.elapsed().as_secs_f64() * 1e3);
        let after = usage();
        cost.cpu.push(after.0 - before.0);
        cost.faults.push(after.1 - before.1);
        let modules = report.map(|l| l.read_modules()).unwrap_or_default();
        (
            format!("{out}{:?}", exit.status),
            String::from_utf8(modules).unwrap(),
        )
    }

    /// Starts the program, cold or as a child of a template.
    fn start(
        &mut self,
        preforked: Option<PreforkedChild>,
        learn: bool,
        stdio: [BorrowedFd<'_>; 3],
    ) -> (Child, Option<PreloadReport>) {
        let Some(preforked) = preforked else {
            let args = [self.path.clone()];
            let start = Start {
                path: &self.path,
                args: &args,
                env: &self.env,
                dir: &self.dir,
                stdio,
                more: &[],
                limits: Limits::default(),
                no_new_privs: true,
                sandbox: Sandbox::Standard,
            };
            return (self.spawner.start_program(&start).unwrap(), None);
        };
        let request = ChildRequest {
            program: c"",
            env: &self.env,
            dir: None,
            stdio,
            cpu: None,
            priority: Priority::Normal,
            patience: std::time::Duration::from_secs(60),
            learn,
        };
        let running = preforked.give_request(&request).unwrap();
        (running.child, running.report)
    }

    fn template(&mut self, modules: &str) -> Template {
        let kind = inspect::detect_kind(Path::new(self.path.to_str().unwrap())).unwrap();
        let (stdin, _) = std::io::pipe().unwrap();
        let (_, stdout) = std::io::pipe().unwrap();
        let stderr = std::fs::File::options()
            .write(true)
            .open("/dev/stderr")
            .unwrap();
        let args = [self.path.clone()];
        let mut env = EnvBlock::default();
        // Variables that all requests have.
        const SAME: [&[u8]; 5] = [
            b"PATH",
            b"SERVER_SOFTWARE",
            b"GATEWAY_INTERFACE",
            b"PHPRC",
            b"PHP_INI_SCAN_DIR",
        ];
        for name in SAME {
            if let Some(value) = self.env.get_value(name) {
                env.set_variable(name, value);
            }
        }
        let launch = Launch {
            path: None,
            args: args.into(),
            env,
            dir: self.dir.clone(),
            limits: Limits::default(),
            no_new_privs: true,
            sandbox: Sandbox::Standard,
            more: Vec::new(),
            knocks: false,
            priority: Priority::Normal,
        };
        let begin = Instant::now();
        let mut template = Template::start(
            &mut self.spawner,
            launch,
            [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            kind,
            Uses::Many,
            modules.as_bytes(),
        )
        .unwrap();
        loop {
            poll(&mut [PollFd::new(&template, PollFlags::IN)], None).unwrap();
            if let Some(loaded) = template.loaded().unwrap() {
                println!(
                    "template: {:.1} ms, {} files, obstacle {:?}",
                    begin.elapsed().as_secs_f64() * 1e3,
                    loaded.files.len(),
                    loaded.obstacle
                );
                return template;
            }
        }
    }
}

/// Reads the program, its variables and the number of runs from the command line.
fn arguments() -> (World, usize) {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap();
    let count = args.next().map_or(20, |n| n.parse().unwrap());
    let mut env = EnvBlock::default();
    let search = std::env::var("WARM_PATH").unwrap_or("/usr/bin:/bin".into());
    env.set_variable(b"PATH", search.as_bytes());
    for variable in args {
        let (name, value) = variable.split_once('=').unwrap();
        env.set_variable(name.as_bytes(), value.as_bytes());
    }
    let dir = Path::new(&path).parent().unwrap().to_str().unwrap();
    let world = World {
        spawner: Spawner::direct().unwrap(),
        dir: CString::new(dir).unwrap(),
        path: CString::new(path.clone()).unwrap(),
        env,
        body: std::env::var("BODY").unwrap_or_default().into_bytes(),
    };
    (world, count)
}

/// Loads templates until one has all modules that its children report.
fn learned(world: &mut World) -> Template {
    let mut modules = String::new();
    loop {
        let template = world.template(&modules);
        let (_, learned) = world.run(Some((&template, true)), &mut Cost::default());
        let is_new = |line: &&str| !modules.lines().any(|known| known == *line);
        let new: Vec<&str> = learned.lines().filter(is_new).collect();
        if new.is_empty() {
            return template;
        }
        println!("learned: {}", new.join(", "));
        modules += &(new.join("\n") + "\n");
    }
}

/// Returns the processor time that a template has taken for its forks, in ms.
fn forks(template: &Template) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", template.pid())).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
}

fn memory(template: &Template) {
    let text = format!("/proc/{}/smaps_rollup", template.pid());
    let text = std::fs::read_to_string(text).unwrap();
    let of = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    println!(
        "template: Rss {} kB, Pss {} kB, Private_Dirty {} kB",
        of("Rss"),
        of("Pss:"),
        of("Private_Dirty")
    );
}

/// Prints the template's open files, its mappings, and the system calls that its threads wait in.
fn show(template: &Template) {
    let pid = template.pid();
    let command = format!(
        "ls -l /proc/{pid}/fd; cat /proc/{pid}/task/*/syscall; cat /proc/{pid}/task/*/comm; \
         grep -c . /proc/{pid}/maps; grep ' ..-s' /proc/{pid}/maps"
    );
    let shell = std::process::Command::new("sh")
        .args(["-c", &command])
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&shell.stdout));
}

fn main() {
    let (mut world, count) = arguments();
    let template = learned(&mut world);
    let (mut cold, mut warm) = (Cost::default(), Cost::default());
    // With ONLY_WARM a profile shows the children alone.
    let only_warm = std::env::var("ONLY_WARM").is_ok();
    let shows = std::env::var("SHOW").is_ok();
    let before = forks(&template);
    for i in 0..count {
        let b = world.run(Some((&template, false)), &mut warm);
        if only_warm {
            continue;
        }
        let a = world.run(None, &mut cold);
        if i == 0 {
            println!("{}", if a.0 == b.0 { "identical" } else { "DIFFERENT" });
            if a.0 != b.0 || shows {
                println!("--- cold\n{}\n--- warm\n{}", a.0, b.0);
            }
        }
    }
    if !only_warm {
        cold.report("cold");
    }
    warm.report("warm");
    let each = (forks(&template) - before) / count as f64;
    println!("its template: cpu {each:.2} ms for each");
    memory(&template);
    if shows {
        show(&template);
    }
}
