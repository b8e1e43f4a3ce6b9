//! A child of a template compared with a program that was executed.

use std::collections::BTreeSet;

use super::{C, becomes, has_templates, site};
use crate::harness::list;
use galgo_testkit::{eventually, wait_until};

list![
    siblings_have_different_addresses,
    as_if_it_had_been_executed
];

/// Two templates take turns: addresses that one answer reveals do not hold for the next.
fn siblings_have_different_addresses() {
    let shows = format!(
        "{C}int main(void){{int here;\
         printf(\"Content-Type: text/plain\\n\\n%s %p %p %p\",how(),(void*)main,(void*)&here,(void*)printf);}}\n"
    );
    let server = site()
        .compiled("cgi-bin/p", &shows, &["-fPIE", "-pie"])
        .start();
    becomes(&server, "/cgi-bin/p", "warm");
    has_templates(&server, 2);
    // If a template has no child ready, or was only just loaded, the other template answers again.
    let answers = eventually("templates by turns", || {
        let answers: Vec<String> = (0..8).map(|_| server.get("/cgi-bin/p").text()).collect();
        let by_turns = answers.windows(2).all(|w| w[0] != w[1]);
        by_turns.then_some(answers)
    });
    let columns: Vec<BTreeSet<&str>> = (1..4)
        .map(|at| {
            answers
                .iter()
                .map(|a| a.split(' ').nth(at).unwrap())
                .collect()
        })
        .collect();
    // main, the stack and the C library: each is at two addresses.
    assert!(columns.iter().all(|c| c.len() == 2), "{answers:#?}");
}

const SHOWS: &str = r#"
static void file(const char *name, const char *path) {
    char line[512];
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        printf("%s %s", name, line);
    if (f) fclose(f);
}
int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    printf("Content-Type: text/plain\n\n");
    fprintf(stderr, "%s", "");
    for (int i = 0; i < argc; i++) printf("argument %s\n", argv[i]);
    for (int fd = 0; fd < 64; fd++) if (fcntl(fd, F_GETFD) >= 0) printf("descriptor %d flags %d\n", fd, fcntl(fd, F_GETFD));
    printf("process %d\n", getpid());
    printf("leads its group %d\n", getpgid(0) == getpid());
    printf("session is another's %d\n", getsid(0) != getpid());
    mode_t mask = umask(0); printf("umask %03o\n", mask);
    char cwd[4096]; printf("in %s\n", getcwd(cwd, sizeof cwd));
    printf("no_new_privs %d, dumpable %d, nice %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_DUMPABLE), getpriority(PRIO_PROCESS, 0));
    char name[64]; prctl(PR_GET_NAME, name); printf("name %s\n", name);
    char exe[4096] = ""; (void)!readlink("/proc/self/exe", exe, sizeof exe - 1); printf("exe %s\n", exe);
    for (int s = 1; s < 65; s++) { struct sigaction a; if (!sigaction(s, NULL, &a) && a.sa_handler != SIG_DFL) printf("signal %d\n", s); }
    sigset_t set; sigprocmask(SIG_SETMASK, NULL, &set);
    for (int s = 1; s < 65; s++) if (sigismember(&set, s)) printf("blocked %d\n", s);
    file("limit", "/proc/self/limits");
    for (char **e = environ; *e; e++) printf("variable %s\n", *e);
    printf("how %s\n", how());
}
"#;

fn as_if_it_had_been_executed() {
    let server = site()
        .config("umask = \"027\"")
        .defaults("cpu = 7\nmemory = \"900M\"\nopen_files = 99\nfile_size = \"1M\"")
        .compiled("cgi-bin/p", &format!("{C}{SHOWS}"), &[])
        .config(
            "[[route]]\npath = \"/cold/\"\ncgi = \"cgi-bin\"\nstart = \"cold\"\nenv = { OURS = \"1\" }\n\
             [[route]]\npath = \"/warm/\"\ncgi = \"cgi-bin\"\nenv = { OURS = \"1\" }\n",
        )
        .start();
    wait_until("a warm start", || {
        server.get("/warm/p").text().ends_with("how warm\n")
    });
    let shown = |target: &str| -> BTreeSet<String> {
        let text = server.get(target).text();
        // RLIMIT_LOCKS differs for each process.
        let own = [
            "UNIQUE_ID=",
            "REMOTE_PORT=",
            "SCRIPT_NAME=",
            "REQUEST_URI=",
            "Max file locks",
            "process ",
        ];
        let usual = |l: &&str| !own.iter().any(|name| l.contains(name));
        text.lines().filter(usual).map(str::to_owned).collect()
    };
    let (mut cold, mut warm) = (shown("/cold/p"), shown("/warm/p"));
    assert!(cold.remove("how cold") && warm.remove("how warm"));
    assert_eq!(cold, warm);
    let folder = server.path("cgi-bin");
    // The reaper recognises leftover processes by this limit.
    let marks = ["/cold/p", "/warm/p", "/warm/p"].map(|target| {
        let text = server.get(target).text();
        let mut lines = text.lines();
        let line = lines.find_map(|l| l.strip_prefix("limit Max file locks"));
        let mark: Vec<u64> = (line.unwrap().split_whitespace())
            .filter_map(|word| word.parse().ok())
            .collect();
        assert!(mark.len() == 2 && mark[0] == mark[1], "{target}: {text}");
        mark[0]
    });
    assert!(marks[0] != marks[1] && marks[1] != marks[2], "{marks:?}");
    // The nice value of this test process, which galgo does not change.
    let nice = rustix::process::getpriority_process(None).unwrap();
    for line in [
        format!("argument {}/p", folder.display()),
        format!("in {}", folder.display()),
        "umask 027".into(),
        "leads its group 1".into(),
        "variable OURS=1".into(),
        format!("no_new_privs 1, dumpable 1, nice {nice}"),
    ] {
        assert!(warm.contains(&line), "{line}: {warm:#?}");
    }
    let begin = |what: &str| warm.iter().filter(|l| l.starts_with(what)).count();
    assert_eq!(begin("descriptor "), 3);
    assert_eq!(begin("signal ") + begin("blocked "), 0);
    assert_eq!(begin("variable LD_") + begin("variable GALGO_"), 0);
    let limit = |name: &str| {
        let line = warm.iter().find(|l| l.contains(name)).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        words[words.len() - 3].to_owned()
    };
    assert_eq!(limit("Max cpu time"), "7");
    assert_eq!(limit("Max open files"), "99");
    assert_eq!(limit("Max file size"), (1 << 20).to_string());
    assert_eq!(limit("Max address space"), (900 << 20).to_string());
}
