/* trusted.h - files that steer us: opened only if they are what they should be, written so that they are whole or absent.
 *
 * Threads:   any. Errors: -errno, or HAK_TRUST_* where the file itself is the reason.
 */
#ifndef HAK_OS_TRUSTED_H
#define HAK_OS_TRUSTED_H

#include "base/attr.h"

enum {
    HAK_TRUST_KIND = -0x10001,  /* not a regular file; it was not opened for reading */
    HAK_TRUST_LARGE = -0x10002, /* longer than allowed */
    HAK_TRUST_OPEN = -0x10003,  /* others than owner and group may write to it */
    HAK_TRUST_OWNER = -0x10004, /* its owner is neither the process's user nor root, nor, for root, whose folder it lies in */
};

/* A descriptor to read from, and the file's length. */
int hak_os_open_trusted(const char *path, size_t bytes_max, size_t *bytes);

/* Up to count bytes; how many, or -errno. */
long hak_os_read_all(int fd, void *bytes, size_t count);

/* Writes a sibling `path.PID.new` (0600), flushes it to the disk and renames it over path: 0, -errno or HAK_TRUST_KIND where
 * something else than a regular file or a symbolic link stands at path. A link is replaced. */
int hak_os_replace_file(const char *path, const void *bytes, size_t count);

/* One process at a time reads a file and replaces it: a lock (flock) on the folder that it lies in. Waits for half a second at most. What it returns
 * is handed to hak_os_folder_unlock(); below 0: there is no lock (-errno), and who goes on may lose what another one wrote. */
int hak_os_folder_lock(const char *path);
void hak_os_folder_unlock(int lock);

#endif
