/* Stands before the C library's file functions (LD_PRELOAD) and makes the k-th call on a folder fail, or kills the
 * process in the middle of it. It sees what Python does and what SQLite does inside. Built and armed by
 * attack_syscalls.py. Modes: 1 fails once (EIO), 2 is a full disk from there on (ENOSPC), 3 kills. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static long at = -1, count = 0;
static int mode = 0;

void shim_arm(const char *prefix, long point, int how) {
    strncpy(folder, prefix, sizeof folder - 1);
    at = point;
    mode = how;
    count = 0;
}

long shim_count(void) { return count; }

static int ours(const char *path) { return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0; }

static int ours_descriptor(int descriptor) {
    char link[64], path[PATH_MAX];
    if (!folder[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return ours(path);
}

/* 0: go on; 1: fail with errno set; 2: die. */
static int fate(int frees_space) {
    count++;
    if (at < 0 || count < at || (count > at && mode != 2)) return 0;
    if (mode == 3) return 2;
    if (mode == 2 && frees_space) return 0;
    errno = mode == 2 ? ENOSPC : EIO;
    return 1;
}

static void die(void) { kill(getpid(), SIGKILL); }

#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, name)

typedef ssize_t (*write_type)(int, const void *, size_t);
ssize_t write(int descriptor, const void *data, size_t size) {
    REAL("write", write_type);
    if (ours_descriptor(descriptor)) switch (fate(0)) {
        case 1: return -1;
        case 2: real(descriptor, data, size / 2); die();
    }
    return real(descriptor, data, size);
}

typedef ssize_t (*pwrite_type)(int, const void *, size_t, off64_t);
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    REAL("pwrite64", pwrite_type);
    if (ours_descriptor(descriptor)) switch (fate(0)) {
        case 1: return -1;
        case 2: real(descriptor, data, size / 2, offset); die();
    }
    return real(descriptor, data, size, offset);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return pwrite64(descriptor, data, size, offset);
}

#define BY_DESCRIPTOR(name, frees)                            \
    int name(int descriptor) {                                \
        REAL(#name, int (*)(int));                            \
        if (ours_descriptor(descriptor)) switch (fate(frees)) { \
            case 1: return -1;                                \
            case 2: die();                                    \
        }                                                     \
        return real(descriptor);                              \
    }
typedef int (*descriptor_type)(int);
#undef REAL
#define REAL(name, type) static descriptor_type real; if (!real) real = (descriptor_type)dlsym(RTLD_NEXT, name)
BY_DESCRIPTOR(fsync, 0)
BY_DESCRIPTOR(fdatasync, 0)

#undef REAL
#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, name)
typedef int (*truncate_type)(int, off64_t);
int ftruncate64(int descriptor, off64_t size) {
    REAL("ftruncate64", truncate_type);
    if (ours_descriptor(descriptor)) switch (fate(1)) {
        case 1: return -1;
        case 2: die();
    }
    return real(descriptor, size);
}
int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }

typedef int (*rename_type)(const char *, const char *);
int rename(const char *from, const char *to) {
    REAL("rename", rename_type);
    if (ours(from) || ours(to)) switch (fate(0)) {
        case 1: return -1;
        case 2: die();
    }
    return real(from, to);
}

typedef int (*path_type)(const char *);
int unlink(const char *path) {
    REAL("unlink", path_type);
    if (ours(path)) switch (fate(1)) {
        case 1: return -1;
        case 2: die();
    }
    return real(path);
}

typedef int (*mkdir_type)(const char *, mode_t);
int mkdir(const char *path, mode_t bits) {
    REAL("mkdir", mkdir_type);
    if (ours(path)) switch (fate(0)) {
        case 1: return -1;
        case 2: die();
    }
    return real(path, bits);
}
