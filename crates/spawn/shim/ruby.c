/* Ruby: stops when the script is compiled, before its first statement. The program calls
 * ruby_run_node() in its library for just that; there this stands in front. Nothing is asked for by
 * RUBYOPT, which the script's `#!` line can switch off. A ruby without a shared library never stops.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
        ((void (*)(value))function("rb_set_errinfo"))(4 + 4 * (sizeof(value) == 8)); /* Qnil until 3.1 */
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

/* Loads what was learned; the names are absolute. One that cannot be loaded is left to the children. */
static void load_learned(void) {
    setenv("GALGO_MODULES", galgo_modules(), 1);
    text_of("->(names) { names.each { |n| begin; require n; rescue Exception; end }; '' }.call(ENV.delete('GALGO_MODULES').lines(chomp: true))");
}

/* Ruby's own fork stops its timer before and starts it after, in parent and child, and forgets other
   threads; at its bottom is fork(3), for which template.c makes a sibling. */
static int ruby_fork(void) {
    const char *answer = text_of("begin; (Process.fork || 0).to_s; rescue Exception => e; STDERR.puts e.full_message; %q(-1); end");
    return answer ? atoi(answer) : -1;
}

GALGO_EXPORT int ruby_run_node(void *node) {
    int (*real)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "ruby_run_node");
    int status;
    if (!galgo_is("ruby") || !((int (*)(void *, int *))function("ruby_executable_node"))(node, &status))
        return real(node);
    unsetenv("LD_PRELOAD");
    unsetenv("LD_BIND_NOW");
    unsetenv("GALGO_TEMPLATE");
    load_learned();
    const char *files = text_of("[*$LOADED_FEATURES, File.expand_path($0)].join(\"\\n\") + \"\\n\"");
    before = strdup(files ? files : "");
    if (!before)
        _exit(127);
    galgo_fork = ruby_fork;
    int asked = galgo_stop(before, files ? NULL : "does not tell what it was loaded from");
    if (asked & GALGO_LEARN)
        ((void (*)(void (*)(value), value))function("rb_set_end_proc"))(learn, 0);
    return real(node);
}
