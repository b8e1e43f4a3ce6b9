/* Prints as many bytes as the query asks for: bytes?n=1048576 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char block[256 * 1024];

static int print(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        bytes += written;
        count -= (size_t)written;
    }
    return 0;
}

int main(void)
{
    const char *query = getenv("QUERY_STRING");
    char *end;
    errno = EINVAL;
    unsigned long long count = query && !strncmp(query, "n=", 2) ? strtoull(query + 2, &end, 10) : 0;
    if (!query || strncmp(query, "n=", 2) || end == query + 2 || *end || query[2] == '-' || errno == ERANGE) {
        puts("Status: 400 Bad Request\nContent-Type: text/plain\n\nAsk for bytes?n=COUNT.");
        return 0;
    }

    /* The head and the first bytes leave in one write. */
    memset(block, 'x', sizeof block);
    int head = snprintf(block, sizeof block, "Content-Type: application/octet-stream\nContent-Length: %llu\n\n", count);
    block[head] = 'x';
    size_t first = count < sizeof block - (size_t)head ? (size_t)count : sizeof block - (size_t)head;
    if (print(block, (size_t)head + first) < 0)
        return 1;
    count -= first;
    memset(block, 'x', (size_t)head);
    for (; count > 0; count -= first) {
        first = count < sizeof block ? (size_t)count : sizeof block;
        if (print(block, first) < 0)
            return 1;
    }
    return 0;
}
