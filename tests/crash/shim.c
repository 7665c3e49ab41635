/* A library between the product and the kernel, loaded with LD_PRELOAD: it sees what Python, SQLite and Rust ask of the
 * disk, below one folder. It can
 *
 *   - record every operation that changes something, with its data, in one order for all threads (the trace);
 *   - let the n-th operation of chosen kinds fail with an errno, once or until further notice;
 *   - shift the wall clock (CLOCK_REALTIME) while the process runs; the monotonic clocks stay as they are.
 *
 * Environment: SHIM_ROOT, the folder (resolved, no symbolic links); SHIM_CONTROL, a file of sizeof(struct control) bytes
 * that is mapped into memory and may be changed from outside at any time; SHIM_TRACE, the trace, optional.
 * `shim.py` is the other side of this file: it builds the library, writes the control file and reads the trace.
 *
 * Not seen: writes through mmap (SQLite's -shm file, which is rebuilt after a crash), stdio of C, and system calls that
 * bypass the C library, as safetensors renames its temporary file: the trace shows it when the new name is opened.
 * Copies inside the kernel (sendfile, copy_file_range) are refused, so that programs fall back to write.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The same numbers stand in shim.py. */
enum { OPEN = 1, WRITE, SYNC, RENAME, CLOSE, UNLINK, MKDIR, RMDIR, LINK, SYMLINK, TRUNCATE, ALLOCATE, MARK, CREATE };

struct control {
    int64_t clock_ns;    /* is added to CLOCK_REALTIME */
    uint64_t fail_kinds; /* bit k: operations of kind k fail; 0: none */
    uint64_t fail_at;    /* the n-th of these, from 1 */
    int32_t fail_errno;
    int32_t fail_lasting; /* all after it fail too */
    int32_t fail_short;   /* a write writes half of its bytes first, as a disk that becomes full does */
    int32_t fail_growing; /* only what needs room: a file that is created, a write beyond the end of its file */
    uint64_t seen;       /* operations of these kinds since they were chosen */
    uint64_t failed;     /* of which so many failed */
    uint64_t counts[32]; /* all operations of each kind */
};

/* A record of the trace: this, then `path`, then `other`, then `data`. */
struct record {
    uint8_t kind;
    uint8_t unused;
    uint16_t path;
    uint16_t other;
    uint16_t error; /* of an injected failure */
    uint32_t thread;
    uint32_t data;
    uint64_t inode;
    int64_t offset; /* of a write; the size of a truncation or allocation */
};

#define FILES 65536
#define REAL(name)                                                                                                     \
    ({                                                                                                                 \
        static __typeof__(&name) real_;                                                                                \
        if (!real_) real_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                \
        real_;                                                                                                         \
    })
#define BELOW(descriptor) ((descriptor) >= 0 && (descriptor) < FILES ? inodes[descriptor] : 0)

