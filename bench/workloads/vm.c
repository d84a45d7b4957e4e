/* vm.c - allocate, touch and free buffers of 2 MiB.
 *
 * Arguments: rounds 20000, bytes 2097152, buffers held 1.
 * Every page of the buffer is written once.
 */
#include "work.h"

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 20000, 1, UINT32_MAX);
    size_t bytes = work_arg(argc, argv, 2, "bytes", 2u << 20, 1, (uint64_t)1 << 36);
    uint64_t held_count = work_arg(argc, argv, 3, "held", 1, 1, 64);
    work_args_end(argc, argv, 3);
    unsigned char *held[64] = { 0 };
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t round = 0; round < round_count; round++) {
        unsigned char **slot = &held[round % held_count];
        if (*slot) work_free(*slot, bytes, (unsigned char)(round - held_count));
        *slot = work_alloc(bytes, (unsigned char)round);
        for (size_t at = 4096; at < bytes - 1; at += 4096) ((volatile unsigned char *)*slot)[at] = 1;
    }
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    for (uint64_t i = 0; i < held_count; i++) free(held[i]);
    work_begin("vm", argc, argv);
    work_number("ops", round_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
