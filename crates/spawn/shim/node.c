/* Node: stops when the script is compiled, before its first statement; to be parked, before any file
 * of the program is read (node.cjs says where).
 *
 * The kernel starts `node script.js`; options are put between the two, the last of which loads a
 * module ahead of the script. A module needs a file that is no link, and /proc/self/environ is one
 * whose bytes are this process's own: a line that loads this library as an addon. The functions of
 * Node-API (stable since Node 8) and of libuv are looked up in the running program.
 */
#define _GNU_SOURCE
#include "galgo.h"
#include "node.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the command line ---- */

static const char *const OPTIONS[] = {
    "-r", "/proc/self/environ",
    /* Where it is forked. */
    "--single-threaded", /* V8 has nothing done by other threads, which a child would not have */
    "--v8-pool-size=1",  /* the fewest there can be: 0 means one for each processor */
};
enum { OPTIONS_ALL = sizeof OPTIONS / sizeof *OPTIONS, OPTIONS_PARKED = 2 };
static int options_count;

static const char LOADER[] =
    "{const m={exports:{}};process.dlopen(m,'/proc/self/fd/4');m.exports.run(require,module,m.exports)}";

/* The same for threads that are started later: what they load ahead is nothing. */
static const char UNLOADER[] =
    "{delete require.cache[module.filename];process.execArgv.splice(0,%d);"
    "Object.defineProperty(process,'_preload_modules',{value:process._preload_modules.filter((m)=>m!=='/proc/self/environ')})}";

int galgo_node_ours, galgo_node_child;
static char *loader; /* where the loader lies, and how long the environment's place is */
static size_t loader_room;

/* Has /proc/self/environ show this, and spaces. */
static void show(const char *text) {
    memset(loader, ' ', loader_room);
    memcpy(loader, text, strlen(text));
}

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
    if (end < begin + sizeof LOADER || end < begin + sizeof UNLOADER)
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
    loader = begin;
    loader_room = size;
    show(LOADER);
    return list;
}

static void options(int *argc, char ***argv) {
    extern char **environ;
    /* `#!/usr/bin/env node`: env is not it. */
    if (!napi_run_script || !uv_loop_fork || *argc < 2)
        return;
    if (!move_environment(environ))
        galgo_stop(NULL, "has too small an environment for Node to be told where to stop");
    options_count = galgo_forks ? OPTIONS_ALL : OPTIONS_PARKED;
    char **list = malloc(((size_t)*argc + options_count + 1) * sizeof *list);
    if (!list)
        return;
    list[0] = (*argv)[0];
    for (int i = 0; i < options_count; i++)
        list[1 + i] = (char *)OPTIONS[i];
    /* The last one stays where it is: libuv takes the room for process.title to end there. */
    memcpy(list + 1 + options_count, *argv + 1, (size_t)*argc * sizeof *list);
    *argc += options_count;
    *argv = list;
    galgo_forget();
    galgo_node_ours = 1;
}

__attribute__((constructor)) static void begin(void) {
    if (galgo_is("node"))
        galgo_arguments = options;
}

/* ---- values of JavaScript ---- */

napi_value galgo_node_argument(napi_env env, napi_info info) {
    napi_value argument = NULL;
    size_t count = 1;
    napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
    return argument;
}

static napi_value number(napi_env env, uint32_t of) {
    napi_value value = NULL;
    napi_create_uint32(env, of, &value);
    return value;
}

char *galgo_node_text(napi_env env, napi_value value) {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, value, NULL, 0, &length) != 0)
        return NULL;
    char *bytes = malloc(length + 1);
    if (bytes)
        napi_get_value_string_utf8(env, value, bytes, length + 1, &length);
    return bytes;
}

/* ---- stopping ---- */

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

/* Until no other thread is at work; beside busy neighbours that takes long. No request waits for a template. */
static void settle(void) {
    int busy = 1;
    for (int i = 0; i < 5000 && (galgo_node_threads(&busy), busy); i++)
        usleep(1000);
}

/* Makes a process that has no threads at work, and memory that its children share. */
static void prepare_forks(void) {
    settle();
    galgo_node_parts();
    galgo_node_park();
    settle(); /* a thread that has said that it parks has a system call more to go */
    share_memory();
}

static napi_value stop(napi_env env, napi_info info) {
    napi_value arguments[3];
    size_t count = 3;
    void *loop = NULL;
    napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
    napi_get_uv_event_loop(env, &loop);
    char *files = galgo_node_text(env, arguments[0]), *obstacle = galgo_node_text(env, arguments[1]);
    galgo_tell(GALGO_SEARCH, galgo_node_text(env, arguments[2]));
    if (galgo_forks)
        prepare_forks();
    uint32_t learn = (uint32_t)galgo_stop(files, obstacle);
    if (galgo_forks) {
        galgo_node_replace_parts();
        if (uv_loop_fork(loop) != 0)
            _exit(127);
    }
    galgo_node_child = 1;
    if (uv_hrtime && &galgo_node_start_time)
        galgo_node_start_time = uv_hrtime();
    return number(env, learn);
}

/* ---- the addon ---- */

/* held(): a number that grows with threads and descriptors. */
static napi_value held(napi_env env, napi_info info) {
    (void)info;
    int busy;
    return number(env, galgo_node_threads(&busy) + (galgo_node_parts() << 16));
}

static napi_value pid(napi_env env, napi_info info) {
    (void)info;
    return number(env, (uint32_t)getpid());
}

/* entropy(bytes): an ArrayBuffer from the kernel. */
static napi_value entropy(napi_env env, napi_info info) {
    napi_value value = NULL;
    uint32_t size = 0;
    void *bytes = NULL;
    napi_get_value_uint32(env, galgo_node_argument(env, info), &size);
    if (napi_create_arraybuffer(env, size, &bytes, &value) != 0 || getentropy(bytes, size) != 0)
        _exit(127);
    return value;
}

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
    static const struct { const char *name; napi_callback *function; } functions[] = {
        {"modules", modules}, {"stop", stop}, {"held", held}, {"emitter", galgo_node_emitter}, {"teach", galgo_node_teach}, {"reallyExit", galgo_node_really_exit},
        {"pid", pid}, {"entropy", entropy},
    };
    napi_value run = source(env);
    if (!galgo_node_ours || !run)
        return exports;
    char unloader[sizeof UNLOADER];
    snprintf(unloader, sizeof unloader, UNLOADER, options_count);
    show(unloader);
    napi_set_named_property(env, exports, "forks", number(env, (uint32_t)galgo_forks));
    napi_set_named_property(env, exports, "options", number(env, (uint32_t)options_count));
    napi_set_named_property(env, exports, "run", run);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        napi_value function;
        napi_create_function(env, functions[i].name, strlen(functions[i].name), functions[i].function, NULL, &function);
        napi_set_named_property(env, exports, functions[i].name, function);
    }
    napi_add_env_cleanup_hook(env, galgo_node_leave, NULL);
    return exports;
}
