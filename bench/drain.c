// The load generator for big bodies. wrk reads 8 KB at a time and would be most of what is
// measured; this one tells the kernel to drop the bytes uncopied (MSG_TRUNC on TCP).
//
//   drain [-k] [-r READ] -c CONNECTIONS -s SECONDS PORT PATH
//
// With -r the bytes are read, READ of them a call, as a client on this machine would: then the copy to
// the client, which no other machine's client would take from the server, is part of what is measured.
//
// Each connection is a thread: connect, one request with "Connection: close", receive until
// the end, again. With -k connections are kept, and answers must have a Content-Length. Prints JSON: answers, bytes (with heads and framing), seconds, errors
// (resets, refused connections, heads that do not say 200).
#define _GNU_SOURCE // strcasestr
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tool.h"

enum { MOST_CONNECTIONS = 256 };

static struct sockaddr_in server;
static char request[4096];
static double deadline;
static size_t read_size; // 0: dropped
static bool keep;

struct client {
    long answers, errors;
    unsigned long long bytes;
    double slowest, ended;
};

// Receives at most `most` bytes of a body.
static ssize_t take(int from, size_t most) {
    static __thread char memory[1 << 18];
    return read_size ? recv(from, memory, most, 0) : recv(from, NULL, most, MSG_TRUNC);
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
    for (;;) {
        ssize_t n = take(from, read_size ? read_size : 1 << 22);
        if (n < 0) return -1;
        if (n == 0) return total;
        total += n;
    }
}

// Looks at a head without taking it; returns its length, 0 while it is not whole, or -1. `body` is
// what Content-Length says.
static long look(int from, long long *body) {
    char head[4096];
    ssize_t n = recv(from, head, sizeof head - 1, MSG_PEEK);
    if (n <= 0) return -1;
    head[n] = 0;
    char *end = strstr(head, "\r\n\r\n");
    if (!end) return n < (ssize_t)sizeof head - 1 ? 0 : -1;
    char *length = strcasestr(head, "\r\nContent-Length:");
    if (strncmp(head + 8, " 200", 4) != 0 || !length || length > end) return -1;
    *body = strtoll(length + 17, NULL, 10);
    return end + 4 - head;
}

// Receives one answer that the connection outlives; returns its bytes or -1.
static long long receive_kept(int from) {
    long long body = 0;
    long head;
    while ((head = look(from, &body)) == 0) {
    }
    if (head < 0) return -1;
    for (long long left = head + body; left > 0;) {
        size_t most = read_size ? read_size : 1 << 22;
        ssize_t n = take(from, left < (long long)most ? (size_t)left : most);
        if (n <= 0) return -1;
        left -= n;
    }
    return head + body;
}

static int dial(void) {
    int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20};
    setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(to, (struct sockaddr *)&server, sizeof server) == 0) return to;
    close(to);
    return -1;
}

// One request and its answer, over the connection `kept` if there is one.
static long long ask(int *kept) {
    int to = *kept >= 0 ? *kept : dial();
    long long got = -1;
    size_t length = strlen(request);
    if (to >= 0 && write(to, request, length) == (ssize_t)length) got = keep ? receive_kept(to) : receive(to);
    *kept = keep && got >= 0 ? to : -1;
    if (*kept < 0 && to >= 0) close(to);
    return got;
}

static void *run(void *argument) {
    struct client *me = argument;
    double before = now();
    int kept = -1;
    while (before < deadline) {
        long long got = ask(&kept);
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
    while ((option = getopt(argc, argv, "kc:s:r:")) != -1) {
        if (option == 'k') keep = true;
        else if (option == 'c') connections = atoi(optarg);
        else if (option == 's') seconds = atof(optarg);
        else if (option == 'r') read_size = (size_t)atoi(optarg);
        else return 2;
    }
    if (optind + 2 != argc || connections < 1 || connections > MOST_CONNECTIONS || read_size > 1 << 18) {
        fprintf(stderr, "usage: drain [-k] [-c CONNECTIONS] [-s SECONDS] [-r READ] PORT PATH\n");
        return 2;
    }
    server.sin_family = AF_INET;
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.sin_port = htons((unsigned short)atoi(argv[optind]));
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", argv[optind + 1],
             keep ? "" : "Connection: close\r\n");

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
