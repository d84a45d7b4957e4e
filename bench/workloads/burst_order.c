/* burst_order.c - a burst of many blocks, freed in the order of their allocation, in reverse, or in random order.
 *
 * Arguments: order forward (forward, reverse, random), blocks 100000, smallest 16, largest 512, rounds 10, seed
 * 12345. Sizes are the same in every round. The time of the mallocs and that of the frees are told apart in
 * `parts`.
 */
#include "work.h"

struct held { unsigned char *block; uint32_t bytes; };

int main(int argc, char **argv) {
    static const char *const word[] = { "forward", "reverse", "random" };
    unsigned chosen = work_choice(argc, argv, 1, "order", word, 3);
    uint64_t block_count = work_arg(argc, argv, 2, "blocks", 100000, 1, 1u << 26);
    uint64_t bytes_min = work_arg(argc, argv, 3, "smallest", 16, 1, 1u << 26);
    uint64_t bytes_max = work_arg(argc, argv, 4, "largest", bytes_min > 512 ? bytes_min : 512, bytes_min, 1u << 26);
    uint64_t round_count = work_arg(argc, argv, 5, "rounds", 10, 1, 1u << 30);
    uint64_t seed = work_arg(argc, argv, 6, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 6);
    struct held *held = work_table(block_count * sizeof *held);
    uint32_t *order = work_table(block_count * sizeof *order);
    for (uint64_t i = 0; i < block_count; i++)
        held[i].bytes = (uint32_t)(bytes_min + work_below(&random, bytes_max - bytes_min + 1));
    for (uint64_t i = 0; i < block_count && chosen != 2; i++)
        order[i] = (uint32_t)(chosen ? block_count - 1 - i : i);
    if (chosen == 2) work_shuffle(order, block_count, &random);
    uint64_t alloc_ns = 0, digest = random;
    struct work_span span = work_start();
    for (uint64_t round = 0; round < round_count; round++) {
        uint64_t cpu_ns = work_cpu_ns();
        unsigned char tag = (unsigned char)round;
        for (uint64_t i = 0; i < block_count; i++) held[i].block = work_alloc(held[i].bytes, (unsigned char)(tag + i));
        alloc_ns += work_cpu_ns() - cpu_ns;
        for (uint64_t i = 0; i < block_count; i++) {
            struct held *one = &held[order[i]];
            work_free(one->block, one->bytes, (unsigned char)(tag + order[i]));
        }
    }
    work_stop(&span);
    work_begin("burst_order", argc, argv);
    work_number("seed", seed);
    work_measured(block_count * round_count, span);
    work_parts_begin();
    work_part("malloc", block_count * round_count, alloc_ns);
    work_part("free", block_count * round_count, span.cpu_ns - alloc_ns);
    work_parts_end();
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
