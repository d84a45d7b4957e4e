/* mappings.h - the lines of /proc/self/maps, one after another, without allocating.
 *
 * Threads:   any, at any time; the caller brings the buffer.
 */
#ifndef HAK_OS_MAPPINGS_H
#define HAK_OS_MAPPINGS_H

#include "base/attr.h"

struct hak_mapping {
    uintptr_t low, high;
    uint64_t offset;   /* in the file */
    bool is_readable;
    const char *path;  /* "" for memory of no file; valid during the call */
};

/* `each` returns false to end it. A line longer than the buffer ends it, too. */
void hak_os_mappings(char *buffer, size_t bytes, bool (*each)(const struct hak_mapping *mapping, void *context), void *context);

#endif
