// A program that writes as programs do, and prints what it could not do: into the folders a and b of two places, by /dev and /proc, by a
// shell, to sockets and FIFOs. The query names the places: PLACE:PLACE, each with both folders. "own" in front of it: in a Landlock domain of its own.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void does(int done, const char *what) {
    if (!done) printf("not: %s (%s)\n", what, strerror(errno));
}
static const char *at(const char *format, ...) {
    char *text;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0) exit(1);
    va_end(list);
    return text;
}
static int made(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int done = fd >= 0 && write(fd, "x", 1) == 1;
    if (fd >= 0) close(fd);
    return done;
}
static int opens(int fd, int flags) {
    int again = open(at("/proc/self/fd/%d", fd), flags | O_CLOEXEC);
    if (again < 0) return 0;
    close(again);
    return 1;
}
static int shell(const char *text) {
    fflush(stdout);
    return system(at("bash -c '%s'", text)) == 0;
}
static void moves(const char *from, const char *to) {
    does(made(at("%s/file", from)) && !rename(at("%s/file", from), at("%s/moved", to)), at("rename from %s to %s", from, to));
    does(made(at("%s/file", from)) && !link(at("%s/file", from), at("%s/linked", to)), at("link from %s to %s", from, to));
    does(!mkdir(at("%s/folder", from), 0755) && !rename(at("%s/folder", from), at("%s/folder", to)), at("move a folder from %s to %s", from, to));
    int fd = open(from, O_TMPFILE | O_RDWR, 0644);
    does(fd >= 0 && !linkat(AT_FDCWD, at("/proc/self/fd/%d", fd), AT_FDCWD, at("%s/named", to), AT_SYMLINK_FOLLOW), at("name a file of %s in %s", from, to));
    if (fd >= 0) close(fd);
    for (int i = 0; i < 3; i++) unlink(at("%s/%s", to, (const char *[]){"moved", "linked", "named"}[i]));
    unlink(at("%s/file", from));
    rmdir(at("%s/folder", to));
}
static void own_domain(void) {
    unsigned long long all = (1 << 14) - 1;
    struct landlock_ruleset_attr handled = {.handled_access_fs = all};
    int ruleset = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    struct landlock_path_beneath_attr rule = {all, open("/", O_PATH | O_CLOEXEC)};
    does(!syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
             !syscall(SYS_landlock_restrict_self, ruleset, 0), "a domain of its own");
}
int main(void) {
    char *query = strdup(getenv("QUERY_STRING"));
    printf("Content-Type: text/plain\n\n");
    if (!strncmp(query, "own", 3)) {
        own_domain();
        query += 3;
    }
    char *first = strtok(query, ":"), *second = strtok(NULL, ":");
    moves(at("%s/a", first), at("%s/b", first));
    moves(at("%s/a", first), at("%s/b", second));
    moves(at("%s/b", second), at("%s/a", first));
    const char *folder = at("%s/a", first);
    char *template = strdup(at("%s/XXXXXX", folder));
    int pair[2], memory = memfd_create("x", 0), gone = open(folder, O_TMPFILE | O_RDWR, 0600);
    does(!pipe(pair) && opens(pair[1], O_WRONLY) && opens(pair[0], O_RDWR), "its pipe by /proc");
    does(opens(memory, O_RDWR), "memory by /proc");
    does(opens(gone, O_RDWR), "a file without a name by /proc");
    int temporary = mkstemp(template);
    does(temporary >= 0 && !unlink(template) && opens(temporary, O_RDWR), "a removed file by /proc");
    does(made("/dev/null") && made("/dev/full") == 0 && errno == ENOSPC, "devices");
    does(!chdir(folder) && made("/proc/self/cwd/here") && !unlink("here"), "its folder by /proc");
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    does(!bind(server, (void *)&name, sizeof name) && !listen(server, 1) && !connect(client, (void *)&name, sizeof name) && !unlink("socket"), "a socket");
    unlink("fifo"); // of a try that failed
    int fifo = mkfifo("fifo", 0600) ? -1 : open("fifo", O_RDWR);
    does(fifo >= 0 && !unlink("fifo"), "a FIFO");
    does(shell("cat <<<here >/dev/null && cat >/dev/null <<E\nhere\nE"), "here documents");
    does(shell("exec > >(cat >/dev/null); echo there"), "process substitution");
    does(shell("f=$(mktemp -p .) && echo x >>$f && mv $f kept && rm kept"), "mktemp");
    does(shell("echo x | (exec 3>/dev/fd/0) 2>/dev/null || true"), "/dev/fd");
    does(shell("(echo said >/dev/stderr) 2>&1 | grep -q said"), "/dev/stderr of a child");
    does(shell("(echo said >/dev/stdout) | grep -q said"), "/dev/stdout of a child");
    fflush(stdout);
    int out = open("/dev/stdout", O_WRONLY | O_CLOEXEC), err = open("/dev/stderr", O_WRONLY | O_CLOEXEC);
    int by_number = open("/proc/self/fd/1", O_WRONLY | O_CLOEXEC);
    does(out >= 0 && write(out, "", 0) == 0 && by_number >= 0, "/dev/stdout");
    does(err >= 0, "/dev/stderr");
    printf("done\n");
    return 0;
}
