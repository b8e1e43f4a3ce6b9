/* Node's idle threads: they do not exist in a template's children, and come back where one is needed. */
#define _GNU_SOURCE
#include "galgo.h"
#include "node.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

/* Threads of the template do not exist in its children. Those that sleep until there is work (V8's
   worker; not the one with an event loop, which is the template's) are made to stop in a signal
   handler, and a child starts one again from there when it signals the condition on which that waits:
   most never do. */
enum { THREADS = 16, STACK = 4096 };
struct sleeper {
    pthread_t thread;
    int parked, alive;
    uintptr_t word; /* of the condition, where the kernel has it wait */
    int *tid;
    void *tls, *place[5];
    char stack[STACK] __attribute__((aligned(16)));
};
static struct sleeper sleepers[THREADS];
static int sleepers_count;

/* Those that are asked to stop, and where they wait. */
enum { PARK = SIGURG }; /* ignored where nobody handles it */
struct asked { int task; uintptr_t word; };
static struct asked asked[THREADS];
static int asked_count;

GALGO_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    int failed = GALGO_NEXT(pthread_create)(thread, attributes, start, argument);
    if (!failed && galgo_node_ours && galgo_forks && !galgo_node_child && sleepers_count < THREADS)
        sleepers[sleepers_count++].thread = *thread;
    return failed;
}

GALGO_EXPORT int pthread_join(pthread_t thread, void **result) {
    for (int i = 0; galgo_node_child && i < sleepers_count; i++)
        if (pthread_equal(sleepers[i].thread, thread) && !sleepers[i].alive)
            galgo_node_leave(NULL); /* Node waits for those when it ends, and then only */
    return GALGO_NEXT(pthread_join)(thread, result);
}

/* In the template it stays here; in a child that started it again it returns to its sleep. */
static void park(int number) {
    (void)number;
    struct sleeper *self = NULL;
    for (int i = 0; i < sleepers_count; i++)
        if (pthread_equal(sleepers[i].thread, pthread_self()))
            self = &sleepers[i];
    if (!self || prctl(PR_GET_TID_ADDRESS, &self->tid, 0, 0, 0) != 0)
        return;
    self->tls = __builtin_thread_pointer();
    for (int i = 0; i < asked_count; i++)
        if (asked[i].task == *self->tid)
            self->word = asked[i].word;
    if (__builtin_setjmp(self->place) == 0) {
        __atomic_store_n(&self->parked, 1, __ATOMIC_SEQ_CST);
        for (;;)
            sleep(1u << 30); /* not pause(2): this is a place to be found in by its name */
    }
}

static int wake(void *sleeper) {
    __builtin_longjmp(((struct sleeper *)sleeper)->place, 1);
}

/* In a child, before a condition is signalled. */
static void revive(const pthread_cond_t *condition) {
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM
        | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    for (int i = 0; i < sleepers_count; i++) {
        struct sleeper *s = &sleepers[i];
        if (!s->parked || s->alive || s->word - (uintptr_t)condition >= sizeof *condition)
            continue;
        s->alive = clone(wake, s->stack + STACK, flags, s, s->tid, s->tls, s->tid) > 0;
    }
}

GALGO_EXPORT int pthread_cond_signal(pthread_cond_t *condition) {
    if (galgo_node_child)
        revive(condition);
    return GALGO_NEXT(pthread_cond_signal)(condition);
}

GALGO_EXPORT int pthread_cond_broadcast(pthread_cond_t *condition) {
    if (galgo_node_child)
        revive(condition);
    return GALGO_NEXT(pthread_cond_broadcast)(condition);
}

/* It waits for those that wait, which a child's threads of the template would for ever. glibc has
   nothing to give back for a condition. */
GALGO_EXPORT int pthread_cond_destroy(pthread_cond_t *condition) {
    if (galgo_node_child)
        return 0;
    return GALGO_NEXT(pthread_cond_destroy)(condition);
}

/* One that was waited for counts as used. */
GALGO_EXPORT int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    if (galgo_node_child)
        return 0;
    return GALGO_NEXT(pthread_mutex_destroy)(mutex);
}

/* Whether a thread takes the signal; the one that starts the debugger takes none. */
static int hears(const char *task) {
    char path[64], line[128];
    unsigned long long blocked = ~0ull;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", task);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
            break;
    if (status)
        fclose(status);
    return !(blocked >> (PARK - 1) & 1);
}

/* Asks a thread to park; `call` is what it does now, by proc_pid_syscall(5). */
static void ask(const char *task, const char *call) {
    unsigned long word = 0;
    if (asked_count == THREADS || atoi(call) != SYS_futex || !hears(task))
        return;
    sscanf(call, "%*d %lx", &word);
    asked[asked_count++] = (struct asked){atoi(task), word};
    syscall(SYS_tgkill, getpid(), atoi(task), PARK);
}

static uint32_t look(int *busy, int park_too) {
    uint32_t count = 0;
    *busy = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        count++;
        char path[64], call[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%.20s/syscall", task->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (atoi(task->d_name) != getpid() && file >= 0 && read(file, call, sizeof call - 1) > 0) {
            *busy |= call[0] == 'r'; /* "running" */
            if (park_too)
                ask(task->d_name, call);
        }
        close(file);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

uint32_t galgo_node_threads(int *busy) {
    return look(busy, 0);
}

void galgo_node_park(void) {
    struct sigaction parks = {.sa_handler = park, .sa_flags = SA_RESTART}, before;
    int busy, parked = 0;
    sigaction(PARK, &parks, &before);
    look(&busy, 1);
    for (int i = 0; i < 5000 && parked < asked_count; i++) {
        parked = 0;
        for (int t = 0; t < sleepers_count; t++)
            parked += __atomic_load_n(&sleepers[t].parked, __ATOMIC_SEQ_CST);
        usleep(parked < asked_count ? 1000 : 0);
    }
    sigaction(PARK, &before, NULL);
}
