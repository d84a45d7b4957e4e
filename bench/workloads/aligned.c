/* aligned.c - aligned blocks in random slots, by the three functions that hand them out.
 *
 * Arguments: rounds 1000000, slots 1024, largest alignment 4096, largest size 4096, seed 12345.
 * Alignments are powers of two from 16, the small ones more often (each is half as frequent as the one below);
 * sizes are random from 1, rounded up to the alignment for aligned_alloc, as C11 asked.
 */
#include "work.h"
#include <malloc.h>

struct held { unsigned char *block; uint32_t bytes; };

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 1000000, 1, UINT32_MAX);
    uint64_t slot_count = work_arg(argc, argv, 2, "slots", 1024, 1, 1u << 24);
    uint64_t alignment_max = work_arg(argc, argv, 3, "alignment", 4096, 16, 1u << 26);
    uint64_t bytes_max = work_arg(argc, argv, 4, "largest", 4096, 1, 1u << 26);
    uint64_t seed = work_arg(argc, argv, 5, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 5);
    struct held *slot = work_table(slot_count * sizeof *slot);
    struct work_span span = work_start();
    for (uint64_t round = 0; round < round_count; round++) {
        struct held *one = &slot[work_below(&random, slot_count)];
        if (one->block) work_free(one->block, one->bytes, (unsigned char)one->bytes);
        size_t alignment = 16;
        for (uint64_t coins = work_random(&random); coins & 1 && alignment * 2 <= alignment_max; coins >>= 1)
            alignment *= 2;
        one->bytes = 1 + (uint32_t)work_below(&random, bytes_max);
        void *block = NULL;
        switch (round % 3) {
        case 0:
            if (posix_memalign(&block, alignment, one->bytes)) block = NULL;
            break;
        case 1:
            one->bytes = (uint32_t)((one->bytes + alignment - 1) & ~(alignment - 1));
            block = aligned_alloc(alignment, one->bytes);
            break;
        default:
            block = memalign(alignment, one->bytes);
        }
        if ((uintptr_t)block & (alignment - 1)) work_die(1, "block %p is not aligned to %zu", block, alignment);
        work_mark(block, one->bytes, (unsigned char)one->bytes);
        one->block = block;
    }
    work_stop(&span);
    for (uint64_t i = 0; i < slot_count; i++)
        if (slot[i].block) work_free(slot[i].block, slot[i].bytes, (unsigned char)slot[i].bytes);
    work_begin("aligned", argc, argv);
    work_number("seed", seed);
    work_measured(round_count, span);
    work_check(random);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
