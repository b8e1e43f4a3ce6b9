/* Perl: compiled, every `use` done, stopped before the first statement. perl.pl says where; here is
 * what it cannot do itself. The functions are installed as XSUBs and take no arguments: text goes in
 * by the environment and comes back in $galgo::text.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* hv.h; the same in every perl since 5.10. */
enum { HV_FETCH_ISSTORE = 0x04, HV_FETCH_JUST_SV = 0x20 };
enum { GV_ADD = 1 };

/* A perl built for several interpreters hands its own to every function, another has none: there its
   variables are the process's. */
static int is_plain(void) {
    static int known = -1;
    if (known < 0)
        known = dlsym(RTLD_DEFAULT, "PL_stack_sp") != NULL;
    return known;
}

/* Looking a name up costs a child tens of pages: each is kept, and all that a child needs are looked up
   before there is one. */
static void *function(const char *name) {
    enum { MOST = 32 }; /* more than are asked for here */
    static struct { const char *name; void *at; } known[MOST];
    size_t i = 0;
    while (known[i].name && strcmp(known[i].name, name) != 0)
        i++;
    if (!known[i].name) {
        known[i].name = name;
        known[i].at = dlsym(RTLD_DEFAULT, name);
    }
    if (!known[i].at)
        _Exit(127);
    return known[i].at;
}

/* Calls one. It is given pointers and whole numbers only: on Linux, for x86-64 and AArch64, those are passed in the same registers
   to a function with a fixed list of arguments as to one with `...`. */
typedef void *called(const void *, ...);
#define CALL(PERL, FUNCTION, ...) \
    (is_plain() ? ((called *)(FUNCTION))(__VA_ARGS__) : ((called *)(FUNCTION))(PERL, __VA_ARGS__))

static void *hash_of(void *perl, const char *name) {
    return CALL(perl, function("Perl_get_hv"), name, GV_ADD);
}

static void set(void *perl, const char *name, const char *text) {
    void *scalar = CALL(perl, function("Perl_get_sv"), name, GV_ADD);
    CALL(perl, function("Perl_sv_setpvn"), scalar, text, strlen(text));
}

/* Fills an empty hash from `environ`, %ENV as perl does when it starts: nothing is written back. */
static void fill(void *perl, const char *name) {
    enum { HOW = HV_FETCH_ISSTORE | HV_FETCH_JUST_SV };
    void *hash = hash_of(perl, name);
    void *make = function("Perl_newSVpvn"), *put = function("Perl_hv_common_key_len");
    for (char **e = environ; *e; e++) {
        char *value = strchr(*e, '=');
        if (!value)
            continue;
        int length = (int)(value++ - *e);
        void *scalar = CALL(perl, make, value, strlen(value));
        CALL(perl, put, hash, *e, length, HOW, scalar, 0);
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

/* ---- variables that are read too early ---- */

/* mg.h, since 5.16. Of a hash with PERL_MAGIC_uvar (Hash::Util::FieldHash is made of it) perl tells each
   key that is asked for, in place of the object. */
enum { MAGIC_UVAR = 'U', WRITES = HV_FETCH_ISSTORE | 0x10 /* HV_FETCH_LVALUE */ | 0x40 /* HV_DELETE */ };
struct magic { void *more, *table; uint32_t kind; ptrdiff_t length; void *object; };
struct functions { void *value, *set; intptr_t index; };
/* sv.h. A hash with this flag and magic that is asked gives its keys' values as if it were tied. */
struct scalar { void *body; uint32_t count, flags; };
enum { SVS_RMG = 0x00800000 };
/* The same flags: it has room for the place of an iterator, and has that from the first time on that somebody
   goes through it (keys, each, a copy). */
enum { HAS_ITERATOR = 0x02000000 };

static void read_with(void *perl, intptr_t action, void *hash) {
    struct magic *magic = ((struct magic *(*)(const void *, int))function("Perl_mg_find"))(hash, MAGIC_UVAR);
    size_t length;
    if (magic && magic->object && !(action & WRITES))
        galgo_asked(CALL(perl, function("Perl_sv_2pv_flags"), magic->object, &length, 0));
}

static int32_t read_plain(intptr_t action, void *hash) {
    read_with(NULL, action, hash);
    return 0;
}

static int32_t read_threaded(void *perl, intptr_t action, void *hash) {
    read_with(perl, action, hash);
    return 0;
}

/* From here on what is read from %ENV is noticed. %galgo::before: what is in it, without going through it. */
GALGO_EXPORT void galgo_perl_watch(void *perl, void *cv) {
    (void)cv;
    fill(perl, "galgo::before");
    void *hash = hash_of(perl, "ENV");
    struct functions reads = {is_plain() ? (void *)read_plain : (void *)read_threaded, NULL, 0};
    CALL(perl, function("Perl_sv_magic"), hash, NULL, MAGIC_UVAR, &reads, (int)sizeof reads);
    ((struct scalar *)hash)->flags &= ~(uint32_t)SVS_RMG; /* unwatch() sets it again */
}

/* To here. */
GALGO_EXPORT void galgo_perl_unwatch(void *perl, void *cv) {
    (void)cv;
    void *hash = hash_of(perl, "ENV");
    if (((struct scalar *)hash)->flags & HAS_ITERATOR)
        galgo_asked(NULL);
    CALL(perl, function("Perl_sv_unmagic"), hash, MAGIC_UVAR);
}

/* ---- what perl.pl calls ---- */

/* $galgo::text: the modules to load. */
GALGO_EXPORT void galgo_perl_modules(void *perl, void *cv) {
    (void)cv;
    set(perl, "galgo::text", galgo_modules());
}

GALGO_EXPORT void galgo_perl_holds(void *perl, void *cv) {
    (void)perl;
    (void)cv;
    galgo_holds();
}

/* GALGO_REPORT: the folders that modules are looked for in. */
GALGO_EXPORT void galgo_perl_search(void *perl, void *cv) {
    (void)perl;
    (void)cv;
    galgo_tell(GALGO_SEARCH, getenv("GALGO_REPORT"));
}

/* Stops; GALGO_REPORT in the environment names the files. Returns in a child, with its %ENV, and
   "1" in $galgo::text where it is to learn. */
GALGO_EXPORT void galgo_perl_stop(void *perl, void *cv) {
    (void)cv;
    char *files = strdup(getenv("GALGO_REPORT") ? getenv("GALGO_REPORT") : "");
    /* What a child does first is done here once: the pieces it takes for that then lie together. */
    fill(perl, "ENV");
    CALL(perl, function("Perl_hv_clear"), hash_of(perl, "ENV"));
    set(perl, "galgo::text", "");
    const char *obstacle = galgo_early();
    galgo_settle();
    galgo_gather(GALGO_CODE);
    int asked = galgo_stop(files, obstacle);
    fill(perl, "ENV");
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
