/* pairs.c - a run of mallocs of one size, then their frees.
 *
 * Arguments: bytes 64, blocks 256, rounds 20000.
 * phase_alloc and phase_free are functions of their own, so that callgrind can collect in one of them alone
 * (--toggle-collect); bench/callgrind.py takes away what the loops themselves cost.
 */
#include "work.h"

static void *block[65536];
static volatile size_t block_bytes;

__attribute__((noinline)) void phase_alloc(uint64_t count) {
    size_t bytes = block_bytes;
    for (uint64_t i = 0; i < count; i++) block[i] = malloc(bytes);
}
__attribute__((noinline)) void phase_free(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) free(block[i]);
}

int main(int argc, char **argv) {
    block_bytes = work_arg(argc, argv, 1, "bytes", 64, 1, 1u << 30);
    uint64_t block_count = work_arg(argc, argv, 2, "blocks", 256, 1, 65536);
    uint64_t round_count = work_arg(argc, argv, 3, "rounds", 20000, 1, 1u << 30);
    work_args_end(argc, argv, 3);
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t round = 0; round < round_count; round++) {
        phase_alloc(block_count);
        if (round % 1024 == 0)
            for (uint64_t i = 0; i < block_count; i++) work_mark(block[i], block_bytes, (unsigned char)i);
        if (round % 1024 == 0)
            for (uint64_t i = 0; i < block_count; i++) work_verify(block[i], block_bytes, (unsigned char)i);
        phase_free(block_count);
    }
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    work_begin("pairs", argc, argv);
    work_number("ops", block_count * round_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(block_count * round_count);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
