//! Node scripts: a child of a template does the same as a cold run.
#![allow(clippy::unwrap_used)]

#[path = "../scene/mod.rs"]
mod scene;
mod scripts;

use galgo_spawn::{EnvBlock, Limits, Sandbox, Start, template::Uses};
use galgo_testkit::file::script;
use scene::{
    Scene, c, ends,
    warm::{Answer, Warm},
};
use scripts::ALIKE;
use std::{
    fs,
    io::{Read, Write},
    os::fd::AsFd,
    path::Path,
};

/// Runs the program as a request does without a template.
fn cold(path: &Path, vars: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut scene = Scene::new();
    let mut env = EnvBlock::default();
    for (name, value) in [("PATH", "/usr/bin:/bin")].iter().chain(vars) {
        env.set_variable(name.as_bytes(), value.as_bytes());
    }
    let (theirs_in, mut stdin) = std::io::pipe().unwrap();
    let (mut stdout, theirs_out) = std::io::pipe().unwrap();
    let (mut stderr, theirs_err) = std::io::pipe().unwrap();
    stdin.write_all(body).unwrap();
    drop(stdin);
    let args = [c(path)];
    let mut child = scene
        .spawner
        .start_program(&Start {
            path: &args[0],
            args: &args,
            env: &env,
            dir: &c(path.parent().unwrap()),
            stdio: [theirs_in.as_fd(), theirs_out.as_fd(), theirs_err.as_fd()],
            more: &[],
            limits: Limits::default(),
            no_new_privs: true,
            sandbox: Sandbox::Standard,
        })
        .unwrap();
    drop((theirs_in, theirs_out, theirs_err));
    let (mut out, mut err) = (String::new(), String::new());
    stdout.read_to_string(&mut out).unwrap();
    stderr.read_to_string(&mut err).unwrap();
    Answer {
        out,
        err,
        exit: child.wait().unwrap(),
        learned: String::new(),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    script(folder, name, format!("#!/usr/bin/env node\n{text}\n"))
}

/// Replaces the process ids, which always differ.
fn mend(text: &str) -> String {
    let mut parts = text.split("(node:");
    let mut mended = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        mended += &format!("(node:PID{rest}");
    }
    mended
}

#[test]
fn what_a_cold_run_does_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let only = std::env::var("ONLY").unwrap_or_default();
    let body = b"line one\nline two\n".repeat(500);
    let vars = [("QUERY_STRING", "a=b"), ("REQUEST_METHOD", "POST")];
    let mut differ = Vec::new();
    for (name, text) in ALIKE.iter().filter(|(n, _)| only.is_empty() || *n == only) {
        let path = write(folder.path(), name, text);
        let expected = cold(&path, &vars, &body);
        let mut learned = String::new();
        for round in ["first", "learned", "parked"] {
            let uses = match round {
                "parked" => Uses::Once,
                _ => Uses::Many,
            };
            let warm = Warm::load_for(uses, &path, &learned);
            assert_eq!(warm.loaded.obstacle, None, "{name}");
            let answer = match uses {
                Uses::Many => warm.answer(&vars, &body, round == "first"),
                Uses::Once => warm.itself(&vars, &body, true),
            };
            let alike = mend(&answer.out) == mend(&expected.out)
                && mend(&answer.err) == mend(&expected.err)
                && answer.exit.status == expected.exit.status;
            if !alike {
                differ.push(format!(
                    "=== {name}, {round}\ncold: {expected:#?}\nwarm: {answer:#?}"
                ));
            }
            learned += &answer.learned;
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Writes a package and a script that requires it. Loads a template that has learned the package.
fn with_package(folder: &Path, package: &str, text: &str) -> Warm {
    let of = folder.join("node_modules/pack");
    fs::create_dir_all(&of).unwrap();
    fs::write(of.join("index.js"), package).unwrap();
    let path = write(folder, "script.js", text);
    let answer = Warm::load(&path).answer(&[], b"", true);
    let learned = &answer.learned;
    assert!(
        learned.lines().any(|l| l.ends_with("/pack/index.js")),
        "{answer:?}"
    );
    Warm::load_with(&path, learned)
}

/// Writes a package that is found by its package.json. Loads a template that has learned the package.
fn with_described_package(folder: &Path, text: &str) -> Warm {
    let of = folder.join("node_modules/pack");
    fs::create_dir_all(&of).unwrap();
    fs::write(of.join("package.json"), r#"{"exports":"./index.js"}"#).unwrap();
    with_package(folder, "exports.name = 'pack'", text)
}

#[test]
fn a_child_does_not_repeat_what_its_template_can_do() {
    let folder = tempfile::tempdir().unwrap();
    let text = "const young = require('v8').getHeapSpaceStatistics().find((s) => s.space_name === 'new_space').space_used_size;
        const before = process.moduleLoadList.length;
        require('pack');
        console.log('%o', {});
        console.log(young < 200000, process.moduleLoadList.slice(before), require('fs').readdirSync('/proc/self/task').length);";
    let warm = with_described_package(folder.path(), text);
    let answer = warm.get(&[]);
    assert_eq!(answer.out, "{}\ntrue [] 1\n", "{answer:?}");
}

#[test]
fn where_a_package_is_found_is_not_decided_in_its_template() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("cgi-bin")).unwrap();
    let text = "console.log(require('pack').name)";
    let scripts = folder.path().join("cgi-bin");
    let packages = folder.path().join("node_modules/pack");
    fs::create_dir_all(&packages).unwrap();
    fs::write(packages.join("package.json"), r#"{"exports":"./index.js"}"#).unwrap();
    fs::write(packages.join("index.js"), "exports.name = 'far'").unwrap();
    let path = write(&scripts, "script.js", text);
    let learned = Warm::load(&path).answer(&[], b"", true).learned;
    let warm = Warm::load_with(&path, &learned);
    assert_eq!(warm.get(&[]).out, "far\n");
    let files = &warm.loaded.files;
    assert!(files.contains(&packages.join("package.json")), "{files:?}");
    let nearer = scripts.join("node_modules/pack");
    fs::create_dir_all(&nearer).unwrap();
    fs::write(nearer.join("index.js"), "exports.name = 'near'").unwrap();
    assert_eq!(warm.get(&[]).out, "near\n");
}

#[test]
fn uptime_begins_with_the_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "up.js", "console.log(process.uptime())");
    let warm = Warm::load(&path);
    let before = std::time::Instant::now();
    let seconds: f64 = warm.get(&[]).out.trim().parse().unwrap();
    assert!(seconds <= before.elapsed().as_secs_f64(), "{seconds}");
}

