/* Fails reads, writes and syncs of files below a directory, by rules in a shared file.
 *
 *   LD_PRELOAD=failing_disk.so FAILING_DISK_RULES=FILE FAILING_DISK_BELOW=DIRECTORY program
 *
 * The file has three rules of four int32 each, for reads, writes and syncs: how many of 1000 calls
 * fail, the errno, how many bytes of a failing write reach the disk at most (-1: none), and a count
 * of the calls that failed, which this library adds up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct rule { volatile int32_t permille, error, bytes, failed; };
enum { READS, WRITES, SYNCS, KINDS };

static struct rule *rules;
static const char *below;
static _Thread_local unsigned seed;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FAILING_DISK_RULES");
    below = getenv("FAILING_DISK_BELOW");
    int fd = path && below ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(struct rule) * KINDS, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) rules = mapped;
    close(fd);
}

static struct rule *fails(int kind, int fd) {
    if (!rules || !rules[kind].permille) return NULL;
    if (!seed) seed = (unsigned)getpid() ^ (unsigned)(uintptr_t)&seed;
    if (rand_r(&seed) % 1000 >= rules[kind].permille) return NULL;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return NULL;
    path[size] = 0;
    if (strncmp(path, below, strlen(below))) return NULL;
    __atomic_add_fetch(&rules[kind].failed, 1, __ATOMIC_SEQ_CST);
    errno = rules[kind].error;
    return &rules[kind];
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)

ssize_t pread64(int fd, void *to, size_t size, off64_t at) {
    REAL(pread64);
    return fails(READS, fd) ? -1 : real(fd, to, size, at);
}
ssize_t pread(int fd, void *to, size_t size, off_t at) { return pread64(fd, to, size, at); }
ssize_t preadv(int fd, const struct iovec *to, int count, off_t at) {
    REAL(preadv);
    return fails(READS, fd) ? -1 : real(fd, to, count, at);
}
ssize_t preadv64(int fd, const struct iovec *to, int count, off64_t at) { return preadv(fd, to, count, at); }
ssize_t preadv2(int fd, const struct iovec *to, int count, off_t at, int flags) {
    REAL(preadv2);
    return fails(READS, fd) ? -1 : real(fd, to, count, at, flags);
}
ssize_t preadv64v2(int fd, const struct iovec *to, int count, off64_t at, int flags) {
    return preadv2(fd, to, count, at, flags);
}
ssize_t read(int fd, void *to, size_t size) {
    REAL(read);
    return fails(READS, fd) ? -1 : real(fd, to, size);
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
    REAL(pwrite64);
    struct rule *rule = fails(WRITES, fd);
    if (!rule) return real(fd, from, size, at);
    if (rule->bytes >= 0 && (size_t)rule->bytes < size) real(fd, from, rule->bytes, at);
    errno = rule->error;
    return -1;
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { return pwrite64(fd, from, size, at); }
ssize_t write(int fd, const void *from, size_t size) {
    REAL(write);
    struct rule *rule = fails(WRITES, fd);
    if (!rule) return real(fd, from, size);
    if (rule->bytes > 0 && (size_t)rule->bytes < size) return real(fd, from, rule->bytes); /* a short write */
    errno = rule->error;
    return -1;
}
ssize_t writev(int fd, const struct iovec *from, int count) {
    REAL(writev);
    struct rule *rule = fails(WRITES, fd);
    if (!rule) return real(fd, from, count);
    errno = rule->error;
    return -1;
}
ssize_t pwritev(int fd, const struct iovec *from, int count, off_t at) {
    REAL(pwritev);
    struct rule *rule = fails(WRITES, fd);
    if (!rule) return real(fd, from, count, at);
    errno = rule->error;
    return -1;
}
ssize_t pwritev64(int fd, const struct iovec *from, int count, off64_t at) { return pwritev(fd, from, count, at); }
ssize_t pwritev2(int fd, const struct iovec *from, int count, off_t at, int flags) {
    REAL(pwritev2);
    struct rule *rule = fails(WRITES, fd);
    if (!rule) return real(fd, from, count, at, flags);
    if (rule->bytes > 0 && count && (size_t)rule->bytes < from[0].iov_len) {
        struct iovec part = {from[0].iov_base, rule->bytes}; /* a short write */
        return real(fd, &part, 1, at, flags);
    }
    errno = rule->error;
    return -1;
}
ssize_t pwritev64v2(int fd, const struct iovec *from, int count, off64_t at, int flags) {
    return pwritev2(fd, from, count, at, flags);
}
int fsync(int fd) {
    REAL(fsync);
    return fails(SYNCS, fd) ? -1 : real(fd);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    return fails(SYNCS, fd) ? -1 : real(fd);
}
