/* Python's objects in large pages. The interpreter takes memory for them in arenas of 256 KiB or 1 MiB, each mapped
 * where there is room. Here they are cut from blocks that pages.c can make large pages of.
 */
#define _GNU_SOURCE
#include "python.h"
#include "galgo.h"

#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>

static char *rest, *end; /* of the block that the next arena is cut from */

static void *arena(void *context, size_t size) {
    (void)context;
    if ((size_t)(end - rest) < size) {
        /* An arena that is larger than a block is a block. */
        size_t length = size > GALGO_LARGE ? size : GALGO_LARGE;
        char *block = galgo_aligned(length);
        if (!block)
            return NULL;
        rest = block;
        end = block + length;
    }
    rest += size;
    return rest - size;
}

static void arena_back(void *context, void *at, size_t size) {
    (void)context;
    munmap(at, size);
}

/* As PyObjectArenaAllocator; to be told before the interpreter begins. */
void python_arenas(void) {
    struct { void *context, *(*take)(void *, size_t); void (*give)(void *, void *, size_t); } ours = {NULL, arena, arena_back};
    void (*set)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "PyObject_SetArenaAllocator");
    if (set)
        set(&ours);
}
