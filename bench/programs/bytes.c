// Prints as many bytes as its query says: /cgi-bin/bytes.cgi?1000000, and with a second number that
// many with each write: /cgi-bin/bytes.cgi?1000000,4096 as stdio does.
// No Content-Length, as most programs print none: the server finds the framing.
// Static, so that the cost of large bodies is not hidden behind the dynamic linker.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int write_all(const char *at, size_t left) {
    while (left > 0) {
        ssize_t n = write(1, at, left);
        if (n <= 0) return -1;
        at += n;
        left -= (size_t)n;
    }
    return 0;
}

int main(void) {
    static const char head[] = "Content-Type: application/octet-stream\r\n\r\n";
    static char block[64 * 1024]; // one default pipe buffer a write
    const char *query = getenv("QUERY_STRING");
    char *end = NULL;
    unsigned long long left = query ? strtoull(query, &end, 10) : 0;
    size_t piece = end && *end == ',' ? (size_t)strtoull(end + 1, NULL, 10) : sizeof block;
    if (piece == 0 || piece > sizeof block) piece = sizeof block;

    memset(block, 'g', sizeof block);
    if (write_all(head, sizeof head - 1) < 0) return 1;
    while (left > 0) {
        size_t n = left < piece ? (size_t)left : piece;
        if (write_all(block, n) < 0) return 1;
        left -= n;
    }
    return 0;
}
