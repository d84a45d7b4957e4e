/* tiny_hot.c - malloc and free of one small size, nothing else held.
 *
 * Arguments: rounds 20000000, bytes 64.
 */
#include "work.h"

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 20000000, 1, UINT32_MAX);
    size_t bytes = work_arg(argc, argv, 2, "bytes", 64, 1, 1u << 30);
    work_args_end(argc, argv, 2);
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t round = 0; round < round_count; round++) work_free(work_alloc(bytes, 1), bytes, 1);
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    work_begin("tiny_hot", argc, argv);
    work_number("ops", round_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(round_count);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
