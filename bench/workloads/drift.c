/* drift.c - a store whose values drift to other sizes, while what is live stays the same.
 *
 * Arguments: MB live 64, phases 8, turnover 2, seed 12345.
 * Random blocks are replaced. The sizes of a phase are around 64, 96, 144 ... bytes: half as large again in each
 * phase, from the start after eight, 12% up or down; blocks are written whole. A phase allocates `turnover` times
 * what is live, so that a few old blocks stay scattered over the memory they had. overhead_kb is the peak of
 * resident memory beyond what was live, less the workload's own table.
 */
#include "work.h"

struct held { unsigned char *block; uint32_t bytes; };

int main(int argc, char **argv) {
    uint64_t live_max = work_arg(argc, argv, 1, "mb", 64, 1, 1u << 16) * 1000000u;
    uint64_t phase_count = work_arg(argc, argv, 2, "phases", 8, 1, 1u << 16);
    uint64_t turnover = work_arg(argc, argv, 3, "turnover", 2, 1, 100);
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 4);
    uint64_t count_max = live_max / 56 + 4096, count = 0, live_bytes = 0, op_count = 0;
    struct held *held = work_table(count_max * sizeof *held);
    uint64_t before_kb = work_resident_kb();
    struct work_span span = work_start();
    for (uint64_t phase = 0; phase < phase_count; phase++) {
        uint64_t middle = 64;
        for (uint64_t i = 0; i < phase % 8; i++) middle += middle / 2;
        for (uint64_t left_bytes = turnover * live_max; left_bytes >= 2 * middle; op_count++) {
            struct held one = { NULL, (uint32_t)(middle - middle / 8 + work_below(&random, middle / 4 + 1)) };
            while (live_bytes + one.bytes > live_max) {
                struct held *old = &held[work_below(&random, count)];
                live_bytes -= old->bytes;
                work_free(old->block, old->bytes, (unsigned char)old->bytes);
                *old = held[--count];
            }
            if (count == count_max) work_die(1, "the table is full");
            one.block = work_alloc(one.bytes, (unsigned char)one.bytes);
            memset(one.block, (unsigned char)one.bytes, one.bytes);
            held[count++] = one;
            live_bytes += one.bytes;
            left_bytes -= one.bytes;
        }
    }
    work_stop(&span);
    uint64_t resident_kb = work_resident_kb(), most_kb = work_peak_kb() - before_kb;
    for (uint64_t i = 0; i < count; i++) work_verify_whole(held[i].block, held[i].bytes, (unsigned char)held[i].bytes);
    work_begin("drift", argc, argv);
    work_number("seed", seed);
    work_measured(op_count, span);
    work_check(random + live_bytes);
    work_number("live_bytes", live_bytes);
    work_number("overhead_kb", most_kb > live_max >> 10 ? most_kb - (live_max >> 10) : 0);
    work_number("resident_kb", resident_kb - (count_max * sizeof *held >> 10));
    return work_end();
}
