/* A file system that shows a folder: through FOLDER MOUNTPOINT. What is changed in the folder no event tells of. */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder;
static char *at(const char *path) {
    static char whole[8192];
    snprintf(whole, sizeof whole, "%s%s", folder, path);
    return whole;
}
static int looks(const char *path, struct stat *about, struct fuse_file_info *file) {
    (void)file;
    return lstat(at(path), about) ? -errno : 0;
}
static int follows(const char *path, char *to, size_t size) {
    ssize_t length = readlink(at(path), to, size - 1);
    if (length < 0)
        return -errno;
    to[length] = 0;
    return 0;
}
static int opens(const char *path, struct fuse_file_info *file) {
    int fd = open(at(path), file->flags & ~O_CREAT);
    if (fd < 0)
        return -errno;
    file->fh = (uint64_t)fd;
    return 0;
}
static int reads(const char *path, char *to, size_t size, off_t from, struct fuse_file_info *file) {
    (void)path;
    ssize_t got = pread((int)file->fh, to, size, from);
    return got < 0 ? -errno : (int)got;
}
static int closes(const char *path, struct fuse_file_info *file) {
    (void)path;
    close((int)file->fh);
    return 0;
}
static int lists(const char *path, void *to, fuse_fill_dir_t fill, off_t from, struct fuse_file_info *file,
                 enum fuse_readdir_flags flags) {
    (void)from, (void)file, (void)flags;
    DIR *listing = opendir(at(path));
    struct dirent *entry;
    if (!listing)
        return -errno;
    while ((entry = readdir(listing)))
        fill(to, entry->d_name, NULL, 0, 0);
    closedir(listing);
    return 0;
}

int main(int argc, char **argv) {
    static const struct fuse_operations operations = {
        .getattr = looks, .readlink = follows, .open = opens, .read = reads, .release = closes, .readdir = lists,
    };
    char *arguments[] = {argv[0], "-f", "-s", "-o", "allow_other", argc > 2 ? argv[2] : "", NULL};
    folder = argv[1];
    return fuse_main(6, arguments, &operations, NULL);
}
