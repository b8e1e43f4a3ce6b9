/* What the parts of the shim share: template.c stops, fork.c forks, one file a language says where. */
#ifndef GALGO_H
#define GALGO_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* All else is hidden: a preloaded name stands before the program's own. */
#define GALGO_EXPORT __attribute__((visibility("default")))

/* The function of that name behind this library, where ours stands in front of it. It is looked up once. */
#define GALGO_NEXT(NAME) ({ \
    static __typeof__(NAME) *next; \
    if (!next) \
        next = (__typeof__(next))dlsym(RTLD_NEXT, #NAME); \
    next; \
})

/* The template's end of its socket, the shim itself, and a language's own source: descriptors that a
   template is started with and its children do not have. */
enum { GALGO_CONTROL = 3, GALGO_SHIM = 4, GALGO_SOURCE = 5 };

/* What the child is asked for beside answering: what it loaded, for the next template. */
enum { GALGO_LEARN = 1 };

/* Names of modules that an earlier child was seen to load, one a line; "" for none. The server has checked them. */
const char *galgo_modules(void);

/* Tells the server, a line each: where the program looks for modules (absolute folders, and modules that need no
   file); the learned modules that are left to the children; files that it looked for and did not find; files that
   it was loaded from. Before it stops. */
enum { GALGO_FILES = 'F', GALGO_SEARCH = 'S', GALGO_LEFT = 'L', GALGO_ABSENT = 'A' };
void galgo_tell(char what, const char *lines);

/* From here on nothing of the program itself runs before it stops, however this process ends: told to the server, which
   would not start it again without a request otherwise. */
void galgo_holds(void);

/* The template is at the place where it stops: reports the files it was loaded from, one a line,
   and what stands in the way of using it ("" or NULL: nothing). Returns in children only, one for
   each request, or in a parked process, with that request's `environ`, standard streams and process
   group; the answer holds the GALGO_ bits asked for. */
int galgo_stop(const char *files, const char *obstacle);

/* Whether children are forked. Otherwise this process is *parked*: it takes one request itself. */
extern int galgo_forks;

/* What is on the heap now stays as it is: children do not free it, nor take the free pieces in it. */
void galgo_settle(void);

/* Puts data and so many bytes of code into large pages, where the kernel has some: a fork and an end are cheaper then. Each
   template has them to itself. The last thing before the stop. */
enum { GALGO_CODE = 8 << 20 };
void galgo_gather(size_t code);

/* What is mapped in this process (proc_pid_maps(5)). `is_heap`: memory of no file, for anything. */
struct galgo_mapping { uintptr_t from, to; unsigned long offset, inode; char rights[5]; int is_heap; };

/* Those that are wanted, in the order of addresses, `most` of them. */
size_t galgo_mappings(struct galgo_mapping *list, size_t most, int (*is_wanted)(const struct galgo_mapping *));

/* What is mapped of each library and only read becomes one mapping, for a process with many libraries. */
void galgo_join_libraries(void);

/* Called in each child before it waits for its request, where it is set. */
extern void (*galgo_waits)(void);

/* How a language forks, where the bare call is not enough: 0 in the child. It ends in fork(3). */
extern int (*galgo_fork)(void);

/* The environment of this request as it arrived, "NAME=value" and a NUL for each variable. */
const char *galgo_environment(size_t *length);

/* A learning child, about to end: the modules that the template had not loaded, one a line; less
   than 64 KiB, or nothing is learned. */
void galgo_learned(const char *modules);

/* Puts another command line in place of the program's own, where it is set before main(). */
extern void (*galgo_arguments)(int *argc, char ***argv);

/* What was asked of the environment that a request would have answered, as an obstacle; NULL: nothing. It is
   watched no longer. */
const char *galgo_early(void);

/* From here on it is noticed, too, who goes through `environ`. Names are noticed anyway (early.c). */
void galgo_watch(void);

/* A variable was asked for otherwise than by getenv(3); NULL: all of them. */
void galgo_asked(const char *name);

/* The first time that this is asked for is not counted: it makes no difference. */
void galgo_allow_early(const char *name);

/* A process is started that has a copy of the memory, so that it is not seen here what it reads. */
void galgo_forks_early(void);

/* What is asked from here on a request answers. */
void galgo_no_longer_early(void);

/* Whether this process is to be a template of the given kind. */
int galgo_is(const char *kind);

/* The same of a program that is no script. */
int galgo_is_linked(void);

/* Takes out of the environment what made this process a template: a program that it starts while it is loaded is none. */
void galgo_forget(void);

#endif
