/* Large pages of the processor. A fork copies an entry for each page that a template has written, a child takes
 * a fault for every sixteen pages of code that it runs, and both go when it ends. Memory that is one folio to the
 * kernel is counted once for all of it, and code in such memory is there when the child begins.
 *
 * Nothing here is needed: before Linux 6.1, or where no large page is free, all stays as it is.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    LARGE = 2 << 20,
    SMALL = 4 << 10,
    CODE_LEAST = 256 << 10, /* less has few faults */
    MAPPINGS = 512,
};

static uintptr_t upwards(uintptr_t at) {
    return (at + LARGE - 1) & -(uintptr_t)LARGE;
}

static size_t length_of(const struct galgo_mapping *it) {
    return it->to - it->from;
}

size_t galgo_mappings(struct galgo_mapping *list, size_t most, int (*is_wanted)(const struct galgo_mapping *)) {
    FILE *file = fopen("/proc/self/maps", "re");
    char line[4400];
    size_t count = 0;
    while (file && count < most && fgets(line, sizeof line, file)) {
        struct galgo_mapping *it = &list[count];
        const char *name = strpbrk(line, "/[");
        it->is_heap = !name || !strncmp(name, "[heap]", 6);
        count += sscanf(line, "%lx-%lx %4s %lx %*s %lu", &it->from, &it->to, it->rights, &it->offset, &it->inode) == 5 && is_wanted(it);
    }
    if (file)
        fclose(file);
    return count;
}

static int is_code(const struct galgo_mapping *it) {
    return it->inode != 0 && strcmp(it->rights, "r-xp") == 0;
}

static int is_data(const struct galgo_mapping *it) {
    return it->is_heap && strcmp(it->rights, "rw-p") == 0;
}

static int is_wanted(const struct galgo_mapping *it) {
    return is_code(it) || is_data(it);
}

/* ---- code ---- */

/* The mappings of code to be copied, first in the list, and how many bytes they have. */
static size_t choose(struct galgo_mapping *list, size_t *count, size_t most) {
    size_t total = 0, chosen = 0;
    for (size_t i = 0; i < *count; i++) {
        size_t length = length_of(&list[i]);
        if (!is_code(&list[i]) || length < CODE_LEAST || total + length > most)
            continue;
        total += length;
        list[chosen++] = list[i];
    }
    *count = chosen;
    return total;
}

/* Puts a copy in large pages in the place of code, with the rights it has: it is never writable there. The copies
   lie one behind the other, so the processor has them as small pages, but a fork has them as one. */
static void move_code(struct galgo_mapping *list, size_t count, size_t most) {
    size_t total = upwards(choose(list, &count, most)), room = total + LARGE;
    char *all = total ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (all == MAP_FAILED)
        return;
    char *copy = (char *)upwards((uintptr_t)all), *at = copy;
    for (size_t i = 0; i < count; at += length_of(&list[i++]))
        memcpy(at, (const void *)list[i].from, length_of(&list[i]));
    at = copy;
    if (madvise(copy, total, MADV_COLLAPSE) == 0)
        for (size_t i = 0; i < count; at += length_of(&list[i++])) {
            size_t length = length_of(&list[i]);
            /* A policy (SELinux, PR_SET_MDWE) may not have it. */
            if (mprotect(at, length, PROT_READ | PROT_EXEC) != 0 ||
                mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)list[i].from) == MAP_FAILED)
                break;
        }
    if (copy > all)
        munmap(all, (size_t)(copy - all));
    if (at < all + room)
        munmap(at, (size_t)(all + room - at));
}

/* ---- data ---- */

/* The last large page of the heap is filled up, where most of it is used. */
static void round_heap(void) {
    uintptr_t end = (uintptr_t)sbrk(0), rest = upwards(end) - end;
    if (rest && rest < LARGE / 2)
        sbrk((intptr_t)rest);
}

/* Whether most of it has been written to. What has not is better new in a child than a copy. */
static int is_used(uintptr_t at) {
    unsigned char resident[LARGE / SMALL] = "";
    size_t used = 0;
    if (mincore((void *)at, LARGE, resident) != 0)
        return 0;
    for (size_t i = 0; i < sizeof resident; i++)
        used += resident[i] & 1;
    return used > sizeof resident / 2;
}

static void collapse_data(const struct galgo_mapping *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!is_data(&list[i]))
            continue;
        for (uintptr_t at = upwards(list[i].from); at + LARGE <= list[i].to; at += LARGE)
            if (is_used(at))
                madvise((void *)at, LARGE, MADV_COLLAPSE);
    }
}

void galgo_gather(size_t code) {
    static struct galgo_mapping list[MAPPINGS];
    round_heap();
    size_t count = galgo_mappings(list, MAPPINGS, is_wanted);
    collapse_data(list, count);
    move_code(list, count, code);
}

/* The heap begins with a large page. What constructors have taken of it stays before that. */
__attribute__((constructor)) static void begin(void) {
    uintptr_t end = (uintptr_t)sbrk(0);
    sbrk((intptr_t)(upwards(end) - end));
}
