/* Libraries as few mappings. A fork copies each mapping of a process, and each page of those that have pages of its own; an
 * end takes them apart. A process with many libraries has four or five mappings for each: headers, code, constants, what the
 * linker wrote (RELRO), what can be written.
 *
 * Here all of a small library that is only read is one mapping, of a sealed memory file: a fork copies nothing of it. It has the
 * rights of the code. Of a large library headers, code and constants are one, as linkers had it until 2018. What can be
 * written stays apart, and nothing can be both written and executed.
 *
 * A policy (SELinux) may have none of it: then all stays as it is.
 */
#define _GNU_SOURCE
#include "galgo.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x10
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    PARTS = 2048,
    SMALL = 512 << 10, /* a library of up to so much is copied */
    MOST = 16 << 20,   /* of all libraries: each template has these copies to itself */
    LARGE = 2 << 20,   /* a page of the processor */
};

static int is_of_file(const struct galgo_mapping *it) {
    return it->inode != 0;
}

static int is(const struct galgo_mapping *it, const char *rights) {
    return strcmp(it->rights, rights) == 0;
}

/* ---- large ones ---- */

/* Whether the second begins where the first ends, in memory and in their file. */
static int go_on(const struct galgo_mapping *first, const struct galgo_mapping *second) {
    return first->inode == second->inode && first->to == second->from &&
        first->offset + (first->to - first->from) == second->offset;
}

/* With the rights of the code the parts beside it are one with it to the kernel. */
static void join(const struct galgo_mapping *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct galgo_mapping *it = &list[i];
        int before = i > 0 && is(it - 1, "r-xp") && go_on(it - 1, it);
        int behind = i + 1 < count && is(it + 1, "r-xp") && go_on(it, it + 1);
        if (is(it, "r--p") && (before || behind))
            mprotect((void *)it->from, it->to - it->from, PROT_READ | PROT_EXEC);
    }
}

/* ---- small ones ---- */

/* What of a library is only read, and where it lies among the copies. */
struct library { uintptr_t from, to; size_t at; };

static size_t length_of(const struct library *it) {
    return it->to - it->from;
}

/* The library that begins with the first part of the list: how many parts of it are only read, and none of them is
   missing between. */
static size_t only_read(const struct galgo_mapping *list, size_t count, int *has_code) {
    size_t found = 0;
    *has_code = 0;
    for (; found < count && (is(&list[found], "r--p") || is(&list[found], "r-xp")); found++) {
        const struct galgo_mapping *it = &list[found];
        if (found > 0 && (it->inode != list->inode || it->from != it[-1].to))
            break;
        *has_code |= it->rights[2] == 'x';
    }
    return found;
}

/* Those to be copied, and how many bytes they have. */
static size_t choose(const struct galgo_mapping *list, size_t count, struct library *chosen, size_t *libraries) {
    size_t total = 0, has = 0;
    for (size_t i = 0; i < count;) {
        int has_code;
        size_t found = only_read(&list[i], count - i, &has_code);
        struct library it = {list[i].from, found ? list[i + found - 1].to : 0, total};
        if (found > 1 && has_code && length_of(&it) <= SMALL && total + length_of(&it) <= MOST) {
            total += length_of(&it);
            chosen[has++] = it;
        }
        i += found ? found : 1;
    }
    *libraries = has;
    return total;
}

/* A file in memory with the copies, which nobody can write to any more, as one mapping with the rights of code. */
static char *copy(const struct library *libraries, size_t count, size_t size) {
    struct rlimit files;
    /* Above that limit a signal would end this process. */
    int file = getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur >= size ? 0 : -1;
    if (file == 0 && (file = memfd_create("libraries", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC)) < 0)
        file = memfd_create("libraries", MFD_CLOEXEC | MFD_ALLOW_SEALING); /* before Linux 6.3 */
    if (file < 0)
        return MAP_FAILED;
    char *all = ftruncate(file, (off_t)size) == 0 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (all != MAP_FAILED) {
        for (size_t i = 0; i < count; i++)
            memcpy(all + libraries[i].at, (const void *)libraries[i].from, length_of(&libraries[i]));
        madvise(all, size, MADV_COLLAPSE);
        munmap(all, size);
        all = MAP_FAILED;
        if (fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
            all = mmap(NULL, size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_POPULATE, file, 0);
    }
    close(file);
    return all;
}

/* Each copy takes the place of what it is a copy of, at once: this code may be in it. */
static void move(const struct galgo_mapping *list, size_t count) {
    static struct library libraries[PARTS];
    size_t has, total = choose(list, count, libraries, &has), size = (total + LARGE - 1) & -(size_t)LARGE;
    char *all = total ? copy(libraries, has, size) : MAP_FAILED;
    if (all == MAP_FAILED)
        return;
    for (size_t i = 0; i < has; i++) {
        size_t length = length_of(&libraries[i]);
        mremap(all + libraries[i].at, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)libraries[i].from);
    }
    if (size > total)
        munmap(all + total, size - total);
}

/* The server watches the files that it sees mapped; of a copied library without anything that can be written, it sees
   none. One that was replaced meanwhile is told by the name that it had. */
static void tell_files(void) {
    static const char GONE[] = " (deleted)";
    static char line[4400], last[4400];
    struct stat about;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *name = strchr(line, '/'), *end = name ? strchr(name, '\n') : NULL;
        if (!end || strcmp(name, last) == 0)
            continue;
        strcpy(last, name);
        *end = 0;
        if (end - name > (ptrdiff_t)strlen(GONE) && strcmp(end - strlen(GONE), GONE) == 0)
            *(end -= strlen(GONE)) = 0;
        if (stat(name, &about) != 0 || !S_ISREG(about.st_mode))
            continue;
        strcpy(end, "\n");
        galgo_tell(GALGO_FILES, name);
    }
    if (file)
        fclose(file);
}

void galgo_join_libraries(void) {
    static struct galgo_mapping list[PARTS];
    tell_files();
    move(list, galgo_mappings(list, PARTS, is_of_file));
    join(list, galgo_mappings(list, PARTS, is_of_file));
}
