/* Python: what its command line says. */
#define _GNU_SOURCE
#include "python.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns why the command line does not end in opening a script once, or shows that modules were loaded ahead. NULL: it names
   a `script`, and nothing is unusual. */
const char *python_unusual(int argc, char **argv, const char **script) {
    int at = 1;
    for (; at < argc && argv[at][0] == '-' && argv[at][1]; at++) {
        const char *c = argv[at] + 1;
        if (*c == '-')
            return "is given a long option";
        for (; *c; c++) {
            if (strchr("cmihV?xvd", *c))
                return "is given an option under which it does more, or other, than run its script "
                       "(one of -c -m -i -x -v -d)";
            const char *x = *c == 'X' ? c[1] ? c + 1 : at + 1 < argc ? argv[at + 1] : "" : "";
            if (strncmp(x, "importtime", 10) == 0 || strncmp(x, "dev", 3) == 0)
                return "runs for its developer (-X dev, -X importtime)";
            if (*c == 'W' || *c == 'X') {
                at += c[1] == 0;
                break;
            }
        }
    }
    *script = at < argc ? argv[at] : NULL;
    return *script ? NULL : "is given no script";
}

/* Returns whether a script is an archive (zipapp), which Python runs by other means. Its mark is within its last 64 KiB. */
int python_is_archive(const char *path) {
    enum { MOST = 65536 + 22 };
    static char tail[MOST];
    int fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    int found = 0;
    if (fd >= 0 && fstat(fd, &about) == 0) {
        off_t from = about.st_size > MOST ? about.st_size - MOST : 0;
        ssize_t got = pread(fd, tail, MOST, from);
        found = S_ISDIR(about.st_mode) || (got > 0 && memmem(tail, (size_t)got, "PK\5\6", 4));
    }
    if (fd >= 0)
        close(fd);
    return found;
}
