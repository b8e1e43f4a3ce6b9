//! A loaded template and its answers.

use super::{Scene, c, ends};
use galgo_spawn::{
    EnvBlock, Exit, Launch, Limits, Priority, Sandbox, Start, Status, inspect,
    template::{ChildRequest, LoadedTemplate, PreforkedChild, RunningChild, Template, Uses},
};
use std::{
    collections::VecDeque,
    ffi::CString,
    fs,
    io::{Read, Write},
    os::fd::AsFd,
    path::Path,
};

pub struct Warm {
    pub scene: Scene,
    pub template: Template,
    pub loaded: LoadedTemplate,
    /// Standard error of the program while it was loaded.
    pub stderr: std::io::PipeReader,
    /// Standard output of the program while it was loaded.
    pub stdout: std::io::PipeReader,
}

#[derive(Debug)]
pub struct Answer {
    pub out: String,
    pub err: String,
    pub exit: Exit,
    pub learned: String,
}

impl Warm {
    pub fn load(path: &Path) -> Self {
        Self::load_with(path, "")
    }

    /// Loads a program with modules that were learned before.
    pub fn load_with(path: &Path, modules: &str) -> Self {
        Self::load_for(Uses::Many, path, modules)
    }

    pub fn load_for(uses: Uses, path: &Path, modules: &str) -> Self {
        Self::load_in(Scene::new(), uses, path, modules)
    }

    /// Loads a program with the environment of a scene.
    pub fn load_in(mut scene: Scene, uses: Uses, path: &Path, modules: &str) -> Self {
        let kind = inspect::detect_kind(path).unwrap();
        let (theirs_in, _) = std::io::pipe().unwrap();
        let (stdout, theirs_out) = std::io::pipe().unwrap();
        let (stderr, theirs_err) = std::io::pipe().unwrap();
        let args: Vec<CString> = vec![c(path)];
        let launch = Launch {
            path: None,
            args,
            env: scene.env.clone(),
            dir: c(path.parent().unwrap()),
            limits: scene.limits,
            no_new_privs: true,
            sandbox: Sandbox::Standard,
            more: Vec::new(),
            knocks: false,
            priority: Priority::Normal,
        };
        let stdio = [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()];
        let (spawner, modules) = (&mut scene.spawner, modules.as_bytes());
        let mut template = Template::start(spawner, launch, stdio, kind, uses, modules).unwrap();
        while !template.has_begun(spawner).unwrap() {
            std::thread::yield_now();
        }
        drop((theirs_in, theirs_out, theirs_err));
        let loaded = loop {
            assert!(ends(template.as_fd()), "nothing from the template");
            match template.loaded() {
                Ok(Some(loaded)) => break loaded,
                Ok(None) => {}
                Err(e) => {
                    let mut said = String::new();
                    let mut stderr = stderr;
                    stderr.read_to_string(&mut said).unwrap();
                    panic!("{e}: {said}");
                }
            }
        };
        Self {
            scene,
            template,
            loaded,
            stderr,
            stdout,
        }
    }

    pub fn prefork(&self) -> PreforkedChild {
        arrived(self.template.prefork().unwrap())
    }

    pub fn get(&self, vars: &[(&str, &str)]) -> Answer {
        self.answer(vars, b"", false)
    }

    /// Returns the output of `count` children, a line each. Several run at a time.
    /// `QUERY_STRING=leave` tells them that the test ignores their status.
    pub fn lines(&self, count: usize) -> Vec<String> {
        self.lines_of(&[("QUERY_STRING", "leave")], count)
    }

