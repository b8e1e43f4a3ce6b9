/* Node: stops when the script is compiled, before its first statement (node.cjs says where).
 *
 * The kernel starts `node script.js`; options are put between the two, the last of which loads a
 * module ahead of the script. A module needs a file that is no link, and /proc/self/environ is one
 * whose bytes are this process's own: a line that loads this library as an addon. The functions of
 * Node-API (stable since Node 8) and of libuv are looked up in the running program.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

/* ---- Node-API and libuv, as far as used ---- */

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_ref__ *napi_ref;
typedef struct napi_callback_info__ *napi_info;
typedef napi_value callback_fn(napi_env, napi_info);

#define API(NAME, ...) \
    extern int NAME(__VA_ARGS__) __attribute__((weak, visibility("default")))
API(napi_add_env_cleanup_hook, napi_env, void (*)(void *), void *);
API(napi_call_function, napi_env, napi_value, napi_value, size_t, const napi_value *, napi_value *);
API(napi_create_arraybuffer, napi_env, size_t, void **, napi_value *);
API(napi_create_function, napi_env, const char *, size_t, callback_fn *, void *, napi_value *);
API(napi_create_reference, napi_env, napi_value, uint32_t, napi_ref *);
API(napi_create_string_utf8, napi_env, const char *, size_t, napi_value *);
API(napi_create_uint32, napi_env, uint32_t, napi_value *);
API(napi_get_cb_info, napi_env, napi_info, size_t *, napi_value *, napi_value *, void **);
API(napi_get_named_property, napi_env, napi_value, const char *, napi_value *);
API(napi_get_reference_value, napi_env, napi_ref, napi_value *);
API(napi_get_uv_event_loop, napi_env, void **);
API(napi_get_value_int32, napi_env, napi_value, int32_t *);
API(napi_get_value_string_utf8, napi_env, napi_value, char *, size_t, size_t *);
API(napi_get_value_uint32, napi_env, napi_value, uint32_t *);
API(napi_run_script, napi_env, napi_value, napi_value *);
API(napi_set_named_property, napi_env, napi_value, const char *, napi_value);
API(uv_loop_fork, void *);

/* ---- the command line ---- */

static const char *const OPTIONS[] = {
    "--single-threaded", /* V8 has nothing done by other threads, which a child would not have */
    "--v8-pool-size=1",  /* the fewest there can be: 0 means one for each processor */
    "-r", "/proc/self/environ",
};
enum { OPTIONS_COUNT = sizeof OPTIONS / sizeof *OPTIONS };

static const char LOADER[] =
    "{const m={exports:{}};process.dlopen(m,'/proc/self/fd/4');m.exports.run(require,module,m.exports)}";

/* The same for the threads that a child starts: what they load ahead is nothing. */
static const char UNLOADER[] = "delete require.cache[module.filename];process._preload_modules.length=0;process.execArgv.splice(0,4)";

static int ours;         /* this process is a Node template, or a child of one */
static int child;        /* a child of one */
static char *loader;     /* where the loader lies, and how long the environment's place is */
static size_t loader_room;

/* Moves the environment elsewhere, so that the place the kernel shows as /proc/self/environ is free
   for the loader. `NULL` where that is too short. */
static char **move_environment(char **from) {
    extern char **environ;
    if (!from[0])
        return NULL;
    size_t count = 0;
    while (from[count])
        count++;
    char *begin = from[0], *end = from[count - 1] + strlen(from[count - 1]) + 1;
    if (end < begin + sizeof LOADER)
        return NULL;
    size_t size = (size_t)(end - begin);
    char *copy = malloc(size);
    char **list = malloc((count + 1) * sizeof *list);
    if (!copy || !list)
        return NULL;
    memcpy(copy, begin, size);
    for (size_t i = 0; i < count; i++)
        list[i] = copy + (from[i] - begin);
    list[count] = NULL;
    environ = list;
    memset(begin, ' ', size);
    memcpy(begin, LOADER, sizeof LOADER - 1);
    loader = begin;
    loader_room = size;
    return list;
}

void galgo_node_options(int *argc, char ***argv) {
    extern char **environ;
    /* `#!/usr/bin/env node`: env is not it. */
    if (!napi_run_script || !uv_loop_fork || *argc < 2 || !move_environment(environ))
        return;
    char **list = malloc(((size_t)*argc + OPTIONS_COUNT + 1) * sizeof *list);
    if (!list)
        return;
    list[0] = (*argv)[0];
    for (int i = 0; i < OPTIONS_COUNT; i++)
        list[1 + i] = (char *)OPTIONS[i];
    /* The last one stays where it is: libuv takes the room for process.title to end there. */
    memcpy(list + 1 + OPTIONS_COUNT, *argv + 1, (size_t)*argc * sizeof *list);
    *argc += OPTIONS_COUNT;
    *argv = list;
    unsetenv("LD_PRELOAD");
    unsetenv("GALGO_TEMPLATE");
    unsetenv("GALGO_ROOM");
    ours = 1;
}

