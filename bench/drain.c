// The load generator for big bodies. wrk reads 8 KB at a time and would be most of what is
// measured; this one tells the kernel to drop the bytes uncopied (MSG_TRUNC on TCP).
//
//   drain -c CONNECTIONS -s SECONDS [-r READ] PORT PATH
//
// With -r the bytes are read, READ of them a call, as a client on this machine would: then the copy to
// the client, which no other machine's client would take from the server, is part of what is measured.
//
// Each connection is a thread: connect, one request with "Connection: close", receive until
// the end, again. Prints JSON: answers, bytes (with heads and framing), seconds, errors
// (resets, refused connections, heads that do not say 200).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 256 };

static struct sockaddr_in server;
static char request[4096];
static double deadline;
static size_t read_size; // 0: dropped

struct client {
    long answers, errors;
    unsigned long long bytes;
    double slowest, ended;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

// Receives one whole answer; returns its bytes or -1.
static long long receive(int from) {
    char head[12]; // "HTTP/1.1 200"
    size_t have = 0;
    while (have < sizeof head) {
        ssize_t n = recv(from, head + have, sizeof head - have, 0);
        if (n <= 0) return -1;
        have += (size_t)n;
    }
    if (memcmp(head + 8, " 200", 4) != 0) return -1;
    long long total = (long long)have;
    static __thread char memory[1 << 18];
    for (;;) {
        ssize_t n = read_size ? recv(from, memory, read_size, 0) : recv(from, NULL, 1 << 22, MSG_TRUNC);
        if (n < 0) return -1;
        if (n == 0) return total;
        total += n;
    }
}

static long long ask(void) {
    int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20};
    setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    long long got = -1;
    size_t length = strlen(request);
    if (connect(to, (struct sockaddr *)&server, sizeof server) == 0 && write(to, request, length) == (ssize_t)length)
        got = receive(to);
    close(to);
    return got;
}

static void *run(void *argument) {
    struct client *me = argument;
    double before = now();
    while (before < deadline) {
        long long got = ask();
        double after = now();
        if (got < 0) {
            me->errors++;
        } else {
            me->answers++;
            me->bytes += (unsigned long long)got;
            if (after - before > me->slowest) me->slowest = after - before;
        }
        before = me->ended = after;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int connections = 1, option;
    double seconds = 1;
    while ((option = getopt(argc, argv, "c:s:r:")) != -1) {
        if (option == 'c') connections = atoi(optarg);
        else if (option == 's') seconds = atof(optarg);
        else if (option == 'r') read_size = (size_t)atoi(optarg);
        else return 2;
    }
    if (optind + 2 != argc || connections < 1 || connections > MOST_CONNECTIONS || read_size > 1 << 18) {
        fprintf(stderr, "usage: drain [-c CONNECTIONS] [-s SECONDS] [-r READ] PORT PATH\n");
        return 2;
    }
    server.sin_family = AF_INET;
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.sin_port = htons((unsigned short)atoi(argv[optind]));
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", argv[optind + 1]);

    static struct client client[MOST_CONNECTIONS];
    pthread_t thread[MOST_CONNECTIONS];
    double start = now();
    deadline = start + seconds;
    for (int i = 0; i < connections; i++) pthread_create(&thread[i], NULL, run, &client[i]);
    struct client all = {0};
    for (int i = 0; i < connections; i++) {
        pthread_join(thread[i], NULL);
        all.answers += client[i].answers;
        all.errors += client[i].errors;
        all.bytes += client[i].bytes;
        if (client[i].slowest > all.slowest) all.slowest = client[i].slowest;
        if (client[i].ended > all.ended) all.ended = client[i].ended;
    }
    printf("{\"requests\":%ld,\"bytes\":%llu,\"seconds\":%.6f,\"slowest\":%.6f,\"errors\":%ld}\n",
           all.answers, all.bytes, all.ended - start, all.slowest, all.errors);
    return 0;
}
