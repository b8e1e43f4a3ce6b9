/* A file system of a user's process: slowfs FOLDER [UID] mounts it there, until it is killed; with the user's id, only the first thread that asks gets
 * answers. Whatever is asked of a name below is answered, but for the request that gives the name: "lookup", "getattr", "open", "read", "flush" and the folder "readdir" wait for ever. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define ROOT 1
/* The number of a node is its place here and 1. */
static const char *names[] = {"", "page", "lookup", "getattr", "open", "read", "flush", "readdir", "run", "large",
                              "getattr.wasm", "open.wasm", "read.wasm", "flush.wasm"};
static const char page[] = "page\n", run[] = "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nran\\n'\n";
enum { COUNT = sizeof names / sizeof *names, LARGE = 1 << 20 };
static int device, picky;

/* An extension does not matter. */
static int is(unsigned long node, const char *name) {
    size_t n = strcspn(names[node <= COUNT ? node - 1 : 0], ".");
    return node <= COUNT && n == strlen(name) && !memcmp(names[node - 1], name, n);
}

static void answer(unsigned long unique, int error, const void *data, size_t n) {
    struct fuse_out_header head = {sizeof head + n, error, unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)data, n}};
    if (writev(device, parts, 2) < 0 && errno != ENOENT)
        perror("answer");
}

static struct fuse_attr attr(unsigned long node) {
    struct fuse_attr a = {.ino = node, .nlink = 1, .blksize = 4096, .mode = S_IFREG | 0644, .size = sizeof page - 1};
    if (node == ROOT || is(node, "readdir"))
        a.mode = S_IFDIR | 0755;
    if (is(node, "run"))
        a.mode = S_IFREG | 0755, a.size = sizeof run - 1;
    if (is(node, "large"))
        a.size = LARGE;
    return a;
}

static void ask(struct fuse_in_header *in, char *data) {
    unsigned long node = in->nodeid;
    static unsigned first;
    if (picky && in->opcode != FUSE_INIT && in->pid) {
        if (!first)
            first = in->pid;
        if (in->pid != first)
            return;
    }
    switch (in->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_readahead = 4096, .max_write = 65536};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {0};
        for (unsigned long at = 1; at < COUNT; at++)
            if (!strcmp(names[at], data)) out.nodeid = at + 1;
        if (!out.nodeid)
            return answer(in->unique, -ENOENT, NULL, 0);
        if (is(out.nodeid, "lookup"))
            return;
        out.attr = attr(out.nodeid);
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr = attr(node)};
        return is(node, "getattr") ? (void)0 : answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.fh = node};
        return is(node, "open") ? (void)0 : answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
        struct fuse_read_in *read = (void *)data;
        static char bytes[LARGE];
        const char *from = is(node, "run") ? run : is(node, "large") ? bytes : page;
        size_t all = attr(node).size, left = read->offset < all ? all - read->offset : 0;
        if (is(node, "read") || (is(node, "large") && read->offset >= LARGE / 2))
            return;
        return answer(in->unique, 0, from + read->offset, left < read->size ? left : read->size);
    }
    case FUSE_READDIR: return is(node, "readdir") ? (void)0 : answer(in->unique, 0, NULL, 0);
    case FUSE_FLUSH: return is(node, "flush") ? (void)0 : answer(in->unique, 0, NULL, 0);
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.bsize = 4096, .namelen = 255}};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR: return answer(in->unique, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: return;
    default: return answer(in->unique, -ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv) {
    static char request[1 << 18] __attribute__((aligned(8)));
    char options[128];
    device = open("/dev/fuse", O_RDWR);
    picky = argc == 3;
    if (argc < 2 || device < 0)
        return perror("/dev/fuse"), 3;
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=%s,group_id=0,allow_other", device, picky ? argv[2] : "0");
    if (mount("slow", argv[1], "fuse", MS_NODEV | MS_NOSUID, options) != 0)
        return perror("mount"), 3;
    for (;;) {
        ssize_t n = read(device, request, sizeof request);
        if (n >= (ssize_t)sizeof(struct fuse_in_header))
            ask((void *)request, request + sizeof(struct fuse_in_header));
        else if (n < 0 && errno != EINTR && errno != ENOENT)
            return 0;
    }
}
