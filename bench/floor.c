// The floor: how many times a second this kernel starts a program and reaps it, with no
// HTTP, no environment to build and nothing to relay. No server that gives each request a
// process of its own can be faster than a few of these loops side by side.
//
//   floor [-n OUTSTANDING] [-s SECONDS] [-l LOOPS] [-p] PROGRAM
//
// One loop keeps OUTSTANDING children alive: it starts one with clone3(CLONE_VM|CLONE_VFORK),
// which returns once the child has called execve, and when enough are out it waits for any.
// stdin is /dev/null. stdout is /dev/null, or with -p one pipe a loop which the loop drains
// after every wait. -l runs several loops on threads of their own, each with its share.
// Prints: starts a second, as one number.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

extern char **environ;

struct loop {
    const char *program;
    int outstanding;
    double seconds;
    int piped;
    long started; // result
    double took;  // result
};

// Inlined on purpose: the child runs on the parent's stack until execve, so it must never
// return from the function that made it. libc's syscall() would.
static inline __attribute__((always_inline)) long clone3_vfork(struct clone_args *args) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_clone3), "D"(args), "S"(sizeof *args) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone3;
    register long x0 __asm__("x0") = (long)args;
    register long x1 __asm__("x1") = sizeof *args;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
    return x0;
#else
#error "floor.c knows x86_64 and aarch64"
#endif
}

static __attribute__((noinline)) void start(const char *program, int in, int out) {
    char *argv[] = {(char *)program, NULL};
    struct clone_args args;
    memset(&args, 0, sizeof args);
    args.flags = CLONE_VM | CLONE_VFORK;
    args.exit_signal = SIGCHLD;
    long pid = clone3_vfork(&args);
    if (pid == 0) {
        dup2(in, 0);
        dup2(out, 1);
        execve(program, argv, environ);
        _exit(127);
    }
    if (pid < 0) {
        errno = (int)-pid;
        die("clone3");
    }
}

static void reap(const char *program) {
    siginfo_t info;
    // __WNOTHREAD: each loop reaps its own children.
    if (waitid(P_ALL, 0, &info, WEXITED | __WNOTHREAD) < 0) die("waitid");
    if (info.si_code != CLD_EXITED || info.si_status != 0) {
        fprintf(stderr, "floor: %s ended with status %d\n", program, info.si_status);
        exit(1);
    }
}

static void drain(int from) {
    static __thread char bin[1 << 16];
    while (read(from, bin, sizeof bin) > 0) {}
}

static void *run(void *argument) {
    struct loop *loop = argument;
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int ends[2] = {-1, open("/dev/null", O_WRONLY | O_CLOEXEC)};
    if (loop->piped) {
        close(ends[1]);
        if (pipe2(ends, O_CLOEXEC) < 0) die("pipe2");
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        fcntl(ends[1], F_SETPIPE_SZ, 1 << 20); // room for every child's output between two waits
    }
    int alive = 0;
    double from = now();
    while (now() - from < loop->seconds) {
        while (alive < loop->outstanding) {
            start(loop->program, in, ends[1]);
            alive++;
            loop->started++;
        }
        reap(loop->program);
        alive--;
        if (loop->piped) drain(ends[0]);
    }
    for (; alive > 0; alive--) reap(loop->program);
    loop->took = now() - from;
    return NULL;
}

int main(int argc, char **argv) {
    struct loop all = {.outstanding = 1, .seconds = 1.0};
    int loops = 1, option;
    while ((option = getopt(argc, argv, "n:s:l:p")) != -1) {
        if (option == 'n') all.outstanding = atoi(optarg);
        else if (option == 's') all.seconds = atof(optarg);
        else if (option == 'l') loops = atoi(optarg);
        else if (option == 'p') all.piped = 1;
        else return 2;
    }
    if (optind + 1 != argc || loops < 1 || loops > 256 || all.outstanding < loops) {
        fprintf(stderr, "usage: floor [-n OUTSTANDING] [-s SECONDS] [-l LOOPS] [-p] PROGRAM\n");
        return 2;
    }
    all.program = argv[optind];
    struct loop each[256];
    pthread_t thread[256];
    for (int i = 0; i < loops; i++) {
        each[i] = all;
        each[i].outstanding = all.outstanding / loops;
        if (pthread_create(&thread[i], NULL, run, &each[i]) != 0) die("pthread_create");
    }
    double rate = 0;
    for (int i = 0; i < loops; i++) {
        pthread_join(thread[i], NULL);
        rate += (double)each[i].started / each[i].took;
    }
    printf("%.1f\n", rate);
    return 0;
}
