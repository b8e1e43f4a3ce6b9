/* What is asked of the environment while a program is loaded, when no request's variables are in it: the
 * program would be another one than it is cold. A variable that is the same for all requests is there.
 * Of those asked for by name only the ones matter that a request sets. Who goes through `environ` may look
 * for any of them.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

static char early[512]; /* what was done first; of what was read by name, all: "reads HTTP_HOST, QUERY_STRING" */
static int by_name; /* it was read by name */
static const char READS[] = "reads ";
static int stopped;
static const char *allowed; /* may be asked for once */

/* ---- as a whole ---- */

/* While it is watched, `environ` is a copy in pages of its own: whether they were read the kernel knows
   (proc(5), smaps; CONFIG_PROC_PAGE_MONITOR). */
static char **original, **copy;
static size_t copy_size;

static int is_read(void) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[512];
    unsigned long from, to, kib = 0;
    int here = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from == (unsigned long)copy;
        else if (here && sscanf(line, "Referenced: %lu", &kib) == 1)
            break;
    if (maps)
        fclose(maps);
    return kib > 0;
}

/* Pages of other kinds on both sides: the kernel counts what it has joined as one. */
static char **between_guards(size_t size, size_t page) {
    char *all = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || mprotect(all + page, size, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    return (char **)(all + page);
}

static int watched(void) {
    return original && environ == copy;
}

void galgo_watch(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = sizeof *environ;
    if (!environ || stopped || watched() || early[0])
        return;
    for (char **variable = environ; *variable; variable++)
        size += sizeof *environ;
    size = (size + page - 1) / page * page;
    if (size > copy_size) { /* more than before: the old pages stay, somebody may know them */
        copy = between_guards(size, page);
        copy_size = copy ? size : 0;
    }
    if (!copy)
        return;
    char **from = environ, **to = copy;
    while ((*to++ = *from++))
        ;
    /* The kernel forgets which of these pages were used (Linux 5.4). Where it cannot, nobody watches. A page that it leaves out
       seems to be read, and the program stays cold. */
    if (madvise(copy, copy_size, MADV_COLD) != 0)
        return;
    original = environ;
    environ = copy;
}

/* Puts the environment itself in place of the copy; whether it was there. */
static int unwatch(void) {
    if (!watched())
        return 0;
    if (is_read() && !early[0])
        galgo_asked(NULL);
    environ = original;
    return 1;
}

const char *galgo_early(void) {
    static char words[4 * sizeof early + 256];
    unwatch();
    if (!early[0])
        return NULL;
    int length = snprintf(words, sizeof words, "%s while loading, when there is no request yet: leave that until the "
                          "program runs, or keep it cold", early);
    if (!by_name)
        return words;
    length += sprintf(words + length, "; where it makes no difference then, load_env = { ");
    for (const char *name = early + strlen(READS); name;) {
        const char *end = strchr(name, ',');
        int named = end ? (int)(end - name) : (int)strlen(name);
        length += sprintf(words + length, "%.*s = \"\"%s", named, name, end ? ", " : "");
        name = end ? end + strlen(", ") : NULL;
    }
    sprintf(words + length, " } in the route says so");
    return words;
}

/* ---- by name ---- */

static const char *const REQUEST[] = {
    "AUTH_TYPE", "CONTENT_LENGTH", "CONTENT_TYPE", "DOCUMENT_ROOT", "HTTPS", "PATH_INFO", "PATH_TRANSLATED",
    "QUERY_STRING", "REDIRECT_URL", "REMOTE_ADDR", "REMOTE_HOST", "REMOTE_IDENT", "REMOTE_PORT", "REMOTE_USER",
    "REQUEST_METHOD", "REQUEST_SCHEME", "REQUEST_URI", "SCRIPT_FILENAME", "SCRIPT_NAME", "SERVER_ADDR",
    "SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL", "SSL_CIPHER", "SSL_CLIENT_I_DN", "SSL_CLIENT_M_SERIAL",
    "SSL_CLIENT_S_DN", "SSL_CLIENT_S_DN_CN", "SSL_CLIENT_VERIFY", "SSL_CLIENT_V_END", "SSL_CLIENT_V_START",
    "SSL_PROTOCOL", "SSL_SERVER_NAME", "UNIQUE_ID",
};

static char *value_of(char **variables, const char *name) {
    size_t length = strlen(name);
    for (; variables && *variables; variables++)
        if (strncmp(*variables, name, length) == 0 && (*variables)[length] == '=')
            return *variables + length + 1;
    return NULL;
}

void galgo_allow_early(const char *name) {
    allowed = name;
}

/* Adds a variable to those that were read by name, once. */
static void add(const char *name) {
    size_t length = strlen(early), named = strlen(name);
    for (const char *at = early; by_name && (at = strstr(at, name)); at += named)
        if (at[-1] == ' ' && (!at[named] || at[named] == ','))
            return;
    if (named < sizeof early - length - sizeof READS)
        snprintf(early + length, sizeof early - length, "%s%s", by_name ? ", " : READS, name);
    by_name = early[0] != 0;
}

void galgo_asked(const char *name) {
    if (name && allowed && strcmp(name, allowed) == 0) {
        allowed = NULL;
        return;
    }
    if (!name && !early[0])
        strcpy(early, "reads its whole environment");
    if (!name)
        return;
    int of_request = strncmp(name, "HTTP_", 5) == 0 && strcmp(name, "HTTP_PROXY") != 0;
    for (size_t i = 0; i < sizeof REQUEST / sizeof *REQUEST; i++)
        of_request |= strcmp(name, REQUEST[i]) == 0;
    if (of_request && (!early[0] || by_name) && !value_of(watched() ? original : environ, name))
        add(name);
}

void galgo_forks_early(void) {
    if (watched() && !early[0])
        strcpy(early, "starts a process");
}

/* ---- what the C library offers ---- */

static char *(*next_getenv)(const char *), *(*next_secure_getenv)(const char *);
static int (*next_setenv)(const char *, const char *, int), (*next_unsetenv)(const char *), (*next_putenv)(char *);
static int (*next_clearenv)(void);

static void find_next(void) {
    static const struct { void *at; const char *name; } names[] = {
        {&next_getenv, "getenv"}, {&next_secure_getenv, "secure_getenv"}, {&next_setenv, "setenv"},
        {&next_unsetenv, "unsetenv"}, {&next_putenv, "putenv"}, {&next_clearenv, "clearenv"},
    };
    for (size_t i = 0; !next_clearenv && i < sizeof names / sizeof *names; i++)
        *(void **)names[i].at = dlsym(RTLD_NEXT, names[i].name);
}

__attribute__((constructor)) static void begin(void) {
    find_next();
}

static char *asked(char *(**next)(const char *), const char *name) {
    if (!stopped)
        galgo_asked(name);
    if (watched())
        return value_of(original, name);
    find_next();
    return (*next)(name);
}

GALGO_EXPORT char *getenv(const char *name) {
    return asked(&next_getenv, name);
}

GALGO_EXPORT char *secure_getenv(const char *name) {
    return asked(&next_secure_getenv, name);
}

/* The C library goes through all of it to change one; and a child has none of the changes. */
static void changed(void) {
    find_next();
    if (unwatch() && !early[0])
        strcpy(early, "changes its environment");
}

GALGO_EXPORT int setenv(const char *name, const char *value, int replace) {
    changed();
    return next_setenv(name, value, replace);
}

GALGO_EXPORT int unsetenv(const char *name) {
    changed();
    return next_unsetenv(name);
}

GALGO_EXPORT int putenv(char *variable) {
    changed();
    return next_putenv(variable);
}

GALGO_EXPORT int clearenv(void) {
    changed();
    return next_clearenv();
}

/* Called by the first library that is initialised behind the C library (crti.o), before its constructors
   and those of all others; ours come after theirs. It is there for gprof(1), whose programs have their own. */
GALGO_EXPORT void __gmon_start__(void) {
    static int called;
    if (environ && !called++ && galgo_is_linked())
        galgo_watch();
}

void galgo_no_longer_early(void) {
    unwatch();
    stopped = 1;
}
