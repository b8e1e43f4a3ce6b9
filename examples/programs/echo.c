/* Sends the request body back, with its media type, as it arrives. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char buffer[64 * 1024];

int main(void)
{
    const char *type = getenv("CONTENT_TYPE");
    dprintf(STDOUT_FILENO, "Content-Type: %s\nX-Content-Type-Options: nosniff\n\n",
            type && *type ? type : "application/octet-stream");
    for (;;) {
        ssize_t received = read(STDIN_FILENO, buffer, sizeof buffer);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0)
            return received < 0;
        for (ssize_t sent = 0, n; sent < received; sent += n) {
            n = write(STDOUT_FILENO, buffer + sent, (size_t)(received - sent));
            if (n < 0 && errno == EINTR)
                n = 0;
            else if (n < 0)
                return 1;
        }
    }
}
