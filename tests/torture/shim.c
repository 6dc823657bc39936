/* Stands between a process and the C library, and lets the calls that change the disk below one directory fail.
 *
 * Preloaded into the training process and its sealer. A fault is `root|mode|at|mask|value|log`: from the environment variable
 * TORTURE when the process starts, or from torture_arm() later. `at` counts the calls whose kind is in `mask`, from 1.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, CREATE = 4, RENAME = 8, UNLINK = 16, LINK = 32, TRUNCATE = 64, MKDIR = 128, NOTE = 256, RESERVE = 512, FAILED = 1024 };
enum { COUNT, SIGNAL_BEFORE, SIGNAL_WITHIN, SIGNAL_AFTER, FAIL_ONCE, FAIL_FROM, ROOM, DELAY, STALL, SHORT };

static char root[PATH_MAX];
static size_t root_length;
static int mode, mask, armed, log_descriptor = -1;
static long at, value, seen;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static ssize_t raw_write(int descriptor, const void *data, size_t size) { return syscall(SYS_write, descriptor, data, size); }

void torture_arm(const char *fault) {
    char text[3 * PATH_MAX], log[PATH_MAX] = "";
    armed = 0;
    seen = 0;
    if (log_descriptor >= 0) syscall(SYS_close, log_descriptor);
    log_descriptor = -1;
    if (!fault || !*fault) return;
    snprintf(text, sizeof text, "%s", fault);
    if (sscanf(text, "%4095[^|]|%d|%ld|%d|%ld|%4095[^|]", root, &mode, &at, &mask, &value, log) < 5) return;
    root_length = strlen(root);
    if (*log) {
        int opened = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_descriptor = opened < 0 ? -1 : syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 500);
        if (opened >= 0) syscall(SYS_close, opened);
    }
    armed = 1;
}

/* With TORTURE_ONCE the fault happens in the first process only that comes to it. */
__attribute__((constructor)) static void begin(void) {
    const char *once = getenv("TORTURE_ONCE");
    if (once && *once && getenv("TORTURE") && *getenv("TORTURE")) {
        int mark = (int)syscall(SYS_openat, AT_FDCWD, once, O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (mark < 0) return;
        syscall(SYS_close, mark);
    }
    torture_arm(getenv("TORTURE"));
}

/* A file system without locks, such as NFS mounted with `nolock`. */
int flock(int descriptor, int operation) {
    REAL(int, "flock", int, int);
    const char *none = getenv("TORTURE_NO_LOCKS");
    if (none && *none) {
        errno = ENOLCK;
        return -1;
    }
    return real(descriptor, operation);
}

static int ours(const char *path) { return armed && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]); }

static int resolve(int directory, const char *path, char *out) {
    char link[64], base[PATH_MAX];
    ssize_t length;
    if (!armed || !path) return 0;
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return ours(out);
    }
    if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        length = readlink(link, base, sizeof base - 1);
        if (length < 0) return 0;
        base[length] = 0;
    }
    snprintf(out, PATH_MAX, "%.2000s/%.2000s", base, path);
    return ours(out);
}

static int resolve_descriptor(int descriptor, char *out) {
    char link[64];
    ssize_t length;
    if (!armed) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, out, PATH_MAX - 1);
    if (length < 0) return 0;
    out[length] = 0;
    return ours(out);
}

/* One record of the log: kind, offset, bytes of data, the path, a second path (or nothing), the data. */
static void note(int kind, const char *path, const char *other, long offset, const struct iovec *parts, int count, size_t size) {
    long numbers[5] = {kind, offset, (long)size, (long)strlen(path), (long)strlen(other)};
    struct iovec out[64] = {{numbers, sizeof numbers}, {(void *)path, numbers[3]}, {(void *)other, numbers[4]}};
    int used = 3;
    if (log_descriptor < 0) return;
    for (int i = 0; i < count && size && used < 64; i++) {
        size_t piece = parts[i].iov_len < size ? parts[i].iov_len : size;
        out[used++] = (struct iovec){parts[i].iov_base, piece};
        size -= piece;
    }
    syscall(SYS_writev, log_descriptor, out, used);
}

void torture_note(const char *text) {
    if (armed) note(NOTE, text, "", 0, NULL, 0, 0);
}

long torture_seen(void) { return seen; }

static void pause_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

