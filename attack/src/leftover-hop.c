// A CGI program that leaves processes outside of its group, which fork and exit again and again.
// QUERY_STRING: milliseconds between two forks (0: full speed), and how many such processes; "lower": each has another RLIMIT_LOCKS, if it
// may; "stay": the program itself runs on.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void hop(int pause) {
    time_t end = time(NULL) + 40;
    while (time(NULL) < end) {
        if (pause)
            usleep(pause * 1000);
        pid_t pid = fork();
        if (pid > 0)
            _exit(0);
        if (pid == 0)
            setsid();
        else
            usleep(1000);
    }
    _exit(0);
}

int main(void) {
    int pause = 300, many = 1;
    const char *query = getenv("QUERY_STRING");
    if (query)
        sscanf(query, "%d,%d", &pause, &many);
    // So that the machine survives if the attack works.
    struct rlimit processes = {4000, 4000};
    setrlimit(RLIMIT_NPROC, &processes);
    printf("Content-Type: text/plain\n\nleft\n");
    fflush(stdout);
    for (int i = 0; i < many; i++) {
        if (fork() > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, 0);
        prctl(PR_SET_NAME, "hopper");
        setsid();
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        for (int fd = 0; fd < 64; fd++)
            close(fd);
        struct rlimit lowered = {i, i};
        if (query && strstr(query, "lower"))
            setrlimit(RLIMIT_LOCKS, &lowered);
        hop(pause);
    }
    // A request that runs: whoever kills a process of galgo does it while the program is there.
    if (query && strstr(query, "stay"))
        for (;;)
            sleep(1);
    return 0;
}
