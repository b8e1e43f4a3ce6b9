// The bound of big bodies: how fast this kernel moves what a program prints to a TCP client on the
// same machine, with no HTTP, beside sendfile(2) of a file to the same client.
//
//   bulk [-w WAY] [-b BYTES] [-c CONNECTIONS] [-s SECONDS] [-p PIPE] [-l LEAST] [-r READ] [-n LOWAT] [-k SNDBUF] [-m] [-a] FILE
//
// WAY is how bytes reach the socket:
//   file    sendfile of FILE, from its first byte, as a server sends a stored body
//   splice  FILE is a program, started with QUERY_STRING=BYTES; its pipe is spliced
//   copy    the same, by read and write of 64 KiB
//   gift    no program: a thread gives pages it already has to the pipe (vmsplice), which is spliced:
//           what splicing costs where nobody copies
//   handed  a process has the body in a sealed memfd, and passes its descriptor with each answer (SCM_RIGHTS),
//           which is sent by sendfile; FILE is not looked at
//   new     the same, but a memfd is made, filled and sealed for each answer
// PIPE is F_SETPIPE_SZ in bytes (0: as it is). LEAST: wait until the pipe holds so many bytes, looking
// again when it is written to. READ: the client reads so many bytes a call into memory; 0 drops them
// in the kernel (MSG_TRUNC), as drain.c does. LOWAT and SNDBUF: TCP_NOTSENT_LOWAT and SO_SNDBUF in bytes.
// -m: SPLICE_F_MORE. -a: program and relay of a connection on one processor,
// connections over processors in turn.
// Each connection is a thread that answers and a thread that asks, one transfer after the other.
// Prints JSON: MB (10^6) a second, CPU milliseconds a MB of everybody, calls of the relay a MB.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

enum { MOST_CONNECTIONS = 64, PIECE = 1 << 16 };

static struct sockaddr_in server;
static const char *way = "splice", *file;
static char *environment[2];
static long long bytes = 10 * 1000 * 1000;
static int listener, pipe_size, least, affine, lowat, sndbuf;
static unsigned flags = SPLICE_F_MOVE;
static size_t read_size;
static double deadline;

struct connection {
    int index, program;
    unsigned long long got, calls;
    long answers;
};

static void pin(int index) {
    if (!affine) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(index % sysconf(_SC_NPROCESSORS_ONLN), &one);
    sched_setaffinity(0, sizeof one, &one); // inherited by the program
}

static void open_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) < 0) die("pipe2");
    if (pipe_size && fcntl(ends[0], F_SETPIPE_SZ, pipe_size) < 0) die("F_SETPIPE_SZ");
}

static pid_t start(int out) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    char *argv[] = {(char *)file, NULL};
    pid_t pid;
    errno = posix_spawn(&pid, file, &actions, NULL, argv, environment);
    if (errno) die(file);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static int document(const char *body) {
    int made = memfd_create("document", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0) die("memfd_create");
    for (long long at = 0; at < bytes;) {
        ssize_t n = write(made, body + at, (size_t)(bytes - at));
        if (n <= 0) die("write");
        at += n;
    }
    if (fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0) die("F_ADD_SEALS");
    return made;
}

// One byte and, with it, a descriptor: sent if there is one, else received and returned.
static int pass(int socket, int descriptor) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (descriptor < 0) {
        if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message)) die("recvmsg");
        memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
        return descriptor;
    }
    *head = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1) _exit(0);
    return descriptor;
}

// The program of one connection: answers each byte that comes with a descriptor.
static void hand_over(int asked) {
    char *body = malloc((size_t)bytes), byte;
    memset(body, 'h', (size_t)bytes);
    int kept = *way == 'h' ? document(body) : -1;
    while (read(asked, &byte, 1) == 1) {
        int made = kept < 0 ? document(body) : kept;
        pass(asked, made);
        if (kept < 0) close(made);
    }
    _exit(0);
}

static int handed(struct connection *me) {
    me->calls += 3;
    if (write(me->program, "", 1) != 1) die("write");
    int from = pass(me->program, -1), seals = fcntl(from, F_GET_SEALS);
    if (!(seals & F_SEAL_SHRINK)) die("F_SEAL_SHRINK"); // a body that could be cut
    return from;
}

static void *give(void *argument) {
    int to = *(int *)argument;
    char *page = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(page, 'g', PIECE);
    for (long long left = bytes; left > 0;) {
        struct iovec piece = {page, left < PIECE ? (size_t)left : PIECE};
        ssize_t n = vmsplice(to, &piece, 1, 0);
        if (n <= 0) break;
        left -= n;
    }
    close(to);
    munmap(page, PIECE);
    return NULL;
}

// Waits until the pipe holds `least` bytes, is full, or has no writer any more.
static void await(struct connection *me, int from) {
    struct pollfd pipe = {from, POLLIN, 0};
    int before = -1, there = 0;
    while (least) {
        me->calls += 2;
        poll(&pipe, 1, -1);
        ioctl(from, FIONREAD, &there);
        if (there >= least || there == before || pipe.revents & POLLHUP) return;
        before = there;
        sched_yield();
    }
}

static void relay(struct connection *me, int from, int to) {
    static __thread char buffer[PIECE];
    for (;;) {
        await(me, from);
        ssize_t n;
        me->calls++;
        if (*way == 'c') {
            n = read(from, buffer, sizeof buffer);
            me->calls++;
            if (n > 0 && write(to, buffer, (size_t)n) != n) return;
        } else {
            n = splice(from, NULL, to, NULL, 1 << 20, flags);
        }
        if (n <= 0) return;
    }
}