static void leave(void *unused);

/* ---- threads ---- */

/* Threads of the template do not exist in its children. Those that sleep until there is work (V8's
   worker; not the one with an event loop, which is the template's) are made to stop in a signal
   handler, and a child starts them again from there, as soon as it wakes any thread: most never do. */
enum { THREADS = 16, STACK = 4096 };
struct sleeper {
    pthread_t thread;
    int parked, alive;
    int *tid;
    void *tls, *place[5];
    char stack[STACK] __attribute__((aligned(16)));
};
static struct sleeper sleepers[THREADS];
static int sleepers_count, revived;

typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int join_fn(pthread_t, void **);

GALGO_EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    static create_fn *real;
    if (!real)
        real = (create_fn *)dlsym(RTLD_NEXT, "pthread_create");
    int failed = real(thread, attributes, start, argument);
    if (!failed && ours && !child && sleepers_count < THREADS)
        sleepers[sleepers_count++].thread = *thread;
    return failed;
}

GALGO_EXPORT int pthread_join(pthread_t thread, void **result) {
    static join_fn *real;
    for (int i = 0; child && i < sleepers_count; i++)
        if (pthread_equal(sleepers[i].thread, thread) && !sleepers[i].alive)
            leave(NULL); /* Node waits for those when it ends, and then only */
    if (!real)
        real = (join_fn *)dlsym(RTLD_NEXT, "pthread_join");
    return real(thread, result);
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
    if (__builtin_setjmp(self->place) == 0) {
        __atomic_store_n(&self->parked, 1, __ATOMIC_SEQ_CST);
        for (;;)
            sleep(1u << 30); /* not pause(2): this is a place to be found in by its name */
    }
}

static int wake(void *sleeper) {
    __builtin_longjmp(((struct sleeper *)sleeper)->place, 1);
}

/* In a child. Called before a condition is signalled. */
static void revive(void) {
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM
        | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    revived = 1;
    for (int i = 0; i < sleepers_count; i++) {
        struct sleeper *s = &sleepers[i];
        s->alive = s->parked && clone(wake, s->stack + STACK, flags, s, s->tid, s->tls, s->tid) > 0;
    }
}

GALGO_EXPORT int pthread_cond_signal(pthread_cond_t *condition) {
    typedef int signal_fn(pthread_cond_t *);
    static signal_fn *real;
    if (!real)
        real = (signal_fn *)dlsym(RTLD_NEXT, "pthread_cond_signal");
    if (child && !revived)
        revive();
    return real(condition);
}

GALGO_EXPORT int pthread_cond_broadcast(pthread_cond_t *condition) {
    typedef int broadcast_fn(pthread_cond_t *);
    static broadcast_fn *real;
    if (!real)
        real = (broadcast_fn *)dlsym(RTLD_NEXT, "pthread_cond_broadcast");
    if (child && !revived)
        revive();
    return real(condition);
}

/* It waits for those that wait, which a child's threads of the template would for ever. glibc has
   nothing to give back for a condition. */
GALGO_EXPORT int pthread_cond_destroy(pthread_cond_t *condition) {
    typedef int destroy_fn(pthread_cond_t *);
    static destroy_fn *real;
    if (child)
        return 0;
    if (!real)
        real = (destroy_fn *)dlsym(RTLD_NEXT, "pthread_cond_destroy");
    return real(condition);
}

/* One that was waited for counts as used. */
GALGO_EXPORT int pthread_mutex_destroy(pthread_mutex_t *mutex) {
    typedef int destroy_fn(pthread_mutex_t *);
    static destroy_fn *real;
    if (child)
        return 0;
    if (!real)
        real = (destroy_fn *)dlsym(RTLD_NEXT, "pthread_mutex_destroy");
    return real(mutex);
}

/* The threads there are, and whether one of them is at work (proc_pid_syscall(5)). */
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
    return !(blocked >> (SIGURG - 1) & 1);
}

enum { PARK = SIGURG }; /* ignored where nobody handles it */
static int park_too, parking;