#[test]
fn a_child_leaves_nothing_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let text = "const before = [globalThis.left, Array.prototype.at.name, process.cwd(), process.umask(), process.env.LEFT,
            require('fs').readFileSync.left, process.listenerCount('SIGTERM')];
        console.log(JSON.stringify(before));
        globalThis.left = 1; Array.prototype.at = function bad() {}; process.chdir('/'); process.umask(0o777);
        process.env.LEFT = '1'; require('fs').readFileSync.left = 1; process.on('SIGTERM', () => {});
        require('child_process').spawn('sleep', ['5'], { stdio: 'ignore', detached: true }).unref();
        for (const fd of require('fs').readdirSync('/proc/self/fd')) if (fd > 2) try { require('fs').writeSync(+fd, 'xxxxxxxxxxxxxxxxxxxxxxxx') } catch {}
        process.exit();";
    let path = write(folder.path(), "hostile.js", text);
    let warm = Warm::load(&path);
    let first = warm.get(&[]);
    assert!(first.out.starts_with("[null,\"at\""), "{first:?}");
    for _ in 0..5 {
        assert_eq!(warm.get(&[]).out, first.out);
    }
}

#[test]
fn what_stands_in_the_way_is_named() {
    let rows = [
        (
            "exports.id = require('crypto').randomBytes(8)",
            "draws random numbers (crypto.randomBytes)",
        ),
        (
            "exports.id = require('crypto').webcrypto.getRandomValues(new Uint8Array(8))",
            "draws random numbers (crypto.getRandomValues)",
        ),
        ("exports.tty = process.stdout.isTTY", "uses process.stdout"),
        ("exports.err = process.stderr", "keeps a standard stream"),
        (
            "exports.m = process.env.REQUEST_METHOD",
            "reads REQUEST_METHOD while",
        ),
        (
            "exports.c = 'HTTP_COOKIE' in process.env",
            "reads HTTP_COOKIE while",
        ),
        ("exports.all = { ...process.env }", "reads "),
        (
            "for (const n in process.env) if (n.startsWith('HTTP_')) exports[n] = process.env[n]",
            "reads HTTP_HOST while",
        ),
        ("process.env.OURS = 'x'", "changes its environment"),
        ("delete process.env.PATH", "changes its environment"),
        ("delete process.env.HTTP_COOKIE", "changes its environment"),
        (
            "require('fs').readFile('/etc/passwd', () => {})",
            "starts a thread while loading",
        ),
        (
            "exports.fd = require('fs').openSync('/etc/passwd')",
            "opens",
        ),
        (
            "exports.s = require('net').createServer().listen(0)",
            "opens",
        ),
    ];
    for (package, words) in rows {
        let folder = tempfile::tempdir().unwrap();
        let warm = with_package(folder.path(), package, "require('pack'); process.exit()");
        let obstacle = warm.loaded.obstacle.unwrap_or_default();
        assert!(obstacle.contains(words), "{package}: {obstacle}");
    }
}

