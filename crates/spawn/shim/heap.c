/* The template's heap, arranged for its children. */
#define _GNU_SOURCE
#include "galgo.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

/* struct mallinfo2 of <malloc.h>, from glibc 2.33 on. */
struct heap { size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost; };

/* All free pieces of at least `size` bytes below `top`. */
static size_t take(size_t size, const char *top, size_t most) {
    size_t taken = 0;
    while (taken < most) {
        char *piece = malloc(size);
        if (piece && piece < top) {
            taken += size; /* for good */
            continue;
        }
        free(piece);
        break;
    }
    return taken;
}

void galgo_take_free(void) {
    struct heap (*about)(void) = (struct heap (*)(void))dlsym(RTLD_DEFAULT, "mallinfo2");
    if (!about)
        return;
    struct heap heap = about();
    void *volatile piece = malloc(4096);
    size_t grown = about().uordblks - heap.uordblks;
    free(piece);
    /* The program may bring a malloc() of its own, or another library than C's: their heap is not known. */
    if (grown < 4096)
        return;
    heap = about();
    size_t left = heap.arena; /* some are counted as used: those that a thread keeps at hand */
    const char *top = (const char *)sbrk(0) - heap.keepcost;
    for (size_t size = 64 << 10; size >= 24 && left; size -= size > 1032 ? size / 2 : 16) {
        size_t taken = take(size, top, left);
        left -= taken < left ? taken : left;
    }
}
