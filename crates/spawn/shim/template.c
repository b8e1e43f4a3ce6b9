/* A program that stops before its first line and is forked for each request, or takes one itself
 * (GALGO_PARKED, where forking it would not do).
 *
 * Preloaded (ld.so(8), LD_PRELOAD) into the program. Only one thread runs here, in a process that
 * holds no request's data yet. Messages go over a SOCK_SEQPACKET socket; the first byte says which:
 *
 *   server -> template   M names        modules to load before stopping; always the first
 *                        C              one child more, with a socket of its own (SCM_RIGHTS)
 *   template -> server   F paths        files it was loaded from, in one or more messages
 *                        A paths        files it looked for that are not there
 *                        S lines        where it looks for modules
 *                        L names        modules of M that are left to the children
 *                        B              it will stop before anything of the program itself runs
 *                        N words        it cannot be forked, and why
 *                        R              it has stopped
 *   server -> template   L              it has looked into the template: nobody else is to
 *   child -> server      H              it waits; the kernel vouches for its pid (SCM_CREDENTIALS)
 *   server -> child      struct request, the working directory and the environment, with descriptors 0, 1, 2, and where
 *                        it is to learn a memory file for the modules that the child loads. It
 *                        closes its end when it has read that
 *
 * A parked process is its own child: after L comes the request, on the same socket.
 */
#define _GNU_SOURCE
#include "fork.h"
#include "galgo.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

/* Seconds of CPU time, RLIMIT_INFINITY for none: the one limit that a child does not share with its
   template, which has used some. The length of the working directory with its NUL; 0: that of the template. */
struct request {
    uint64_t cpu_soft, cpu_hard, folder;
};

extern char **environ;

static char *environment;
static size_t environment_length;
static char *preload_report; /* REPORT_BYTES bytes, shared with the server */
enum { REPORT_BYTES = 65536 };

/* ---- the end ---- */

/* OpenSSL, where it is loaded, gives back its memory piece by piece when the process ends: milliseconds
   in which a child touches, and so copies, what it shares with its template. The kernel gives it back
   anyway, and OpenSSL itself can be told not to (OPENSSL_INIT_NO_ATEXIT), if one comes first. A library
   that is unloaded before the end (dlclose(3)) leaves that memory behind, no more. */
GALGO_EXPORT int __cxa_atexit(void (*handler)(void *), void *argument, void *dso) {
    Dl_info about;
    /* atexit(3) has no argument, destructors of C++ have one. */
    if (!argument && dladdr((void *)handler, &about) && about.dli_saddr == (void *)handler &&
        strcmp(about.dli_sname, "OPENSSL_cleanup") == 0)
        return 0;
    return GALGO_NEXT(__cxa_atexit)(handler, argument, dso);
}

/* ---- messages ---- */

