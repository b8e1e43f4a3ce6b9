/* Scripts that are compiled ahead: as the first request of a process that stays would compile them, without running any. They
 * lie in what opcache would share between processes. Here that is private (php.c): each child has its own copy of the
 * template's, and opcache asks the file system about each script before it uses what was compiled.
 */
#define _GNU_SOURCE
#include "galgo.h"
#include "php.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    INCLUDE = 2,            /* ZEND_INCLUDE */
    ANYONE = 7, NOW = 16,   /* ZEND_INI_ALL, ZEND_INI_STAGE_RUNTIME */
    FATAL = 1 | 4 | 16 | 64 | 256 | 4096,
    ASSUMED = 8 << 20,      /* opcache's memory at least, bytes */
    SHARE = 32,             /* so much larger it is than the sources that are compiled ahead: code takes some ten times their room */
};

/* zend_compile.h and others */
OF_PHP void zend_interned_strings_activate(void), zend_interned_strings_deactivate(void), zend_interned_strings_switch_storage(char);
OF_PHP void zend_activate(void), zend_deactivate(void), zend_clear_exception(void), _zend_bailout(const char *, uint32_t);
OF_PHP void destroy_op_array(void *), _efree(void *), shutdown_memory_manager(char, char), realpath_cache_clean(void);
OF_PHP void *compile_filename(int, struct text *);
OF_PHP struct text *zend_strpprintf(size_t, const char *, ...);
OF_PHP int zend_alter_ini_entry_chars(struct text *, const char *, size_t, int, int);
OF_PHP void (*zend_error_cb)(int, struct text *, uint32_t, struct text *);
OF_PHP int php_hash_environment(void);
OF_PHP void (*php_import_environment_variables)(struct value *);
OF_PHP int is_zend_mm(void);
OF_PHP void *zend_mm_get_heap(void);
OF_PHP size_t zend_memory_usage(int);

static int compiles(void) {
    return zend_interned_strings_activate && zend_interned_strings_deactivate && zend_interned_strings_switch_storage && zend_activate &&
           zend_deactivate && zend_clear_exception && _zend_bailout && destroy_op_array && _efree && shutdown_memory_manager &&
           realpath_cache_clean && compile_filename && zend_strpprintf && zend_alter_ini_entry_chars && &zend_error_cb &&
           php_hash_environment && &php_import_environment_variables && is_zend_mm && zend_mm_get_heap && zend_memory_usage;
}

static struct module *opcache(void) {
    static const char NAME[] = "Zend OPcache";
    const struct entry *entries = module_registry.data;
    for (uint32_t i = 0; i < module_registry.used; i++) {
        struct module *module = entries[i].value.is.other;
        if (entries[i].value.type && strcmp(module->name, NAME) == 0)
            return module;
    }
    return NULL;
}

static int able; /* to compile ahead */

/* Whoever has switched opcache off, or has it not look at the files, gets what he asked for; and what it keeps in files others
   may have written. */
static int is_able(void) {
    return compiles() && opcache() && php_number("opcache.enable") && php_number("opcache.validate_timestamps") &&
           !php_number("opcache.file_cache_only") && !*php_text("opcache.file_cache");
}

/* A moment ago: what is compiled now each child asks the file system about. */
static int moment_ago(double *seconds) {
    *seconds = (double)time(NULL) - 1;
    return 0;
}

/* What a script's compiling says each request is to hear: opcache keeps it. */
static void complains(int type, struct text *file, uint32_t line, struct text *words) {
    (void)file, (void)line, (void)words;
    if (type & FATAL)
        _zend_bailout("", 0);
}

/* A script that has $_ENV or $_SERVER has it made when it is compiled: here of nothing. */
static void imports(struct value *variables) {
    (void)variables;
}

static void set(const char *name, const char *value) {
    zend_alter_ini_entry_chars(zend_strpprintf(0, "%s", name), value, strlen(value), ANYONE, NOW);
}

static int compile(struct module *opcache, const char *script) {
    sigjmp_buf frame;
    volatile int compiled = 0;
    zend_interned_strings_activate();
    zend_activate();
    executor_globals.bailout = &frame;
    if (sigsetjmp(frame, 0) == 0) {
        php_hash_environment();
        opcache->begins(opcache->type, opcache->number);
        set("opcache.revalidate_freq", "0");
        set("opcache.record_warnings", "1");
        void *code = compile_filename(INCLUDE, zend_strpprintf(0, "%s", script));
        if (code) {
            destroy_op_array(code);
            _efree(code);
            compiled = 1;
        }
        zend_clear_exception();
    }
    executor_globals.bailout = NULL;
    zend_deactivate();
    if (opcache->ended)
        opcache->ended();
    zend_interned_strings_deactivate();
    shutdown_memory_manager(1, 0);
    return compiled;
}

/* Settings that a folder or an authorizer may have otherwise, and that a script is compiled by or looked at by. */
static const char *const SETTINGS[] = {
    "short_open_tag", "zend.multibyte", "zend.script_encoding", "zend.detect_unicode", "precision", "opcache.validate_timestamps",
};
enum { COUNT = sizeof SETTINGS / sizeof *SETTINGS };
static char *settings[COUNT]; /* that the scripts were compiled by; none where none was */

