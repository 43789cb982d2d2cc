/* Loaded before the C library: syncs of the store's log fail as long as the file that FAIL_SYNC_WHILE names is there. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    const char *flag = getenv("FAIL_SYNC_WHILE");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (flag && len > 0 && access(flag, F_OK) == 0) {
        path[len] = 0;
        if (strstr(path, "/wal/")) {
            errno = EIO;
            return -1;
        }
    }
    return (int)syscall(SYS_fdatasync, fd);
}