static struct control *control;
static char root[PATH_MAX];
static size_t root_length;
static int trace = -1;
static uint64_t inodes[FILES]; /* of the open files below the root; 0: not one of them */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* Also called by processes that were forked from one without this environment: see `attach` in shim.py. */
__attribute__((constructor)) void shim_start(void) {
    const char *place = getenv("SHIM_CONTROL"), *below = getenv("SHIM_ROOT"), *to = getenv("SHIM_TRACE");
    if (control || !place || !below) return;
    int descriptor = REAL(open)(place, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    REAL(close)(descriptor);
    if (mapped == MAP_FAILED) return;
    root_length = strlen(below);
    memcpy(root, below, root_length + 1);
    if (to) trace = REAL(open)(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    control = mapped;
}

/* An operation and its record are one step for all threads, so that the trace is the order in which things happened. */
static void lock(void) {
    if (trace >= 0) pthread_mutex_lock(&mutex);
}

static void unlock(void) {
    int kept = errno;
    if (trace >= 0) pthread_mutex_unlock(&mutex);
    errno = kept;
}

/* The path below the root that a call names, with links in its folders resolved; whether there is one. */
static int below(int folder, const char *path, char *found) {
    char whole[2 * PATH_MAX], parent[PATH_MAX], base[NAME_MAX + 1];
    if (!control || !path || !*path) return 0;
    int kept = errno;
    if (strlen(path) > PATH_MAX - 2) return 0;
    if (*path == '/') {
        snprintf(whole, sizeof whole, "%s", path);
    } else if (folder == AT_FDCWD) {
        if (!getcwd(whole, PATH_MAX)) return errno = kept, 0;
        strncat(strcat(whole, "/"), path, PATH_MAX - 2);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, whole, PATH_MAX - 1);
        if (length < 0) return errno = kept, 0;
        whole[length] = 0;
        strncat(strcat(whole, "/"), path, PATH_MAX - 2);
    }
    for (size_t end = strlen(whole); end > 1 && whole[end - 1] == '/';) whole[--end] = 0;
    char *slash = strrchr(whole, '/');
    snprintf(base, sizeof base, "%s", slash + 1);
    slash[slash == whole] = 0;
    if (!realpath(whole, parent)) return errno = kept, 0;
    errno = kept;
    snprintf(found, PATH_MAX, "%s/%s", strcmp(parent, "/") ? parent : "", base);
    return !strncmp(found, root, root_length) && (found[root_length] == '/' || !found[root_length]);
}

static uint64_t inode_of(const char *path) {
    struct stat found;
    return fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : found.st_ino;
}

static void note(int kind, int error, uint64_t inode, int64_t offset, const char *path, const char *other,
                 const struct iovec *parts, int count, size_t size) {
    if (trace < 0) return;
    int kept = errno;
    struct record record = {kind, 0, path ? strlen(path) : 0, other ? strlen(other) : 0, error, gettid(), size, inode,
                            offset};
    struct iovec all[3] = {{&record, sizeof record}, {(void *)path, record.path}, {(void *)other, record.other}};
    REAL(writev)(trace, all, 3);
    for (int part = 0; part < count && size; part++) {
        size_t length = parts[part].iov_len < size ? parts[part].iov_len : size;
        REAL(write)(trace, parts[part].iov_base, length);
        size -= length;
    }
    errno = kept;
}

/* Whether this operation fails: counts it, and sets errno. `room` is set to what a short write may still write. */
static int fails(int kind, uint64_t inode, const char *path, size_t *room) {
    if (!control) return 0;
    __atomic_add_fetch(&control->counts[kind], 1, __ATOMIC_SEQ_CST);
    if (!(control->fail_kinds >> kind & 1)) return 0;
    uint64_t number = __atomic_add_fetch(&control->seen, 1, __ATOMIC_SEQ_CST), at = control->fail_at;
    if (room && control->fail_short && number == at) {
        *room /= 2;
        return 0;
    }
    at += room && control->fail_short && !control->fail_lasting;
    if (number < at || (number > at && !control->fail_lasting)) return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = control->fail_errno;
    note(kind, errno, inode, 0, path, NULL, NULL, 0, 0);
    return 1;
}

/* For tests: what the product has acknowledged stands in the trace between the operations before and after it. */
void shim_mark(const char *text, size_t size) {
    struct iovec part = {(void *)text, size};
    lock();
    note(MARK, 0, 0, 0, NULL, NULL, &part, 1, size);
    unlock();
}

static int open_below(int folder, const char *path, int flags, mode_t mode, char *whole) {
    struct stat found;
    lock();
    int there = !fstatat(folder, path, &found, 0), result = -1;
    int spared = control->fail_growing && (there || !(flags & (O_CREAT | O_TMPFILE)));
    if (spared || !fails(OPEN, 0, whole, NULL)) result = REAL(openat)(folder, path, flags, mode);
    if (result >= 0 && result < FILES && !fstat(result, &found)) {
        inodes[result] = found.st_ino;
        note(flags & O_CREAT && !there ? CREATE : OPEN, 0, found.st_ino, 0, whole, NULL, NULL, 0, 0);
        if (flags & O_TRUNC && there) note(TRUNCATE, 0, found.st_ino, 0, NULL, NULL, NULL, 0, 0);
    }
    unlock();
    return result;
}

#define OPEN_AT(folder, path, flags)                                                                                   \
    char whole[PATH_MAX];                                                                                              \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode = va_arg(more, mode_t);                                                                                   \
        va_end(more);                                                                                                  \
    }                                                                                                                  \
    if (below(folder, path, whole)) return open_below(folder, path, flags, mode, whole);                               \
    int result = REAL(openat)(folder, path, flags, mode);                                                              \
    if (result >= 0 && result < FILES) inodes[result] = 0;                                                             \
    return result

