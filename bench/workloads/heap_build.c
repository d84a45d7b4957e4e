/* heap_build.c - a heap of small blocks is built, each written whole, and kept to the end.
 *
 * Arguments: MB 256, smallest 16, largest 512, seed 12345.
 * What a program does that loads its data: every page is touched for the first time. overhead_kb is what is
 * resident beyond the bytes that were asked for, less the workload's own table.
 */
#include "work.h"

struct held { unsigned char *block; uint32_t bytes; };

int main(int argc, char **argv) {
    uint64_t heap_bytes = work_arg(argc, argv, 1, "mb", 256, 1, 1u << 16) * 1000000u;
    uint64_t bytes_min = work_arg(argc, argv, 2, "smallest", 16, 1, 1u << 26);
    uint64_t bytes_max = work_arg(argc, argv, 3, "largest", bytes_min > 512 ? bytes_min : 512, bytes_min, 1u << 26);
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 4);
    uint64_t count_max = heap_bytes * 5 / 2 / (bytes_min + bytes_max) + 4096, count = 0, live_bytes = 0;
    struct held *held = work_table(count_max * sizeof *held);
    uint64_t resident_before_kb = work_resident_kb();
    struct work_span span = work_start();
    for (; live_bytes < heap_bytes && count < count_max; count++) {
        struct held *one = &held[count];
        one->bytes = (uint32_t)(bytes_min + work_below(&random, bytes_max - bytes_min + 1));
        one->block = work_alloc(one->bytes, (unsigned char)count);
        memset(one->block, (unsigned char)count, one->bytes);
        live_bytes += one->bytes;
    }
    work_stop(&span);
    uint64_t growth_kb = work_resident_kb() - resident_before_kb;
    for (uint64_t i = 0; i < count; i++) work_verify_whole(held[i].block, held[i].bytes, (unsigned char)i);
    work_begin("heap_build", argc, argv);
    work_number("seed", seed);
    work_measured(count, span);
    work_check(random + live_bytes);
    work_number("live_bytes", live_bytes);
    work_number("overhead_kb", growth_kb > live_bytes >> 10 ? growth_kb - (live_bytes >> 10) : 0);
    work_number("resident_kb", work_resident_kb() - (count_max * sizeof *held >> 10));
    return work_end();
}