static uint32_t count_threads(int *busy) {
    uint32_t count = 0;
    *busy = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        count++;
        char path[64], call[16] = "";
        snprintf(path, sizeof path, "/proc/self/task/%.20s/syscall", task->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (atoi(task->d_name) != getpid() && file >= 0 && read(file, call, sizeof call - 1) > 0) {
            *busy |= call[0] == 'r'; /* "running" */
            if (park_too && atoi(call) == SYS_futex && hears(task->d_name))
                syscall(SYS_tgkill, getpid(), atoi(task->d_name), PARK), ++parking;
        }
        close(file);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

static void park_threads(void) {
    struct sigaction parks = {.sa_handler = park, .sa_flags = SA_RESTART}, before;
    int busy;
    sigaction(PARK, &parks, &before);
    park_too = 1;
    count_threads(&busy);
    park_too = 0;
    int parked = 0;
    for (int i = 0; i < 1000 && parked < parking; i++) {
        parked = 0;
        for (int t = 0; t < sleepers_count; t++)
            parked += __atomic_load_n(&sleepers[t].parked, __ATOMIC_SEQ_CST);
        usleep(parked < parking ? 1000 : 0);
    }
    sigaction(PARK, &before, NULL);
}

/* ---- descriptors ---- */

/* What event loops are made of. In a child, libuv makes those anew that it knows of; the others
   belong to threads that do not exist there. Nothing may reach the template through them, and their
   numbers must not become somebody else's. */
enum { LOOPS = 64 };
struct part { int fd; ino_t pipe; };
static struct part parts[LOOPS];
static uint32_t parts_count;

static ino_t pipe_of(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) ? status.st_ino : 0;
}

static uint32_t count_parts(void) {
    parts_count = 0;
    DIR *fds = opendir("/proc/self/fd");
    for (struct dirent *entry; fds && (entry = readdir(fds));) {
        int fd = atoi(entry->d_name);
        if (fd > GALGO_SOURCE && fd != dirfd(fds) && parts_count < LOOPS)
            parts[parts_count++] = (struct part){fd, pipe_of(fd)};
    }
    if (fds)
        closedir(fds);
    return parts_count;
}

static void replace_parts(void) {
    int mine = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (uint32_t i = 0; i < parts_count; i++)
        /* libuv's fork handler has made the pipe that is its lock anew, under the same numbers. */
        if (pipe_of(parts[i].fd) == parts[i].pipe)
            dup3(mine, parts[i].fd, O_CLOEXEC);
    close(mine);
}

/* The memory of an io_uring is shared with children. libuv does without where there is none. */
GALGO_EXPORT long syscall(long number, ...) {
    typedef long syscall_fn(long, ...);
    static syscall_fn *real;
    if (ours && !child && number == SYS_io_uring_setup) {
        errno = ENOSYS;
        return -1;
    }
    if (!real)
        real = (syscall_fn *)dlsym(RTLD_NEXT, "syscall");
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* held(): a number that grows with threads and descriptors. */
static callback_fn held;
static napi_value held(napi_env env, napi_info info) {
    (void)info;
    int busy;
    napi_value value = NULL;
    napi_create_uint32(env, count_threads(&busy) + (count_parts() << 16), &value);
    return value;
}

/* ---- stopping ---- */

static char *text(napi_env env, napi_value value) {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != 0)
        return NULL;
    char *bytes = malloc(length + 1);
    if (bytes)
        napi_get_value_string_utf8(env, value, bytes, length + 1, &length);
    return bytes;
}

/* V8 keeps its heap from children (MADV_DONTFORK). */
static void share_memory(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], mode[5];
    unsigned long from, to;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) == 3 && mode[3] == 'p' && !strstr(line, " [v"))
            madvise((void *)from, to - from, MADV_DOFORK);
    if (maps)
        fclose(maps);
}

static callback_fn stop;
static napi_value stop(napi_env env, napi_info info) {
    napi_value arguments[2], value = NULL;
    size_t count = 2;
    void *loop = NULL;
    napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
    napi_get_uv_event_loop(env, &loop);
    char *files = text(env, arguments[0]), *obstacle = text(env, arguments[1]);
    memset(loader, ' ', loader_room); /* workers load it, too */
    memcpy(loader, UNLOADER, sizeof UNLOADER - 1);
    int busy = 1;
    for (int i = 0; i < 1000 && (count_threads(&busy), busy); i++)
        usleep(1000); /* no request waits for a template */
    count_parts();
    park_threads();
    share_memory();
    uint32_t learn = (uint32_t)galgo_stop(files, obstacle);
    replace_parts();
    if (uv_loop_fork(loop) != 0)
        _exit(127);
    child = 1;
    napi_create_uint32(env, learn, &value);
    return value;
}

/* ---- the end ---- */

/* Node's own end would wait for threads and take its heap apart. Nothing of that can be seen from
   outside, and it is a good part of a short life. What addons registered to be done at the end has
   been done when this is called: last registered, first called. */
static int exit_code = 7; /* without an "exit" event: a handler of uncaught exceptions threw */

static void leave(void *unused) {
    (void)unused;
    if (!child)
        return;
    fflush(NULL);
    _exit(exit_code);
}

static napi_ref emit_ref, lesson_ref;

