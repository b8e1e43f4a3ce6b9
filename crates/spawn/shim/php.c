/* PHP: php-cgi stops when its extensions have started, before it looks at a request. No script is loaded ahead: the
 * request names the one that runs, so one template serves all scripts.
 *
 * php-cgi is not changed. PHP exports what is called when the extensions have started: `zend_post_startup_cb`, in which
 * opcache begins, and behind that `deactivate` of its server interface. It stops in the second. Memory that opcache would
 * share with processes to come is private here, so each child has opcache's to itself, as if it were executed. Where
 * opcache would do more then (preloading), it stops ahead of that.
 *
 * A child in doubt executes php-cgi anew, with its request: that is a cold start.
 */
#define _GNU_SOURCE
#include "galgo.h"
#include "php.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;

/* ---- what is known of PHP's inside ---- */

enum { TRIED = 802 }; /* PHP_VERSION_ID / 100 */

OF_PHP int (*zend_stream_open_function)(void *);
OF_PHP long zend_ini_long(const char *, size_t, int);
OF_PHP char *zend_ini_string(const char *, size_t, int);

static int is_php(void) {
    return &sapi_module && &executor_globals && &module_registry && &zend_stream_open_function && zend_ini_long && zend_ini_string;
}

long php_number(const char *name) {
    return zend_ini_long(name, strlen(name), 0);
}

const char *php_text(const char *name) {
    const char *value = zend_ini_string(name, strlen(name), 0);
    return value ? value : "";
}

static const struct value *constant(const char *name) {
    const struct value *(*get)(const char *, size_t) = dlsym(RTLD_DEFAULT, "zend_get_constant_str");
    return get ? get(name, strlen(name)) : NULL;
}

static const char *constant_text(const char *name) {
    const struct value *found = constant(name);
    return found && (found->type & 0xff) == IS_STRING ? found->is.text->bytes : "";
}

/* ---- the end ---- */

static int opened; /* the script */
static int teaches; /* the server is to hear which scripts ran */

/* Only then does php-cgi end with the status that the script left; else with 255. */
static int (*opens)(void *);
static int first_open(void *handle) {
    zend_stream_open_function = opens;
    if (teaches)
        php_compile_teaches();
    int result = opens(handle);
    opened = result == 0;
    return result;
}

/* The request is over, connections that outlive requests are closed, and the first extension is to be taken apart. The
   kernel takes all of it at once: piece by piece a child would copy what it shares with its template. */
static void leave(void *module) {
    (void)module;
    fflush(NULL);
    _exit(opened ? executor_globals.exit_status : 255);
}

/* Without a request when PHP begins to end. */
static void (*flush)(void *);
static void flushes(void *request) {
    flush(request);
    if (!request)
        module_registry.destructor = leave;
}

/* ---- settings ---- */

static char **arguments;
static struct stat ini; /* the php.ini that was loaded; all zero where there was none */
static int own_ini; /* it was found in the working directory */
static int named_ini; /* in the folder that PHPRC names */
static int only_ini; /* PHPRC names itself: no other is looked for */
static char folder[4096]; /* where it was loaded */
static const char *const SETTINGS[] = {"PHPRC", "PHP_INI_SCAN_DIR"};
static char *settings[2];

