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

static uintptr_t bottom; /* of the heap, when this library was initialised; what is below is left as it is */
static size_t settled;   /* bytes from there on that are the template's; 0 before it has stopped */

typedef void free_fn(void *);
typedef void *realloc_fn(void *, size_t);
static free_fn *next_free;
static realloc_fn *next_realloc;

/* Behind this library may stand another allocator than the C library's. dlsym(3) itself frees the words of an earlier
   failure: those stay. */
static void find_next(void) {
    static int finding;
    if (finding++)
        return;
    next_free = (free_fn *)dlsym(RTLD_NEXT, "free");
    next_realloc = (realloc_fn *)dlsym(RTLD_NEXT, "realloc");
}

static int is_settled(const void *piece) {
    return (uintptr_t)piece - bottom < settled;
}

GALGO_EXPORT void free(void *piece) {
    if (!piece || is_settled(piece))
        return;
    if (!next_free)
        find_next();
    if (next_free)
        next_free(piece);
}

/* One that is too small is left where it is, and its content copied. */
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
    bottom = (uintptr_t)sbrk(0);
}

/* Where the pieces begin that no earlier one has: the first that makes the heap grow is cut from its end.
   Earlier ones fill large gaps, and are kept. 0 where the heap does not grow in one piece. */
static uintptr_t end_of_pieces(void) {
    enum { LARGE = 120 << 10, MOST = 4096 }; /* LARGE: the C library maps what has 128 KiB or more */
    for (int i = 0; i < MOST; i++) {
        uintptr_t before = (uintptr_t)sbrk(0);
        void *piece = malloc(LARGE);
        uintptr_t at = (uintptr_t)piece, after = (uintptr_t)sbrk(0);
        if (at < bottom || at >= after) {
            free(piece);
            return 0;
        }
        if (after > before) {
            free(piece);
            return at;
        }
    }
    return 0;
}

/* Takes every free piece below `end`. What is left of one that is larger is found by a smaller size. */
static void take_free_pieces(uintptr_t end) {
    enum { LARGEST = 64 << 10, SMALL = 1024, GRAIN = 2 * sizeof(size_t) };
    for (size_t size = LARGEST; size > GRAIN; size -= size > SMALL ? size / 16 : GRAIN) {
        void *piece;
        do
            piece = malloc(size - sizeof(size_t));
        while ((uintptr_t)piece >= bottom && (uintptr_t)piece < end);
        free(piece);
    }
}

void galgo_settle(void) {
    uintptr_t end = end_of_pieces();
    if (!end)
        return;
    take_free_pieces(end);
    settled = end - bottom;
}