static void say(int socket, char what, const char *text, size_t length) {
    struct iovec parts[2] = {{&what, 1}, {(void *)text, length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

void galgo_holds(void) {
    say(GALGO_CONTROL, 'B', "", 0);
}

/* In messages of whole lines: one message has a limit, a Perl site has hundreds of files. */
void galgo_tell(char what, const char *lines) {
    enum { MOST = 32768 };
    size_t left = lines ? strlen(lines) : 0;
    while (left > MOST) {
        size_t cut = MOST;
        while (cut > 0 && lines[cut - 1] != '\n')
            cut--;
        if (cut == 0)
            return;
        say(GALGO_CONTROL, what, lines, cut);
        lines += cut;
        left -= cut;
    }
    if (left)
        say(GALGO_CONTROL, what, lines, left);
}

/* One message with up to `most` descriptors; -1 when the other side is gone. */
static ssize_t hear(int socket, void *bytes, size_t length, int *fds, int most) {
    union { struct cmsghdr align; char bytes[CMSG_SPACE(4 * sizeof(int))]; } control;
    struct iovec part = {bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    for (int i = 0; i < most; i++)
        fds[i] = -1;
    struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        size_t size = c->cmsg_len - CMSG_LEN(0);
        memcpy(fds, CMSG_DATA(c), size < most * sizeof(int) ? size : most * sizeof(int));
    }
    return got > 0 ? got : -1;
}

/* ---- files left open ---- */

/* A file that is only read may stay open where the program stops (Perl's DATA). Two children must
   not share its offset: each opens it for itself. In the template a descriptor of O_PATH keeps its number,
   so that nothing else gets that, and its inode: it has no offset, and cannot be read. */
enum { FILES = 64, FIRST = GALGO_CONTROL + 1 };
struct file { int fd, flags, cloexec, same; dev_t device; ino_t inode; off_t offset; };
static struct file files_open[FILES];
static int files_left;

static char *link_of(int fd) {
    static char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return link;
}

/* A lock belongs to the open file (flock(2), fcntl_locking(2)): a child that opened it anew would not have it. */
static int is_locked(int fd) {
    char path[40], line[256];
    int locked = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *about = fopen(path, "re");
    while (about && fgets(line, sizeof line, about))
        locked |= strncmp(line, "lock:", 5) == 0;
    if (about)
        fclose(about);
    return locked;
}

/* Whether two descriptors are of one open file: they share an offset. */
static int is_same(const struct file *file, const struct file *other) {
    if (file->inode != other->inode || file->device != other->device || file->offset != other->offset)
        return 0;
    int same = lseek(file->fd, file->offset + 1, SEEK_SET) >= 0 && lseek(other->fd, 0, SEEK_CUR) != other->offset;
    lseek(file->fd, file->offset, SEEK_SET);
    return same;
}

/* Notes the file behind `fd` where it is such a file. */
static void note_file(int fd) {
    char path[4096];
    struct stat stat, again;
    int flags = fcntl(fd, F_GETFL);
    if (files_left == FILES || flags < 0 || flags & O_PATH || (flags & O_ACCMODE) != O_RDONLY || fstat(fd, &stat) ||
        !S_ISREG(stat.st_mode))
        return;
    ssize_t length = readlink(link_of(fd), path, sizeof path - 2);
    if (length <= 0 || path[0] != '/')
        return;
    path[length] = 0;
    if (lstat(path, &again) || again.st_ino != stat.st_ino || again.st_dev != stat.st_dev || is_locked(fd))
        return;
    struct file file = {fd, flags, fcntl(fd, F_GETFD), -1, stat.st_dev, stat.st_ino, lseek(fd, 0, SEEK_CUR)};
    for (int i = 0; i < files_left && file.same < 0; i++)
        if (is_same(&file, &files_open[i]))
            file.same = files_open[i].same < 0 ? i : files_open[i].same;
    files_open[files_left++] = file;
    strcpy(path + length, "\n");
    say(GALGO_CONTROL, 'F', path, (size_t)length + 1);
}

/* One that cannot be put away stays open: the server sees it then. */
static void put_files_away(void) {
    DIR *listing = opendir("/proc/self/fd");
    struct dirent *entry;
    if (!listing)
        return;
    while ((entry = readdir(listing)))
        if (atoi(entry->d_name) >= FIRST && atoi(entry->d_name) != dirfd(listing))
            note_file(atoi(entry->d_name));
    closedir(listing);
    for (int i = 0; i < files_left; i++) {
        int place = open(link_of(files_open[i].fd), O_PATH | O_CLOEXEC);
        if (place >= 0 && dup3(place, files_open[i].fd, O_CLOEXEC) >= 0)
            close(place);
    }
}

/* In a child, at the same numbers: all other descriptors have others. The server forgets a template whose files have
   changed. */
static void open_files(void) {
    for (int i = 0; i < files_left; i++) {
        struct file *file = &files_open[i];
        int own = file->same < 0, cloexec = file->cloexec & FD_CLOEXEC ? O_CLOEXEC : 0;
        int fd = own ? open(link_of(file->fd), (file->flags & ~O_NOFOLLOW) | O_CLOEXEC) : files_open[file->same].fd;
        if (fd < 0 || dup3(fd, file->fd, cloexec) < 0)
            _exit(127);
        if (own) {
            close(fd);
            lseek(file->fd, file->offset, SEEK_SET);
        }
    }
}

/* ---- the child ---- */

/* Takes the request in and puts it where the program looks for it. */
static int become(int socket) {
    ssize_t size = recv(socket, NULL, 0, MSG_PEEK | MSG_TRUNC);
    if (size < (ssize_t)sizeof(struct request))
        _exit(0); /* the server needs this child no longer */
    char *bytes = malloc((size_t)size + 1);
    int fds[4];
    if (!bytes || hear(socket, bytes, (size_t)size, fds, 4) != size || fds[2] < 0)
        _exit(127);
    bytes[size] = 0;
    struct request request;
    memcpy(&request, bytes, sizeof request);
    const char *folder = bytes + sizeof request;
    if (request.folder > (size_t)size - sizeof request || (request.folder && chdir(folder) != 0))
        _exit(127);
    environment = bytes + sizeof request + request.folder;
    environment_length = (size_t)size - sizeof request - request.folder;
    size_t count = 0;
    for (size_t i = 0; i < environment_length; i++)
        count += environment[i] == 0;
    char **list = malloc((count + 1) * sizeof *list);
    if (!list)
        _exit(127);
    char *at = environment;
    for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
        list[i] = at;
    list[count] = NULL;
    environ = list;
    for (int i = 0; i < 3; i++)
        /* A program that has closed one gets it at its own number: without FD_CLOEXEC it is what it should be. */
        if (fds[i] == i)
            fcntl(i, F_SETFD, 0);
        else {
            dup2(fds[i], i);
            close(fds[i]);
        }
    struct rlimit cpu = {request.cpu_soft, request.cpu_hard};
    if (request.cpu_soft != RLIM_INFINITY)
        setrlimit(RLIMIT_CPU, &cpu);
    close(socket);
    if (fds[3] >= 0) {
        preload_report = mmap(NULL, REPORT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[3], 0);
        close(fds[3]);
    }
    galgo_open_memory();
    return preload_report && preload_report != MAP_FAILED ? GALGO_LEARN : 0;
}

/* ---- the template ---- */

/* A language without a source of ours may have opened something of its own at that number. */
static void close_ours(int fd) {
    char target[8] = "";
    if (readlink(link_of(fd), target, sizeof target - 1) > 0 && !strncmp(target, "/memfd:", 7))
        close(fd);
}

void (*galgo_waits)(void);

/* What can be seen from inside only; the server looks at the rest. */
static const char *own_obstacle(void) {
    struct itimerval alarm;
    /* Each child would print it; what has been written already the server finds. */
    if (__fpending(stdout) || __fpending(stderr))
        return "prints while loading";
    if (!galgo_forks)
        return NULL;
    const char *cannot = galgo_cannot_fork();
    if (cannot)
        return cannot;
    /* A child has no alarm of its parent's. */
    for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++)
        if (getitimer(which, &alarm) == 0 && timerisset(&alarm.it_value))
            return "sets an alarm while loading";
    return NULL;
}

int galgo_stop(const char *files, const char *obstacle) {
    galgo_no_longer_early();
    galgo_modules();
    galgo_tell('F', files);
    if (!(obstacle && *obstacle))
        obstacle = own_obstacle();
    if (obstacle && *obstacle)
        say(GALGO_CONTROL, 'N', obstacle, strlen(obstacle));
    close_ours(GALGO_SHIM);
    close_ours(GALGO_SOURCE);
    fcntl(GALGO_CONTROL, F_SETFD, FD_CLOEXEC);
    put_files_away();
    say(GALGO_CONTROL, 'R', "", 0);
    char looked;
    int none;
    if (hear(GALGO_CONTROL, &looked, 1, &none, 1) < 0)
        _exit(0);
    galgo_close_memory();
    if (!galgo_forks) {
        open_files();
        return become(GALGO_CONTROL);
    }
    if (looked & 1)
        galgo_make_ruleset();
    /* What the server had this process made with, its children have, too: a session of its own, and a signal for
       when the server is gone. One that is gone already is noticed as the request is waited for. */
    int orphaned = 0;
    prctl(PR_GET_PDEATHSIG, &orphaned, 0, 0, 0);
    for (;;) {
        char what;
        int socket;
        if (hear(GALGO_CONTROL, &what, 1, &socket, 1) < 0)
            _exit(0);
        if (what != 'C' || socket < 0)
            continue;
        pid_t pid = galgo_make_child();
        if (pid == 0) {
            setsid();
            if (orphaned)
                prctl(PR_SET_PDEATHSIG, orphaned, 0, 0, 0);
            close(GALGO_CONTROL);
            if (galgo_waits)
                galgo_waits();
            open_files();
            say(socket, 'H', "", 0);
            return become(socket);
        }
        close(socket);
    }
}

const char *galgo_modules(void) {
    static char *names;
    if (names)
        return names;
    ssize_t size = recv(GALGO_CONTROL, NULL, 0, MSG_PEEK | MSG_TRUNC);
    if (size < 1 || !(names = malloc((size_t)size + 1)))
        _exit(127);
    if (recv(GALGO_CONTROL, names, (size_t)size, 0) != size || names[0] != 'M')
        _exit(127);
    names[size] = 0;
    return ++names;
}

const char *galgo_environment(size_t *length) {
    *length = environment_length;
    return environment;
}

void galgo_learned(const char *modules) {
    if (!preload_report || preload_report == MAP_FAILED)
        return;
    size_t length = strlen(modules);
    if (length < REPORT_BYTES)
        memcpy(preload_report, modules, length);
}

__attribute__((constructor)) static void begin(void) {
    galgo_forks = !getenv("GALGO_PARKED");
}

int galgo_is(const char *kind) {
    const char *ours = getenv("GALGO_TEMPLATE");
    return ours && strcmp(ours, kind) == 0;
}

int galgo_is_linked(void) {
    static int known = -1;
    if (known < 0 && (known = galgo_is("elf")))
        galgo_forget();
    return known;
}

void galgo_forget(void) {
    static const char *const names[] = {"LD_BIND_NOW", "GALGO_TEMPLATE", "GALGO_ENVIRONMENT", "GALGO_PARKED", "GALGO_ROOM"};
    const char *preload = getenv("LD_PRELOAD"), *others = preload ? strchr(preload, ':') : NULL;
    if (others)
        setenv("LD_PRELOAD", others + 1, 1);
    else
        unsetenv("LD_PRELOAD");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* ---- programs that are no scripts ---- */

typedef int main_fn(int, char **, char **);

static main_fn *program;
void (*galgo_arguments)(int *, char ***);

/* The arguments with this request's environment and the kernel's auxiliary vector (getauxval(3)) right
   behind them, as they lie on the stack of a program that was executed: Go looks for them there. */
static char **as_executed(int argc, char **argv) {
    size_t variables = 0, words = 0;
    char **envp = argv + argc + 1; /* the kernel's: a constructor may have made another `environ` */
    while (environ[variables])
        variables++;
    while (*envp++)
        ;
    while (envp[words]) /* pairs; AT_NULL is the last */
        words += 2;
    words += 2;
    char **all = malloc((argc + 1 + variables + 1 + words) * sizeof *all);
    if (!all)
        _exit(127);
    memcpy(all, argv, (argc + 1) * sizeof *all);
    memcpy(all + argc + 1, environ, (variables + 1) * sizeof *all);
    memcpy(all + argc + 1 + variables + 1, envp, words * sizeof *all);
    environ = all + argc + 1;
    return all;
}

static int stopped(int argc, char **argv, char **envp) {
    (void)envp;
    galgo_stop(NULL, galgo_early());
    argv = as_executed(argc, argv);
    return program(argc, argv, environ);
}

/* The C library's way to main(), called when every library is relocated; constructors run inside. */
GALGO_EXPORT int __libc_start_main(main_fn *main, int argc, char **argv, void (*init)(void),
                                   void (*fini)(void), void (*rtld_fini)(void), void *stack_end) {
    if (galgo_is_linked()) {
        galgo_watch();
        program = main;
        main = stopped;
        galgo_holds();
    }
    if (galgo_arguments)
        galgo_arguments(&argc, &argv);
    return GALGO_NEXT(__libc_start_main)(main, argc, argv, init, fini, rtld_fini, stack_end);
}
