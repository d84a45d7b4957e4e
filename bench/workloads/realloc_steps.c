/* realloc_steps.c - one large buffer grows by realloc in equal steps.
 *
 * Arguments: rounds 1, MiB 256, KiB a step 1024, touch last (last, whole).
 * touch last: the last byte of each step is written; whole: every byte of it. All steps' last bytes are checked at
 * the end, so that pages that were moved or copied prove to be there. An operation is one realloc.
 */
#include "work.h"

int main(int argc, char **argv) {
    static const char *const word[] = { "last", "whole" };
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 1, 1, 1u << 30);
    size_t bytes = work_arg(argc, argv, 2, "mib", 256, 1, 1u << 16) << 20;
    size_t step = work_arg(argc, argv, 3, "step_kib", 1024, 1, 1u << 20) << 10;
    unsigned touch = work_choice(argc, argv, 4, "touch", word, 2);
    work_args_end(argc, argv, 4);
    uint64_t op_count = 0, digest = 0;
    struct work_span span = work_start();
    for (uint64_t round = 0; round < round_count; round++) {
        unsigned char *buffer = NULL;
        size_t before = 0;
        for (size_t after = step; after <= bytes; before = after, after += step, op_count++) {
            unsigned char tag = (unsigned char)(after / step * 7 + round);
            buffer = realloc(buffer, after);
            work_aligned(buffer, after);
            if (touch)
                memset(buffer + before, tag, step);
            else
                ((volatile unsigned char *)buffer)[after - 1] = tag;
        }
        for (size_t at = step; at <= before; at += step) {
            unsigned char tag = (unsigned char)(at / step * 7 + round);
            if (buffer[at - 1] != tag || (touch && buffer[at - step] != tag))
                work_die(1, "the buffer has changed at byte %zu", at - 1);
            digest += buffer[at - 1];
        }
        free(buffer);
    }
    work_stop(&span);
    work_begin("realloc_steps", argc, argv);
    work_measured(op_count, span);
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
