/* work.h - what every workload shares: arguments, seeds, clocks, memory read from the kernel, one JSON line.
 *
 * Owns:      nothing; all state is in static buffers, so that the allocator under test sees only the
 *            workload's own calls.
 * Invariant: a workload knows nothing of the allocator it runs on; it prints one JSON line on success and
 *            exits 0, or one line on standard error and exits 1 (a broken block) or 2 (a bad argument).
 * Checks:    a block's alignment, and its first and last byte, in every run. Built with -DWORK_CHECK=1, work_mark()
 *            writes every byte of a block and work_verify() reads every byte: slower, for tests.
 * Digest:    `check` in the line is what the run computed or read back; it is equal under every allocator.
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
#ifndef __cplusplus /* C++ has atomics of its own; the workloads written in it have one thread */
#include <stdatomic.h>
#endif
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

#ifndef WORK_CHECK
#define WORK_CHECK 0
#endif

/* --- failing ------------------------------------------------------------------------------------ */

__attribute__((noreturn)) static inline void work_die(int status, const char *format, ...) {
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

/* Argument `index` as one of `count` words: its number, or 0, the first word, when it is not given. */
static inline unsigned work_choice(int argc, char **argv, int index, const char *name, const char *const *words,
                                   unsigned count) {
    if (index >= argc) return 0;
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(argv[index], words[i])) return i;
    char list[160];
    size_t length = 0;
    list[0] = 0;
    for (unsigned i = 0; i < count && length < sizeof list; i++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", words[i]);
    work_die(2, "%s: %s=%s is none of %s", argv[0], name, argv[index], list);
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

/* From 0 to bound - 1, low numbers more often: half of all draws fall below about a fifth of `bound`. */
static inline uint64_t work_skewed(uint64_t *state, uint64_t bound) {
    return work_below(state, work_below(state, bound) + 1);
}

/* A size from 2^low to 2^high - 1: each doubling equally often, and all sizes of a doubling. */
static inline size_t work_log_size(uint64_t *state, unsigned low, unsigned high) {
    unsigned power = low + (unsigned)work_below(state, high - low);
    return ((size_t)1 << power) + (size_t)work_below(state, (uint64_t)1 << power);
}

/* `count` numbers from 0 in random order. */
static inline void work_shuffle(uint32_t *order, uint64_t count, uint64_t *state) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t other = work_below(state, i + 1);
        order[i] = order[other];
        order[other] = (uint32_t)i;
    }
}

/* --- clocks ------------------------------------------------------------------------------------- */

