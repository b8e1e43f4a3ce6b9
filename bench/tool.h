// What the tools of the benchmark share. Each is one file besides.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline void die(const char *what) {
    perror(what);
    exit(1);
}

// Seconds, of a clock that nobody sets.
static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
