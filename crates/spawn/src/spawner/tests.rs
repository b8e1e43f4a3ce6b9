//! Tests that helpers and the spawner carry out configured orders only, whatever a server says.

#![allow(clippy::unwrap_used)]

use crate::{
    Child, Direct, EnvBlock, Limits, Priority, Sandbox, Start,
    helper::{checked_program::CheckedProgram, modules},
    identity::User,
    owners::{Deadline, Layout, Remit, RunsAs, Terms, remit::ModuleTerms},
    remote::message::{HelperOrder, StartOrder},
    spawner::successor::{SpawnerBackend, Upgrade},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
};
use std::{
    fs,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Returns the user that these tests run as. Files made by the tests have the right owner.
fn uid() -> u32 {
    crate::identity::effective_uid()
}

pub(crate) fn remit(path: impl AsRef<Path>) -> Remit {
    let user = User {
        name: c"daemon".into(),
        uid: uid(),
        gid: 1,
        home: "/".into(),
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Remit::new(Terms {
        path: path.as_ref().to_owned(),
        layout: Layout::Named,
        names: Vec::new(),
        interpreters: Arc::new(vec![(".php".into(), "/bin/php".into())]),
        variables: vec!["QUERY_STRING".into(), "SCRIPT_FILENAME".into()],
        constants: vec![pair("PATH", "/bin"), pair("LD_PRELOAD", "/lib/ours.so")],
        query_args: true,
        worker: None,
        warm: None,
        modules: None,
        limits: Limits::default(),
        umask: 0o22,
        no_new_privs: true,
        sandbox: Sandbox::Standard,
        strict: None,
        runs_as: RunsAs::User(user),
        groups: Vec::new(),
    })
}

/// Makes a folder with two programs. Above it lies a program that no request may reach.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("galgo-owners-{name}-{}", std::process::id()));
    fs::create_dir_all(folder.join("cgi/.git")).unwrap();
    for file in ["outside", "cgi/p", "cgi/p.php", "cgi/p~", "cgi/.git/p"] {
        fs::write(folder.join(file), "#!/bin/sh\n").unwrap();
    }
    for entry in [
        "",
        "outside",
        "cgi",
        "cgi/p",
        "cgi/p.php",
        "cgi/p~",
        "cgi/.git",
        "cgi/.git/p",
    ] {
        fs::set_permissions(folder.join(entry), fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn order(args: u16, rest: &[&[u8]]) -> Vec<u8> {
    let by = Deadline::within(Duration::from_secs(60));
    let mut bytes =
        HelperOrder::encode_start(args.into(), false, Priority::Normal, by).unwrap()[1..].to_vec();
    for part in rest {
        bytes.extend(*part);
        bytes.push(0);
    }
    bytes
}

#[test]
fn what_was_not_configured_is_refused() {
    let folder = folder("refused");
    let root = folder.join("cgi");
    let remit = remit(&root);
    let at = |name: &str| format!("{}/{name}", root.display()).into_bytes();
    let said = |args: u16, rest: &[&[u8]]| {
        let order = StartOrder::decode(&order(args, rest), true).unwrap();
        let of = CheckedProgram::from_order(&order, &remit, uid());
        let of = of.map(|p| {
            let all = p.env.iter();
            let env = all.map(|(n, v)| format!("{}={}", n.escape_ascii(), v.escape_ascii()));
            env.collect::<Vec<_>>().join(" ")
        });
        of.unwrap_or_else(|why| why.to_string())
    };
    let p = at("p");
    // An interpreter that goes by SCRIPT_FILENAME runs the checked file.
    let fixed = format!(
        "PATH=/bin LD_PRELOAD=/lib/ours.so SCRIPT_FILENAME={}",
        p.escape_ascii()
    );
    assert_eq!(said(0, &[&p]), fixed);
    assert_eq!(said(0, &[&p, b"HTTP_X=1"]), format!("HTTP_X=1 {fixed}"));
    // Constants override any variable that was sent.
    assert_eq!(said(0, &[&p, b"PATH=/evil", b"LD_PRELOAD=/evil"]), fixed);
    let php = at("p.php");
    let ran = said(0, &[&php, b"SCRIPT_FILENAME=/etc/passwd"]);
    assert!(ran.ends_with("cgi/p.php"), "{ran}");
    for variable in [
        "HTTP_PROXY",
        "HTTP_x",
        "LD_LIBRARY_PATH",
        "IFS",
        "PYTHONPATH",
        "http_proxy",
    ] {
        let sent = format!("{variable}=1");
        assert!(
            said(0, &[&p, sent.as_bytes()]).contains("may not be set"),
            "{variable}"
        );
    }
    for word in ["-d", ""] {
        assert!(
            said(1, &[&p, word.as_bytes()]).contains("an argument"),
            "{word}"
        );
    }
    for (name, why) in [
        ("../outside", "is not below"),
        ("p/../p", "is not below"),
        ("p~", "has a name"),
        (".git/p", "has a name"),
        ("none", "cannot be examined"),
    ] {
        let ran = said(0, &[&at(name)]);
        assert!(ran.contains(why), "{name}: {ran}");
    }
    assert!(said(0, &[b"/bin/sh"]).contains("is not below"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn nothing_of_a_workers_start_is_the_servers_to_say() {
    let folder = folder("worker");
    let program = folder.join("cgi/p");
    let cgi = remit(&program);
    let worker = Remit::new(Terms {
        worker: Some(vec!["-b".into(), "own".into()]),
        ..cgi.terms.clone()
    });
    assert_ne!(worker.digest(), cgi.digest());
    let name = program.as_os_str().as_encoded_bytes();
    let made = |args: u16, rest: &[&[u8]]| {
        let order = StartOrder::decode(&order(args, rest), true).unwrap();
        CheckedProgram::from_order(&order, &worker, uid())
    };
    let made_as_configured = made(0, &[name]).unwrap();
    let args: Vec<_> = made_as_configured
        .args
        .iter()
        .map(|a| a.as_bytes())
        .collect();
    assert_eq!(args, [name, b"-b", b"own"]);
    assert_eq!(made_as_configured.env.iter().count(), 2);
    for (args, rest, why) in [
        (1, &[name, b"more"][..], "takes no arguments"),
        (0, &[name, b"HTTP_X=1"], "takes no variables"),
        (0, &[name, b"PATH=/bin"], "takes no variables"),
        (0, &[b"/bin/sh"], "is not below"),
    ] {
        assert!(
            made(args, rest).unwrap_err().to_string().contains(why),
            "{why}"
        );
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Uses a generator of numbers (xorshift) in place of a fuzzer.
#[test]
fn of_a_million_orders_none_starts_what_was_not_configured() {
    let folder = folder("million");
    let root = folder.join("cgi");
    let (remit, program) = (remit(&root), root.join("p"));
    let name = program.as_os_str().as_encoded_bytes();
    let valid = order(
        1,
        &[name, b"one", b"HTTP_X=1", b"QUERY_STRING=b", b"PATH=/evil"],
    );
    let words: [&[u8]; 6] = [
        b"..",
        b"/",
        b"\0LD_PRELOAD=/evil\0",
        b"-",
        b"\0HTTP_PROXY=x\0",
        b"~",
    ];
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let (mut started, mut denied) = (0, 0);
    for _ in 0..1_000_000 {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let mut bytes = valid.clone();
        let at = (x >> 8) as usize % bytes.len();
        match x % 4 {
            0 => bytes[at] = (x >> 40) as u8,
            1 => bytes.truncate(at),
            2 => drop(bytes.splice(
                at..at,
                words[(x >> 40) as usize % words.len()].iter().copied(),
            )),
            _ => bytes.swap(at, (x >> 40) as usize % valid.len()),
        }
        let Some(order) = StartOrder::decode(&bytes, true) else {
            continue;
        };
        let Ok(made) = CheckedProgram::from_order(&order, &remit, uid()) else {
            denied += 1;
            continue;
        };
        started += 1;
        assert_eq!(made.path.as_bytes(), name);
        assert_eq!(made.env.get_value(b"PATH"), Some(&b"/bin"[..]));
        assert_eq!(
            made.env.get_value(b"LD_PRELOAD"),
            Some(&b"/lib/ours.so"[..])
        );
        assert!(made.env.iter().all(|(n, _)| {
            let is_known = [
                &b"PATH"[..],
                b"LD_PRELOAD",
                b"QUERY_STRING",
                b"SCRIPT_FILENAME",
            ]
            .contains(&n);
            is_known || n.starts_with(b"HTTP_") && n != b"HTTP_PROXY"
        }));
        assert!(
            made.args[1..]
                .iter()
                .all(|a| !matches!(a.as_bytes(), [] | [b'-', ..]))
        );
    }
    assert!(started > 10_000 && denied > 10_000, "{started} {denied}");
    fs::remove_dir_all(folder).unwrap();
}

fn with_modules(remit: &Remit) -> Remit {
    let terms = ModuleTerms {
        build: "1".into(),
        setup: b"as configured".to_vec(),
        read: Vec::new(),
        write: Vec::new(),
    };
    Remit::new(Terms {
        modules: Some(terms),
        ..remit.terms.clone()
    })
}

#[test]
fn the_worker_of_modules_is_told_what_was_configured() {
    let none = remit("/srv");
    let some = with_modules(&none);
    assert_ne!(none.digest(), some.digest());
    let host = Ok(fs::File::open("/proc/self/exe").unwrap().into());
    let missing = Err("it is not there".to_owned());
    let found = |remit: &Remit, host, args: u16, rest: &[&[u8]]| {
        let order = StartOrder::decode(&order(args, rest), true).unwrap();
        assert!(modules::asks_for_modules(&order));
        let (_, told) = modules::resolve_worker(&order, remit, Some(host))?;
        Ok(std::io::read_to_string(fs::File::from(told)).unwrap())
    };
    let name = &b"modules"[..];
    assert_eq!(
        found(&some, &host, 0, &[name]),
        Ok("as configured".to_owned())
    );
    for (remit, host, args, rest, why) in [
        (&none, &host, 0, &[name][..], "no modules run"),
        (&some, &missing, 0, &[name], "it is not there"),
        (&some, &host, 1, &[name, b"word"], "takes no arguments"),
        (&some, &host, 0, &[name, b"HTTP_X=1"], "no variables"),
        (&some, &host, 0, &[name, b"PATH=/bin"], "no variables"),
    ] {
        let said: Result<_, String> = found(remit, host, args, rest);
        assert!(said.is_err_and(|said| said.contains(why)), "{why}");
    }
    for other in [
        &b"/modules"[..],
        b"Modules",
        b"modules/",
        b"",
        b"own-worker",
    ] {
        let order = StartOrder::decode(&order(0, &[other]), true).unwrap();
        assert!(!modules::asks_for_modules(&order));
    }
}

/// Starts a shell in place of a server. Its socket is descriptor 3, and it tells at descriptor 4 that it serves.
struct Shell {
    script: &'static str,
    started: Vec<Pid>,
}

impl SpawnerBackend for Shell {
    fn read_remits(&mut self) -> Result<Vec<Arc<Remit>>, String> {
        Ok(Vec::new())
    }

    fn derive_remit(&mut self, _: &Remit, _: &str) -> Result<Remit, String> {
        Err("there are none".into())
    }

    fn open_module_host(&mut self) -> Result<OwnedFd, String> {
        Err("there is none".into())
    }

    fn start_server(
        &mut self,
        line: BorrowedFd<'_>,
        tells: BorrowedFd<'_>,
    ) -> Result<Child, String> {
        let args = [c"sh", c"-c", &std::ffi::CString::new(self.script).unwrap()];
        let null = fs::File::open("/dev/null").unwrap();
        let child = Direct::new().unwrap().start_program(&Start {
            path: &c"/bin/sh".to_owned(),
            args: &args.map(|arg| arg.to_owned()),
            env: &EnvBlock::default(),
            dir: &c"/".to_owned(),
            stdio: [null.as_fd(); 3],
            more: &[line, tells],
            limits: Limits::default(),
            no_new_privs: false,
            sandbox: Sandbox::Off,
        });
        let child = child.map_err(|e| e.to_string())?;
        self.started.extend(Pid::from_raw(child.pid()));
        Ok(child)
    }
}

fn shell(script: &'static str) -> Shell {
    Shell {
        script,
        started: Vec::new(),
    }
}

/// Waits until the state of the server changes.
fn changes(upgrade: &Upgrade) {
    let fds = upgrade.descriptors();
    let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    assert!(!fds.is_empty());
    poll(&mut fds, None).unwrap();
}

/// Asserts that a killed process has ended and has been reaped already.
fn has_ended(pid: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    assert_eq!(waitid(WaitId::Pid(pid), options).unwrap_err(), Errno::CHILD);
}

const HANGS: &str = "exec sleep 1000";

#[test]
fn of_servers_that_are_asked_for_one_runs() {
    let (mut upgrade, now) = (Upgrade::default(), Instant::now());
    let mut host = shell(HANGS);
    let sockets: Vec<OwnedFd> = upgrade.start_successor(&mut host, now).unwrap();
    assert_eq!(sockets.len(), 2);
    for _ in 0..100 {
        let again = upgrade.start_successor(&mut host, now).unwrap_err();
        assert_eq!(again, "an upgrade is already running");
    }
    assert_eq!(host.started.len(), 1);
    let pid = host.started[0];
    assert!(upgrade.is_successor(pid) && !upgrade.check_successor(now));
    // The server is killed once, when its end is asked for.
    assert!(upgrade.end_successor(now).contains("was ended"));
    assert!(!upgrade.is_successor(pid) && upgrade.descriptors().next().is_none());
    has_ended(pid);
    upgrade.end_successor(now);
    // A server that takes too long is also killed.
    upgrade.start_successor(&mut host, now).unwrap();
    let left = upgrade.time_left(now).unwrap();
    assert!(!upgrade.check_successor(now + Duration::from_secs(60)));
    assert!(upgrade.check_successor(now + Duration::try_from(left).unwrap()));
    has_ended(host.started[1]);
}

#[test]
fn a_server_that_has_ended_is_told_of() {
    let (mut upgrade, now) = (Upgrade::default(), Instant::now());
    for (script, how) in [
        ("exit 3", "it ended with status 3 before it was ready"),
        (
            "kill -SEGV $$",
            "it ended by signal 11 (SIGSEGV) before it was ready",
        ),
    ] {
        let sockets = upgrade.start_successor(&mut shell(script), now).unwrap();
        poll(&mut [PollFd::new(&sockets[1], PollFlags::IN)], None).unwrap();
        assert!(!upgrade.check_successor(now));
        assert!(upgrade.descriptors().next().is_none());
        assert_eq!(upgrade.end_successor(now), how);
    }
    // The server can no longer tell that it serves: it has a moment to end.
    let mut host = shell("exec 4>&-; exec sleep 1000");
    upgrade.start_successor(&mut host, now).unwrap();
    changes(&upgrade);
    assert!(!upgrade.check_successor(now) && upgrade.descriptors().count() == 1);
    assert!(upgrade.check_successor(now + Duration::from_secs(1)));
    has_ended(host.started[0]);
}

#[test]
fn a_server_that_serves_is_out_of_reach() {
    let (mut upgrade, now) = (Upgrade::default(), Instant::now());
    let mut host = shell("echo S >&4; exec sleep 1000");
    upgrade.start_successor(&mut host, now).unwrap();
    let pid = host.started[0];
    changes(&upgrade);
    // The second call must give the same answer.
    for _ in 0..2 {
        let said = upgrade.end_successor(now);
        assert_eq!(said, "another galgo has taken over already");
    }
    let much_later = now + Duration::from_secs(1_000_000);
    assert!(
        !upgrade.check_successor(much_later)
            && upgrade.is_successor(pid)
            && upgrade.time_left(now).is_none()
    );
    let again = upgrade.start_successor(&mut host, now).unwrap_err();
    assert_eq!(again, "another galgo has taken over already");
    // The same holds after that server has ended.
    kill_process(pid, Signal::KILL).unwrap();
    changes(&upgrade);
    assert!(!upgrade.check_successor(now) && !upgrade.is_successor(pid));
    assert!(upgrade.start_successor(&mut host, now).is_err());
    assert_eq!(host.started.len(), 1);
}
