// A program that is kept loaded: a constructor, which runs while it is loaded, leaves a process outside of its group.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((constructor)) static void leave(void) {
    int pid = syscall(SYS_fork);
    if (pid) {
        waitpid(pid, NULL, 0);
        return;
    }
    if (syscall(SYS_fork))
        _exit(0);
    setsid();
    signal(SIGTERM, SIG_IGN);
    for (int fd = 0; fd < 64; fd++)
        close(fd);
    prctl(PR_SET_NAME, "ctorchild");
    for (volatile long n = 0;; n++)
        ;
}

int main(void) {
    printf("Content-Type: text/plain\n\nok\n");
    return 0;
}
