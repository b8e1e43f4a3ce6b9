// unread PORT CONNECTIONS PATH: asks for PATH 100 times over each of so many connections of HTTP/2, opens all windows, and reads nothing.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static size_t frame(char *to, int type, int flags, int stream, const void *payload, size_t n) {
  char head[9] = {n >> 16, n >> 8, n, type, flags, stream >> 24, stream >> 16, stream >> 8, stream};
  memcpy(to, head, 9);
  memcpy(to + 9, payload, n);
  return 9 + n;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  static char all[1 << 16];
  size_t n = 0, path = strlen(argv[3]);
  memcpy(all, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24), n = 24;
  n += frame(all + n, 4, 0, 0, "\0\4\x7f\xff\xff\xff", 6); // SETTINGS_INITIAL_WINDOW_SIZE
  n += frame(all + n, 8, 0, 0, "\x7f\xff\0\0", 4);
  for (int stream = 1; stream < 200; stream += 2) {
    char fields[200] = "\x82\x86\x04"; // :method GET, :scheme http, :path
    fields[3] = path;
    memcpy(fields + 4, argv[3], path);
    memcpy(fields + 4 + path, "\x41\x01" "a", 3); // :authority a
    n += frame(all + n, 1, 5, stream, fields, 4 + path + 3);
  }
  for (int i = 0; i < atoi(argv[2]); i++) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    struct sockaddr_in to = {AF_INET, htons(atoi(argv[1])), {inet_addr("127.0.0.1")}, {0}};
    if (connect(fd, (void *)&to, sizeof to) || write(fd, all, n) != (ssize_t)n) return perror("connect"), 1;
  }
  puts("asked");
  fflush(stdout);
  pause();
}