int openat(int folder, const char *path, int flags, ...) { OPEN_AT(folder, path, flags); }
int openat64(int folder, const char *path, int flags, ...) { OPEN_AT(folder, path, flags); }
int open(const char *path, int flags, ...) { OPEN_AT(AT_FDCWD, path, flags); }
int open64(const char *path, int flags, ...) { OPEN_AT(AT_FDCWD, path, flags); }
int __open_2(const char *path, int flags) { return open(path, flags); }
int __open64_2(const char *path, int flags) { return open(path, flags); }
int __openat_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
int __openat64_2(int folder, const char *path, int flags) { return openat(folder, path, flags); }
int creat(const char *path, mode_t mode) { return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

int close(int descriptor) {
    uint64_t inode = BELOW(descriptor);
    if (!inode) return REAL(close)(descriptor);
    lock();
    inodes[descriptor] = 0;
    int failed = fails(CLOSE, inode, NULL, NULL), kept = errno, result = REAL(close)(descriptor);
    if (failed) errno = kept; /* the descriptor is gone nevertheless, as in Linux */
    unlock();
    return failed ? -1 : result;
}

#define COPY_OF(call)                                                                                                  \
    int result = call;                                                                                                 \
    return result >= 0 && result < FILES ? (inodes[result] = BELOW(descriptor), result) : result
int dup(int descriptor) { COPY_OF(REAL(dup)(descriptor)); }
int dup2(int descriptor, int to) { COPY_OF(REAL(dup2)(descriptor, to)); }
int dup3(int descriptor, int to, int flags) { COPY_OF(REAL(dup3)(descriptor, to, flags)); }
#define FCNTL(name)                                                                                                    \
    int name(int descriptor, int command, ...) {                                                                       \
        va_list more;                                                                                                  \
        va_start(more, command);                                                                                       \
        void *argument = va_arg(more, void *);                                                                         \
        va_end(more);                                                                                                  \
        int result = REAL(name)(descriptor, command, argument);                                                        \
        int copied = command == F_DUPFD || command == F_DUPFD_CLOEXEC;                                                 \
        if (copied && result >= 0 && result < FILES) inodes[result] = BELOW(descriptor);                               \
        return result;                                                                                                 \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

static int grows(int descriptor, size_t size, off_t place) {
    struct stat found;
    if (fstat(descriptor, &found)) return 1;
    int appends = REAL(fcntl)(descriptor, F_GETFL) & O_APPEND;
    off_t start = place >= 0 ? place : appends ? found.st_size : lseek(descriptor, 0, SEEK_CUR);
    return start + (off_t)size > found.st_size;
}

/* `place` is -1 for the file's own position. */
static ssize_t write_parts(int descriptor, const struct iovec *parts, int count, off_t place) {
    uint64_t inode = BELOW(descriptor);
    size_t size = 0;
    ssize_t result = -1;
    for (int part = 0; part < count; part++) size += parts[part].iov_len;
    size_t room = size;
    lock();
    int spared = control->fail_growing && !grows(descriptor, size, place);
    if (spared || !fails(WRITE, inode, NULL, &room)) {
        struct iovec single = {count ? parts[0].iov_base : NULL, room};
        if (room < size && single.iov_len > parts[0].iov_len) single.iov_len = parts[0].iov_len;
        const struct iovec *written = room < size ? &single : parts;
        int number = room < size ? 1 : count;
        result = place < 0 ? REAL(writev)(descriptor, written, number) : REAL(pwritev)(descriptor, written, number, place);
        if (result > 0) {
            off_t start = place < 0 ? lseek(descriptor, 0, SEEK_CUR) - result : place;
            note(WRITE, 0, inode, start, NULL, NULL, parts, count, result);
        }
    }
    unlock();
    return result;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    struct iovec part = {(void *)data, size};
    return BELOW(descriptor) ? write_parts(descriptor, &part, 1, -1) : REAL(write)(descriptor, data, size);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t place) {
    struct iovec part = {(void *)data, size};
    return BELOW(descriptor) ? write_parts(descriptor, &part, 1, place) : REAL(pwrite)(descriptor, data, size, place);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t place) {
    return pwrite(descriptor, data, size, place);
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    return BELOW(descriptor) ? write_parts(descriptor, parts, count, -1) : REAL(writev)(descriptor, parts, count);
}
ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t place) {
    return BELOW(descriptor) ? write_parts(descriptor, parts, count, place)
                             : REAL(pwritev)(descriptor, parts, count, place);
}
ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off_t place) {
    return pwritev(descriptor, parts, count, place);
}
ssize_t sendfile(int to, int from, off_t *place, size_t size) {
    return BELOW(to) ? (errno = EINVAL, -1) : REAL(sendfile)(to, from, place, size);
}
ssize_t sendfile64(int to, int from, off_t *place, size_t size) { return sendfile(to, from, place, size); }
ssize_t copy_file_range(int from, off_t *start, int to, off_t *place, size_t size, unsigned flags) {
    return BELOW(to) ? (errno = EINVAL, -1) : REAL(copy_file_range)(from, start, to, place, size, flags);
}

