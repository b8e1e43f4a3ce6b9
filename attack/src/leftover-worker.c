// A FastCGI worker that answers one request and ends. For each request it leaves processes outside of its group, each of which has
// lowered the number that marks it (RLIMIT_LOCKS) to another one, and forks again with a lower one still. With an argument it answers
// all requests, and leaves nothing behind.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void stay(uint64_t number) {
    struct rlimit lowered = {number, number};
    setsid();
    setrlimit(RLIMIT_LOCKS, &lowered);
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_NAME, "lowered");
    signal(SIGTERM, SIG_IGN);
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    if (fork() == 0) {
        lowered.rlim_cur = lowered.rlim_max = number / 2;
        setrlimit(RLIMIT_LOCKS, &lowered);
        setsid();
    }
    for (;;)
        pause();
}

static void answer(int connection, int leaves) {
    unsigned char record[8 + 65536 + 256];
    int length = 0, ended = 0;
    // Records until an empty one of FCGI_STDIN (5): eight bytes, the length in the fifth and sixth, the padding in the seventh.
    while (!ended && read(connection, record, 8) == 8) {
        length = record[4] << 8 | record[5];
        ended = record[1] == 5 && length == 0;
        for (int left = length + record[6]; left > 0;) {
            int n = read(connection, record + 8, left);
            if (n <= 0)
                return;
            left -= n;
        }
    }
    struct rlimit own;
    getrlimit(RLIMIT_LOCKS, &own);
    uint64_t mark = own.rlim_cur;
    const uint64_t numbers[] = {0, 1, 4194303, mark / 2, mark - 1000, mark - (1 << 20), mark - (1 << 21), mark - (1 << 22)};
    for (unsigned i = 0; leaves && i < sizeof numbers / sizeof *numbers; i++)
        if (fork() == 0)
            stay(numbers[i]);
    static const char text[] = "Content-Type: text/plain\n\nleft\n";
    const unsigned char out[8] = {1, 6, 0, 1, 0, sizeof text - 1}, end[16] = {1, 3, 0, 1, 0, 8};
    write(connection, out, 8);
    write(connection, text, sizeof text - 1);
    write(connection, end, 16);
}

int main(int argc, char **argv) {
    do {
        int connection = accept(0, NULL, NULL);
        answer(connection, argc == 1);
        close(connection);
    } while (argc > 1);
    return 0;
}
