// A server under an attacker's control: speaks with the spawner over the server's own socket. Whoever may look into the server can
// take it: orders PID SOCKET DIGEST helpers COUNT UID..., or orders PID SOCKET DIGEST flood COUNT, or orders PID SOCKET DIGEST open COUNT PATH, which
// attaches the open file to its orders.
// Prints what came of it, and keeps the helpers until its standard input ends.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static int spawner, attached = -1;
static unsigned char digest[8];

// The number of the order, a deadline that never passes, and the order: its kind, the user, the digest of the route.
static int ask(uint32_t number, uint32_t kind, uint32_t uid) {
    unsigned char order[28];
    memcpy(order, &number, 4);
    memset(order + 4, 0xff, 8);
    memcpy(order + 12, &kind, 4);
    memcpy(order + 16, &uid, 4);
    memcpy(order + 20, digest, 8);
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof attached)];
    } control = {.head = {CMSG_LEN(sizeof attached), SOL_SOCKET, SCM_RIGHTS}};
    struct iovec iov = {order, sizeof order};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (attached >= 0) {
        memcpy(CMSG_DATA(&control.head), &attached, sizeof attached);
        message.msg_control = &control, message.msg_controllen = sizeof control;
    }
    return sendmsg(spawner, &message, MSG_NOSIGNAL);
}

// Reads an answer. The letter that it begins with; 0: none came in time.
static int answer(void) {
    static char shown;
    char bytes[512] = {0}, control[256];
    struct iovec iov = {bytes, sizeof bytes - 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(spawner, &message, 0) < 5)
        return 0;
    if (bytes[4] != 'Y' && !shown++)
        fprintf(stderr, "%s\n", bytes + 4);
    return bytes[4];
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 6)
        return 3;
    int server = syscall(SYS_pidfd_open, atoi(argv[1]), 0);
    spawner = syscall(SYS_pidfd_getfd, server, atoi(argv[2]), 0);
    if (spawner < 0) {
        perror("pidfd_getfd");
        return 3;
    }
    for (int i = 0; i < 8; i++)
        sscanf(argv[3] + 2 * i, "%2hhx", digest + i);
    struct timeval patience = {2, 0};
    setsockopt(spawner, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(spawner, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){10, 0}, sizeof patience);
    int count = atoi(argv[5]), done = 0;
    if (strcmp(argv[4], "open") == 0 && (attached = open(argv[6], O_RDONLY)) < 0)
        return perror(argv[6]), 3;
    if (strcmp(argv[4], "helpers") != 0) {
        while (done < count && ask(done, 99, 0) > 0)
            done++;
    } else {
        for (int i = 0; i < count; i++)
            for (int user = 6; user < argc; user++)
                done += ask(i, 1, atoi(argv[user])) > 0 && answer() == 'Y';
    }
    printf("%d\n", done);
    getchar();
    // What was not read is not left to the server.
    while (recv(spawner, &server, sizeof server, MSG_DONTWAIT) > 0)
        ;
    return 0;
}
