/* three_peaks.c - long-lived blocks among short-lived ones, three peaks, then light traffic.
 *
 * Arguments: share of long-lived blocks in per cent 1, MB of a peak 300, seconds of light traffic 12,
 *            seed 12345, call sites `one`, `two` or `wrapper`.
 * Each peak allocates blocks of 16 to 512 bytes (uniform) and writes them whole; every block is long-lived
 * with the given probability; the others are freed in the order of their allocation. Then one thread makes
 * 200 allocations a second of one size (64 bytes; it holds 32 and frees the oldest), and the resident memory
 * is read. MB are 10^6 bytes. The long-lived blocks are verified at the end.
 *
 * `one`: both kinds come from one call, so nobody can know at the allocation which one it is. `two`: long-lived blocks have
 * a call of their own, as in programs. `wrapper`: a call of their own to the program's allocation function, so that the
 * address that calls malloc is the same. The sequence of sizes, lives and frees does not depend on it.
 */
#include "work.h"

#ifdef __clang__
#define NOIPA __attribute__((noinline)) /* clang does not merge functions */
#else
#define NOIPA __attribute__((noipa))
#endif

enum { PEAK_COUNT = 3, BYTES_MIN = 16, BYTES_MAX = 512, TRAFFIC_HELD = 32 };
struct held { unsigned char *block; uint32_t bytes; unsigned char tag; };

/* noipa: functions with the same body would become one */
NOIPA static unsigned char *long_alloc(size_t bytes, unsigned char tag) { return work_alloc(bytes, tag); }
NOIPA static unsigned char *brief_alloc(size_t bytes, unsigned char tag) { return work_alloc(bytes, tag); }

NOIPA static unsigned char *wrapped_alloc(size_t bytes, unsigned char tag) { return work_alloc(bytes, tag); }
NOIPA static unsigned char *long_wrapped(size_t bytes, unsigned char tag) {
    volatile char frame[64];
    frame[0] = 0;
    unsigned char *block = wrapped_alloc(bytes, tag);
    return frame[0] ? NULL : block;
}
NOIPA static unsigned char *brief_wrapped(size_t bytes, unsigned char tag) {
    volatile char frame[128];
    frame[0] = 0;
    unsigned char *block = wrapped_alloc(bytes, tag);
    return frame[0] ? NULL : block;
}

int main(int argc, char **argv) {
    uint64_t share = work_arg(argc, argv, 1, "share", 1, 0, 100);
    uint64_t peak_mb = work_arg(argc, argv, 2, "peak_mb", 300, 1, 1u << 16);
    uint64_t idle_s = work_arg(argc, argv, 3, "idle_s", 12, 0, 3600);
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX);
    static const char *const SITES[] = { "one", "two", "wrapper" };
    unsigned sites = work_choice(argc, argv, 5, "sites", SITES, 3);
    work_args_end(argc, argv, 5);
    uint64_t random = seed, peak_bytes = peak_mb * 1000000u;
    uint64_t short_max = peak_bytes / 128, long_max = PEAK_COUNT * (short_max * share / 100 + 4096);
    struct held *kept = work_table(long_max * sizeof *kept);
    uint64_t kept_count = 0, kept_bytes = 0, op_count = 0;
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (unsigned peak = 0; peak < PEAK_COUNT; peak++) {
        struct held *brief = work_table(short_max * sizeof *brief);
        uint64_t brief_count = 0;
        for (uint64_t bytes_left = peak_bytes; bytes_left >= BYTES_MAX;) {
            struct held one = { NULL, BYTES_MIN + (uint32_t)work_below(&random, BYTES_MAX - BYTES_MIN + 1),
                                (unsigned char)random };
            bool is_long = work_below(&random, 100) < share;
            one.block = sites == 0   ? work_alloc(one.bytes, one.tag)
                        : sites == 1 ? (is_long ? long_alloc(one.bytes, one.tag) : brief_alloc(one.bytes, one.tag))
                        : is_long    ? long_wrapped(one.bytes, one.tag)
                                     : brief_wrapped(one.bytes, one.tag);
            memset(one.block, one.tag, one.bytes);
            bytes_left -= one.bytes;
            op_count++;
            if ((is_long ? kept_count >= long_max : brief_count >= short_max)) work_die(1, "a table is full");
            if (is_long) {
                kept[kept_count++] = one;
                kept_bytes += one.bytes;
            } else {
                brief[brief_count++] = one;
            }
        }
        for (uint64_t i = 0; i < brief_count; i++) work_free(brief[i].block, brief[i].bytes, brief[i].tag);
        work_table_free(brief, short_max * sizeof *brief);
    }
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    uint64_t resident_at_once_kb = work_resident_kb(), peak_kb = work_peak_kb();
    void *traffic[TRAFFIC_HELD] = { 0 };
    uint64_t idle_cpu_ns = work_cpu_ns(), resident_2s_kb = 0;
    for (uint64_t i = 0; i < idle_s * 200; i++) {
        void **slot = &traffic[i % TRAFFIC_HELD];
        if (*slot) work_free(*slot, 64, 7);
        *slot = work_alloc(64, 7);
        work_sleep_ms(5);
        if (i == 400) resident_2s_kb = work_resident_kb();
    }
    idle_cpu_ns = work_cpu_ns() - idle_cpu_ns;
    uint64_t resident_kb = work_resident_kb(); /* includes kept[], the workload's own table */
    for (uint64_t i = 0; i < kept_count; i++) work_verify(kept[i].block, kept[i].bytes, kept[i].tag);
    work_begin("three_peaks", argc, argv);
    work_number("seed", seed);
    work_number("ops", op_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(random + kept_bytes);
    work_number("idle_cpu_ns", idle_cpu_ns);
    work_number("live_bytes", kept_bytes);
    work_number("table_kb", long_max * sizeof *kept >> 10);
    work_number("peak_at_work_kb", peak_kb);
    work_number("resident_at_once_kb", resident_at_once_kb);
    work_number("resident_2s_kb", resident_2s_kb);
    work_number("resident_kb", resident_kb - (long_max * sizeof *kept >> 10));
    return work_end();
}
