// The bound of a FastCGI responder: how fast it writes where nobody but a reader that drops everything asks it,
// with no HTTP and no client, and the processor time of both.
//
//   responder [-z] [-b BYTES] [-c CONNECTIONS] [-s SECONDS] [-r READ] SOCKET
//
// SOCKET is of programs/document.c: it is asked for BYTES, on connections that are kept, one request after the
// other on each. What comes is read, READ bytes a call, or with -z moved to /dev/null by splice, uncopied.
// Prints JSON: answers and MB (10^6) a second, CPU milliseconds a MB of the responder's processes (those that the
// process which listens has started) and of the reader, calls of the reader a MB.
#define _GNU_SOURCE
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tool.h"

enum { MOST_CONNECTIONS = 64, HEADER = 8, MOST_READ = 1 << 20, PIPE = 1 << 20 };
enum { BEGIN = 1, PARAMS = 4, STDIN = 5, RESPONDER = 1, KEEP = 1, END_LENGTH = 16 };

static struct sockaddr_un server = {.sun_family = AF_UNIX};
static unsigned char request[256];
static size_t request_length, read_size = 1 << 16;
static long long bytes = 10 * 1000 * 1000;
static bool zero;
static double deadline;

struct connection {
    long answers;
    unsigned long long got, calls;
};

static int dial(void) {
    int to = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(to, (struct sockaddr *)&server, sizeof server) < 0) die(server.sun_path);
    return to;
}

static void record(int type, const void *content, size_t length) {
    unsigned char header[HEADER] = {1, (unsigned char)type, 0, 1, 0, (unsigned char)length};
    memcpy(request + request_length, header, HEADER);
    memcpy(request + request_length + HEADER, content, length);
    request_length += HEADER + length;
}

static void write_request(void) {
    char pair[64], query[32];
    int value = snprintf(query, sizeof query, "%lld", bytes);
    int length = snprintf(pair, sizeof pair, "%c%cQUERY_STRING%s", 12, value, query);
    record(BEGIN, (unsigned char[HEADER]){0, RESPONDER, KEEP}, HEADER);
    record(PARAMS, pair, (size_t)length);
    record(PARAMS, "", 0);
    record(STDIN, "", 0);
}

// Reads one answer record by record, up to END_REQUEST, and returns its length with all framing.
static size_t measure(int from) {
    static unsigned char memory[MOST_READ];
    size_t have = 0, whole = 0;
    for (;;) {
        unsigned char header[HEADER];
        if (recv(from, header, HEADER, MSG_WAITALL) != HEADER) die("recv");
        size_t left = (size_t)(header[4] << 8 | header[5]) + header[6];
        whole += HEADER + left;
        for (; left > 0; left -= have) {
            ssize_t n = recv(from, memory, left, 0);
            if (n <= 0) die("recv");
            have = (size_t)n;
        }
        if (header[1] == 3) return whole;
    }
}

static size_t whole; // every answer is as long as the first

static void *ask(void *argument) {
    struct connection *me = argument;
    int from = dial(), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC), ends[2];
    char *memory = malloc(read_size);
    if (pipe2(ends, O_CLOEXEC) < 0 || !memory) die("pipe2");
    fcntl(ends[0], F_SETPIPE_SZ, PIPE);
    while (now() < deadline) {
        if (write(from, request, request_length) != (ssize_t)request_length) die("write");
        for (size_t left = whole; left > 0;) {
            ssize_t n = zero ? splice(from, NULL, ends[1], NULL, PIPE, SPLICE_F_MOVE) : read(from, memory, read_size);
            if (n <= 0) die("read");
            if (zero && splice(ends[0], NULL, nowhere, NULL, (size_t)n, SPLICE_F_MOVE) != n) die("splice");
            me->calls += zero ? 2 : 1;
            left -= (size_t)n;
        }
        me->got += (unsigned long long)bytes;
        me->answers++;
    }
    close(from);
    return NULL;
}

// Processor time of the processes that the one which listens has started, in seconds.
static double responders(pid_t parent) {
    glob_t found;
    double ticks = 0;
    if (glob("/proc/[0-9]*/stat", 0, NULL, &found) != 0) die("/proc");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        FILE *stat = fopen(found.gl_pathv[i], "r");
        int of = 0;
        unsigned long user = 0, kernel = 0;
        const char *fields = "%*d (%*[^)]) %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu";
        if (stat && fscanf(stat, fields, &of, &user, &kernel) == 3 && of == parent) ticks += (double)(user + kernel);
        if (stat) fclose(stat);
    }
    globfree(&found);
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

static double own(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    int connections = 4, option;
    double seconds = 1;
    while ((option = getopt(argc, argv, "zb:c:s:r:")) != -1) {
        if (option == 'z') zero = true;
        else if (option == 'b') bytes = atoll(optarg);
        else if (option == 'c') connections = atoi(optarg);
        else if (option == 's') seconds = atof(optarg);
        else if (option == 'r') read_size = (size_t)atoll(optarg);
        else return 2;
    }
    if (optind + 1 != argc || connections < 1 || connections > MOST_CONNECTIONS || read_size < 1 || read_size > MOST_READ) {
        fprintf(stderr, "usage: responder [-z] [-b BYTES] [-c CONNECTIONS] [-s SECONDS] [-r READ] SOCKET\n");
        return 2;
    }
    strncpy(server.sun_path, argv[optind], sizeof server.sun_path - 1);
    write_request();
    int first = dial();
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(first, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0) die("SO_PEERCRED");
    if (write(first, request, request_length) < 0) die("write");
    whole = measure(first);
    close(first);

    static struct connection connection[MOST_CONNECTIONS];
    pthread_t asks[MOST_CONNECTIONS];
    double theirs = responders(peer.pid), ours = own(), from = now(), mega = 0, calls = 0, answers = 0;
    deadline = from + seconds;
    for (int i = 0; i < connections; i++) pthread_create(&asks[i], NULL, ask, &connection[i]);
    for (int i = 0; i < connections; i++) {
        pthread_join(asks[i], NULL);
        mega += (double)connection[i].got / 1e6;
        calls += (double)connection[i].calls;
        answers += (double)connection[i].answers;
    }
    double took = now() - from;
    printf("{\"bytes\":%lld,\"answers_s\":%.0f,\"mb_s\":%.0f,\"responder_cpu_ms_mb\":%.3f,\"reader_cpu_ms_mb\":%.3f,\"reader_calls_mb\":%.1f}\n",
           bytes, answers / took, mega / took, (responders(peer.pid) - theirs) * 1000 / mega, (own() - ours) * 1000 / mega, calls / mega);
    return 0;
}
