/* calloc_half.c - large zeroed arrays of which half is never touched.
 *
 * Arguments: rounds 200, MB of an array 16.
 * The first half is checked to be zero and written; the second half is not looked at. An allocator that
 * clears by hand what the kernel had cleared pays for both halves, in time and in memory.
 */
#include "work.h"

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 200, 1, 1u << 30);
    size_t bytes = work_arg(argc, argv, 2, "mb", 16, 1, 1u << 16) * 1000000u;
    work_args_end(argc, argv, 2);
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t round = 0; round < round_count; round++) {
        volatile unsigned char *array = calloc(bytes / 8, 8);
        if (!array) work_die(1, "no memory for %zu bytes", bytes);
        for (size_t at = 0; at < bytes / 2; at += 512) {
            if (array[at]) work_die(1, "calloc's byte %zu is not zero", at);
            array[at] = 1;
        }
        free((void *)array);
    }
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    work_begin("calloc_half", argc, argv);
    work_number("ops", round_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(round_count * bytes);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
