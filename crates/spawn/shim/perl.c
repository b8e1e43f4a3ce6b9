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
#include <sys/stat.h>

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

/* ---- modules that were loaded ahead ---- */

/* Each `require` asks %INC first. If @INC is not what it was, modules that were loaded ahead, and that the program has not asked
   for yet, may be found elsewhere now: then all of these are forgotten, and perl loads what it finds. */
static char *loaded_ahead; /* "\nA.pm\nB.pm\n"; of a module that was asked for a blank is in place of its first letter */
static char *looked_in;    /* @INC as it was, a line each */

/* perlfunc(1), require: code in @INC finds modules by rules of its own. */
static int is_code(const void *scalar) {
    enum { SVF_ROK = 0x800 };
    return (((const struct scalar *)scalar)->flags & SVF_ROK) != 0;
}

static char *entry_of(void *perl, void *list, long at) {
    void **entry = CALL(perl, function("Perl_av_fetch"), list, at, 0);
    size_t length;
    if (!entry || is_code(*entry))
        return NULL;
    return CALL(perl, function("Perl_sv_2pv_flags"), *entry, &length, 0);
}

static long entries_of(void *perl, void *list) {
    return (int)(intptr_t)CALL(perl, function("Perl_av_len"), list) + 1;
}

/* @INC, a line each. */
static char *lines_of_inc(void *perl, void *list) {
    char *lines = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&lines, &length);
    for (long at = 0; to && at < entries_of(perl, list); at++) {
        const char *entry = entry_of(perl, list, at);
        fprintf(to, "%s\n", entry ? entry : "");
    }
    if (!to || fclose(to) != 0)
        _Exit(127);
    return lines;
}

static int is_as_it_was(void *perl, void *list) {
    const char *line = looked_in;
    for (long at = 0; at < entries_of(perl, list); at++) {
        const char *entry = entry_of(perl, list, at);
        size_t length = strlen(entry ? entry : "");
        if (strncmp(line, entry ? entry : "", length) != 0 || line[length] != '\n')
            return 0;
        line += length + 1;
    }
    return !*line;
}

/* Whether the module is found where it was loaded from. */
static int is_in_place(void *perl, void *list, const char *name) {
    char path[4096];
    size_t length;
    struct stat about;
    void **loaded = CALL(perl, function("Perl_hv_common_key_len"), hash_of(perl, "INC"), name, (int)strlen(name), HV_FETCH_JUST_SV, NULL, 0);
    const char *from = loaded ? CALL(perl, function("Perl_sv_2pv_flags"), *loaded, &length, 0) : NULL;
    for (long at = 0; from && at < entries_of(perl, list); at++) {
        const char *entry = entry_of(perl, list, at);
        if (!entry)
            return 0;
        snprintf(path, sizeof path, "%s/%s", entry, name);
        if (stat(path, &about) == 0 && !S_ISDIR(about.st_mode) && !S_ISBLK(about.st_mode))
            return strcmp(path, from) == 0;
    }
    return 0;
}

/* All that were not asked for, where one of them is not in its place. */
static void forget_misplaced(void *perl, void *list) {
    enum { HOW = 0x40 /* HV_DELETE */ | 0x02 /* G_DISCARD */ };
    char *names = strdup(loaded_ahead), *rest = names, *name;
    int misplaced = 0;
    while (names && !misplaced && (name = strsep(&rest, "\n")))
        misplaced = *name && *name != ' ' && !is_in_place(perl, list, name);
    free(names);
    for (rest = loaded_ahead; misplaced && (name = strsep(&rest, "\n"));)
        if (*name && *name != ' ')
            CALL(perl, function("Perl_hv_common_key_len"), hash_of(perl, "INC"), name, (int)strlen(name), HOW, NULL, 0);
    if (misplaced)
        *loaded_ahead = 0;
}

static void require_with(void *perl, intptr_t action, void *hash) {
    static int is_asking;
    struct magic *magic = ((struct magic *(*)(const void *, int))function("Perl_mg_find"))(hash, MAGIC_UVAR);
    size_t length;
    char line[300], *at;
    if (is_asking || !magic || !magic->object || action & WRITES || !*loaded_ahead)
        return;
    const char *name = CALL(perl, function("Perl_sv_2pv_flags"), magic->object, &length, 0);
    if (length > sizeof line - 3 || snprintf(line, sizeof line, "\n%s\n", name) < 3 || !(at = strstr(loaded_ahead, line)))
        return;
    is_asking = 1;
    void *list = CALL(perl, function("Perl_get_av"), "INC", GV_ADD);
    if (!is_as_it_was(perl, list)) {
        forget_misplaced(perl, list);
        free(looked_in);
        looked_in = lines_of_inc(perl, list);
    }
    if (*loaded_ahead)
        at[1] = ' ';
    is_asking = 0;
}

static int32_t require_plain(intptr_t action, void *hash) {
    require_with(NULL, action, hash);
    return 0;
}

static int32_t require_threaded(void *perl, intptr_t action, void *hash) {
    require_with(perl, action, hash);
    return 0;
}

/* GALGO_REPORT: the modules that were loaded ahead, one a line. */
GALGO_EXPORT void galgo_perl_guard(void *perl, void *cv) {
    (void)cv;
    const char *names = getenv("GALGO_REPORT");
    if (!names || !(loaded_ahead = malloc(strlen(names) + 2)))
        _Exit(127);
    sprintf(loaded_ahead, "\n%s", names);
    looked_in = lines_of_inc(perl, CALL(perl, function("Perl_get_av"), "INC", GV_ADD));
    struct functions reads = {is_plain() ? (void *)require_plain : (void *)require_threaded, NULL, 0};
    void *hash = hash_of(perl, "INC");
    CALL(perl, function("Perl_sv_magic"), hash, NULL, MAGIC_UVAR, &reads, (int)sizeof reads);
    ((struct scalar *)hash)->flags &= ~(uint32_t)SVS_RMG;
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
