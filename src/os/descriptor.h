/* descriptor.h - the few things a report needs of file descriptors, beyond os.h.
 *
 * Threads:   any, at any time.
 * Errors:    -errno; libc's errno stays as it is.
 */
#ifndef HAK_OS_DESCRIPTOR_H
#define HAK_OS_DESCRIPTOR_H

#include "base/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A copy of the descriptor, closed on exec, at 64 or above so that the program's own numbers stay the same. */
int hak_os_duplicate(int fd);

/* Which file is open there, so that one knows it again; { 0, 0 } when none is. */
struct hak_os_identity {
    uint64_t device, inode;
};
struct hak_os_identity hak_os_identity(int fd);

/* Opens what must not be replaced by a new file (a device, a pipe, whatever is named in /dev or /proc but
 * /dev/shm, there or not), to append to it: the descriptor or -errno. HAK_DESCRIPTOR_NONE where a new file may be put. */
enum { HAK_DESCRIPTOR_NONE = -0x10000 };
int hak_os_open_standing(const char *path);

/* After the error for which a file could not be written: what to add to it where the process is in a sandbox, else "". */
const char *hak_os_sandbox_words(int error);

/* To read it: the descriptor, or -errno. hak_os_read() gives bytes, 0 at the end, or -errno. */
int hak_os_open_read(const char *path);
long hak_os_read(int fd, void *bytes, size_t count);

bool hak_os_is_folder(const char *path);

/* The mapping that an address lies in, asked of the descriptor of /proc/self/maps: 1 found, and readable; 0 none; -1 the
 * kernel is older than Linux 6.11, and its text must be read. */
int hak_os_mapping(int maps, uintptr_t address, uintptr_t *low, uintptr_t *high);

/* Reads the process's own memory; false where it cannot be read. */
bool hak_os_read_self(uintptr_t address, void *bytes, size_t count);

/* All of the bytes, or the error that stopped it. */
int hak_os_write_all(int fd, const void *bytes, size_t count);

/* Closes the file that was written as `draft`; where there was no `error`, it takes the place of `path`, else it goes. -EBUSY: another process
 * whose number is ours, in another container, has begun its own draft there, which is left to it. */
int hak_os_replace(int fd, int error, const char *draft, const char *path);

#ifdef __cplusplus
}
#endif
#endif
