/* Lets chosen writes of a process fail: preloaded, it stands before the C library.
 *
 * Who decides which is another process, or this one: both map the file that FAULTS_CONTROL names. See
 * failing.py, which has the same fields in the same order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITES = 1, SYNCS = 2, NAMES = 4 };

struct control {
    int at;     /* the call that fails, counted from 1; none at 0 */
    int stays;  /* and all calls after it */
    int error;  /* the errno that they get */
    int kinds;  /* which calls are counted */
    int seen;   /* so many were */
    int failed; /* so many of them failed */
    char prefix[1000]; /* what the path of a file begins with that counts */
};

static struct control *control;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULTS_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED)
        control = mapped;
}

static int fails_at(const char *path, int kind)
{
    if (!control || !control->prefix[0] || !(control->kinds & kind))
        return 0;
    if (strncmp(path, control->prefix, strlen(control->prefix)))
        return 0;
    int seen = __atomic_add_fetch(&control->seen, 1, __ATOMIC_SEQ_CST);
    int at = control->at;
    if (!at || seen < at || (seen > at && !control->stays))
        return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = control->error;
    return 1;
}

static int fails(int fd, int kind)
{
    if (!control || !control->prefix[0])
        return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails_at(path, kind);
}

#define REAL(type, name, ...)                                                                      \
    static type (*real)(__VA_ARGS__);                                                              \
    if (!real)                                                                                     \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(ssize_t, write, int, const void *, size_t);
    return fails(fd, WRITES) ? -1 : real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return fails(fd, WRITES) ? -1 : real(fd, parts, count);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return fails(fd, WRITES) ? -1 : real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
    return fails(fd, WRITES) ? -1 : real(fd, data, size, at);
}

int ftruncate(int fd, off_t size)
{
    REAL(int, ftruncate, int, off_t);
    return fails(fd, WRITES) ? -1 : real(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    REAL(int, ftruncate64, int, off64_t);
    return fails(fd, WRITES) ? -1 : real(fd, size);
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    REAL(int, posix_fallocate, int, off_t, off_t);
    return fails(fd, WRITES) ? errno : real(fd, at, size);
}

int fsync(int fd)
{
    REAL(int, fsync, int);
    return fails(fd, SYNCS) ? -1 : real(fd);
}

int fdatasync(int fd)
{
    REAL(int, fdatasync, int);
    return fails(fd, SYNCS) ? -1 : real(fd);
}

int rename(const char *from, const char *to)
{
    REAL(int, rename, const char *, const char *);
    return fails_at(to, NAMES) ? -1 : real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    REAL(int, renameat, int, const char *, int, const char *);
    return fails_at(to, NAMES) ? -1 : real(from_folder, from, to_folder, to);
}

int link(const char *from, const char *to)
{
    REAL(int, link, const char *, const char *);
    return fails_at(to, NAMES) ? -1 : real(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    REAL(int, linkat, int, const char *, int, const char *, int);
    return fails_at(to, NAMES) ? -1 : real(from_folder, from, to_folder, to, flags);
}
