/* What php.c and php_compile.c know of PHP's inside. */
#ifndef PHP_H
#define PHP_H

#include <stddef.h>
#include <stdint.h>

/* zend_types.h */
struct text { uint64_t counted, hash; size_t length; char bytes[]; };
struct value { union { int64_t number; struct text *text; void *other; } is; uint32_t type, more; };
struct entry { struct value value; uint64_t hash; struct text *key; };
struct table {
    uint32_t references, type, flags, mask;
    void *data;
    uint32_t used, count, size, position;
    int64_t next;
    void (*destructor)(void *);
};
enum { IS_LONG = 4, IS_STRING = 6 };

/* SAPI.h, to where it matters. */
struct sapi {
    char *name, *pretty_name;
    int (*startup)(void *), (*shutdown)(void *), (*activate)(void), (*deactivate)(void);
    size_t (*write)(const char *, size_t);
    void (*flush)(void *);
    void *stat, *variable, *error, *header, *headers, *send_header, *post, *cookies, *variables, *log;
    int (*request_time)(double *);
};

/* zend_globals.h, to where it matters. */
struct executor {
    struct value uninitialized, error;
    void *cache[32], **cache_limit, **cache_at;
    struct table symbols, included;
    void *bailout;
    int error_reporting, exit_status;
};

/* zend_modules.h */
struct module {
    unsigned short size;
    unsigned int api;
    unsigned char debug, threads;
    const void *ini, *needs;
    const char *name;
    const void *functions;
    int (*startup)(int, int), (*shutdown)(int, int), (*begins)(int, int), (*ends)(int, int);
    void (*info)(void *);
    const char *version;
    size_t globals_size;
    void *globals;
    void (*make_globals)(void *), (*end_globals)(void *);
    int (*ended)(void);
    int started;
    unsigned char type;
    void *handle;
    int number;
};

/* PHP's own. A program on the way to php-cgi has none of it, and another PHP may lack some. */
#define OF_PHP extern __attribute__((weak, visibility("default")))
OF_PHP struct sapi sapi_module;
OF_PHP struct executor executor_globals;
OF_PHP struct table module_registry;

/* A setting: 0 and "" where there is none. */
long php_number(const char *name);
const char *php_text(const char *name);

/* Compiles scripts, named one a line, into opcache's memory; answers with those that it has compiled, one a line. */
const char *php_compile_ahead(const char *scripts);

/* In a child, before its request begins. */
void php_compile_begins(void);

/* In a child that is to tell which scripts ran, as its first one is opened. */
void php_compile_teaches(void);

#endif
