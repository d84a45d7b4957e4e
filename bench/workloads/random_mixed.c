/* random_mixed.c - random sizes into random slots: a full slot is freed and filled again.
 *
 * Arguments: rounds 10000000, slots 4096, smallest 16, largest 1024, seed 12345;
 *            or three of them, as this benchmark has long been called: rounds, slots, seed.
 */
#include "work.h"

struct held { unsigned char *block; uint32_t bytes; };

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 10000000, 1, UINT32_MAX);
    uint64_t slot_count = work_arg(argc, argv, 2, "slots", 4096, 1, 1u << 24);
    bool is_short = argc == 4;
    uint64_t bytes_min = is_short ? 16 : work_arg(argc, argv, 3, "smallest", 16, 1, 1u << 26);
    uint64_t bytes_max = is_short ? 1024 : work_arg(argc, argv, 4, "largest", 1024, bytes_min, 1u << 26);
    uint64_t seed = work_arg(argc, argv, is_short ? 3 : 5, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 5);
    struct held *slot = work_table(slot_count * sizeof *slot);
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t round = 0; round < round_count; round++) {
        struct held *one = &slot[work_below(&random, slot_count)];
        if (one->block) work_free(one->block, one->bytes, (unsigned char)one->bytes);
        one->bytes = (uint32_t)(bytes_min + work_below(&random, bytes_max - bytes_min + 1));
        one->block = work_alloc(one->bytes, (unsigned char)one->bytes);
    }
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    uint64_t live_bytes = 0;
    for (uint64_t i = 0; i < slot_count; i++) {
        if (!slot[i].block) continue;
        live_bytes += slot[i].bytes;
        work_free(slot[i].block, slot[i].bytes, (unsigned char)slot[i].bytes);
    }
    work_begin("random_mixed", argc, argv);
    work_number("seed", seed);
    work_number("ops", round_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(random + live_bytes);
    work_number("live_bytes", live_bytes);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