/* Before a call: 0 to let it be, 1 to let half of it be, -1 to refuse it with errno. */
static int before(int kind) {
    if (!(mask & kind)) return 0;
    seen++;
    switch (mode) {
        case SIGNAL_BEFORE:
            if (seen == at) raise((int)value);
            break;
        case SIGNAL_WITHIN:
            if (seen == at) {
                if (kind == WRITE) return 1;
                raise((int)value);
            }
            break;
        case SHORT:
            return kind == WRITE && seen % at == 0;
        case FAIL_ONCE:
            if (seen == at) return errno = (int)value, -1;
            break;
        case FAIL_FROM:
            if (seen >= at) return errno = (int)value, -1;
            break;
        case DELAY:
            pause_for((double)value / 1e6);
            break;
        case STALL:
            if (seen == at) pause_for((double)value / 1e6);
            break;
    }
    return 0;
}

static void after(int kind) {
    if ((mask & kind) && seen == at && (mode == SIGNAL_AFTER || (mode == SIGNAL_WITHIN && kind == WRITE))) raise((int)value);
}

/* How many bytes of a write a disk with room for `at` bytes in the directory still takes. */
static size_t room(int descriptor, long offset, size_t size) {
    struct stat file, one;
    long used = 0, taken, growth, allowed;
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *directory = opendir(root);
    if (!directory || fstat(descriptor, &file)) return size;
    while ((entry = readdir(directory))) {
        snprintf(path, sizeof path, "%.2000s/%.300s", root, entry->d_name);
        if (!lstat(path, &one) && S_ISREG(one.st_mode)) used += one.st_blocks * 512;
    }
    closedir(directory);
    /* In a file with holes every write takes new blocks; one that has blocks behind its end takes those. */
    taken = file.st_blocks * 512 > file.st_size ? file.st_blocks * 512 : file.st_size;
    growth = file.st_blocks * 512 < file.st_size ? (long)size : offset + (long)size - taken;
    if (growth <= 0 || used + growth <= at) return size;
    allowed = (long)size - (used + growth - at);
    return allowed > 0 ? (size_t)allowed : 0;
}

static ssize_t put(int descriptor, const struct iovec *parts, int count, long offset) {
    char path[PATH_MAX];
    size_t size = 0, allowed;
    ssize_t done;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    allowed = size;
    int inside = resolve_descriptor(descriptor, path), what = inside ? before(WRITE) : 0;
    if (what < 0) return -1;
    if (what > 0) allowed = size / 2;
    if (inside && mode == ROOM) {
        allowed = room(descriptor, offset < 0 ? lseek(descriptor, 0, SEEK_CUR) : offset, size);
        if (!allowed && size) return errno = ENOSPC, -1;
    }
    if (allowed == size) {
        done = offset < 0 ? syscall(SYS_writev, descriptor, parts, count) : syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
    } else {
        struct iovec cut[1024];
        int used = 0;
        size_t left = allowed;
        for (int i = 0; i < count && left && used < 1024; i++) {
            cut[used] = parts[i];
            if (cut[used].iov_len > left) cut[used].iov_len = left;
            left -= cut[used++].iov_len;
        }
        done = !used ? 0 : offset < 0 ? syscall(SYS_writev, descriptor, cut, used) : syscall(SYS_pwritev, descriptor, cut, used, offset, 0);
    }
    if (inside) {
        int kept = errno;
        note(done > 0 ? WRITE : WRITE | FAILED, path, "", offset, parts, count, done > 0 ? (size_t)done : 0);
        after(WRITE);
        errno = kept;
    }
    return done;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    if (!armed) return raw_write(descriptor, data, size);
    return put(descriptor, &(struct iovec){(void *)data, size}, 1, -1);
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) { return put(descriptor, parts, count, -1); }
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return put(descriptor, &(struct iovec){(void *)data, size}, 1, offset);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    return put(descriptor, &(struct iovec){(void *)data, size}, 1, offset);
}
ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) { return put(descriptor, parts, count, offset); }
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) { return put(descriptor, parts, count, offset); }
ssize_t pwritev2(int descriptor, const struct iovec *parts, int count, off_t offset, int flags) { return put(descriptor, parts, count, offset); }
ssize_t pwritev64v2(int descriptor, const struct iovec *parts, int count, off64_t offset, int flags) {
    return put(descriptor, parts, count, offset);
}

