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

/* Clears what was raised: there is no exception where the script begins. */
static void forget_exception(void) {
    value nil = ((value(*)(const char *))function("rb_eval_string"))("nil"); /* another number from 3.2 on */
    ((void (*)(value))function("rb_set_errinfo"))(nil);
}

/* What Ruby source gives; 0 where it raised. */
static value value_of(const char *source) {
    int failed = 0;
    value result = ((value(*)(const char *, int *))function("rb_eval_string_protect"))(source, &failed);
    if (!failed)
        return result;
    forget_exception();
    return 0;
}

/* Calls a lambda, for rb_protect(). */
static value called(value lambda) {
    typedef value call_fn(value, uintptr_t, int, const value *);
    uintptr_t call = ((uintptr_t(*)(const char *))function("rb_intern"))("call");
    return ((call_fn *)function("rb_funcallv"))(lambda, call, 0, NULL);
}

/* The same of a String; NULL where it raised. */
static const char *text_of(const char *source) {
    value result = value_of(source);
    return result ? ((char *(*)(value *))function("rb_string_value_cstr"))(&result) : NULL;
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
   threads; at its bottom is fork(3), for which fork.c makes a sibling. */
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

static value required(value feature) {
    return ((value(*)(const char *))function("rb_require"))((const char *)feature);
}

/* What raises is left to the children. */
static void require(const char *feature) {
    int failed = 0;
    ((value(*)(value(*)(value), value, int *))function("rb_protect"))(required, (value)feature, &failed);
    if (failed)
        forget_exception();
}

static value ambiguous; /* made by ruby.rb */

/* 0: it cannot be told which features are. */
static int note_ambiguous(void) {
    struct stat about;
    char *source = fstat(GALGO_SOURCE, &about) == 0 ? calloc(1, (size_t)about.st_size + 1) : NULL;
    if (source && pread(GALGO_SOURCE, source, (size_t)about.st_size, 0) == about.st_size)
        ambiguous = value_of(source);
    free(source);
    if (ambiguous)
        ((void (*)(value *))function("rb_gc_register_address"))(&ambiguous);
    return ambiguous != 0;
}

/* Whether what was loaded since the last look has a name that stands for two files. */
static int is_ambiguous(void) {
    int failed = 0;
    value answer = ((value(*)(value(*)(value), value, int *))function("rb_protect"))(called, ambiguous, &failed);
    if (failed)
        forget_exception();
    return failed || answer != 0; /* false is 0 */
}

/* How many of the features, from the first on, load as they would for a request. They are loaded in a process of its
   own, for what one has done cannot be taken back; it writes a byte for each. */
static int tried(char **features, int count) {
    int ends[2], good = 0;
    char done[256];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    pid_t child = ruby_fork();
    if (child == 0) {
        int before = threads();
        galgo_watch();
        for (int at = 0; at < count; at++) {
            require(features[at]);
            if (galgo_early() || threads() > before || is_ambiguous() || write(ends[1], "", 1) != 1)
                break;
            galgo_watch();
        }
        _exit(0);
    }
    close(ends[1]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    fcntl(ends[0], F_SETFL, O_NONBLOCK); /* a process that a feature has left behind may hold the other end */
    for (ssize_t got; (got = read(ends[0], done, sizeof done)) > 0;)
        good += (int)got;
    close(ends[0]);
    return good < count ? good : count;
}

/* Loads what was learned, but for what has to be left to the children; the names are absolute. */
static void load_learned(void) {
    enum { MOST = 2000 };
    static char *features[MOST];
    int count = 0;
    char *names = strdup(galgo_modules());
    if (!names || !*names || !note_ambiguous())
        return;
    for (char *name = strtok(names, "\n"); name && count < MOST; name = strtok(NULL, "\n"))
        features[count++] = name;
    for (int at = 0; at < count; at++) {
        galgo_early(); /* nothing is watched while a process is started; what was seen is kept */
        int end = at + tried(features + at, count - at);
        galgo_watch();
        for (; at < end; at++)
            require(features[at]);
        if (at < count)
            galgo_tell(GALGO_LEFT, features[at]);
    }
}

/* Where features are looked for, those of gems too. */
static void tell_search(void) {
    galgo_tell(GALGO_SEARCH, text_of(
        "(lambda { gems = defined?(Gem::PathSupport) ? Gem::PathSupport.new(ENV).path : []; "
        "[*$LOAD_PATH, *gems.flat_map { |d| [d + '/gems', d + '/extensions'] }].map { |d| File.expand_path(d.to_s) }"
        ".reject { |d| d.include?(10.chr) }.join(10.chr) }).call"));
}

/* ---- random numbers ---- */

/* Ruby draws a seed of 128 bits for a generator that is given none. A library that keeps one would draw the same in
   each child: such generators begin anew there. One that was given a seed goes on as it would. */
static value fresh;

static void note_generators(void) {
    fresh = value_of(
        "(lambda { seed = Random.instance_method(:initialize); "
        "all = ObjectSpace.each_object(Random).select { |it| !it.frozen? && it.seed.bit_length > 64 }; "
        "lambda { all.each { |it| seed.bind(it).call } } }).call");
    if (fresh)
        ((void (*)(value *))function("rb_gc_register_address"))(&fresh);
}

static void renew_generators(void) {
    int failed = 0;
    ((value(*)(value(*)(value), value, int *))function("rb_protect"))(called, fresh, &failed);
    if (failed)
        _exit(127);
}

/* Since 3.3 a thread of Ruby's own waits for timers; each child has it started again. */
static const char *more_threads(void) {
    const char *timed = text_of("(RUBY_VERSION.to_f > 3.25).to_s");
    return threads() > 1 + (timed && *timed == 't') ? "runs threads that Ruby does not know of" : NULL;
}

/* Ruby makes its own pipes and queues of events anew in each child. */
static const char *more_pipes(void) {
    int (*is_own)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "rb_reserved_fd_p"), found = 0;
    DIR *all = is_own ? opendir("/proc/self/fd") : NULL;
    struct dirent *entry;
    while (all && (entry = readdir(all))) {
        struct stat about;
        int fd = atoi(entry->d_name), other = fd > GALGO_SOURCE && fd != dirfd(all) && !is_own(fd);
        found |= other && fstat(fd, &about) == 0 && (S_ISFIFO(about.st_mode) || !(about.st_mode & S_IFMT));
    }
    if (all)
        closedir(all);
    return found ? "opens a pipe, or waits for events, while loading" : NULL;
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

/* The script is run by a function of the library, if there is one: by the one below. A ruby that has it within itself
   cannot be stopped. Other programs on the way have none of its functions. */
__attribute__((constructor)) static void begin(void) {
    if (!galgo_is("ruby") || !dlsym(RTLD_DEFAULT, "rb_eval_string_protect"))
        return;
    if (dlsym(RTLD_NEXT, "ruby_run_node"))
        galgo_holds();
    else
        galgo_stop(NULL, "is run by a Ruby without a shared library");
}

GALGO_EXPORT int ruby_run_node(void *node) {
    int status;
    if (!galgo_is("ruby") || !((int (*)(void *, int *))function("ruby_executable_node"))(node, &status))
        return GALGO_NEXT(ruby_run_node)(node);
    galgo_forget();
    const char *obstacle = galgo_early();
    if (!obstacle)
        obstacle = more_threads();
    if (!obstacle)
        load_learned();
    if (!obstacle)
        obstacle = galgo_early();
    if (!obstacle)
        obstacle = more_pipes();
    const char *files = text_of("[*$LOADED_FEATURES, File.expand_path($0)].join(\"\\n\") + \"\\n\"");
    before = strdup(files ? files : "");
    if (!before)
        _exit(127);
    galgo_fork = ruby_fork;
    tell_search();
    note_generators();
    let_threads_wait();
    if (!files)
        obstacle = "does not tell what it was loaded from";
    int asked = galgo_stop(before, obstacle);
    renew_generators();
    if (asked & GALGO_LEARN)
        ((void (*)(void (*)(value), value))function("rb_set_end_proc"))(learn, 0);
    return GALGO_NEXT(ruby_run_node)(node);
}
