/* vm.c - allocate, touch and free buffers of 2 MiB.
 *
 * Arguments: rounds 20000, bytes 2097152, buffers held 1, touch 1.
 * touch 0: the buffer is not written at all; 1: one byte of every page; 2: every byte.
 */
#include "work.h"

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 20000, 1, UINT32_MAX);
    size_t bytes = work_arg(argc, argv, 2, "bytes", 2u << 20, 1, (uint64_t)1 << 36);
    uint64_t held_count = work_arg(argc, argv, 3, "held", 1, 1, 64);
    uint64_t touch = work_arg(argc, argv, 4, "touch", 1, 0, 2);
    work_args_end(argc, argv, 4);
    unsigned char *held[64] = { 0 };
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t round = 0; round < round_count; round++) {
        unsigned char **slot = &held[round % held_count];
        unsigned char tag = (unsigned char)round;
        if (!touch) {
            free(*slot);
            *slot = malloc(bytes);
            work_aligned(*slot, bytes);
            continue;
        }
        if (*slot) work_free(*slot, bytes, (unsigned char)(round - held_count));
        *slot = work_alloc(bytes, tag);
        if (touch == 1)
            for (size_t at = 4096; at < bytes - 1; at += 4096) ((volatile unsigned char *)*slot)[at] = tag;
        else
            memset(*slot, tag, bytes);
    }
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    for (uint64_t i = 0; i < held_count; i++) free(held[i]);
    work_begin("vm", argc, argv);
    work_number("ops", round_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(round_count);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