    /// Returns the output of `count` children for requests with these variables.
    pub fn lines_of(&self, vars: &[(&str, &str)], count: usize) -> Vec<String> {
        const ABREAST: usize = 4;
        let mut env = EnvBlock::default();
        env.set_variable(b"PATH", b"/usr/bin:/bin");
        for (name, value) in vars {
            env.set_variable(name.as_bytes(), value.as_bytes());
        }
        let null = fs::File::options().read(true).write(true).open("/dev/null");
        let null = null.unwrap();
        let (mut stdout, theirs) = std::io::pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = String::new();
            stdout.read_to_string(&mut all).unwrap();
            all
        });
        let ahead = |_| self.template.prefork().unwrap();
        let mut preforked_children: VecDeque<PreforkedChild> =
            (0..ABREAST.min(count)).map(ahead).collect();
        let mut running = VecDeque::new();
        for started in 0..count {
            let preforked = arrived(preforked_children.pop_front().unwrap());
            if started + ABREAST < count {
                preforked_children.push_back(self.template.prefork().unwrap());
            }
            let request = ChildRequest {
                program: c"",
                env: &env,
                dir: None,
                stdio: [null.as_fd(), theirs.as_fd(), null.as_fd()],
                cpu: None,
                priority: Priority::Normal,
                patience: std::time::Duration::from_secs(60),
                learn: false,
            };
            running.push_back(preforked.give_request(&request).unwrap().child);
            if running.len() == ABREAST {
                running.pop_front().unwrap().wait().unwrap();
            }
        }
        for mut child in running {
            child.wait().unwrap();
        }
        drop(theirs);
        let all = reader.join().unwrap();
        all.lines().map(str::to_owned).collect()
    }

    pub fn answer(&self, vars: &[(&str, &str)], body: &[u8], learn: bool) -> Answer {
        answer(self.prefork(), vars, body, learn)
    }

    /// Answers like [`answer`](Self::answer), in another working directory than the template's.
    pub fn answer_in(&self, dir: &Path, vars: &[(&str, &str)], body: &[u8]) -> Answer {
        answer_from(self.prefork(), Some(dir), vars, body, false)
    }

    /// Gives a parked process a request without reading the answer.
    pub fn give(self) -> RunningChild {
        let null = fs::File::options().read(true).write(true).open("/dev/null");
        let null = null.unwrap();
        let request = ChildRequest {
            program: c"",
            env: &EnvBlock::default(),
            dir: None,
            stdio: [null.as_fd(), null.as_fd(), null.as_fd()],
            cpu: None,
            priority: Priority::Normal,
            patience: std::time::Duration::from_secs(60),
            learn: false,
        };
        self.template
            .into_preforked()
            .give_request(&request)
            .unwrap()
    }

    /// Returns the answer of a parked process.
    pub fn itself(self, vars: &[(&str, &str)], body: &[u8], learn: bool) -> Answer {
        answer(self.template.into_preforked(), vars, body, learn)
    }
}

fn answer(preforked: PreforkedChild, vars: &[(&str, &str)], body: &[u8], learn: bool) -> Answer {
    answer_from(preforked, None, vars, body, learn)
}

fn answer_from(
    preforked: PreforkedChild,
    dir: Option<&Path>,
    vars: &[(&str, &str)],
    body: &[u8],
    learn: bool,
) -> Answer {
    let dir = dir.map(c);
    let mut env = EnvBlock::default();
    for (name, value) in [("PATH", "/usr/bin:/bin")].iter().chain(vars) {
        env.set_variable(name.as_bytes(), value.as_bytes());
    }
    let (theirs_in, mut stdin) = std::io::pipe().unwrap();
    let (mut stdout, theirs_out) = std::io::pipe().unwrap();
    let (mut stderr, theirs_err) = std::io::pipe().unwrap();
    stdin.write_all(body).unwrap(); // at most what a pipe holds
    drop(stdin);
    let mut running = preforked
        .give_request(&ChildRequest {
            program: c"",
            env: &env,
            dir: dir.as_deref(),
            stdio: [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()],
            cpu: None,
            priority: Priority::Normal,
            patience: std::time::Duration::from_secs(60),
            learn,
        })
        .unwrap();
    drop((theirs_in, theirs_out, theirs_err));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    stdout.read_to_end(&mut out).unwrap();
    stderr.read_to_end(&mut err).unwrap();
    let exit = running.child.wait().unwrap();
    let learned = running.report.map(|l| l.read_modules()).unwrap_or_default();
    Answer {
        out: String::from_utf8_lossy(&out).into_owned(),
        err: String::from_utf8_lossy(&err).into_owned(),
        exit,
        learned: String::from_utf8(learned).unwrap(),
    }
}

fn arrived(mut preforked: PreforkedChild) -> PreforkedChild {
    while !preforked.is_ready().unwrap() {
        assert!(ends(preforked.as_fd()), "no child");
    }
    preforked
}

/// Returns standard output, standard error and status of a cold start.
pub fn cold(path: &Path, vars: &[(&str, &str)], body: &[u8]) -> (String, String, Status) {
    let mut scene = Scene::new();
    for (name, value) in vars {
        scene.env.set_variable(name.as_bytes(), value.as_bytes());
    }
    let (theirs_in, mut stdin) = std::io::pipe().unwrap();
    let (mut stdout, theirs_out) = std::io::pipe().unwrap();
    let (mut stderr, theirs_err) = std::io::pipe().unwrap();
    stdin.write_all(body).unwrap();
    drop(stdin);
    let start = Start {
        path: &c(path),
        args: &[c(path)],
        env: &scene.env,
        dir: &c(path.parent().unwrap()),
        stdio: [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()],
        more: &[],
        limits: Limits::default(),
        no_new_privs: true,
        sandbox: Sandbox::Standard,
    };
    let mut child = scene.spawner.start_program(&start).unwrap();
    drop((theirs_in, theirs_out, theirs_err));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    stdout.read_to_end(&mut out).unwrap();
    stderr.read_to_end(&mut err).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(out), text(err), child.wait().unwrap().status)
}