static inline uint64_t work_clock(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline uint64_t work_wall_ns(void) { return work_clock(CLOCK_MONOTONIC); }
static inline uint64_t work_cpu_ns(void) { return work_clock(CLOCK_PROCESS_CPUTIME_ID); }

static inline uint64_t work_time_ns(struct timeval time) {
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static inline void work_sleep_ms(uint64_t ms) {
    struct timespec rest = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    while (nanosleep(&rest, &rest) && errno == EINTR) { }
}

/* --- memory, from the kernel -------------------------------------------------------------------- */

/* The number after `key` in a small file of /proc, in its own unit (KiB nearly everywhere). */
static inline uint64_t work_proc_field(const char *path, const char *key) {
    static __thread char text[8192];
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

/* Room for the workload's own tables, straight from the kernel: it is not the allocator's memory. The line tells
 * how much there was at most (`tables_kb`), for it is part of the process's peak. */
static uint64_t work_tables_bytes, work_tables_peak_bytes;
static inline void *work_table(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) work_die(1, "no memory for a table of %zu bytes", bytes);
    uint64_t now = __atomic_add_fetch(&work_tables_bytes, (bytes + 4095) & ~(size_t)4095, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&work_tables_peak_bytes, __ATOMIC_RELAXED);
    while (now > peak && !__atomic_compare_exchange_n(&work_tables_peak_bytes, &peak, now, true, __ATOMIC_RELAXED,
                                                      __ATOMIC_RELAXED)) { }
    return p;
}
static inline void work_table_free(void *table, size_t bytes) {
    munmap(table, bytes);
    __atomic_sub_fetch(&work_tables_bytes, (bytes + 4095) & ~(size_t)4095, __ATOMIC_RELAXED);
}

/* --- blocks, checked ---------------------------------------------------------------------------- */

static inline void work_aligned(const void *block, size_t bytes) {
    if (!block) work_die(1, "no memory for a block of %zu bytes", bytes);
    /* C asks for what an object of that size may need; several peers give 8 bytes to blocks below 16 */
    size_t alignment = bytes >= 16 ? 16 : bytes >= 8 ? 8 : 1;
    if ((uintptr_t)block & (alignment - 1))
        work_die(1, "block %p of %zu bytes is not aligned to %zu", block, bytes, alignment);
}
static inline void work_mark(void *block, size_t bytes, unsigned char tag) {
    work_aligned(block, bytes);
    if (WORK_CHECK) memset(block, tag, bytes);
    ((volatile unsigned char *)block)[0] = tag;
    ((volatile unsigned char *)block)[bytes - 1] = tag;
}
static inline void work_verify(const void *block, size_t bytes, unsigned char tag) {
    const volatile unsigned char *byte = (const volatile unsigned char *)block;
    if (byte[0] != tag || byte[bytes - 1] != tag)
        work_die(1, "block %p of %zu bytes has changed: holds %d and %d, wrote %d", block, bytes, byte[0],
                 byte[bytes - 1], tag);
    for (size_t at = 0; WORK_CHECK && at < bytes; at++)
        if (byte[at] != tag)
            work_die(1, "block %p of %zu bytes has changed at %zu: holds %d, wrote %d", block, bytes, at, byte[at],
                     tag);
}
/* The same, of a block that was written whole: always every byte. */
static inline void work_verify_whole(const void *block, size_t bytes, unsigned char tag) {
    const unsigned char *byte = (const unsigned char *)block;
    work_verify(block, bytes, tag);
    if (memcmp(byte, byte + 1, bytes - 1)) work_die(1, "block %p of %zu bytes has changed inside", block, bytes);
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

static char work_line[1u << 17];
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

/* What the run computed: must not depend on the allocator. Order matters not, so threads may add theirs. */
static inline void work_check(uint64_t digest) { work_put(",\"check\":\"%016" PRIx64 "\"", digest); }

/* Results within the run: between work_parts_begin() and work_parts_end(), one call each. */
static inline void work_parts_begin(void) { work_put(",\"parts\":["); }
static inline void work_part(const char *name, uint64_t ops, uint64_t ns) {
    work_put("%s{\"name\":\"%s\",\"ops\":%" PRIu64 ",\"ns\":%" PRIu64 "}",
             work_line[work_line_bytes - 1] == '[' ? "" : ",", name, ops, ns);
}
static inline void work_parts_end(void) { work_put("]"); }

static inline bool work_is_number(const char *text) {
    size_t digits = strspn(text, "0123456789");
    return digits && !text[digits] && (digits == 1 || text[0] != '0');
}

static inline void work_begin(const char *name, int argc, char **argv) {
    work_put("{\"workload\":\"%s\",\"args\":[", name);
    for (int i = 1; i < argc; i++) {
        const char *quote = work_is_number(argv[i]) ? "" : "\"";
        for (const char *c = argv[i]; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') work_die(2, "%s: an argument has a quote", argv[0]);
        work_put("%s%s%s%s", i > 1 ? "," : "", quote, argv[i], quote);
    }
    work_put("]");
}

/* What every line has: the operations, and the time they took on the wall and on the processors. */
struct work_span { uint64_t wall_ns, cpu_ns; };
static inline struct work_span work_start(void) {
    struct work_span span = { work_wall_ns(), work_cpu_ns() };
    return span;
}
static inline void work_stop(struct work_span *span) {
    span->wall_ns = work_wall_ns() - span->wall_ns;
    span->cpu_ns = work_cpu_ns() - span->cpu_ns;
}
/* Resident memory amid the measured part, of which looking is none: the kernel goes through every page. The other threads wait. */
static inline uint64_t work_resident_amid(struct work_span *span) {
    struct work_span look = work_start();
    uint64_t resident_kb = work_resident_kb();
    work_stop(&look);
    span->wall_ns += look.wall_ns;
    span->cpu_ns += look.cpu_ns;
    return resident_kb;
}
static inline void work_measured(uint64_t op_count, struct work_span span) {
    work_number("ops", op_count);
    work_number("wall_ns", span.wall_ns);
    work_number("cpu_ns", span.cpu_ns);
}

/* Calls `see` with each line of /proc/self/maps, however many there are, until it returns false. */
static inline void work_maps_each(bool (*see)(char *line, void *context), void *context) {
    static char text[16384];
    size_t length = 0;
    ssize_t got;
    bool goes_on = true;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (goes_on && fd >= 0 && (got = read(fd, text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
        text[length] = 0;
        char *line = text;
        for (char *end; goes_on && (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            goes_on = see(line, context);
        }
        length -= (size_t)(line - text); /* the last line may not be whole yet */
        memmove(text, line, length);
    }
    if (fd >= 0) close(fd);
}

/* The shared objects that are mapped, each once: the runner's proof that the peer it preloaded was there. */
static inline bool work_object_put(char *line, void *context) {
    static char seen[16384];
    static size_t seen_bytes;
    bool *is_first = (bool *)context;
    char *path = strchr(line, '/');
    if (!path || !strstr(path, ".so")) return true;
    for (char *one = seen; one < seen + seen_bytes; one += strlen(one) + 1)
        if (!strcmp(one, path)) return true;
    size_t bytes = strlen(path) + 1;
    if (seen_bytes + bytes > sizeof seen) work_die(1, "too many shared objects");
    memcpy(seen + seen_bytes, path, bytes);
    seen_bytes += bytes;
    work_put("%s\"%s\"", *is_first ? "" : ",", path);
    *is_first = false;
    return true;
}
static inline void work_objects(void) {
    bool is_first = true;
    work_put(",\"objects\":[");
    work_maps_each(work_object_put, &is_first);
    work_put("]");
}

static inline int work_end(void) {
    work_number("peak_kb", work_peak_kb());
    work_number("tables_kb", work_tables_peak_bytes >> 10);
    work_number("faults", work_faults());
    work_objects();
    work_put("}\n");
    return write(1, work_line, work_line_bytes) == (ssize_t)work_line_bytes ? 0 : 1;
}

#endif
