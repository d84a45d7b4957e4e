/* process.c - what the system knows of this process: limits, time, faults, names. In a forked child by files in /proc alone.
 *
 * Threads:   any.
 */
#include "os/os.h"

#include "base/atomic.h"
#include "os/syscall.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static hak_atomic_u32 is_forked;
static const hak_atomic_u32 *wiped_page;

void hak_os_forked(void) { hak_store_relaxed(&is_forked, 1); }
void hak_os_forked_tells(const void *page) { __atomic_store_n(&wiped_page, page, __ATOMIC_RELAXED); }
bool hak_os_is_forked(void) {
    const hak_atomic_u32 *page = __atomic_load_n(&wiped_page, __ATOMIC_RELAXED);
    return hak_load_relaxed(&is_forked) != 0 || (page && hak_load_relaxed(page) == 0);
}

size_t hak_os_file_read(const char *name, char *text, size_t count) {
    long fd = HAK_SYS4(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return text[0] = 0;
    long got = HAK_SYS3(SYS_read, fd, text, count - 1);
    HAK_SYS1(SYS_close, fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

static const char *number_read(const char *text, uint64_t *number) {
    for (*number = 0; *text >= '0' && *text <= '9'; text++) *number = *number * 10 + (uint64_t)(*text - '0');
    return text;
}

/* The soft limit; its line's first number. False: it cannot be read. */
static bool limit_read(const char *name, size_t *bytes) {
    char text[2048];
    uint64_t limit;
    const char *line = hak_os_file_read("/proc/self/limits", text, sizeof text) ? strstr(text, name) : NULL;
    if (!line) return false;
    for (line += strlen(name); *line == ' '; line++) continue;
    *bytes = number_read(line, &limit) == line ? SIZE_MAX : (size_t)limit;
    return true;
}

static bool limit_ask(int resource, size_t *bytes) {
    struct rlimit limit;
    if (HAK_SYS4(SYS_prlimit64, 0, resource, NULL, &limit) != 0) return false;
    *bytes = limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur;
    return true;
}

HAK_COLD size_t hak_os_address_limit(void) {
    size_t space = SIZE_MAX, data = SIZE_MAX;
    if (hak_os_is_forked()) {
        limit_read("Max address space", &space);
        limit_read("Max data size", &data);
    } else {
        limit_ask(RLIMIT_AS, &space);
        limit_ask(RLIMIT_DATA, &data);
    }
    return space < data ? space : data;
}

/* "Cpus_allowed:<tab>ff,ffffffff", in hexadecimal. */
static HAK_COLD unsigned processors_read(void) {
    char text[4096];
    unsigned count = 0;
    static const char name[] = "\nCpus_allowed:";
    const char *at = hak_os_file_read("/proc/self/status", text, sizeof text) ? strstr(text, name) : NULL;
    if (!at) return 0;
    for (at += sizeof name - 1; *at && *at != '\n'; at++) {
        unsigned digit = *at >= '0' && *at <= '9' ? (unsigned)(*at - '0') : *at >= 'a' && *at <= 'f' ? (unsigned)(*at - 'a') + 10 : 0;
        count += (unsigned)__builtin_popcount(digit);
    }
    return count;
}

static HAK_COLD unsigned processors_ask(void) {
    enum { WORDS = 128 }; /* 8,192 processors; the kernel refuses if there may be more */
    uint64_t mask[WORDS];
    unsigned count = 0;
    for (long i = 0, bytes = HAK_SYS3(SYS_sched_getaffinity, hak_os_pid(), sizeof mask, mask); i < bytes / 8; i++)
        count += (unsigned)__builtin_popcountll(mask[i]);
    return count;
}

HAK_COLD unsigned hak_os_processors(void) { return hak_os_is_forked() ? processors_read() : processors_ask(); }

bool hak_os_file_takes(int fd, size_t count) {
    struct stat file;
    size_t limit = hak_os_is_forked() ? 0 : SIZE_MAX; /* a child that sees no /proc is shut in: sshd's may write no byte to a file */
    if (HAK_SYS2(SYS_fstat, fd, &file) != 0) return !hak_os_is_forked();
    if (!S_ISREG(file.st_mode)) return true;
    hak_os_is_forked() ? limit_read("Max file size", &limit) : limit_ask(RLIMIT_FSIZE, &limit);
    return limit == SIZE_MAX || (count <= limit && (size_t)file.st_size <= limit - count);
}

void hak_os_note(int fd, const void *bytes, size_t count) {
    if (hak_os_file_takes(fd, count)) hak_os_write(fd, bytes, count);
}

/* The kernel counts the threads as links of their folder: two more, and the first is one until the process ends. */
bool hak_os_is_last_thread(void) {
    enum { LINKS = 2, THREADS = 2 };
    struct stat folder;
    char text[512];
    if (HAK_SYS4(SYS_newfstatat, AT_FDCWD, "/proc/self/task", &folder, 0) != 0 || folder.st_nlink != LINKS + THREADS) return false;
    if (!hak_os_file_read("/proc/self/stat", text, sizeof text)) return false;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'Z';
}

size_t hak_os_resident_bytes(void) {
    char text[128];
    uint64_t pages;
    if (!hak_os_file_read("/proc/thread-self/statm", text, sizeof text)) return 0;
    const char *rest = number_read(text, &pages);
    number_read(rest + (*rest == ' '), &pages);
    return pages * hak_os_page_bytes();
}

/* "VmHWM:<tab>   1234 kB" */
size_t hak_os_resident_peak_bytes(void) {
    char text[4096];
    uint64_t kib = 0;
    static const char name[] = "\nVmHWM:";
    const char *at = hak_os_file_read("/proc/self/status", text, sizeof text) ? strstr(text, name) : NULL;
    if (!at) return 0;
    for (at += sizeof name - 1; *at == ' ' || *at == '\t'; at++) continue;
    number_read(at, &kib);
    return kib << 10;
}

/* The tenth of /proc/self/stat; the second, a name in brackets, may hold anything. */
static uint64_t faults_read(void) {
    enum { AFTER_NAME = 8 };
    char text[1024];
    uint64_t count;
    size_t end = hak_os_file_read("/proc/self/stat", text, sizeof text), spaces = 0;
    while (end > 0 && text[end - 1] != ')') end--;
    if (end == 0) return 0;
    const char *at = text + end;
    while (*at && spaces < AFTER_NAME) spaces += *at++ == ' ';
    number_read(at, &count);
    return count;
}

struct hak_os_usage hak_os_usage(void) {
    struct rusage now;
    if (hak_os_is_forked()) {
        struct timespec cpu = { 0, 0 };
        HAK_SYS2(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &cpu);
        return (struct hak_os_usage){ (uint64_t)cpu.tv_sec * 1000000 + (uint64_t)cpu.tv_nsec / 1000, faults_read() };
    }
    if (HAK_SYS2(SYS_getrusage, RUSAGE_SELF, &now) != 0) return (struct hak_os_usage){ 0, 0 };
    return (struct hak_os_usage){ (uint64_t)(now.ru_utime.tv_sec + now.ru_stime.tv_sec) * 1000000 +
                                      (uint64_t)(now.ru_utime.tv_usec + now.ru_stime.tv_usec),
                                  (uint64_t)now.ru_minflt };
}

void hak_os_thread_name(char name[16]) {
    name[0] = 0;
    if (hak_os_is_forked()) {
        char text[32]; /* the name and a line's end */
        size_t count = hak_os_file_read("/proc/thread-self/comm", text, sizeof text);
        for (size_t i = 0; i + 1 < count && i < 15; i++) name[i] = text[i], name[i + 1] = 0;
        return;
    }
    HAK_SYS2(SYS_prctl, PR_GET_NAME, name);
    name[15] = 0;
}