/* An operation on an open file: counted, perhaps refused, made, and noted when it succeeded. */
#define ON_FILE(kind, offset, call)                                                                                    \
    uint64_t inode = BELOW(descriptor);                                                                                \
    if (!inode) return call;                                                                                           \
    lock();                                                                                                            \
    int result = fails(kind, inode, NULL, NULL) ? -1 : call;                                                           \
    if (!result) note(kind, 0, inode, offset, NULL, NULL, NULL, 0, 0);                                                 \
    unlock();                                                                                                          \
    return result
int fsync(int descriptor) { ON_FILE(SYNC, 0, REAL(fsync)(descriptor)); }
int fdatasync(int descriptor) { ON_FILE(SYNC, 1, REAL(fdatasync)(descriptor)); }
int ftruncate(int descriptor, off_t size) { ON_FILE(TRUNCATE, size, REAL(ftruncate)(descriptor, size)); }
int ftruncate64(int descriptor, off_t size) { return ftruncate(descriptor, size); }
int fallocate(int descriptor, int mode, off_t place, off_t size) {
    ON_FILE(ALLOCATE, mode ? 0 : place + size, REAL(fallocate)(descriptor, mode, place, size));
}
int fallocate64(int descriptor, int mode, off_t place, off_t size) { return fallocate(descriptor, mode, place, size); }
int posix_fallocate(int descriptor, off_t place, off_t size) {
    return !BELOW(descriptor) ? REAL(posix_fallocate)(descriptor, place, size)
                              : fallocate(descriptor, 0, place, size) ? errno : 0;
}
int posix_fallocate64(int descriptor, off_t place, off_t size) { return posix_fallocate(descriptor, place, size); }

