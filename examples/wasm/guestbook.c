/*
 * A guestbook in the folder /data, which its route must open for it:
 *
 *     preopen_rw = { "/data" = "data" }
 *
 * GET shows the last entries, POST (name=...&text=...) adds one and redirects to the list.
 *
 * WASI has no file locks, so none is needed: every entry is a file of its own, written under a name
 * nobody lists and then renamed, which is one step for whoever looks. Names begin with the time, so
 * their order is that of the entries.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER "/data/entries"
#define BODY_MOST 8192
#define SHOWN 50

static char body[BODY_MOST + 1];

static int fail(const char *status, const char *why)
{
    printf("Status: %s\nContent-Type: text/plain\n\n%s\n", status, why);
    return 0;
}

/* Prints text with the characters that mean something to HTML written otherwise. */
static void escaped(const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", stdout); break;
        case '>': fputs("&gt;", stdout); break;
        case '&': fputs("&amp;", stdout); break;
        case '"': fputs("&quot;", stdout); break;
        default: putchar(*text);
        }
    }
}

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The value of a form field, decoded; control characters become spaces. */
static int field(const char *name, char *to, size_t most)
{
    size_t length = strlen(name), used = 0;
    const char *at = body;
    while (strncmp(at, name, length) != 0 || at[length] != '=') {
        at = strchr(at, '&');
        if (!at++)
            return 0;
    }
    for (at += length + 1; *at && *at != '&' && used + 1 < most; at++) {
        char c = *at == '+' ? ' ' : *at;
        if (c == '%' && hex(at[1]) >= 0 && hex(at[2]) >= 0) {
            c = (char)(hex(at[1]) * 16 + hex(at[2]));
            at += 2;
        }
        to[used++] = (unsigned char)c < ' ' ? ' ' : c;
    }
    to[used] = 0;
    return used > 0;
}

static int add(void)
{
    static char name[100], text[2000], draft[160], entry[160];
    unsigned random;
    struct timespec now;
    if (!field("name", name, sizeof name) || !field("text", text, sizeof text))
        return fail("400 Bad Request", "An entry has a name and a text.");
    if (mkdir(FOLDER, 0777) != 0 && errno != EEXIST)
        return fail("500 Internal Server Error", "The folder /data is not there.");
    clock_gettime(CLOCK_REALTIME, &now);
    if (getentropy(&random, sizeof random) != 0)
        return fail("500 Internal Server Error", "There is no randomness.");
    snprintf(entry, sizeof entry, FOLDER "/%012lld-%09ld-%08x", (long long)now.tv_sec, now.tv_nsec,
             random);
    snprintf(draft, sizeof draft, FOLDER "/.draft-%08x-%09ld", random, now.tv_nsec);
    FILE *file = fopen(draft, "wx");
    if (!file)
        return fail("500 Internal Server Error", "The entry could not be written.");
    int written = fprintf(file, "%s\n%s\n", name, text) > 0;
    if ((fclose(file) != 0) | !written || rename(draft, entry) != 0) {
        unlink(draft);
        return fail("500 Internal Server Error", "The entry could not be kept.");
    }
    const char *self = getenv("SCRIPT_NAME");
    printf("Status: 303 See Other\nLocation: %s\nContent-Type: text/plain\n\nThank you.\n",
           self ? self : "/");
    return 0;
}

static int newer_first(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

static void show(const char *name)
{
    static char path[300], who[128], text[2048];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    FILE *file = fopen(path, "r");
    if (!file)
        return; /* removed since the folder was read */
    if (fgets(who, sizeof who, file) && fgets(text, sizeof text, file)) {
        who[strcspn(who, "\n")] = text[strcspn(text, "\n")] = 0;
        fputs("<dt>", stdout);
        escaped(who);
        fputs("<dd>", stdout);
        escaped(text);
        putchar('\n');
    }
    fclose(file);
}

static int list(void)
{
    char **names = NULL;
    size_t count = 0, room = 0;
    DIR *folder = opendir(FOLDER);
    for (struct dirent *found; folder && (found = readdir(folder));) {
        if (found->d_name[0] == '.')
            continue;
        if (count == room) {
            room = room ? 2 * room : 64;
            names = realloc(names, room * sizeof *names);
            if (!names)
                return fail("500 Internal Server Error", "There are too many entries.");
        }
        names[count++] = strdup(found->d_name);
    }
    if (count)
        qsort(names, count, sizeof *names, newer_first);
    fputs("Content-Type: text/html; charset=utf-8\n\n<!doctype html><title>Guestbook</title>\n"
          "<h1>Guestbook</h1>\n<form method=post><input name=name placeholder=Name required>\n"
          "<input name=text placeholder=Text required><button>Sign</button></form>\n<dl>\n", stdout);
    for (size_t n = 0; n < count && n < SHOWN; n++)
        show(names[n]);
    fputs("</dl>\n", stdout);
    return 0;
}

int main(void)
{
    const char *method = getenv("REQUEST_METHOD");
    if (!method || strcmp(method, "POST") != 0)
        return list();
    size_t length = fread(body, 1, BODY_MOST, stdin);
    if (length == BODY_MOST)
        return fail("413 Content Too Large", "That is too long for an entry.");
    body[length] = 0;
    return add();
}
