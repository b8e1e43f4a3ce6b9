/* The heap that a child shares with its template. free(3) writes into the piece that it is given, and
 * malloc(3) into a free one that lies among the template's: each time a page is copied. A child leaves
 * its template's pieces alone, and what it takes for itself lies together.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uintptr_t bottom; /* of the heap, where this library was initialised */
static size_t settled;   /* bytes from there on that are the template's; 0 in every other process */

typedef void free_fn(void *);
typedef void *realloc_fn(void *, size_t);
static free_fn *next_free;
static realloc_fn *next_realloc;

/* Behind this library may stand another allocator than the C library's. */
static void find_next(void) {
    next_realloc = (realloc_fn *)dlsym(RTLD_NEXT, "realloc");
    next_free = (free_fn *)dlsym(RTLD_NEXT, "free");
}

static int is_settled(const void *piece) {
    return (uintptr_t)piece - bottom < settled;
}

GALGO_EXPORT void free(void *piece) {
    if (!piece || is_settled(piece))
        return;
    if (!next_free)
        find_next();
    next_free(piece);
}

GALGO_EXPORT void *realloc(void *piece, size_t size) {
    if (!next_realloc)
        find_next();
    if (!piece || !size || !is_settled(piece))
        return next_realloc(piece, size);
    size_t has = malloc_usable_size(piece);
    if (size <= has)
        return piece;
    void *larger = malloc(size);
    return larger ? memcpy(larger, piece, has) : NULL;
}

__attribute__((constructor)) static void begin(void) {
    find_next();
    bottom = (uintptr_t)sbrk(0);
}

/* Holds every free piece below the end of the heap. A larger one that is left of those that were
   held is found by one of the sizes below. */
static void hold_free_pieces(void) {
    enum { LARGEST = 1 << 20, SMALL = 1024, GRAIN = 2 * sizeof(size_t) };
    for (size_t size = LARGEST; size > GRAIN; size -= size > SMALL ? size / 8 : GRAIN) {
        struct mallinfo2 heap = mallinfo2();
        uintptr_t top = (uintptr_t)sbrk(0) - heap.keepcost;
        if (size > heap.fordblks - heap.keepcost && size > SMALL)
            continue;
        for (;;) {
            void *piece = malloc(size - sizeof(size_t));
            if (!piece)
                return;
            if ((uintptr_t)piece >= top || (uintptr_t)piece < bottom) {
                next_free(piece);
                break;
            }
        }
    }
}

void galgo_settle(void) {
    hold_free_pieces();
    void *last = malloc(1); /* the first that is not the template's */
    settled = (uintptr_t)last > bottom ? (uintptr_t)last - bottom : 0;
}
