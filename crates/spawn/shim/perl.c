/* Perl: compiled, every `use` done, stopped before the first statement. perl.pl says where; here is
 * what it cannot do itself. The functions are installed as XSUBs and take no arguments: text goes in
 * by the environment and comes back in $galgo::text.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* hv.h; the same in every perl since 5.10. */
enum { HV_FETCH_ISSTORE = 0x04, HV_FETCH_JUST_SV = 0x20 };
enum { GV_ADD = 1 };

/* A perl built for several interpreters hands its own to every function, another has none: there its
   variables are the process's. */
static int is_plain(void) {
    return dlsym(RTLD_DEFAULT, "PL_stack_sp") != NULL;
}

static void *function(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        _Exit(127);
    return found;
}

static void *variable(void *perl, const char *getter, const char *name) {
    void *f = function(getter);
    if (is_plain())
        return ((void *(*)(const char *, int))f)(name, GV_ADD);
    return ((void *(*)(void *, const char *, int))f)(perl, name, GV_ADD);
}

static void set(void *perl, const char *name, const char *text) {
    void *sv = variable(perl, "Perl_get_sv", name);
    void *f = function("Perl_sv_setpvn");
    if (is_plain())
        ((void (*)(void *, const char *, size_t))f)(sv, text, strlen(text));
    else
        ((void (*)(void *, void *, const char *, size_t))f)(perl, sv, text, strlen(text));
}

/* Fills the empty %ENV from `environ`, as perl does when it starts: nothing is written back. */
static void fill_env(void *perl) {
    typedef void *plain_new(const char *, size_t);
    typedef void *plain_store(void *, const char *, int, int, void *, unsigned);
    typedef void *new(void *, const char *, size_t);
    typedef void *store(void *, void *, const char *, int, int, void *, unsigned);
    enum { HOW = HV_FETCH_ISSTORE | HV_FETCH_JUST_SV };
    int plain = is_plain();
    void *hash = variable(perl, "Perl_get_hv", "ENV");
    void *make = function("Perl_newSVpvn"), *put = function("Perl_hv_common_key_len");
    for (char **e = environ; *e; e++) {
        char *value = strchr(*e, '=');
        if (!value)
            continue;
        int length = (int)(value++ - *e);
        size_t size = strlen(value);
        if (plain)
            ((plain_store *)put)(hash, *e, length, HOW, ((plain_new *)make)(value, size), 0);
        else
            ((store *)put)(perl, hash, *e, length, HOW, ((new *)make)(perl, value, size), 0);
    }
}

/* An environment that perl has not been started with it frees string by string when it ends. */
static void own_environ(void) {
    size_t count = 0;
    while (environ[count])
        count++;
    char **list = malloc((count + 1) * sizeof *list);
    for (size_t i = 0; list && i <= count; i++)
        list[i] = environ[i] ? strdup(environ[i]) : NULL;
    if (!list)
        _Exit(127);
    environ = list;
}

/* $galgo::text: the modules to load. */
GALGO_EXPORT void galgo_perl_modules(void *perl, void *cv) {
    (void)cv;
    set(perl, "galgo::text", galgo_modules());
}

/* Stops; GALGO_REPORT in the environment names the files. Returns in a child, with its %ENV, and
   "1" in $galgo::text where it is to learn. */
GALGO_EXPORT void galgo_perl_stop(void *perl, void *cv) {
    (void)cv;
    char *files = strdup(getenv("GALGO_REPORT") ? getenv("GALGO_REPORT") : "");
    void *hash = variable(perl, "Perl_get_hv", "ENV"), *clear = function("Perl_hv_clear");
    if (is_plain())
        ((void (*)(void *))clear)(hash);
    else
        ((void (*)(void *, void *))clear)(perl, hash);
    int asked = galgo_stop(files, NULL);
    fill_env(perl);
    own_environ();
    set(perl, "galgo::text", asked & GALGO_LEARN ? "1" : "");
}

/* GALGO_REPORT: the modules a child loaded. */
GALGO_EXPORT void galgo_perl_learned(void *perl, void *cv) {
    (void)perl;
    (void)cv;
    const char *modules = getenv("GALGO_REPORT");
    galgo_learned(modules ? modules : "");
}
