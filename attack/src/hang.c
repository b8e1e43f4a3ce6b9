/* Mounts a file system that never answers on a folder, until it is killed: hang FOLDER */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char options[128];
    int device = open("/dev/fuse", O_RDWR);
    if (argc != 2 || device < 0) {
        perror("/dev/fuse");
        return 3;
    }
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (mount("hang", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) != 0) {
        perror("mount");
        return 3;
    }
    for (;;)
        pause();
}
