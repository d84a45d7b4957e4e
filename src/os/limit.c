/* limit.c - how much memory the process may have: RLIMIT_AS, RLIMIT_DATA and its cgroup's memory.max.
 *
 * Owns:      the path of the cgroup, found once; a process that is moved to another one keeps the first.
 * Threads:   any; two that come first at once find the same path.
 */
#include "os/os.h"

#include "base/atomic.h"
#include "base/text.h"

enum { PATH_BYTES = 512 };

static char path[PATH_BYTES];
static hak_atomic_u32 path_state; /* 0 not looked for yet, 1 being looked for, 2 found, 3 there is none */

/* The line "0::/path" of /proc/self/cgroup is cgroup v2's. */
static bool path_find(void) {
    char bytes[PATH_BYTES];
    struct hak_text text = HAK_TEXT(path);
    if (!hak_os_file_read("/proc/self/cgroup", bytes, sizeof bytes)) return false;
    const char *line = bytes;
    while (*line && !(line[0] == '0' && line[1] == ':' && line[2] == ':')) {
        while (*line && *line != '\n') line++;
        line += *line == '\n';
    }
    if (!*line) return false;
    hak_text_str(&text, "/sys/fs/cgroup");
    for (line += 3; *line && *line != '\n'; line++) hak_text_char(&text, *line);
    hak_text_str(&text, "/memory.max");
    return hak_text_end(&text) < sizeof path;
}

size_t hak_os_memory_limit(void) {
    size_t limit = hak_os_address_limit(), most = 0;
    uint32_t none = 0;
    char bytes[64];
    if (hak_load_acquire(&path_state) == 0 && hak_cas(&path_state, &none, 1))
        hak_store_release(&path_state, path_find() ? 2 : 3);
    if (hak_load_acquire(&path_state) != 2 || !hak_os_file_read(path, bytes, sizeof bytes)) return limit;
    if (bytes[0] < '0' || bytes[0] > '9') return limit; /* "max" */
    for (const char *digit = bytes; *digit >= '0' && *digit <= '9'; digit++) most = most * 10 + (size_t)(*digit - '0');
    return most < limit ? most : limit;
}
