/* trusted.c - see trusted.h.
 *
 * A device or a pipe must not be opened even to look at it: that can block, rewind or start something. O_PATH opens nothing;
 * only what it shows to be a regular file is opened, and looked at once more through the descriptor: it may be another by
 * then, as where a server's workers replace theirs, and is judged by itself.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH */
#endif
#include "os/trusted.h"

#include "base/text.h"
#include "os/descriptor.h"
#include "os/os.h"
#include "os/syscall.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { PATH_BYTES = 512 };

/* The folder that it lies in, a slash at its end; false: the name is too long. */
static bool folder_of(const char *path, char folder[PATH_BYTES]) {
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] != '/') end--;
    if (end >= PATH_BYTES) return false;
    memcpy(folder, end ? path : ".", end ? end : 1);
    folder[end ? end : 1] = 0;
    return true;
}

/* Root gave that user a folder of his own: a daemon that root starts and that then changes its user finds what it wrote. */
static bool folder_is_of(const char *path, uid_t user) {
    char folder[PATH_BYTES];
    struct stat found;
    return folder_of(path, folder) && HAK_SYS4(SYS_newfstatat, AT_FDCWD, folder, &found, 0) == 0 && found.st_uid == user && !(found.st_mode & S_IWOTH);
}

static int judge(const char *path, const struct stat *found, size_t bytes_max) {
    unsigned user = (unsigned)HAK_SYS1(SYS_geteuid, 0);
    if (!S_ISREG(found->st_mode)) return HAK_TRUST_KIND;
    if (found->st_size < 0 || (uint64_t)found->st_size > bytes_max) return HAK_TRUST_LARGE;
    if (found->st_mode & S_IWOTH) return HAK_TRUST_OPEN;
    if (found->st_uid == user || found->st_uid == 0) return 0;
    return user == 0 && folder_is_of(path, found->st_uid) ? 0 : HAK_TRUST_OWNER;
}

int hak_os_open_trusted(const char *path, size_t bytes_max, size_t *bytes) {
    struct stat first, second;
    long fd = HAK_SYS4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
    if (fd < 0) return (int)fd;
    long error = HAK_SYS2(SYS_fstat, fd, &first);
    HAK_SYS1(SYS_close, fd);
    if (error) return (int)error;
    int wrong = judge(path, &first, bytes_max);
    if (wrong) return wrong;
    fd = HAK_SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (fd < 0) return (int)fd;
    error = HAK_SYS2(SYS_fstat, fd, &second);
    wrong = error ? (int)error : judge(path, &second, bytes_max);
    if (wrong) {
        HAK_SYS1(SYS_close, fd);
        return wrong;
    }
    *bytes = (size_t)second.st_size;
    return (int)fd;
}

long hak_os_read_all(int fd, void *bytes, size_t count) {
    size_t done = 0;
    while (done < count) {
        long got = HAK_SYS3(SYS_read, fd, (char *)bytes + done, count - done);
        if (got == -EINTR) continue;
        if (got < 0) return got;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (long)done;
}

int hak_os_replace_file(const char *path, const void *bytes, size_t count) {
    char name[PATH_BYTES + 32];
    struct hak_text sibling = HAK_TEXT(name);
    struct stat found;
    long fd = HAK_SYS4(SYS_openat, AT_FDCWD, path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd >= 0) {
        bool replaceable = HAK_SYS2(SYS_fstat, fd, &found) == 0 && (S_ISREG(found.st_mode) || S_ISLNK(found.st_mode));
        HAK_SYS1(SYS_close, fd);
        if (!replaceable) return HAK_TRUST_KIND;
    }
    hak_text_format(&sibling, "%s.%u.new", path, hak_os_pid());
    if (hak_text_end(&sibling) >= sizeof name) return -ENAMETOOLONG;
    fd = hak_os_open_new(name);
    if (fd < 0) return (int)fd;
    int error = hak_os_write_all((int)fd, bytes, count);
    if (!error) error = (int)HAK_SYS1(SYS_fsync, fd);
    if (error == -EINVAL) error = 0; /* a file system that has no such thing */
    return hak_os_replace((int)fd, error, name, path);
}

/* The folder, for the file is another one each time it is written. A lock that stays is somebody else's business: who waits for it goes on. */
int hak_os_folder_lock(const char *path) {
    enum { TURNS = 5000 }; /* some 500 ms: others flush their files to the disk meanwhile */
    char folder[PATH_BYTES];
    if (!folder_of(path, folder)) return -ENAMETOOLONG;
    long fd = HAK_SYS4(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), result = 0;
    if (fd < 0) return (int)fd;
    for (unsigned turn = 0; turn < TURNS && (result = HAK_SYS2(SYS_flock, fd, LOCK_EX | LOCK_NB)) == -EWOULDBLOCK; turn++) hak_os_yield(turn);
    if (result == 0) return (int)fd;
    HAK_SYS1(SYS_close, fd);
    return (int)result;
}

/* A child of a fork meanwhile has the descriptor, too: it is unlocked, not only closed. */
void hak_os_folder_unlock(int lock) {
    if (lock < 0) return;
    HAK_SYS2(SYS_flock, lock, LOCK_UN);
    HAK_SYS1(SYS_close, lock);
}
