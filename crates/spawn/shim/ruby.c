/* Ruby: stops when the script is compiled, before its first statement. The program calls
 * ruby_run_node() in its library for just that; there this stands in front. Nothing is asked for by
 * RUBYOPT, which the script's `#!` line can switch off. A ruby without a shared library never stops.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef uintptr_t value; /* VALUE */

static void *function(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        _exit(127);
    return found;
}

/* Runs Ruby source that gives a String; NULL where it raised. */
static const char *text_of(const char *source) {
    int failed = 0;
    value result = ((value(*)(const char *, int *))function("rb_eval_string_protect"))(source, &failed);
    if (failed) {
        value nil = ((value(*)(const char *))function("rb_eval_string"))("nil"); /* another number from 3.2 on */
        ((void (*)(value))function("rb_set_errinfo"))(nil);
        return NULL;
    }
    return ((char *(*)(value *))function("rb_string_value_cstr"))(&result);
}

static char *before; /* the features of the template */

/* Registered before any at_exit of the script, so it runs behind them. */
static void learn(value unused) {
    (void)unused;
    const char *features = text_of("$LOADED_FEATURES.select { |f| $LOAD_PATH.any? { |d| f.start_with?(d.to_s + '/') } }.join(\"\\n\") + \"\\n\"");
    size_t length = features ? strlen(features) : 0, used = 0;
    char *learned = malloc(length + 1);
    if (!learned)
        return;
    for (const char *line = features; line && *line;) {
        size_t size = strcspn(line, "\n") + 1;
        char *name = strndup(line, size);
        if (name && !strstr(before, name)) {
            memcpy(learned + used, line, size);
            used += size;
        }
        free(name);
        line += size;
    }
    learned[used] = 0;
    galgo_learned(learned);
    free(learned);
}

/* Ruby's own fork stops its timer before and starts it after, in parent and child, and forgets other
   threads; at its bottom is fork(3), for which template.c makes a sibling. */
static int ruby_fork(void) {
    const char *answer = text_of("begin; (Process.fork || 0).to_s; rescue Exception => e; STDERR.puts e.full_message; %q(-1); end");
    return answer ? atoi(answer) : -1;
}

/* ---- loading ahead ---- */

/* Those of this process. */
static int threads(void) {
    struct stat tasks;
    return stat("/proc/self/task", &tasks) == 0 ? (int)tasks.st_nlink - 2 : 0;
}

/* What raises is left to the children. */
static void require(const char *feature) {
    char source[4096 + 64];
    snprintf(source, sizeof source, "begin; require '%s'; rescue Exception; end; ''", feature);
    text_of(source);
}

/* Loads the features in a process of its own, for what one has done cannot be taken back: the place of the
   first that does not load as it would for a request, `count` where all do. */
static int tried(char **features, int count) {
    int ends[2], first = 0, at = 0, status = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    pid_t child = ruby_fork();
    if (child == 0) {
        int before = threads();
        galgo_watch();
        for (; at < count; at++) {
            require(features[at]);
            if (galgo_early() || threads() > before)
                break;
            galgo_watch();
        }
        _exit(write(ends[1], &at, sizeof at) != sizeof at);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &first, sizeof first) != sizeof first)
        first = 0;
    close(ends[0]);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0 ? first : 0;
}

/* Loads what was learned, but for what has to be left to the children; the names are absolute. */
static void load_learned(void) {
    enum { MOST = 2000, LEFT = 8 };
    static char *features[MOST];
    int count = 0, first, left = 0;
    char *names = strdup(galgo_modules());
    for (char *name = names ? strtok(names, "\n") : NULL; name && count < MOST; name = strtok(NULL, "\n"))
        if (strlen(name) < 4096 && !strpbrk(name, "'\\"))
            features[count++] = name;
    while ((first = tried(features, count)) < count && left++ < LEFT)
        memmove(features + first, features + first + 1, (size_t)(--count - first) * sizeof *features);
    galgo_watch();
    for (int at = 0; at < first; at++)
        require(features[at]);
}

/* Since 3.3 a thread of Ruby's own waits for timers; each child has it started again. */
static const char *more_threads(void) {
    const char *timed = text_of("(RUBY_VERSION.to_f > 3.25).to_s");
    return threads() > 1 + (timed && *timed == 't') ? "runs threads that Ruby does not know of" : NULL;
}

/* It waits for work a moment after it was started: the server looks whether it does. */
static void let_threads_wait(void) {
    int running = 1;
    for (int times = 0; times < 1000 && running; times++) {
        DIR *tasks = opendir("/proc/self/task");
        struct dirent *task;
        running = 0;
        while (tasks && (task = readdir(tasks))) {
            char path[300], what[8] = "";
            snprintf(path, sizeof path, "/proc/self/task/%s/syscall", task->d_name);
            FILE *call = atoi(task->d_name) > 0 && atoi(task->d_name) != getpid() ? fopen(path, "re") : NULL;
            running |= call && fgets(what, sizeof what, call) && *what == 'r';
            if (call)
                fclose(call);
        }
        if (tasks)
            closedir(tasks);
        if (running)
            usleep(1000); /* no request waits for a template */
    }
}

GALGO_EXPORT int ruby_run_node(void *node) {
    int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "ruby_run_node");
    int status;
    if (!galgo_is("ruby") || !((int (*)(void *, int *))function("ruby_executable_node"))(node, &status))
        return real(node);
    unsetenv("LD_PRELOAD");
    unsetenv("LD_BIND_NOW");
    unsetenv("GALGO_TEMPLATE");
    const char *obstacle = galgo_early();
    if (!obstacle)
        obstacle = more_threads();
    if (!obstacle)
        load_learned();
    if (!obstacle)
        obstacle = galgo_early();
    const char *files = text_of("[*$LOADED_FEATURES, File.expand_path($0)].join(\"\\n\") + \"\\n\"");
    before = strdup(files ? files : "");
    if (!before)
        _exit(127);
    galgo_fork = ruby_fork;
    let_threads_wait();
    if (!files)
        obstacle = "does not tell what it was loaded from";
    int asked = galgo_stop(before, obstacle);
    if (asked & GALGO_LEARN)
        ((void (*)(void (*)(value), value))function("rb_set_end_proc"))(learn, 0);
    return real(node);
}
