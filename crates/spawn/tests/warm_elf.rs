//! Linked programs, stopped before `main`.
#![allow(clippy::unwrap_used)]

mod scene;

use galgo_spawn::Status;
use galgo_testkit::file::compile;
use scene::warm::Warm;

const ECHO: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
extern char **environ;
int count;
int main(int argc, char **argv) {
    printf("%d %s %s count=%d\n", argc, argv[0], getenv("QUERY_STRING"), count++);
    char body[100];
    size_t n = fread(body, 1, sizeof body, stdin);
    printf("body=%.*s pid=%d group=%d\n", (int)n, body, getpid() > 0, getpgrp() == getpid());
    for (char **e = environ; *e; e++)
        puts(*e);
    fputs("oops\n", stderr);
    return 3;
}
"#;

#[test]
fn each_request_has_a_process_that_knows_nothing_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "echo", ECHO, &[]);
    let warm = Warm::load(&program);
    assert_eq!(warm.loaded.obstacle, None);
    assert!(warm.loaded.files.contains(&program), "{:?}", warm.loaded);
    let name = program.display();
    for query in ["a", "b"] {
        let answer = warm.answer(&[("QUERY_STRING", query)], b"hello", false);
        let expected = format!(
            "1 {name} {query} count=0\nbody=hello pid=1 group=1\nPATH=/usr/bin:/bin\nQUERY_STRING={query}\n"
        );
        assert_eq!(answer.out, expected);
        assert_eq!(answer.err, "oops\n");
        assert_eq!(answer.exit.status, Status::Code(3));
    }
}

/// Prints the origin of the `malloc`, `free`, `open` and `pthread_create` that a program calls.
const NAMES: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    static const char *const names[] = {"malloc", "free", "realloc", "open", "fopen", "pthread_create"};
    for (int i = 0; i < 6; i++) {
        Dl_info about = {0};
        dladdr(dlsym(RTLD_DEFAULT, names[i]), &about);
        puts(strstr(about.dli_fname, "/libc.so") ? "its own" : about.dli_fname);
    }
}
"#;

#[test]
fn a_linked_program_has_none_of_what_the_shim_does_for_languages() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "names", NAMES, &["-ldl"]);
    assert_eq!(Warm::load(&program).get(&[]).out, "its own\n".repeat(6));
}

/// Actions of a constructor, each with the expected words of the obstacle.
const OBSTACLES: &[(&str, &str)] = &[
    ("printf(\"early\")", "prints while loading"),
    ("alarm(5)", "sets an alarm"),
    (
        "timer_t t; timer_create(CLOCK_MONOTONIC, 0, &t)",
        "sets a timer",
    ),
    (
        "pthread_t t; pthread_create(&t, 0, (void *)pause, 0)",
        "runs 2 threads",
    ),
    ("socket(AF_UNIX, SOCK_STREAM, 0)", "opens a socket"),
    ("int p[2]; pipe(p)", "opens a pipe"),
    ("open(\"/dev/null\", O_RDWR)", "opens /dev/null"),
    (
        "mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)",
        "shares memory",
    ),
    ("if (fork() == 0) pause()", "starts a process"),
];

#[test]
fn what_no_child_may_share_stands_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    for (n, (does, words)) in OBSTACLES.iter().enumerate() {
        let source = format!(
            "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <pthread.h>\n#include <signal.h>\n#include <stdio.h>\n#include <sys/mman.h>\n#include <sys/socket.h>\n#include <time.h>\n#include <unistd.h>\n\
             __attribute__((constructor)) void early(void) {{ {does}; }}\nint main(void) {{ return 0; }}\n"
        );
        let program = compile(folder.path(), &format!("p{n}"), &source, &["-w", "-lrt"]);
        let obstacle = Warm::load(&program).loaded.obstacle.unwrap_or_default();
        assert!(obstacle.contains(words), "{does}: {obstacle:?}");
    }
}

const INSIDE: &str = r#"
#include <errno.h>
#include <iostream>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static std::string made = "made early";
static thread_local int local = 7;
static int forks;
static void *run(void *) { local = 9; return (void *)(long)local; }
__attribute__((constructor)) static void early() { pthread_atfork(0, 0, [] { forks++; }); }
int main(int argc, char **argv) {
    std::cout << made << ' ' << forks << ' ' << (getpid() == (int)syscall(SYS_gettid)) << std::endl;
    pthread_mutex_t m;
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&m, &a);
    std::cout << pthread_mutex_lock(&m) << ' ' << (pthread_mutex_lock(&m) == EDEADLK) << std::endl;
    pthread_t t;
    void *answer;
    pthread_create(&t, 0, run, 0);
    pthread_join(t, &answer);
    std::cout << (long)answer << ' ' << local << std::endl;
    try { throw std::runtime_error("thrown"); } catch (std::exception &e) { std::cout << e.what() << std::endl; }
    if (fork() == 0) { std::cout << "child " << forks << std::endl; _exit(4); }
    int status;
    wait(&status);
    std::cout << WEXITSTATUS(status) << ' ' << system("echo shell; exit 3") / 256 << std::endl;
    std::string last = getenv("QUERY_STRING");
    if (last == "abort") abort();
    execl("/bin/echo", "echo", "executed", (char *)0);
}
"#;

