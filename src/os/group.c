/* group.c - what the control groups around the process allow it: memory and processors. And with RLIMIT_AS and RLIMIT_DATA, memory in all.
 *
 * A group is a folder; so are those that it lies in, up to the mount, and the smallest of their limits holds. Version 2 has one tree, version
 * 1 one for each controller; where there are both ("hybrid") memory is in one of them. In a container the path that the kernel tells may be
 * the host's, which cannot be seen there: of it only the mount itself is found, and that is the container's own group.
 *
 * Owns:      nothing; all is read anew, on the caller's stack, some 2 KiB: it may be a signal handler's.
 * Threads:   any. Three system calls, openat, read and close: what a sandbox lets a process do that reads files.
 * Rejected:  /proc/self/mountinfo, for mounts elsewhere: hundreds of lines in a container, for what everybody mounts at one place.
 *            memory.current: what the kernel caches of files counts there, and goes by itself.
 */
#include "os/os.h"

#include "base/text.h"
#include "os/descriptor.h"

enum { PATH_BYTES = 1024, NAME_BYTES_MAX = 32, TEXT_BYTES = 256, LIST_BYTES_MAX = 1 << 16, LEVELS_MAX = 32 };
#define NO_LIMIT (UINT64_C(1) << 60) /* version 1 says so by a number of pages beyond counting */

#ifdef HAK_DEBUG
const char *hak_os_group_list = "/proc/self/cgroup", *hak_os_group_mount = "/sys/fs/cgroup";
#else
static const char hak_os_group_list[] = "/proc/self/cgroup", hak_os_group_mount[] = "/sys/fs/cgroup";
#endif

/* --- lines like "0::/path" (version 2) and "7:cpu,cpuacct:/path", of any length --- */

struct list {
    int fd;
    unsigned at, held;
    long left; /* what is longer is not the kernel's */
    char bytes[TEXT_BYTES];
};

static int list_next(struct list *list) {
    if (list->at == list->held) {
        long got = list->left > 0 ? hak_os_read(list->fd, list->bytes, sizeof list->bytes) : 0;
        if (got <= 0) return -1;
        list->left -= got;
        list->held = (unsigned)got;
        list->at = 0;
    }
    return (unsigned char)list->bytes[list->at++];
}

/* Of "a,b:" is one the wanted name? The character behind is read, too. */
static bool list_names(struct list *list, const char *wanted, int *c) {
    bool is_same = true, is_found = false;
    for (unsigned i = 0;;) {
        *c = list_next(list);
        if (*c >= 0 && *c != ':' && *c != ',' && *c != '\n') {
            is_same = is_same && wanted[i] != 0 && wanted[i] == (char)*c;
            i += is_same;
            continue;
        }
        is_found |= is_same && wanted[i] == 0;
        if (*c != ',') return is_found && *c == ':';
        is_same = true;
        i = 0;
    }
}

/* Appends the path of the group that the tree of this controller ("": version 2's) has the process in. */
static bool list_find(struct list *list, const char *controller, struct hak_text *path) {
    for (int c = 0; c >= 0;) {
        for (c = list_next(list); c >= 0 && c != ':' && c != '\n'; c = list_next(list)) continue;
        if (c != ':') continue;
        bool is_found = list_names(list, controller, &c);
        if (c != ':') continue;
        for (c = list_next(list); c >= 0 && c != '\n'; c = list_next(list))
            if (is_found) hak_text_char(path, (char)c);
        if (is_found) return true;
    }
    return false;
}

/* --- folders --- */

/* The folder and room for a file's name behind it. */
struct folder {
    char path[PATH_BYTES + NAME_BYTES_MAX];
    size_t mount, bytes; /* of the path, where the mount's ends; and all of it */
    bool is_beyond; /* the group lies outside of what the process sees as the tree: the mount itself is another's */
};

/* The file's text, or "". A refusal and a file that is not there are the same. */
static size_t folder_read(struct folder *folder, const char *name, char *text, size_t count) {
    struct hak_text file = { folder->path, folder->bytes, sizeof folder->path };
    hak_text_str(&file, name);
    hak_text_end(&file);
    return hak_os_file_read(folder->path, text, count);
}

/* In a namespace of its own the kernel tells the way from its root: "/../other". What is mounted may be the whole tree, in which the rest is
 * found; but names of ".." further behind are nobody's. */
static bool folder_tidy(struct folder *folder) {
    char *from = folder->path + folder->mount, *rest = from;
    if (from[0] != '/') return false;
    while (rest[0] == '/' && rest[1] == '.' && rest[2] == '.' && (rest[3] == '/' || rest[3] == 0)) rest += 3;
    folder->is_beyond = rest > from;
    size_t count = 0;
    for (; rest[count]; count++) {
        if (rest[count] == '/' && rest[count + 1] == '.' && rest[count + 2] == '.' && (rest[count + 3] == '/' || rest[count + 3] == 0)) return false;
        from[count] = rest[count];
    }
    while (count > 0 && from[count - 1] == '/') count--;
    folder->bytes = folder->mount + count;
    return true;
}

