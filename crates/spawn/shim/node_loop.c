/* The descriptors of Node's event loops. */
#define _GNU_SOURCE
#include "galgo.h"
#include "node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What event loops are made of. In a child, libuv makes those anew that it knows of; the others
   belong to threads that do not exist there. Nothing may reach the template through them, and their
   numbers must not become somebody else's. */
enum { LOOPS = 64 };
struct part { int fd; ino_t pipe; };
static struct part parts[LOOPS];
static uint32_t parts_count;

static ino_t pipe_of(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) ? status.st_ino : 0;
}

static int is_file(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

uint32_t galgo_node_parts(void) {
    parts_count = 0;
    DIR *fds = opendir("/proc/self/fd");
    for (struct dirent *entry; fds && (entry = readdir(fds));) {
        int fd = atoi(entry->d_name);
        if (fd > GALGO_SOURCE && fd != dirfd(fds) && parts_count < LOOPS)
            parts[parts_count++] = (struct part){fd, pipe_of(fd)};
    }
    if (fds)
        closedir(fds);
    return parts_count;
}

void galgo_node_replace_parts(void) {
    int mine = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    for (uint32_t i = 0; i < parts_count; i++)
        /* libuv's fork handler has made the pipe that is its lock anew, under the same numbers; files the child has opened. */
        if (!is_file(parts[i].fd) && pipe_of(parts[i].fd) == parts[i].pipe)
            dup3(mine, parts[i].fd, O_CLOEXEC);
    close(mine);
}

/* The memory of an io_uring is shared with children. libuv does without where there is none. */
GALGO_EXPORT long syscall(long number, ...) {
    if (galgo_node_ours && !galgo_node_child && number == SYS_io_uring_setup) {
        errno = ENOSYS;
        return -1;
    }
    va_list list;
    va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    return GALGO_NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