static void *answer(void *argument) {
    struct connection *me = argument;
    pin(me->index);
    for (;;) {
        int to = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (to < 0) return NULL;
        int on = 1;
        setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (lowat) setsockopt(to, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat, sizeof lowat);
        if (sndbuf) setsockopt(to, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
        if (strchr("fhn", *way)) {
            int from = *way == 'f' ? open(file, O_RDONLY | O_CLOEXEC) : handed(me);
            off_t at = 0;
            do me->calls++;
            while (at < bytes && sendfile(to, from, &at, (size_t)(bytes - at) < 1 << 20 ? (size_t)(bytes - at) : 1 << 20) > 0);
            close(from);
        } else {
            int ends[2];
            open_pipe(ends);
            pthread_t giver;
            pid_t pid = 0;
            if (*way == 'g') pthread_create(&giver, NULL, give, &ends[1]);
            else pid = start(ends[1]), close(ends[1]);
            relay(me, ends[0], to);
            close(ends[0]);
            if (pid) waitpid(pid, NULL, 0);
            else pthread_join(giver, NULL);
        }
        close(to);
    }
}

static void *ask(void *argument) {
    struct connection *me = argument;
    char *memory = read_size ? malloc(read_size) : NULL;
    while (now() < deadline) {
        int from = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(from, (struct sockaddr *)&server, sizeof server) < 0) die("connect");
        ssize_t n;
        long long got = 0;
        while ((n = recv(from, memory, read_size ? read_size : 1 << 22, read_size ? 0 : MSG_TRUNC)) > 0) got += n;
        close(from);
        if (got < bytes) {
            fprintf(stderr, "bulk: %lld of %lld bytes came\n", got, bytes);
            exit(1);
        }
        me->got += (unsigned long long)got;
        me->answers++;
    }
    free(memory);
    return NULL;
}

static double cpu(void) {
    double sum = 0;
    for (int who = 0; who < 2; who++) {
        struct rusage used;
        getrusage(who ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
        sum += (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    }
    return sum;
}

int main(int argc, char **argv) {
    int connections = 4, option;
    double seconds = 1;
    while ((option = getopt(argc, argv, "w:b:c:s:p:l:r:n:k:ma")) != -1) {
        if (option == 'w') way = optarg;
        else if (option == 'b') bytes = atoll(optarg);
        else if (option == 'c') connections = atoi(optarg);
        else if (option == 's') seconds = atof(optarg);
        else if (option == 'p') pipe_size = atoi(optarg);
        else if (option == 'l') least = atoi(optarg);
        else if (option == 'r') read_size = (size_t)atoll(optarg);
        else if (option == 'n') lowat = atoi(optarg);
        else if (option == 'k') sndbuf = atoi(optarg);
        else if (option == 'm') flags |= SPLICE_F_MORE;
        else if (option == 'a') affine = 1;
        else return 2;
    }
    if (optind + 1 != argc || connections < 1 || connections > MOST_CONNECTIONS || !strchr("fscghn", *way)) {
        fprintf(stderr, "usage: bulk [-w file|splice|copy|gift|handed|new] [-b BYTES] [-c CONNECTIONS] [-s SECONDS] [-p PIPE] "
                        "[-l LEAST] [-r READ] [-n LOWAT] [-k SNDBUF] [-m] [-a] FILE\n");
        return 2;
    }
    file = argv[optind];
    if (asprintf(&environment[0], "QUERY_STRING=%lld", bytes) < 0) die("asprintf");
    signal(SIGPIPE, SIG_IGN);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    server.sin_family = AF_INET;
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof server;
    if (bind(listener, (struct sockaddr *)&server, length) < 0 || listen(listener, 64) < 0) die("listen");
    getsockname(listener, (struct sockaddr *)&server, &length);

    static struct connection connection[MOST_CONNECTIONS];
    for (int i = 0; i < connections && strchr("hn", *way); i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) die("socketpair");
        connection[i].program = ends[0];
        if (fork() == 0) {
            for (int j = 0; j <= i; j++) close(connection[j].program);
            hand_over(ends[1]);
        }
        close(ends[1]);
    }
    pthread_t asks[MOST_CONNECTIONS], answers;
    double from = now();
    deadline = from + seconds;
    for (int i = 0; i < connections; i++) {
        connection[i].index = i;
        pthread_create(&answers, NULL, answer, &connection[i]);
        pthread_create(&asks[i], NULL, ask, &connection[i]);
    }
    double mega = 0, calls = 0;
    for (int i = 0; i < connections; i++) {
        pthread_join(asks[i], NULL);
        mega += (double)connection[i].got / 1e6;
        calls += (double)connection[i].calls;
    }
    double took = now() - from;
    for (int i = 0; i < connections && strchr("hn", *way); i++) {
        shutdown(connection[i].program, SHUT_RDWR);
        wait(NULL); // its processor time counts then
    }
    printf("{\"way\":\"%s\",\"bytes\":%lld,\"mb_s\":%.0f,\"cpu_ms_mb\":%.3f,\"relay_calls_mb\":%.2f}\n",
           way, bytes, mega / took, cpu() * 1000 / mega, calls / mega);
    return 0;
}