static void note_settings(int compiled) {
    for (int i = 0; i < COUNT && compiled; i++)
        settings[i] = strdup(php_text(SETTINGS[i]));
}

/* Of a regular file, not 0; 0 where it is none, or larger. One that begins with `#!` is compiled otherwise where it is the request's script than where it is
   included: that counts as none. */
static int size_of(const char *path, off_t most) {
    char first[2];
    struct stat about;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int is = file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= most &&
             !(read(file, first, 2) == 2 && memcmp(first, "#!", 2) == 0);
    if (file >= 0)
        close(file);
    return is ? (int)about.st_size + 1 : 0;
}

/* Each of the `scripts` that is a regular file, until opcache has as much as leaves a request most of its memory. */
static void compile_each(struct module *opcache, const char *scripts, char *done, size_t room) {
    char script[4096];
    off_t most = (off_t)php_number("opcache.memory_consumption") << 20;
    most = (most > ASSUMED ? most : ASSUMED) / SHARE;
    for (size_t used = 0, length; *scripts; scripts += length + (scripts[length] == '\n')) {
        length = strcspn(scripts, "\n");
        if (!length || length >= sizeof script || used + length + 2 > room)
            continue;
        memcpy(script, scripts, length);
        script[length] = 0;
        int size = size_of(script, most);
        if (!size || !compile(opcache, script))
            continue;
        most -= size;
        memcpy(done + used, script, length);
        used += length;
        done[used++] = '\n';
        done[used] = 0;
    }
}

/* Memory of requests: none of it is in use, and what compiling has left there each child would copy, page by page. PHP's own
   notes are the first page of it, which begins with where they lie (zend_alloc.c). */
static void clear_memory(void) {
    enum { CHUNK = 2 << 20, PAGE = 4096 };
    char *notes = is_zend_mm() ? zend_mm_get_heap() : NULL, *chunk = (char *)((uintptr_t)notes & -(uintptr_t)CHUNK);
    if (notes && zend_memory_usage(0) == 0 && (size_t)(notes - chunk) < PAGE && *(char **)chunk == notes)
        madvise(chunk + PAGE, CHUNK - PAGE, MADV_DONTNEED);
}

/* Where opcache gets and adds classes that it keeps linked, for later requests of a process; since PHP 8.1. */
static void **linked[2];

const char *php_compile_ahead(const char *scripts) {
    static char done[98304];
    able = is_able();
    if (able) {
        linked[0] = dlsym(RTLD_DEFAULT, "zend_inheritance_cache_get");
        linked[1] = dlsym(RTLD_DEFAULT, "zend_inheritance_cache_add");
    }
    if (!able || !*scripts)
        return done;
    int (*request_time)(double *) = sapi_module.request_time;
    void (*complain)(int, struct text *, uint32_t, struct text *) = zend_error_cb;
    void *variables = sapi_module.variables;
    void (*import)(struct value *) = php_import_environment_variables;
    sapi_module.request_time = moment_ago;
    sapi_module.variables = NULL;
    zend_error_cb = complains;
    php_import_environment_variables = imports;
    zend_interned_strings_switch_storage(1);
    compile_each(opcache(), scripts, done, sizeof done);
    zend_interned_strings_switch_storage(0);
    realpath_cache_clean();
    clear_memory();
    php_import_environment_variables = import;
    zend_error_cb = complain;
    sapi_module.variables = variables;
    sapi_module.request_time = request_time;
    note_settings(*done != 0);
    return done;
}

/* ---- children ---- */

static int (*activate)(void), (*deactivate)(void);

/* The settings of this request are known, and opcache has not begun. */
static int activates(void) {
    int result = activate();
    for (int i = 0; i < COUNT; i++)
        if (settings[i] && strcmp(settings[i], php_text(SETTINGS[i])) != 0) {
            set("opcache.enable", "0");
            break;
        }
    return result;
}

/* Scripts of this request, before they are forgotten. */
static void tell(void *any) {
    static char scripts[65536];
    const struct table *included = &executor_globals.included;
    const struct entry *entries = included->data;
    size_t used = 0;
    (void)any;
    executor_globals.included.destructor = NULL;
    for (uint32_t i = 0; i < included->used; i++) {
        const struct text *key = entries[i].value.type ? entries[i].key : NULL;
        if (!key || memchr(key->bytes, '\n', key->length) || used + key->length + 2 > sizeof scripts)
            continue;
        memcpy(scripts + used, key->bytes, key->length);
        used += key->length;
        scripts[used++] = '\n';
    }
    galgo_learned(scripts);
}

/* PHP forgets them by giving back all memory of the request, after this; or one by one, before. */
static int deactivates(void) {
    if (executor_globals.included.destructor == tell)
        tell(NULL);
    return deactivate();
}

void php_compile_begins(void) {
    /* There is no later request in a child: it copies no class, and takes no lock, for one. */
    for (int i = 0; i < 2 && linked[0] && linked[1]; i++)
        *linked[i] = NULL;
    if (settings[0]) {
        activate = sapi_module.activate;
        sapi_module.activate = activates;
    }
}

void php_compile_teaches(void) {
    if (!able)
        return;
    executor_globals.included.destructor = tell;
    deactivate = sapi_module.deactivate;
    sapi_module.deactivate = deactivates;
}