/// The package works like `debug`, which many packages (Express) depend on. Each request sees its own
/// environment in the values that the package keeps.
#[test]
fn a_package_may_look_for_its_own_variables_and_for_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let package =
        "exports.names = Object.keys(process.env).filter((name) => /^debug_/i.test(name));
        exports.on = [process.env.DEBUG, 'FORCE_COLOR' in process.env];
        exports.colours = require('tty').isatty(process.stderr.fd);
        delete process.env.DEBUG;
        exports.env = process.env;";
    let text = "const ahead = Object.keys(require.cache).length === 2;
        const { env, ...rest } = require('pack');
        env.OURS = 'x';
        delete env.REQUEST_METHOD;
        console.log(ahead, rest, Object.entries(env), { ...env }, env.QUERY_STRING, 'HTTP_HOST' in env, process.env.OURS);
        console.log(require('child_process').execSync('env | sort', { env, encoding: 'utf8' }).replace(/^_=.*\\n/m, ''));";
    let warm = with_package(folder.path(), package, text);
    assert_eq!(warm.loaded.obstacle, None);
    let vars = [("QUERY_STRING", "a=b"), ("REQUEST_METHOD", "GET")];
    let expected = cold(&folder.path().join("script.js"), &vars, b"");
    assert_eq!(expected.err, "");
    for _ in 0..2 {
        let answer = warm.get(&vars);
        let out = answer.out.replacen("true", "false", 1);
        assert!(answer.out.starts_with("true "), "{answer:?}");
        assert_eq!((out, answer.err), (expected.out.clone(), String::new()));
    }
}

/// Options that load code ahead of the script. The script still runs only for a request, with the same result
/// as cold.
#[test]
fn options_that_load_something_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let hooks = "import { register } from 'node:module'; register('./hooks.mjs', import.meta.url);";
    fs::write(folder.path().join("import.mjs"), hooks).unwrap();
    fs::write(folder.path().join("hooks.mjs"), "").unwrap();
    fs::write(
        folder.path().join("ahead.js"),
        "globalThis.ahead = process.argv.length",
    )
    .unwrap();
    let says = "require('fs').writeFileSync(process.env.RAN ?? 'ran-ahead', 'x');
        console.log(globalThis.ahead, process.execArgv, process.argv.length, process.env.RAN)";
    let vars = [("RAN", "ran")];
    let dir = folder.path().display();
    for (name, options) in [
        ("import.js", format!("--import {dir}/import.mjs")),
        (
            "loader.js",
            format!("--experimental-loader={dir}/hooks.mjs"),
        ),
        ("require.js", format!("-r {dir}/ahead.js")),
    ] {
        let text = format!("#!/usr/bin/env -S node {options}\n{says}\n");
        let path = script(folder.path(), name, &text);
        let expected = cold(&path, &vars, b"");
        for uses in [Uses::Many, Uses::Once] {
            let warm = Warm::load_for(uses, &path, "");
            assert_eq!(warm.loaded.obstacle, None, "{name}");
            let answer = match uses {
                Uses::Many => warm.answer(&vars, b"", false),
                Uses::Once => warm.itself(&vars, b"", false),
            };
            assert_eq!(answer.out, expected.out, "{name}, {uses:?}");
            assert_eq!(mend(&answer.err), mend(&expected.err), "{name}, {uses:?}");
            assert_eq!(answer.exit.status, expected.exit.status, "{name}, {uses:?}");
        }
    }
    assert!(!folder.path().join("ran-ahead").exists());
}

/// Parking runs nothing of the program ahead: the thread sees the request's variables.
#[test]
fn what_cannot_be_forked_can_be_parked() {
    let folder = tempfile::tempdir().unwrap();
    let package = "const { Worker } = require('worker_threads');
        const text = 'require(\"worker_threads\").parentPort.postMessage(process.env.QUERY_STRING)';
        exports.worker = new Worker(text, { eval: true });";
    let text = "require('pack').worker.on('message', console.log)";
    let forked = with_package(folder.path(), package, text);
    assert!(forked.loaded.obstacle.is_some());
    let of = folder.path().join("node_modules/pack/index.js");
    let modules = format!("fs\nworker_threads\n{}\n", of.display());
    let warm = Warm::load_for(Uses::Once, &folder.path().join("script.js"), &modules);
    assert_eq!(warm.loaded.obstacle, None);
    assert!(!warm.loaded.files.contains(&of));
    assert_eq!(warm.itself(&[("QUERY_STRING", "q")], b"", false).out, "q\n");
}

/// If a parked process is killed before it reads its request, the request can still be started cold.
#[test]
fn whether_a_parked_process_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "s.js", "console.log('fine')");
    for killed in [false, true] {
        let warm = Warm::load_for(Uses::Once, &path, "");
        let pid = rustix::process::Pid::from_raw(warm.template.pid()).unwrap();
        let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
        signal(rustix::process::Signal::STOP);
        let running = warm.give();
        assert!(!running.has_begun().unwrap());
        signal(if killed {
            rustix::process::Signal::KILL
        } else {
            rustix::process::Signal::CONT
        });
        assert!(ends(running.as_fd()), "neither begun nor ended");
        assert_eq!(running.has_begun().ok(), (!killed).then_some(true));
    }
}