/* The same for an operation on a path. `inode` is of what the path names before it, or after it where it is made. */
#define ON_PATH(kind, folder, path, call)                                                                              \
    char whole[PATH_MAX];                                                                                              \
    if (!below(folder, path, whole)) return call;                                                                      \
    lock();                                                                                                            \
    uint64_t inode = inode_of(whole);                                                                                  \
    int result = fails(kind, inode, whole, NULL) ? -1 : call;                                                          \
    if (!result) note(kind, 0, inode ? inode : inode_of(whole), 0, whole, NULL, NULL, 0, 0);                           \
    unlock();                                                                                                          \
    return result
int unlinkat(int folder, const char *path, int flags) {
    ON_PATH(flags & AT_REMOVEDIR ? RMDIR : UNLINK, folder, path, REAL(unlinkat)(folder, path, flags));
}
int unlink(const char *path) { ON_PATH(UNLINK, AT_FDCWD, path, REAL(unlink)(path)); }
int rmdir(const char *path) { ON_PATH(RMDIR, AT_FDCWD, path, REAL(rmdir)(path)); }
int mkdirat(int folder, const char *path, mode_t mode) {
    ON_PATH(MKDIR, folder, path, REAL(mkdirat)(folder, path, mode));
}
int mkdir(const char *path, mode_t mode) { ON_PATH(MKDIR, AT_FDCWD, path, REAL(mkdir)(path, mode)); }
int truncate(const char *path, off_t size) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    int result = ftruncate(descriptor, size), kept = errno;
    return REAL(close)(descriptor), inodes[descriptor % FILES] = 0, errno = kept, result;
}
int truncate64(const char *path, off_t size) { return truncate(path, size); }

/* A new name: of a path that is below the root (`from`), or whose text is kept as it is (symbolic links). */
static int named(int kind, int folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char whole[PATH_MAX], other[PATH_MAX];
    int source = kind == SYMLINK ? snprintf(whole, PATH_MAX, "%s", from) > 0 : below(folder, from, whole);
    int seen = below(to_folder, to, other) && source, result = -1;
    if (seen) lock();
    if (!seen || !fails(kind, 0, other, NULL)) {
        if (kind == RENAME) result = REAL(renameat2)(folder, from, to_folder, to, flags);
        if (kind == LINK) result = REAL(linkat)(folder, from, to_folder, to, flags);
        if (kind == SYMLINK) result = REAL(symlinkat)(from, to_folder, to);
        if (seen && !result) note(kind, 0, inode_of(other), 0, whole, other, NULL, 0, 0);
    }
    if (seen) unlock();
    return result;
}
int renameat2(int folder, const char *from, int to_folder, const char *to, unsigned flags) {
    return named(RENAME, folder, from, to_folder, to, flags);
}
int renameat(int folder, const char *from, int to_folder, const char *to) {
    return named(RENAME, folder, from, to_folder, to, 0);
}
int rename(const char *from, const char *to) { return named(RENAME, AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int folder, const char *from, int to_folder, const char *to, int flags) {
    return named(LINK, folder, from, to_folder, to, flags);
}
int link(const char *from, const char *to) { return named(LINK, AT_FDCWD, from, AT_FDCWD, to, 0); }
int symlinkat(const char *text, int folder, const char *to) { return named(SYMLINK, 0, text, folder, to, 0); }
int symlink(const char *text, const char *to) { return named(SYMLINK, 0, text, AT_FDCWD, to, 0); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (!result && control && control->clock_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t whole = now->tv_sec * 1000000000LL + now->tv_nsec + control->clock_ns;
        now->tv_sec = whole / 1000000000LL;
        now->tv_nsec = whole % 1000000000LL;
    }
    return result;
}
int gettimeofday(struct timeval *now, void *zone __attribute__((unused))) {
    struct timespec found;
    int result = clock_gettime(CLOCK_REALTIME, &found);
    *now = (struct timeval){found.tv_sec, found.tv_nsec / 1000};
    return result;
}
time_t time(time_t *now) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    return now ? (*now = found.tv_sec) : found.tv_sec;
}