/* process.reallyExit, the last step of process.exit. */
static callback_fn really_exit;
static napi_value really_exit(napi_env env, napi_info info) {
    napi_value code;
    size_t count = 1;
    napi_get_cb_info(env, info, &count, &code, NULL, NULL);
    int32_t number = 0;
    if (count > 0)
        napi_get_value_int32(env, code, &number);
    exit_code = number;
    leave(NULL);
    return NULL;
}

/* process.emit: Node ends with process.emit("exit"), however it ends. */
static callback_fn emit;
static napi_value emit(napi_env env, napi_info info) {
    napi_value arguments[16], self, original, name, result = NULL;
    size_t count = 16;
    napi_get_cb_info(env, info, &count, arguments, &self, NULL);
    napi_get_reference_value(env, emit_ref, &original);
    char bytes[8] = "";
    size_t length = 0;
    int exits = count > 0 && napi_get_value_string_utf8(env, arguments[0], bytes, sizeof bytes, &length) == 0 && strcmp(bytes, "exit") == 0;
    int32_t code = 0;
    if (exits && count > 1 && napi_get_value_int32(env, arguments[1], &code) == 0)
        exit_code = code;
    if (napi_call_function(env, self, original, count < 16 ? count : 16, arguments, &result) != 0)
        return NULL;
    if (!exits)
        return result;
    if (napi_get_named_property(env, self, "exitCode", &name) == 0 && napi_get_value_int32(env, name, &code) == 0)
        exit_code = code;
    if (lesson_ref) {
        napi_value lesson, modules;
        napi_get_reference_value(env, lesson_ref, &lesson);
        if (napi_call_function(env, self, lesson, 0, NULL, &modules) == 0) {
            char *names = text(env, modules);
            if (names)
                galgo_learned(names);
            free(names);
        }
    }
    return result;
}

/* emitter(process.emit): what stands in its place. */
static callback_fn emitter;
static napi_value emitter(napi_env env, napi_info info) {
    napi_value original, replacement = NULL;
    size_t count = 1;
    napi_get_cb_info(env, info, &count, &original, NULL, NULL);
    napi_create_reference(env, original, 1, &emit_ref);
    napi_create_function(env, "emit", 4, emit, NULL, &replacement);
    return replacement;
}

static callback_fn teach;
static napi_value teach(napi_env env, napi_info info) {
    napi_value lesson;
    size_t count = 1;
    napi_get_cb_info(env, info, &count, &lesson, NULL, NULL);
    napi_create_reference(env, lesson, 1, &lesson_ref);
    return NULL;
}

/* ---- the addon ---- */

static callback_fn pid;
static napi_value pid(napi_env env, napi_info info) {
    (void)info;
    napi_value value = NULL;
    napi_create_uint32(env, (uint32_t)getpid(), &value);
    return value;
}

/* entropy(bytes): an ArrayBuffer from the kernel. */
static callback_fn entropy;
static napi_value entropy(napi_env env, napi_info info) {
    napi_value argument, value = NULL;
    size_t count = 1;
    uint32_t size = 0;
    void *bytes = NULL;
    napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
    napi_get_value_uint32(env, argument, &size);
    if (napi_create_arraybuffer(env, size, &bytes, &value) != 0 || getentropy(bytes, size) != 0)
        _exit(127);
    return value;
}

static callback_fn modules;
static napi_value modules(napi_env env, napi_info info) {
    (void)info;
    napi_value value = NULL;
    const char *names = galgo_modules();
    napi_create_string_utf8(env, names, strlen(names), &value);
    return value;
}

static napi_value source(napi_env env) {
    struct stat status;
    if (fstat(GALGO_SOURCE, &status) != 0)
        return NULL;
    char *bytes = malloc((size_t)status.st_size);
    napi_value value = NULL, function = NULL;
    if (bytes && pread(GALGO_SOURCE, bytes, (size_t)status.st_size, 0) == status.st_size) {
        napi_create_string_utf8(env, bytes, (size_t)status.st_size, &value);
        napi_run_script(env, value, &function);
    }
    free(bytes);
    return function;
}

GALGO_EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports) {
    static const struct { const char *name; callback_fn *function; } functions[] = {
        {"modules", modules}, {"stop", stop}, {"held", held}, {"emitter", emitter}, {"teach", teach}, {"reallyExit", really_exit},
        {"pid", pid}, {"entropy", entropy},
    };
    napi_value run = source(env);
    if (!ours || !run)
        return exports;
    napi_set_named_property(env, exports, "run", run);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        napi_value function;
        napi_create_function(env, functions[i].name, strlen(functions[i].name), functions[i].function, NULL, &function);
        napi_set_named_property(env, exports, functions[i].name, function);
    }
    napi_add_env_cleanup_hook(env, leave, NULL);
    return exports;
}
