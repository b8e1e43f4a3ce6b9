/* Tries every way out of its folders: /data, which it may read, and /own, which it may write to.
 * Prints a line for each: what it tried, and whether that worked. argv and variables are not used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *what, const char *path, int worked)
{
    printf("%s %s: %s\n", what, path, worked ? "yes" : "no");
}

static void reads(const char *path)
{
    char byte;
    int fd = open(path, O_RDONLY);
    say("read", path, fd >= 0 && read(fd, &byte, 1) == 1);
    if (fd >= 0)
        close(fd);
}

static void writes(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    say("write", path, fd >= 0 && write(fd, "x", 1) == 1);
    if (fd >= 0)
        close(fd);
}

/* A link may be made; it leads nowhere. */
static void links(const char *to, const char *path)
{
    symlink(to, path);
    reads(path);
    int fd = open(path, O_WRONLY);
    say("write", path, fd >= 0 && write(fd, "x", 1) == 1);
    if (fd >= 0)
        close(fd);
}

int main(void)
{
    static const char *const readable[] = {
        "/data/note", "/data/./note", "/data/inner/../note", "/data/inner/to-note",
        "/data/../secret", "/data/inner/../../secret", "/data/link", "/data/absolute",
        "/data/folder/secret", "/data/inner/out", "/secret", "secret", "../secret", "/etc/passwd",
        "/proc/self/environ", "/proc/1/root/etc/passwd",
    };
    printf("Content-Type: text/plain\n\n");
    for (size_t n = 0; n < sizeof readable / sizeof *readable; n++)
        reads(readable[n]);
    writes("/data/new");
    writes("/data/note");
    say("mkdir", "/data/folder2", mkdir("/data/folder2", 0700) == 0);
    say("unlink", "/data/note", unlink("/data/note") == 0);
    say("rename", "/data/note", rename("/data/note", "/data/other") == 0);
    say("move", "/data/note", rename("/data/note", "/own/note") == 0);
    say("link", "/data/note", link("/data/note", "/own/note") == 0);
    writes("/own/new");
    reads("/own/new");
    say("mkdir", "/own/inner", mkdir("/own/inner", 0700) == 0);
    say("rename", "/own/new", rename("/own/new", "/own/inner/new") == 0);
    say("unlink", "/own/inner/new", unlink("/own/inner/new") == 0);
    say("rename up", "/own/inner", rename("/own/inner", "/own/../inner") == 0);
    say("mkdir", "/own/../up", mkdir("/own/../up", 0700) == 0);
    writes("/own/../up");
    links("../secret", "/own/a");
    links("inner/../../secret", "/own/b");
    links("/etc/passwd", "/own/c");
    links("/secret", "/own/d");
    symlink("..", "/own/e");
    reads("/own/e/secret");
    writes("/own/e/up");
    return 0;
}