/* One up; false: that was the mount. */
static bool folder_leave(struct folder *folder) {
    if (folder->bytes <= folder->mount) return false;
    do folder->bytes--;
    while (folder->bytes > folder->mount && folder->path[folder->bytes] != '/');
    return folder->bytes > folder->mount || !folder->is_beyond;
}

/* False: the list cannot be read. No group: the folder has no bytes. */
static bool folder_find(struct folder *folder, const char *mount, const char *controller) {
    struct list list = { .fd = hak_os_open_read(hak_os_group_list), .left = LIST_BYTES_MAX };
    folder->bytes = 0;
    if (list.fd < 0) return false;
    struct hak_text path = { folder->path, 0, PATH_BYTES };
    hak_text_str(&path, hak_os_group_mount);
    hak_text_str(&path, mount);
    folder->mount = path.used;
    bool is_found = list_find(&list, controller, &path);
    hak_os_close(list.fd);
    if (!is_found) return true;
    bool is_cut = path.used >= PATH_BYTES;
    hak_text_end(&path);
    if (!folder_tidy(folder)) folder->bytes = 0;
    else if (is_cut) folder_leave(folder); /* those that it lies in are its own, too */
    return true;
}

/* --- numbers --- */

/* "max", -1, and what nobody could have: no limit. */
static uint64_t number_read(const char *text, const char **end) {
    uint64_t number = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) number = number < NO_LIMIT ? number * 10 + (uint64_t)(*at - '0') : number;
    *end = at;
    bool is_whole = at > text && (*at == 0 || *at == '\n' || *at == ' ');
    return is_whole && number < NO_LIMIT ? number : UINT64_MAX;
}

static void memory_look(struct folder *folder, const char *name, uint64_t *least, bool *is_there) {
    char text[NAME_BYTES_MAX];
    const char *end;
    if (!folder_read(folder, name, text, sizeof text)) return;
    uint64_t bytes = number_read(text, &end);
    if (bytes < *least) *least = bytes;
    *is_there = true;
}

/* Rounded up: half a processor's time is one that a thread may run on. */
static void quota_note(uint64_t quota, uint64_t period, unsigned *least) {
    if (quota == UINT64_MAX || period == UINT64_MAX || period == 0 || quota == 0) return;
    uint64_t processors = (quota - 1) / period + 1;
    if (*least == 0 || processors < *least) *least = processors < UINT32_MAX ? (unsigned)processors : UINT32_MAX;
}

static void processors_look(struct folder *folder, unsigned *least, bool *is_there) {
    char text[2 * NAME_BYTES_MAX];
    const char *end;
    if (folder_read(folder, "/cpu.max", text, sizeof text)) { /* "200000 100000" */
        uint64_t quota = number_read(text, &end), period = number_read(end + (*end == ' '), &end);
        quota_note(quota, period, least);
        *is_there = true;
    } else if (folder_read(folder, "/cpu.cfs_quota_us", text, sizeof text)) {
        uint64_t quota = number_read(text, &end), period = UINT64_MAX;
        if (folder_read(folder, "/cpu.cfs_period_us", text, sizeof text)) period = number_read(text, &end);
        quota_note(quota, period, least);
        *is_there = true;
    }
}

/* --- trees --- */

static const struct tree {
    char mount[12], controller[8];
} trees[2][3] = { { { "", "" }, { "/unified", "" }, { "/memory", "memory" } }, { { "", "" }, { "/unified", "" }, { "/cpu", "cpu" } } };

/* Where the first tree has a file of the kind, the second is not asked; the third is another hierarchy. */
static bool trees_look(bool is_memory, uint64_t *memory, unsigned *processors) {
    bool is_there = false;
    for (unsigned i = 0; i < 3; i++) {
        struct folder folder;
        if (i == 1 && is_there) continue;
        if (!folder_find(&folder, trees[!is_memory][i].mount, trees[!is_memory][i].controller)) return false;
        if (folder.bytes == 0 || (folder.bytes == folder.mount && folder.is_beyond)) continue;
        unsigned levels = 0;
        do {
            if (is_memory) {
                memory_look(&folder, i == 2 ? "/memory.limit_in_bytes" : "/memory.max", memory, &is_there);
                if (i < 2) memory_look(&folder, "/memory.high", memory, &is_there);
            } else {
                processors_look(&folder, processors, &is_there);
            }
        } while (++levels < LEVELS_MAX && folder_leave(&folder));
    }
    return true;
}

HAK_COLD bool hak_os_group_memory(uint64_t *bytes) {
    *bytes = UINT64_MAX;
    return trees_look(true, bytes, NULL);
}

HAK_COLD unsigned hak_os_group_processors(void) {
    unsigned processors = 0;
    trees_look(false, NULL, &processors);
    return processors;
}

size_t hak_os_memory_limit(void) {
    size_t limit = hak_os_address_limit();
    uint64_t group;
    hak_os_group_memory(&group);
    return group < limit ? (size_t)group : limit;
}