#[test]
fn a_child_is_a_process_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("inside.cc");
    std::fs::write(&source, INSIDE).unwrap();
    for flags in [&["-no-pie"][..], &["-pie", "-fPIE"]] {
        let program = folder.path().join(format!("inside{}", flags.len()));
        let mut compiler = std::process::Command::new("c++");
        let compiled = compiler
            .arg("-w")
            .arg("-pthread")
            .args(flags)
            .arg("-o")
            .arg(&program);
        assert!(compiled.arg(&source).status().unwrap().success());
        let warm = Warm::load(&program);
        assert_eq!(warm.loaded.obstacle, None);
        let answer = warm.get(&[("QUERY_STRING", "exec")]);
        // The fork handler runs for the child itself, and for the process that the child forks.
        let expected = "made early 1 1\n0 1\n9 7\nthrown\nchild 2\nshell\n4 3\nexecuted\n";
        assert_eq!(answer.out, expected, "{flags:?} {}", answer.err);
        assert_eq!(answer.exit.status, Status::Code(0));
        let answer = warm.get(&[("QUERY_STRING", "abort")]);
        assert_eq!(answer.exit.status, Status::Signal(6));
    }
}

#[test]
fn a_static_program_is_no_template() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(
        folder.path(),
        "s",
        "int main(void) { return 0; }",
        &["-static"],
    );
    let why = galgo_spawn::inspect::detect_kind(&program).unwrap_err();
    assert!(why.why.contains("statically"), "{why:?}");
}

/// Output of the program's own exit handlers is still printed, in the usual order. This holds even
/// if a handler uses OpenSSL, or OpenSSL was unloaded. Only OpenSSL's own handler is left out.
#[test]
fn handlers_at_the_end_are_called() {
    const ENDS: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int (*draw)(unsigned char *to, int count);
static void *library;
static void first(void) { puts("first"); }
static void last(void) {
    unsigned char bytes[8];
    puts(draw ? draw(bytes, sizeof bytes) == 1 ? "drawn" : "not drawn" : "unloaded");
}
static void *open_it(void) {
    library = dlopen("libcrypto.so.3", RTLD_NOW);
    draw = library ? (int (*)(unsigned char *, int))dlsym(library, "RAND_bytes") : NULL;
    return draw;
}
__attribute__((constructor)) static void load(void) {
    atexit(last);
    if (EARLY)
        open_it();
}
int main(void) {
    unsigned char bytes[8];
    if ((!EARLY && !open_it()) || draw(bytes, sizeof bytes) != 1)
        return 1;
    atexit(first);
    if (UNLOADED) {
        draw = NULL;
        dlclose(library);
    }
    return 3;
}
"#;
    let folder = tempfile::tempdir().unwrap();
    for early in ["-DEARLY=0", "-DEARLY=1"] {
        for (unloaded, end) in [("-DUNLOADED=0", "drawn"), ("-DUNLOADED=1", "unloaded")] {
            let program = compile(folder.path(), "ends", ENDS, &[early, unloaded, "-ldl"]);
            let answer = Warm::load(&program).get(&[]);
            assert_eq!(answer.out, format!("first\n{end}\n"), "{early} {unloaded}");
            assert_eq!(answer.exit.status, Status::Code(3));
        }
    }
}

/// Uses of the environment by a constructor, each with the expected words of the obstacle; "" if
/// the use is allowed.
const ASKS: &[(&str, &str)] = &[
    ("seen = getenv(\"QUERY_STRING\") != 0", "reads QUERY_STRING"),
    (
        "seen = secure_getenv(\"HTTP_HOST\") != 0",
        "reads HTTP_HOST",
    ),
    (
        "for (char **e = environ; *e; e++) seen++",
        "reads its whole environment",
    ),
    ("seen = environ[0][0]", "reads its whole environment"),
    ("setenv(\"A\", \"b\", 1)", "changes its environment"),
    ("seen = system(\"exit 3\")", "reads its whole environment"),
    (
        "seen = getenv(\"PATH\") != 0 && !getenv(\"HOME\") && !getenv(\"HTTP_PROXY\") && !getenv(\"SERVER_SOFTWARE\")",
        "",
    ),
    (
        "seen = fork() ? 1 : execl(\"/bin/true\", \"true\", (char *)0)",
        "starts a process",
    ),
    ("putenv(\"C=d\")", "changes its environment"),
    ("unsetenv(\"PATH\")", "changes its environment"),
    ("clearenv()", "changes its environment"),
];

#[test]
fn variables_that_are_read_too_early_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let head =
        "#define _GNU_SOURCE\n#include <stdio.h>\n#include <stdlib.h>\nextern char **environ;\n";
    for (n, (asks, words)) in ASKS.iter().enumerate() {
        let early = format!(
            "{head}int seen;\n__attribute__((constructor)) static void early(void) {{ {asks}; }}\n"
        );
        let main = "int main(void) { printf(\"%d %s\", seen, getenv(\"QUERY_STRING\")); }\n";
        let whole = compile(
            folder.path(),
            &format!("p{n}"),
            &format!("{early}{main}"),
            &["-w"],
        );
        // The same code in a library. The library's constructors run before the program's.
        let library = format!("lib{n}.so");
        compile(folder.path(), &library, &early, &["-w", "-shared", "-fPIC"]);
        let beside = [
            "-w".to_owned(),
            folder.path().join(&library).display().to_string(),
            format!("-Wl,-rpath,{}", folder.path().display()),
        ];
        let beside: Vec<&str> = beside.iter().map(String::as_str).collect();
        let split = format!("{head}extern int seen;\n{main}");
        let linked = compile(folder.path(), &format!("l{n}"), &split, &beside);
        for program in [whole, linked] {
            let warm = Warm::load(&program);
            let obstacle = warm.loaded.obstacle.clone().unwrap_or_default();
            match words {
                &"" => {
                    assert_eq!(obstacle, "", "{asks}");
                    assert_eq!(warm.get(&[("QUERY_STRING", "a=b")]).out, "1 a=b", "{asks}");
                }
                words => assert!(
                    obstacle.starts_with(&format!("{words} while loading, ")),
                    "{asks}: {obstacle:?}"
                ),
            }
        }
    }
}
