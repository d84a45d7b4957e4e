/* descriptor.c - descriptors copied and written, with the error told. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "os/descriptor.h"

#include "os/os.h"

#include "os/syscall.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { DESCRIPTOR_MIN = 64 };

int hak_os_duplicate(int fd) {
    long copy = HAK_SYS3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, DESCRIPTOR_MIN);
    if (copy == -EINVAL || copy == -EMFILE) /* the limit is so low that there is no 64 */
        copy = HAK_SYS3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    return (int)copy;
}

struct hak_os_identity hak_os_identity(int fd) {
    struct stat found;
    if (HAK_SYS2(SYS_fstat, fd, &found) != 0)
        return (struct hak_os_identity){ 0, 0 };
    return (struct hak_os_identity){ found.st_dev, found.st_ino };
}

static bool path_starts(const char *path, const char *folder) {
    while (*folder && *folder == *path)
        folder++, path++;
    return !*folder;
}

static bool path_is_systems(const char *path) {
    return (path_starts(path, "/dev/") && !path_starts(path, "/dev/shm/")) || path_starts(path, "/proc/");
}

int hak_os_open_standing(const char *path) {
    struct stat found;
    bool standing = path_is_systems(path);
    if (!standing) {
        long fd = HAK_SYS4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
        if (fd < 0)
            return HAK_DESCRIPTOR_NONE;
        standing = HAK_SYS2(SYS_fstat, fd, &found) == 0 && !S_ISREG(found.st_mode);
        HAK_SYS1(SYS_close, fd);
    }
    if (!standing)
        return HAK_DESCRIPTOR_NONE;
    /* a pipe that nobody reads is refused, not waited for; what somebody reads is then written whole */
    int fd = (int)HAK_SYS4(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd >= 0)
        HAK_SYS3(SYS_fcntl, fd, F_SETFL, O_APPEND);
    return fd;
}

const char *hak_os_sandbox_words(int error) {
    if (error != -EACCES && error != -EPERM)
        return "";
    int fd = hak_os_open_standing("/dev/null");
    if (fd >= 0)
        hak_os_close(fd);
    return fd == -EACCES || fd == -EPERM ? "; the process is in a sandbox that refuses /dev/null, too" : "";
}

int hak_os_write_all(int fd, const void *bytes, size_t count) {
    if (!hak_os_file_takes(fd, count)) return -EFBIG;
    const char *at = bytes;
    while (count > 0) {
        long written = hak_os_write_some(fd, at, count);
        if (written == -EINTR)
            continue;
        if (written < 0)
            return (int)written;
        if (written == 0)
            return -EIO;
        at += written;
        count -= (size_t)written;
    }
    return 0;
}

int hak_os_replace(int fd, int error, const char *draft, const char *path) {
    struct hak_os_identity ours = hak_os_identity(fd);
    int there = (int)HAK_SYS4(SYS_openat, AT_FDCWD, draft, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    struct hak_os_identity found = hak_os_identity(there);
    if (there >= 0) hak_os_close(there);
    hak_os_close(fd);
    if (there >= 0 && (found.device != ours.device || found.inode != ours.inode)) return error ? error : -EBUSY;
    if (!error) error = hak_os_rename(draft, path);
    if (error) hak_os_unlink(draft);
    return error;
}

int hak_os_open_read(const char *path) {
    return (int)HAK_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOCTTY, 0);
}

long hak_os_read(int fd, void *bytes, size_t count) {
    long got;
    do got = HAK_SYS3(SYS_read, fd, bytes, count);
    while (got == -EINTR);
    return got;
}

bool hak_os_is_folder(const char *path) {
    long fd = HAK_SYS4(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd >= 0) HAK_SYS1(SYS_close, fd);
    return fd >= 0;
}

bool hak_os_read_self(uintptr_t address, void *bytes, size_t count) {
    struct iovec here = { bytes, count }, there = { (void *)address, count };
    return HAK_SYS6(SYS_process_vm_readv, hak_os_pid(), &here, 1, &there, 1, 0) == (long)count;
}

int hak_os_mapping(int maps, uintptr_t address, uintptr_t *low, uintptr_t *high) {
    struct { /* struct procmap_query of linux/fs.h, which may be older than the kernel */
        uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
        uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
        uint64_t vma_name_addr, build_id_addr;
    } query = { .size = sizeof query, .query_flags = 1 /* readable */, .query_addr = address };
    long result = HAK_SYS3(SYS_ioctl, maps, _IOWR('f', 17, query), &query);
    if (result == -ENOENT) return 0;
    if (result < 0) return -1;
    *low = query.vma_start;
    *high = query.vma_end;
    return 1;
}
