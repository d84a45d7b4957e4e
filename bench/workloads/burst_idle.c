/* burst_idle.c - bursts of allocation with idle time between them, in which only light traffic goes on.
 *
 * Arguments: idle milliseconds 1000, bursts 5, MB a burst 100, seed 12345.
 * A burst allocates blocks of 16 to 2,048 bytes, writes each whole, and frees them all in another order. In the
 * idle time one thread makes 200 allocations a second of 64 bytes (it holds 32 and frees the oldest). Resident
 * memory is read at the end of each idle time, and after 2 s of it where it is longer; the mean of all but the
 * first is told, without the workload's own tables. The times are those of the bursts alone; what was done while
 * idle is told apart.
 */
#include "work.h"

enum { TRAFFIC_HELD = 32, TRAFFIC_MS = 5, SIZE_MEAN = 1032 };
struct held { unsigned char *block; uint32_t bytes; };
static void *traffic[TRAFFIC_HELD];
static uint64_t traffic_count, resident_2s_sum_kb, resident_2s_count;

static void traffic_step(void) {
    void **slot = &traffic[traffic_count++ % TRAFFIC_HELD];
    if (*slot) work_free(*slot, 64, 7);
    *slot = work_alloc(64, 7);
    work_sleep_ms(TRAFFIC_MS);
}

static void idle(uint64_t idle_ms) {
    uint64_t begin_ns = work_wall_ns();
    bool is_read = false;
    for (uint64_t now_ns = begin_ns; now_ns - begin_ns < idle_ms * 1000000; now_ns = work_wall_ns()) {
        if (!is_read && now_ns - begin_ns >= 2000000000u) {
            is_read = true;
            resident_2s_sum_kb += work_resident_kb();
            resident_2s_count++;
        }
        traffic_step();
    }
}

int main(int argc, char **argv) {
    uint64_t idle_ms = work_arg(argc, argv, 1, "idle_ms", 1000, 0, 3600000);
    uint64_t burst_count = work_arg(argc, argv, 2, "bursts", 5, 1, 1u << 20);
    uint64_t burst_bytes = work_arg(argc, argv, 3, "mb", 100, 1, 1u << 16) * 1000000u;
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 4);
    uint64_t count_max = burst_bytes / SIZE_MEAN * 5 / 4 + 1024, count = 0, op_count = 0;
    struct held *held = work_table(count_max * sizeof *held);
    uint32_t *order = work_table(count_max * sizeof *order);
    for (uint64_t bytes_left = burst_bytes; count < count_max && bytes_left >= 2048; count++) {
        held[count].bytes = 16 + (uint32_t)work_below(&random, 2033);
        bytes_left -= held[count].bytes;
    }
    work_shuffle(order, count, &random);
    uint64_t table_kb = count_max * (sizeof *held + sizeof *order) >> 10;
    uint64_t resident_sum_kb = 0, resident_full_kb = 0, idle_cpu_ns = 0;
    struct work_span span = { 0, 0 };
    for (uint64_t burst = 0; burst < burst_count; burst++) {
        unsigned char tag = (unsigned char)burst;
        struct work_span part = work_start();
        for (uint64_t i = 0; i < count; i++) {
            held[i].block = work_alloc(held[i].bytes, (unsigned char)(tag + i));
            memset(held[i].block, (unsigned char)(tag + i), held[i].bytes);
        }
        work_stop(&part);
        if (burst == 0) resident_full_kb = work_resident_kb();
        struct work_span freed = work_start();
        for (uint64_t i = 0; i < count; i++)
            work_free(held[order[i]].block, held[order[i]].bytes, (unsigned char)(tag + order[i]));
        work_stop(&freed);
        span.wall_ns += part.wall_ns + freed.wall_ns;
        span.cpu_ns += part.cpu_ns + freed.cpu_ns;
        op_count += count;
        uint64_t cpu_ns = work_cpu_ns();
        idle(idle_ms);
        idle_cpu_ns += work_cpu_ns() - cpu_ns;
        if (burst || burst_count == 1) resident_sum_kb += work_resident_kb();
    }
    uint64_t read_count = burst_count == 1 ? 1 : burst_count - 1;
    work_begin("burst_idle", argc, argv);
    work_number("seed", seed);
    work_measured(op_count, span);
    work_check(random);
    work_number("idle_cpu_ns", idle_cpu_ns);
    work_number("resident_full_kb", resident_full_kb - table_kb);
    if (resident_2s_count) work_number("resident_2s_kb", resident_2s_sum_kb / resident_2s_count - table_kb);
    work_number("resident_kb", resident_sum_kb / read_count - table_kb);
    return work_end();
}