static int same(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* In both of these the working directory stands before the folders of the system. */
static const char *const LOCAL[] = {"php-cgi-fcgi.ini", "php.ini"};

static void note_settings(void) {
    char **path = dlsym(RTLD_DEFAULT, "php_ini_opened_path");
    struct stat found;
    for (int i = 0; i < 2; i++) {
        const char *value = getenv(SETTINGS[i]);
        settings[i] = value ? strdup(value) : NULL;
    }
    if (!path || !*path || stat(*path, &ini) != 0)
        return;
    for (int i = 0; i < 2; i++)
        own_ini |= stat(LOCAL[i], &found) == 0 && same(&found, &ini);
    named_ini = settings[0] && strncmp(*path, settings[0], strlen(settings[0])) == 0;
    only_ini = named_ini && stat(settings[0], &found) == 0 && same(&found, &ini);
}

/* Whether php-cgi would find other settings, were it executed for this request. */
static int set_otherwise(void) {
    char here[sizeof folder];
    struct stat found;
    for (int i = 0; i < 2; i++) {
        const char *now = getenv(SETTINGS[i]);
        if (!now != !settings[i] || (now && strcmp(now, settings[i]) != 0))
            return 1;
    }
    if (own_ini && (!getcwd(here, sizeof here) || strcmp(here, folder) != 0))
        return 1;
    for (int i = 0; i < 2 && !only_ini; i++)
        if (stat(LOCAL[i], &found) == 0 && !same(&found, &ini) && !(named_ini && i > 0))
            return 1;
    return 0;
}

/* Files and folders that are there, and those that would be read if they were. */
static char found[65536], lacking[16384];

static void note(const char *folder, size_t length, const char *name) {
    char file[4096];
    size_t size = (size_t)snprintf(file, sizeof file, "%.*s%s%s\n", (int)length, folder, *name ? "/" : "", name);
    if (!length || size >= sizeof file)
        return;
    file[size - 1] = 0;
    int there = access(file, F_OK) == 0;
    char *list = there ? found : lacking;
    size_t used = strlen(list), room = (there ? sizeof found : sizeof lacking) - used;
    if (size < room)
        snprintf(list + used, room, "%s\n", file);
}

static void note_each(const char *paths, const char *between) {
    while (paths && *paths) {
        paths += strspn(paths, between);
        size_t length = strcspn(paths, between);
        note(paths, length, "");
        paths += length;
    }
}

/* What the settings came from, with the folders of further settings, where a new file is another setting, and with all
   names that php.ini has. In the working directory each child looks. */
static const char *files(void) {
    char **path = dlsym(RTLD_DEFAULT, "php_ini_opened_path");
    char **scanned = dlsym(RTLD_DEFAULT, "php_ini_scanned_files"), **scans = dlsym(RTLD_DEFAULT, "php_ini_scanned_path");
    const char *slash = strrchr(arguments[0], '/'), *own = constant_text("PHP_CONFIG_FILE_PATH");
    for (int i = 0; i < 2; i++) {
        if (settings[0])
            note(settings[0], strlen(settings[0]), LOCAL[i]);
        note(arguments[0], slash ? (size_t)(slash - arguments[0]) : 0, LOCAL[i]);
        note(own, strlen(own), LOCAL[i]);
    }
    note_each(path ? *path : NULL, "\n");
    note_each(scanned ? *scanned : NULL, ",\n");
    note_each(scans ? *scans : NULL, ":");
    note_each(constant_text("PHP_CONFIG_FILE_SCAN_DIR"), ":"); /* an empty one in the list above */
    note_each(php_text("browscap"), "\n");
    galgo_tell(GALGO_ABSENT, lacking);
    return found;
}

/* ---- extensions ---- */

static int loading = 1;

/* PHP has an extension and its libraries look for names among themselves first, which not every system can
   (RTLD_DEEPBIND). Then the shim would not notice what they do: register handlers for a fork, by which some draw new
   random numbers, or read a variable of a request. */
GALGO_EXPORT void *dlopen(const char *file, int flags) {
    return GALGO_NEXT(dlopen)(file, loading ? flags & ~RTLD_DEEPBIND : flags);
}

/* ---- opcache ---- */

static int privately; /* what is mapped is no process's but this one's */

GALGO_EXPORT void *mmap(void *at, size_t length, int access, int flags, int fd, off_t offset) {
    enum { SHARED = MAP_SHARED | MAP_ANONYMOUS };
    if (privately && (flags & SHARED) == SHARED) {
        /* A child that wrote to pages of this kind might find none left. */
        if (flags & MAP_HUGETLB) {
            errno = ENOMEM;
            return MAP_FAILED;
        }
        flags = (flags & ~MAP_SHARED) | MAP_PRIVATE;
    }
    return (void *)syscall(SYS_mmap, at, length, access, flags, fd, offset);
}

GALGO_EXPORT void *mmap64(void *at, size_t length, int access, int flags, int fd, off_t offset) {
    return mmap(at, length, access, flags, fd, offset);
}

/* Scripts that it runs or reads, and code that it writes. */
static int opcache_does_more(void) {
    static const char *const NAMES[] = {"opcache.preload", "opcache.blacklist_filename", "opcache.preferred_memory_model"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (*php_text(NAMES[i]))
            return 1;
    return php_number("opcache.jit_buffer_size") != 0;
}

/* Its file of locks has no name: children would wait for each other. Each makes its own, at the same number. */
enum { LOCKS = 4 };
static int locks[LOCKS], locks_away;

static void put_locks_away(void) {
    char link[32], path[256];
    DIR *listing = opendir("/proc/self/fd");
    struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        int fd = atoi(entry->d_name);
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        path[length > 0 ? length : 0] = 0;
        if (locks_away < LOCKS && strstr(path, "/.ZendSem.") && strstr(path, " (deleted)"))
            locks[locks_away++] = fd;
    }
    if (listing)
        closedir(listing);
    for (int i = 0; i < locks_away; i++)
        close(locks[i]);
}

/* 0 where there is no room for one. */
static int make_locks(void) {
    for (int i = 0; i < locks_away; i++) {
        int fd = memfd_create(".ZendSem", MFD_CLOEXEC);
        if (fd < 0 || (fd != locks[i] && dup3(fd, locks[i], O_CLOEXEC) < 0))
            return 0;
        if (fd != locks[i])
            close(fd);
    }
    return 1;
}

/* ---- the stop ---- */

static const char *obstacle(void) {
    static char words[256];
    const char *early = galgo_early();
    if (!is_php())
        return "runs under a PHP with which warm starts were never tried";
    const struct value *version = constant("PHP_VERSION_ID");
    if (!version || (version->type & 0xff) != IS_LONG || version->is.number / 100 != TRIED) {
        snprintf(words, sizeof words, "runs under PHP %s, with which warm starts were never tried", constant_text("PHP_VERSION"));
        return words;
    }
    long reports = php_number("error_reporting");
    if (sizeof(struct table) != 56 || (reports && executor_globals.error_reporting != reports) || executor_globals.exit_status != 0)
        return "runs under a PHP that was built otherwise than those with which warm starts were tried";
    if (php_number("apc.enabled"))
        return "shares memory between requests by APCu: apc.enabled = 0 in its php.ini lets it start warm";
    return early;
}

/* A cold start, of this process. */
static void execute(void) {
    char *script = getenv("SCRIPT_FILENAME"), *own[] = {arguments[0], script, NULL};
    char **all = arguments[1] ? arguments : own;
    execve(strchr(all[0], '/') ? all[0] : "/proc/self/exe", all, environ);
    _exit(127);
}

/* php-cgi's own: of its libraries a child runs little. */
enum { OWN_CODE = 4 << 20 };

static void stop(const char *why) {
    if (!getcwd(folder, sizeof folder))
        folder[0] = 0;
    note_settings();
    put_locks_away();
    loading = 0;
    const char *told = is_php() ? files() : NULL;
    galgo_tell(GALGO_SEARCH, "/\n"); /* scripts are named by their paths */
    galgo_settle();
    galgo_gather(OWN_CODE);
    galgo_join_libraries();
    teaches = galgo_stop(told, why) & GALGO_LEARN;
    if (set_otherwise() || !make_locks())
        execute();
    php_compile_begins();
    opens = zend_stream_open_function;
    zend_stream_open_function = first_open;
    flush = sapi_module.flush;
    sapi_module.flush = flushes;
}

static int (*deactivate)(void);
static int deactivates(void) {
    sapi_module.deactivate = deactivate;
    privately = 0;
    int result = deactivate();
    galgo_tell(GALGO_FILES, php_compile_ahead(galgo_modules()));
    stop(galgo_early());
    return result;
}

static int (*before)(void);
static int started(void) {
    if (before && before() != 0)
        return -1;
    const char *why = obstacle();
    if (why || opcache_does_more()) {
        stop(why);
        return 0;
    }
    deactivate = sapi_module.deactivate;
    sapi_module.deactivate = deactivates;
    privately = 1;
    return 0;
}

/* In env(1), too, where that looks for php-cgi. */
__attribute__((constructor)) static void begin(int count, char **given) {
    (void)count;
    int (**callback)(void) = dlsym(RTLD_DEFAULT, "zend_post_startup_cb");
    if (!callback)
        return;
    arguments = given;
    before = *callback;
    *callback = started;
    galgo_allow_early("QUERY_STRING"); /* php-cgi takes no options from it, and was given none */
    galgo_holds();
}
