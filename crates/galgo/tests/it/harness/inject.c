// inject SYSCALLS ARGUMENT MASK CONTROL PROGRAM ARGUMENTS...
//
// SYSCALLS are names with commas between them. If there are several, the file CONTROL may name one behind its numbers.
//
// Becomes PROGRAM, whose system calls SYSCALL with all bits of MASK in their ARGUMENT are decided by another process: while
// the file CONTROL holds three numbers, "SKIP COUNT ERRNO", the next SKIP calls of the program are made, the next COUNT
// fail with ERRNO, and all others are made. Calls of its children are made, unless SYSCALL has a `+` in front.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int number_of(const char *name, size_t len);

static int decide(const char *control, unsigned long *seen, int number) {
    unsigned long skip, count;
    int error;
    char only[64];
    static long last;
    struct stat stat;
    FILE *file = fopen(control, "re");
    if (!file) return 0;
    int read = fscanf(file, "%lu %lu %d %63s", &skip, &count, &error, only);
    // Another file is another order.
    if (!fstat(fileno(file), &stat) && stat.st_ctim.tv_nsec != last) {
        last = stat.st_ctim.tv_nsec;
        *seen = 0;
    }
    fclose(file);
    if (read < 3 || (read == 4 && number_of(only, strlen(only)) != number)) return 0;
    unsigned long at = (*seen)++;
    return at >= skip && at - skip < count ? error : 0;
}

static int is_own(pid_t program, pid_t thread) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d", program, thread);
    return access(path, F_OK) == 0;
}

// `program` 0: calls of all processes are decided.
static void supervise(int listener, pid_t program, const char *control) {
    unsigned long seen = 0;
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    while (poll(&ready, 1, -1) >= 0 && !(ready.revents & POLLHUP)) {
        struct seccomp_notif call = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) continue;
        struct seccomp_notif_resp answer = {.id = call.id};
        int error = !program || is_own(program, call.pid) ? decide(control, &seen, call.data.nr) : 0;
        if (error) answer.error = -error;
        else answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static int number_of(const char *name, size_t len) {
    static const struct { const char *name; int number; } all[] = {
#define CALL(name) {#name, SYS_##name}
        CALL(chdir), CALL(clone), CALL(clone3), CALL(close_range), CALL(dup3), CALL(execve), CALL(execveat), CALL(fchdir), CALL(fcntl),
        CALL(fstat), CALL(getdents64), CALL(getsockopt), CALL(inotify_add_watch), CALL(ioctl), CALL(kill),
        CALL(landlock_add_rule), CALL(landlock_create_ruleset), CALL(landlock_restrict_self), CALL(memfd_create), CALL(mount),
        CALL(mount_setattr), CALL(move_mount), CALL(open_tree), CALL(openat2), CALL(pidfd_open), CALL(pidfd_send_signal),
        CALL(pipe2), CALL(ppoll), CALL(prctl), CALL(prlimit64), CALL(readlinkat), CALL(recvmsg), CALL(sched_setattr), CALL(seccomp),
        CALL(sendmsg), CALL(setfsuid), CALL(setgroups), CALL(setpgid), CALL(setpriority), CALL(setresgid), CALL(setresuid), CALL(setsid),
        CALL(setsockopt), CALL(socketpair), CALL(statx), CALL(symlinkat), CALL(umask), CALL(unshare), CALL(waitid), CALL(wait4), CALL(write),
        {"epoll_ctl", SYS_epoll_ctl}, {"read", SYS_read},       {"writev", SYS_writev},
        {"splice", SYS_splice},       {"sendfile", SYS_sendfile}, {"openat", SYS_openat},
        {"pwrite64", SYS_pwrite64},   {"pread64", SYS_pread64}, {"inotify_init1", SYS_inotify_init1},
        {"epoll_create1", SYS_epoll_create1},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].name) == len && !memcmp(all[i].name, name, len)) return all[i].number;
    return -1;
}

static void die(const char *what) {
    fprintf(stderr, "inject: %s: %s (root, or no filter above, is needed)\n", what, strerror(errno));
    exit(1);
}

static void hand_over(int over, int fd) {
    char byte = 0, space[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    // What sends, closes and executes here may be among the calls that are decided: these are not.
    struct mmsghdr one = {.msg_hdr = message};
    if (sendmmsg(over, &one, 1, 0) < 0) die("sendmmsg");
}

static int taken(int over) {
    int fd;
    char byte, space[CMSG_SPACE(sizeof fd)];
    struct iovec bytes = {&byte, 1};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(over, &message, 0) <= 0 || !CMSG_FIRSTHDR(&message)) _exit(1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    int all_processes = argv[1][0] == '+', numbers[64], count = 0, argument = atoi(argv[2]), pair[2];
    for (const char *name = argv[1] + all_processes; *name; name += strcspn(name, ",") + (name[strcspn(name, ",")] == ',')) {
        if (count == 64 || (numbers[count] = number_of(name, strcspn(name, ","))) < 0) return 2;
        count++;
    }
    unsigned mask = strtoul(argv[3], 0, 0);
    pid_t program = all_processes ? 0 : getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) die("socketpair");
    pid_t child = fork();
    if (child == 0) {
        // Nobody's child, and no process of the program's group.
        setsid();
        if (fork()) _exit(0);
        close(pair[0]);
        for (int fd = 0; fd < 3; fd++) close(fd);
        supervise(taken(pair[1]), program, argv[4]);
        _exit(0);
    }
    waitpid(child, 0, 0);
    struct sock_filter filter[70] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (int i = 0; i < count; i++)
        filter[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], count - i, 0);
    struct sock_filter last[] = {
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[argument])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mask, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    memcpy(filter + count + 1, last, sizeof last);
    struct sock_fprog all = {count + 1 + sizeof last / sizeof *last, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) die("prctl");
    int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &all);
    if (listener < 0) die("seccomp");
    hand_over(pair[0], listener);
    execveat(AT_FDCWD, argv[5], argv + 5, environ, 0);
    die(argv[5]);
}
