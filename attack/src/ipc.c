// Leaves System V objects, POSIX message queues and files in /dev/shm behind, and prints which of them it could make. The query is "small",
// or "large": as much shared memory as there is, and prints how many MiB.
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>
enum { MIB = 1 << 20 };
static char piece[MIB];

static int segment(size_t size) {
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    char *memory = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
    if (memory == (char *)-1) return 0;
    memset(memory, 1, size);
    shmdt(memory);
    return 1;
}
int main(void) {
    char name[64];
    snprintf(name, sizeof name, "/left-%d", getpid());
    printf("Content-Type: text/plain\n\n");
    if (!strcmp(getenv("QUERY_STRING"), "large")) {
        int segments = 0, pieces = 0;
        while (segments < 100 && segment(MIB)) segments++;
        int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
        while (pieces < 100 && write(fd, piece, MIB) == MIB) pieces++;
        printf("%d of shared memory, %d in /dev/shm\n", segments, pieces);
        return 0;
    }
    if (segment(MIB)) printf("shm ");
    if (msgget(IPC_PRIVATE, IPC_CREAT | 0600) >= 0) printf("msg ");
    if (semget(IPC_PRIVATE, 1, IPC_CREAT | 0600) >= 0) printf("sem ");
    if (mq_open(name, O_CREAT | O_RDWR, 0600, NULL) >= 0) printf("mq ");
    char path[80];
    snprintf(path, sizeof path, "/dev/mqueue%s-file", name);
    if (open(path, O_CREAT | O_RDWR, 0600) >= 0) printf("mq-file ");
    if (shm_open(name, O_CREAT | O_RDWR, 0600) >= 0) printf("shm-file ");
    printf("end\n");
    return 0;
}
