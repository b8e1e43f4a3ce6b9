// A program that is kept loaded, with fork handlers (pthread_atfork) that leave a process outside of its group whenever a child is made.
// Its name says which handler does, and whether the process stays a child of the one that runs the handler: prepare-1, parent-2 …
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(void) {
    int stays_child = strchr(program_invocation_short_name, '1') != NULL;
    int pid = syscall(SYS_fork);
    if (pid) {
        if (!stays_child)
            waitpid(pid, NULL, 0);
        return;
    }
    if (!stays_child && syscall(SYS_fork))
        _exit(0);
    setsid();
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_NAME, "forkchild");
    signal(SIGTERM, SIG_IGN);
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    for (;;)
        pause();
}

__attribute__((constructor)) static void note(void) {
    switch (program_invocation_short_name[1]) {
    case 'r': pthread_atfork(leave, NULL, NULL); break;
    case 'a': pthread_atfork(NULL, leave, NULL); break;
    default: pthread_atfork(NULL, NULL, leave);
    }
}

int main(void) {
    printf("Content-Type: text/plain\n\nok\n");
    return 0;
}
