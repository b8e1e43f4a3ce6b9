/* How a template makes a child, and what keeps that apart from other processes. */
#define _GNU_SOURCE
#include "fork.h"
#include "galgo.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

/* ---- fork handlers ---- */

/* fork(3) would make the child the template's own. Handlers that libraries registered with
   pthread_atfork(3) are noted here, to be called around the bare system call. */
enum { HANDLERS = 128 };
struct handler { void (*prepare)(void), (*parent)(void), (*child)(void); };
static struct handler handlers[HANDLERS];
static int handled;
static int too_many_handlers;

GALGO_EXPORT int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *dso) {
    if (handled < HANDLERS)
        handlers[handled++] = (struct handler){prepare, parent, child};
    else
        too_many_handlers = 1;
    return GALGO_NEXT(__register_atfork)(prepare, parent, child, dso);
}

/* ---- apart from others ---- */

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

/* What each child makes a Landlock domain of; -1 where the kernel has no scopes, or the configuration asks for none
   (sandbox = "off"). The template is in a domain, too, since before it was executed, and a parked process has that to
   itself. */
static int ruleset = -1;

void galgo_make_ruleset(void) {
    /* LANDLOCK_ACCESS_FS_REFER: to rename from folder to folder. The template's domain handles rights to files. Beside it, a
       domain that says nothing of this right denies it. */
    const uint64_t refer = 1 << 13;
    /* struct landlock_ruleset_attr: rights to files, none to ports, abstract Unix sockets and signals. */
    const uint64_t attributes[3] = {refer, 0, 1 | 2};
    ruleset = (int)syscall(SYS_landlock_create_ruleset, attributes, sizeof attributes, 0);
    if (ruleset < 0)
        return;
    /* LANDLOCK_RULE_PATH_BENEATH; struct landlock_path_beneath_attr. */
    struct __attribute__((packed)) { uint64_t allowed; int32_t parent; } rule = {refer, open("/", O_PATH | O_CLOEXEC)};
    if (rule.parent < 0 || syscall(SYS_landlock_add_rule, ruleset, 1, &rule, 0) != 0)
        _exit(127);
    close(rule.parent);
}

/* In a child, while it has one thread and nothing of the program runs. */
static void enter_domain(void) {
    if (ruleset < 0)
        return;
    /* EPERM: it may gain privileges (no_new_privs = false), and is not root. */
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0 && errno != EPERM)
        _exit(127);
    close(ruleset);
    ruleset = -1;
}

/* Whether others of the same user may look into this process (PR_SET_DUMPABLE), as it was before it stopped. */
static int dumpable;

void galgo_close_memory(void) {
    dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        _exit(127);
}

void galgo_open_memory(void) {
    prctl(PR_SET_DUMPABLE, dumpable == 1, 0, 0, 0);
}

/* ---- siblings ---- */

/* A sibling: the server, which started this process, is its parent too, and waits for it. */
static int *tid;

static pid_t sibling(void) {
    void *robust = NULL;
    size_t robust_length = 0;
    syscall(SYS_get_robust_list, 0, &robust, &robust_length);
    for (int i = handled; i-- > 0;)
        if (handlers[i].prepare)
            handlers[i].prepare();
    long flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
#ifdef __x86_64__
    long pid = syscall(SYS_clone, flags, NULL, NULL, tid, NULL);
#else
    long pid = syscall(SYS_clone, flags, NULL, NULL, NULL, tid);
#endif
    if (pid == 0) {
        syscall(SYS_set_robust_list, robust, robust_length);
        enter_domain();
    }
    for (int i = 0; i < handled; i++) {
        void (*after)(void) = pid == 0 ? handlers[i].child : handlers[i].parent;
        if (after)
            after();
    }
    return (pid_t)pid;
}

int (*galgo_fork)(void) = sibling;
int galgo_forks;
static int forking;

/* A language's own way of forking comes here; what the program forks is its own child. */
GALGO_EXPORT pid_t fork(void) {
    if (forking)
        return sibling();
    galgo_forks_early();
    return GALGO_NEXT(fork)();
}

pid_t galgo_make_child(void) {
    forking = 1;
    pid_t pid = galgo_fork();
    forking = 0;
    return pid;
}

const char *galgo_cannot_fork(void) {
    if (prctl(PR_GET_TID_ADDRESS, &tid, 0, 0, 0) != 0 || !tid)
        return "cannot be forked on a kernel that does not tell where the C library keeps a thread's id "
               "(CONFIG_CHECKPOINT_RESTORE)";
    if (too_many_handlers)
        return "registers more fork handlers (pthread_atfork) than are noted";
    return NULL;
}
