// A FastCGI responder on libfcgi: sends a document from memory, or hands over a file.
//
//   document SOCKET PROCESSES FOLDER
//
//   ?50000              so many bytes
//   ?X-Sendfile=NAME    the file of that name in FOLDER
//
// Each process serves one connection at a time, as php-fpm's do; they share a listening socket.
// Everything is written with FCGX_PutStr, whose buffer libfcgi makes 8 KB long: so are its records.
#include <fcgiapp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONGEST = 100000000, BACKLOG = 1024 };

static char *document; // made before the processes are forked: they share its pages

static void answer(FCGX_Request *request, const char *folder) {
    static const char handing[] = "X-Sendfile=";
    // Apache sends the end of the empty body apart: unread, libfcgi would take it for the next request, and close.
    while (FCGX_GetChar(request->in) != EOF) {
    }
    const char *query = FCGX_GetParam("QUERY_STRING", request->envp);
    if (query && strncmp(query, handing, sizeof handing - 1) == 0) {
        FCGX_FPrintF(request->out, "Content-Type: application/octet-stream\r\nX-Sendfile: %s/%s\r\n\r\n", folder,
                     query + sizeof handing - 1);
        return;
    }
    long length = query ? strtol(query, NULL, 10) : 0;
    if (length < 0 || length > LONGEST) length = 0;
    FCGX_FPrintF(request->out, "Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", (int)length);
    FCGX_PutStr(document, (int)length, request->out);
}

static void serve(int socket, const char *folder) {
    FCGX_Request request;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    FCGX_InitRequest(&request, socket, 0);
    while (FCGX_Accept_r(&request) == 0) {
        answer(&request, folder);
        FCGX_Finish_r(&request);
    }
    _exit(1);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    document = malloc(LONGEST);
    if (!document || FCGX_Init() != 0) return 1;
    memset(document, 'd', LONGEST);
    int socket = FCGX_OpenSocket(argv[1], BACKLOG);
    if (socket < 0) return 1;
    for (int n = atoi(argv[2]); n > 0; n--)
        if (fork() == 0) serve(socket, argv[3]);
    while (wait(NULL) > 0) {
    }
    return 1;
}
