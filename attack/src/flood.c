// flood KIND PORT SECONDS: four connections from 127.0.0.1 send one kind of small request, chunk, frame or record without end.
// Meanwhile a client at 127.0.0.2 asks for /, each time over a new connection, and the longest wait is printed in milliseconds.
// With `-` for the port, the flood goes to standard output (for `openssl s_client`), and `ask PORT SECONDS` is the client alone.
// The flood runs where no other process wants the processor: attackers have machines of their own.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS = 4, SIZE = 1 << 20 };
static char begin[4096], again[SIZE];
static size_t begins, repeats;

static void add(const void *bytes, size_t n) { // to what is repeated
  while (repeats + n <= SIZE / 2) { memcpy(again + repeats, bytes, n); repeats += n; }
}
static void once(const void *bytes, size_t n) { memcpy(begin + begins, bytes, n); begins += n; }
static void text(const char *text) { add(text, strlen(text)); }

static size_t frame(char *to, int type, int flags, int stream, const void *payload, size_t n) {
  char head[9] = {n >> 16, n >> 8, n, type, flags, stream >> 24, stream >> 16, stream >> 8, stream};
  memcpy(to, head, 9);
  memcpy(to + 9, payload, n);
  return 9 + n;
}
static void frames(int type, int flags, int stream, const char *payload, size_t n) {
  char one[64];
  add(one, frame(one, type, flags, stream, payload, n));
}
static size_t record(char *to, int type, int id, const void *content, size_t n) {
  char head[8] = {1, type, id >> 8, id, n >> 8, n, 0, 0};
  memcpy(to, head, 8);
  memcpy(to + 8, content, n);
  return 8 + n;
}