#define AROUND(kind, inside, path, other, number, call) \
    do { \
        if ((inside) && before(kind) < 0) return -1; \
        int result = (call); \
        int kept = errno; \
        if (inside) { \
            note(result ? kind | FAILED : kind, path, other, number, NULL, 0, 0); \
            after(kind); \
        } \
        errno = kept; \
        return result; \
    } while (0)

static int sync_one(int descriptor, long number) {
    char path[PATH_MAX];
    int inside = resolve_descriptor(descriptor, path);
    AROUND(SYNC, inside, path, "", 0, (int)syscall(number, descriptor));
}
int fsync(int descriptor) { return sync_one(descriptor, SYS_fsync); }
int fdatasync(int descriptor) { return sync_one(descriptor, SYS_fdatasync); }

static int cut(int descriptor, off64_t size) {
    char path[PATH_MAX];
    int inside = resolve_descriptor(descriptor, path);
    AROUND(TRUNCATE, inside, path, "", size, (int)syscall(SYS_ftruncate, descriptor, size));
}
int ftruncate(int descriptor, off_t size) { return cut(descriptor, size); }
int ftruncate64(int descriptor, off64_t size) { return cut(descriptor, size); }

static int reserve(int descriptor, int how, off64_t start, off64_t size) {
    char path[PATH_MAX];
    int inside = resolve_descriptor(descriptor, path);
    if (inside && mode == ROOM && room(descriptor, start, (size_t)size) < (size_t)size) return errno = ENOSPC, -1;
    AROUND(RESERVE, inside, path, "", start, (int)syscall(SYS_fallocate, descriptor, how, start, size));
}
int fallocate(int descriptor, int how, off_t start, off_t size) { return reserve(descriptor, how, start, size); }
int fallocate64(int descriptor, int how, off64_t start, off64_t size) { return reserve(descriptor, how, start, size); }

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
    char path[PATH_MAX] = "", other[PATH_MAX] = "";
    int inside = resolve(from_directory, from, path) | resolve(to_directory, to, other);
    AROUND(RENAME, inside, path, other, 0, (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
}
int renameat(int from_directory, const char *from, int to_directory, const char *to) { return renameat2(from_directory, from, to_directory, to, 0); }
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    char path[PATH_MAX] = "", other[PATH_MAX] = "";
    int inside = resolve(from_directory, from, path) | resolve(to_directory, to, other);
    AROUND(LINK, inside, path, other, 0, (int)syscall(SYS_linkat, from_directory, from, to_directory, to, flags));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int directory, const char *name, int flags) {
    char path[PATH_MAX] = "";
    int inside = resolve(directory, name, path);
    AROUND(UNLINK, inside, path, "", 0, (int)syscall(SYS_unlinkat, directory, name, flags));
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

int mkdirat(int directory, const char *name, mode_t bits) {
    char path[PATH_MAX] = "";
    int inside = resolve(directory, name, path);
    AROUND(MKDIR, inside, path, "", 0, (int)syscall(SYS_mkdirat, directory, name, bits));
}
int mkdir(const char *name, mode_t bits) { return mkdirat(AT_FDCWD, name, bits); }

static int open_one(int directory, const char *name, int flags, mode_t bits) {
    char path[PATH_MAX] = "";
    int inside = (flags & (O_CREAT | O_TRUNC)) && resolve(directory, name, path);
    int fresh = inside && syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0;
    if (inside && before(CREATE) < 0) return -1;
    int result = (int)syscall(SYS_openat, directory, name, flags | O_LARGEFILE, bits);
    int kept = errno;
    if (inside) {
        int cut = result >= 0 && !fresh && (flags & O_TRUNC);
        note(cut ? TRUNCATE : result >= 0 && fresh ? CREATE : CREATE | FAILED, path, "", 0, NULL, 0, 0);
        after(CREATE);
    }
    errno = kept;
    return result;
}

#define OPENS(name, directory, ...) \
    int name(__VA_ARGS__, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t bits = flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(rest, int) : 0; \
        va_end(rest); \
        return open_one(directory, path, flags, bits); \
    }
OPENS(open, AT_FDCWD, const char *path)
OPENS(open64, AT_FDCWD, const char *path)
OPENS(openat, directory, int directory, const char *path)
OPENS(openat64, directory, int directory, const char *path)
