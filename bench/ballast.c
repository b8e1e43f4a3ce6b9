// Memory that a server would not hold by itself, to show that starting programs does not depend on it: preloaded into
// the server (ld.so(8)), it takes BALLAST bytes of its heap and writes to all of them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *volatile held;

__attribute__((constructor)) static void hold(void) {
    const char *wanted = getenv("BALLAST");
    size_t bytes = wanted ? strtoull(wanted, NULL, 10) : 0;
    held = malloc(bytes);
    if (!held) {
        perror("ballast");
        exit(1);
    }
    // Not zeros: those would be pages that are not there.
    memset(held, 1, bytes);
}
