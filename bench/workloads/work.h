/* work.h - what every workload shares: arguments, seeds, clocks, memory read from the kernel, one JSON line.
 *
 * Owns:      nothing; all state is in static buffers, so that the allocator under test sees only the
 *            workload's own calls.
 * Invariant: a workload knows nothing of the allocator it runs on; it prints one JSON line on success and
 *            exits 0, or one line on standard error and exits 1 (a broken block) or 2 (a bad argument).
 * Why smaps_rollup: VmRSS of /proc/self/status is a sum of per-processor estimates and may be a quarter of a
 *            MiB off; smaps_rollup walks the page tables.
 */
#ifndef HAKMEM_BENCH_WORK_H
#define HAKMEM_BENCH_WORK_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* --- failing ------------------------------------------------------------------------------------ */

static inline _Noreturn void work_die(int status, const char *format, ...) {
    char line[256];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    ssize_t ignored = write(2, line, (size_t)length);
    (void)ignored;
    _exit(status);
}

/* --- arguments ---------------------------------------------------------------------------------- */

/* Argument `index` as a number from min to max, or the default when it is not given. */
static inline uint64_t work_arg(int argc, char **argv, int index, const char *name, uint64_t value,
                                uint64_t min, uint64_t max) {
    if (index >= argc) return value;
    char *end;
    errno = 0;
    unsigned long long given = strtoull(argv[index], &end, 10);
    if (argv[index][0] < '0' || argv[index][0] > '9' || *end || errno || given < min || given > max)
        work_die(2, "%s: %s=%s is not a number from %" PRIu64 " to %" PRIu64, argv[0], name, argv[index], min, max);
    return given;
}

static inline void work_args_end(int argc, char **argv, int count_max) {
    if (argc > count_max + 1) work_die(2, "%s: too many arguments, at most %d", argv[0], count_max);
}

/* --- random numbers: splitmix64, the same sequence on every machine ------------------------------ */

static inline uint64_t work_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* From 0 to bound - 1, without a division. */
static inline uint64_t work_below(uint64_t *state, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)work_random(state) * bound) >> 64);
}

/* --- clocks ------------------------------------------------------------------------------------- */

static inline uint64_t work_clock(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline uint64_t work_wall_ns(void) { return work_clock(CLOCK_MONOTONIC); }
static inline uint64_t work_cpu_ns(void) { return work_clock(CLOCK_PROCESS_CPUTIME_ID); }

static inline void work_sleep_ms(uint64_t ms) {
    struct timespec rest = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    while (nanosleep(&rest, &rest) && errno == EINTR) { }
}

/* --- memory, from the kernel -------------------------------------------------------------------- */

/* The number after `key` in a small file of /proc, in its own unit (KiB nearly everywhere). */
static inline uint64_t work_proc_field(const char *path, const char *key) {
    static _Thread_local char text[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    size_t length = 0;
    ssize_t got;
    while (length < sizeof text - 1 && (got = read(fd, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    close(fd);
    text[length] = 0;
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}
static inline uint64_t work_resident_kb(void) { return work_proc_field("/proc/self/smaps_rollup", "Rss:"); }
static inline uint64_t work_peak_kb(void) { return work_proc_field("/proc/self/status", "VmHWM:"); }
static inline uint64_t work_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}

/* Room for the workload's own tables, straight from the kernel: it is not the allocator's memory. */
static inline void *work_table(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) work_die(1, "no memory for a table of %zu bytes", bytes);
    return p;
}

/* --- blocks, checked ---------------------------------------------------------------------------- */

static inline void work_mark(void *block, size_t bytes, unsigned char tag) {
    if (!block) work_die(1, "no memory for a block of %zu bytes", bytes);
    /* C asks for what an object of that size may need; several peers give 8 bytes to blocks below 16 */
    size_t alignment = bytes >= 16 ? 16 : bytes >= 8 ? 8 : 1;
    if ((uintptr_t)block & (alignment - 1))
        work_die(1, "block %p of %zu bytes is not aligned to %zu", block, bytes, alignment);
    ((volatile unsigned char *)block)[0] = tag;
    ((volatile unsigned char *)block)[bytes - 1] = tag;
}
static inline void work_verify(const void *block, size_t bytes, unsigned char tag) {
    const volatile unsigned char *byte = block;
    if (byte[0] != tag || byte[bytes - 1] != tag)
        work_die(1, "block %p of %zu bytes has changed: holds %d and %d, wrote %d", block, bytes, byte[0],
                 byte[bytes - 1], tag);
}
static inline void *work_alloc(size_t bytes, unsigned char tag) {
    void *block = malloc(bytes);
    work_mark(block, bytes, tag);
    return block;
}
static inline void work_free(void *block, size_t bytes, unsigned char tag) {
    work_verify(block, bytes, tag);
    free(block);
}

/* --- threads ------------------------------------------------------------------------------------ */

static inline pthread_t work_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, argument);
    if (error) work_die(1, "no thread: %s", strerror(error));
    return thread;
}
static inline void work_join(pthread_t thread) { pthread_join(thread, NULL); }

/* --- the line ----------------------------------------------------------------------------------- */

static char work_line[16384];
static size_t work_line_bytes;

static inline void work_put(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int length = vsnprintf(work_line + work_line_bytes, sizeof work_line - work_line_bytes, format, list);
    va_end(list);
    if (length < 0 || (size_t)length >= sizeof work_line - work_line_bytes) work_die(1, "the JSON line is too long");
    work_line_bytes += (size_t)length;
}
static inline void work_number(const char *name, uint64_t value) { work_put(",\"%s\":%" PRIu64, name, value); }

static inline void work_begin(const char *name, int argc, char **argv) {
    work_put("{\"workload\":\"%s\",\"args\":[", name);
    for (int i = 1; i < argc; i++) work_put("%s%s", i > 1 ? "," : "", argv[i]);
    work_put("]");
}

/* The shared objects that are mapped: the runner's proof that the peer it preloaded was there. */
static inline void work_objects(void) {
    static char text[65536];
    size_t length = 0;
    ssize_t got;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && length < sizeof text - 1 && (got = read(fd, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    if (fd >= 0) close(fd);
    text[length] = 0;
    work_put(",\"objects\":[");
    const char *last = "";
    bool first = true;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        char *path = strchr(line, '/');
        if (!path || !strstr(path, ".so") || !strcmp(path, last)) continue;
        work_put("%s\"%s\"", first ? "" : ",", path);
        first = false;
        last = path;
    }
    work_put("]");
}

static inline int work_end(void) {
    work_number("peak_kb", work_peak_kb());
    work_number("faults", work_faults());
    work_objects();
    work_put("}\n");
    return write(1, work_line, work_line_bytes) == (ssize_t)work_line_bytes ? 0 : 1;
}

#endif