static void choose(const char *kind) {
  const char *const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const char none[9] = {0}; // never ends
  if (!strcmp(kind, "none")) text("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
  else if (!strcmp(kind, "get")) text("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  else if (!strcmp(kind, "head")) text("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  else if (!strcmp(kind, "304")) text("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n");
  else if (!strcmp(kind, "416")) text("GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=999999-\r\n\r\n");
  else if (!strcmp(kind, "folder")) text("GET /folder HTTP/1.1\r\nHost: a\r\n\r\n");
  else if (!strcmp(kind, "chunks") || !strcmp(kind, "chunks-to-program")) {
    // A body of one-byte chunks, as long as what the server drops of an unread one, or without end.
    const char *head = strcmp(kind, "chunks") ? "POST /cgi-bin/cat HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                                              : "POST /constant HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    if (strcmp(kind, "chunks")) { once(head, strlen(head)); return text("1\r\nx\r\n"); }
    char *one = malloc(SIZE / 4); size_t n = strlen(strcpy(one, head));
    for (int i = 0; i < 40000; i++) { memcpy(one + n, "1\r\nx\r\n", 6); n += 6; }
    memcpy(one + n, "0\r\n\r\n", 5);
    add(one, n + 5);
  } else if (!strncmp(kind, "fastcgi-", 8)) {
    char one[256]; size_t n = 0;
    if (!strcmp(kind, "fastcgi-values")) n = record(one, 9, 0, "\x0f\0FCGI_MPXS_CONNS", 17);
    else n = record(one, 4, 7, "x", 1); // of a request that never began
    add(one, n);
  } else {
    once(http2, strlen(http2));
    begins += frame(begin + begins, 4, 0, 0, "", 0);
    if (!strcmp(kind, "h2-ping")) frames(6, 0, 0, none, 8);
    else if (!strcmp(kind, "h2-ping-ack")) frames(6, 1, 0, none, 8);
    else if (!strcmp(kind, "h2-settings")) frames(4, 0, 0, none, 0);
    else if (!strcmp(kind, "h2-settings-ack")) frames(4, 1, 0, none, 0);
    else if (!strcmp(kind, "h2-window")) frames(8, 0, 0, "\0\0\0\1", 4);
    else if (!strcmp(kind, "h2-priority")) frames(2, 0, 3, "\0\0\0\0\1", 5);
    else if (!strcmp(kind, "h2-unknown")) frames(0x7f, 0, 0, none, 0);
    else if (!strcmp(kind, "h2-reset") || !strcmp(kind, "h2-window-ended") || !strcmp(kind, "h2-data")) {
      // GET / over stream 1, which has ended by then: :method GET, :scheme http, :path /, :authority a.
      char fields[] = "\x82\x86\x84\x41\x01" "a";
      begins += frame(begin + begins, 1, !strcmp(kind, "h2-data") ? 4 : 5, 1, fields, 6);
      if (!strcmp(kind, "h2-reset")) frames(3, 0, 1, "\0\0\0\5", 4);
      else if (!strcmp(kind, "h2-data")) frames(0, 0, 1, "x", 1);
      else frames(8, 0, 1, "\0\0\0\1", 4);
    } else if (!strcmp(kind, "h2-get")) {
      // Stream ids rise: this is made anew as it is sent.
      repeats = 0;
    } else { fprintf(stderr, "no such flood: %s\n", kind); exit(2); }
  }
}

static int next_stream = 1;
static void requests(void) { // of HTTP/2, for "h2-get"
  repeats = 0;
  while (repeats + 64 < 1 << 14) {
    char fields[] = "\x82\x86\x84\x41\x01" "a";
    repeats += frame(again + repeats, 1, 5, next_stream, fields, 6);
    next_stream += 2;
  }
}

static int dial(const char *from, int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in own = {AF_INET, 0, {inet_addr(from)}, {0}}, to = {AF_INET, htons(port), {inet_addr("127.0.0.1")}, {0}};
  if (bind(fd, (void *)&own, sizeof own) || connect(fd, (void *)&to, sizeof to)) { close(fd); return -1; }
  return fd;
}

static void flood(int port, int anew) { // one connection; begins again if the server closes it
  static char sink[1 << 16];
  for (;;) {
    int fd = dial("127.0.0.1", port);
    if (fd < 0) { usleep(10000); continue; }
    size_t at = 0; const char *bytes = begin; size_t n = begins;
    next_stream = 1;
    for (;;) {
      struct pollfd ready = {fd, POLLIN | POLLOUT, 0};
      poll(&ready, 1, -1);
      if (ready.revents & POLLIN) { ssize_t got = recv(fd, sink, sizeof sink, MSG_DONTWAIT); if (got == 0 || (got < 0 && errno != EAGAIN)) break; }
      if (ready.revents & (POLLERR | POLLHUP)) break;
      if (!(ready.revents & POLLOUT)) continue;
      if (at == n) { if (anew) requests(); bytes = again, n = repeats, at = 0; }
      ssize_t sent = send(fd, bytes + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) break;
      if (sent > 0) at += sent;
    }
    close(fd);
    usleep(10000);
  }
}

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }

static void ask(int port, double seconds) { // gives up after two seconds without an answer
  double worst = 0, ends = now() + seconds; int asked = 0, failed = 0;
  while (now() < ends) {
    char reply[4096]; ssize_t got = -1, all = 0;
    double from = now();
    int fd = dial("127.0.0.2", port);
    struct timeval most = {2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    const char *request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    if (fd >= 0 && send(fd, request, strlen(request), MSG_NOSIGNAL) > 0)
      while ((got = recv(fd, reply + all, sizeof reply - all, 0)) > 0) all += got;
    if (got < 0 || all < 12 || memcmp(reply + 9, "200", 3)) failed++;
    close(fd);
    double took = now() - from;
    if (took > worst) worst = took;
    asked++;
    usleep(2000);
  }
  printf("%.0f ms is the longest of %d waits, %d without an answer\n", worst * 1000, asked, failed);
}

int main(int argc, char **argv) {
  if (argc == 4 && !strcmp(argv[1], "ask")) return ask(atoi(argv[2]), atof(argv[3])), 0;
  if (argc < 4) return 2;
  signal(SIGPIPE, SIG_IGN);
  choose(argv[1]);
  int anew = !strcmp(argv[1], "h2-get");
  struct sched_param idle = {0};
  if (!strcmp(argv[2], "-")) {
    sched_setscheduler(0, SCHED_IDLE, &idle);
    alarm(atoi(argv[3]));
    if (write(1, begin, begins) < 0) return 1;
    do if (anew) requests(); while (write(1, again, repeats) > 0);
    return 0;
  }
  // An optional fourth argument is the port that the client asks at.
  int port = atoi(argv[2]), honest = argc > 4 ? atoi(argv[4]) : port;
  pid_t flooders[CONNECTIONS];
  for (int i = 0; i < CONNECTIONS; i++)
    if (!(flooders[i] = fork())) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      sched_setscheduler(0, SCHED_IDLE, &idle);
      flood(port, anew);
    }
  usleep(300000);
  ask(honest, atof(argv[3]));
  for (int i = 0; i < CONNECTIONS; i++) kill(flooders[i], SIGKILL);
  return 0;
}
