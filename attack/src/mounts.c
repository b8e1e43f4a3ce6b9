// Prints which calls of an administrator a program may make: those that its filter does not refuse. The query names a file in a read-only mount.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { OPEN_TREE_ATTR = 467, QUOTACTL_FD = 443, NEWTIME = 0x80, CLONE_TREE = 1, READ_ONLY = 1, CLASS_CONTENT = 4, Q_SYNC = 0x800001 };
struct attributes { unsigned long long set, clear, propagation, user; };

static int is_writable(int folder, const char *file) {
    int fd = openat(folder, file, O_WRONLY);
    if (fd >= 0) close(fd);
    return fd >= 0;
}
static void says(const char *what, int is_done) {
    // A kernel without the call refuses it, too.
    if (is_done) printf("%s ", what);
}
int main(void) {
    const char *file = getenv("QUERY_STRING");
    char folder[400];
    snprintf(folder, sizeof folder, "%s", file);
    *strrchr(folder, '/') = 0;
    const char *name = file + strlen(folder) + 1;
    struct attributes writable = {0, READ_ONLY, 0, 0};
    printf("Content-Type: text/plain\n\n");
    says("writable-from-the-beginning", is_writable(AT_FDCWD, file));
    int tree = syscall(OPEN_TREE_ATTR, AT_FDCWD, folder, CLONE_TREE, &writable, sizeof writable);
    says("open_tree_attr(copy)", tree >= 0 && is_writable(tree, name));
    syscall(OPEN_TREE_ATTR, AT_FDCWD, folder, 0, &writable, sizeof writable);
    says("open_tree_attr", is_writable(AT_FDCWD, file));
    says("unshare(time)", unshare(NEWTIME) == 0);
    says("fanotify_init(permission)", syscall(SYS_fanotify_init, CLASS_CONTENT, O_RDONLY) >= 0);
    says("fanotify_init", syscall(SYS_fanotify_init, 0x200, O_RDONLY) >= 0);
    says("fanotify_mark", syscall(SYS_fanotify_mark, -1, 0, 0L, -1, NULL) != -1 || errno == EBADF || errno == EINVAL);
    int root = open("/", O_RDONLY);
    says("quotactl_fd", syscall(QUOTACTL_FD, root, Q_SYNC << 8, 0, NULL) == 0 || (errno != EPERM && errno != ENOSYS && errno != EACCES));
    says("process_madvise", syscall(SYS_process_madvise, -1, NULL, 0L, 0, 0) != -1 || errno == EBADF);
    printf("end\n");
    return 0;
}
