/* rotating.c - a few large buffers that are replaced by turns, then idle time with light traffic.
 *
 * Arguments: operations 300, buffers 3, smallest MB 8, largest MB 40, touch pages (pages, whole), idle milliseconds
 *            2000, seed 12345.
 * An operation frees the oldest buffer, allocates one of another size and writes one byte of every page, or all of
 * it. Before the idle time all buffers are freed; what is resident at its end is what the allocator held on to.
 */
#include "work.h"

enum { BUFFERS_MAX = 64 };
struct held { unsigned char *block; size_t bytes; unsigned char tag; };

static void held_free(struct held *one) {
    for (size_t at = 0; at < one->bytes; at += 65536)
        if (one->block[at] != one->tag) work_die(1, "a buffer has changed at byte %zu", at);
    work_free(one->block, one->bytes, one->tag);
}

int main(int argc, char **argv) {
    static const char *const word[] = { "pages", "whole" };
    uint64_t op_count = work_arg(argc, argv, 1, "operations", 300, 1, UINT32_MAX);
    uint64_t buffer_count = work_arg(argc, argv, 2, "buffers", 3, 1, BUFFERS_MAX);
    uint64_t mb_min = work_arg(argc, argv, 3, "smallest", 8, 1, 1u << 16);
    uint64_t mb_max = work_arg(argc, argv, 4, "largest", mb_min > 40 ? mb_min : 40, mb_min, 1u << 16);
    unsigned touch = work_choice(argc, argv, 5, "touch", word, 2);
    uint64_t idle_ms = work_arg(argc, argv, 6, "idle_ms", 2000, 0, 3600000);
    uint64_t seed = work_arg(argc, argv, 7, "seed", 12345, 0, UINT64_MAX), random = seed, digest = 0;
    work_args_end(argc, argv, 7);
    struct held held[BUFFERS_MAX] = { 0 };
    struct work_span span = work_start();
    for (uint64_t op = 0; op < op_count; op++) {
        struct held *one = &held[op % buffer_count];
        if (one->block) held_free(one);
        one->bytes = mb_min * 1000000 + work_below(&random, (mb_max - mb_min) * 1000000 + 1);
        one->tag = (unsigned char)(op + 1);
        one->block = work_alloc(one->bytes, one->tag);
        if (touch)
            memset(one->block, one->tag, one->bytes);
        else
            for (size_t at = 0; at < one->bytes; at += 4096) ((volatile unsigned char *)one->block)[at] = one->tag;
        digest += one->bytes;
    }
    work_stop(&span);
    for (uint64_t i = 0; i < buffer_count; i++)
        if (held[i].block) held_free(&held[i]);
    uint64_t resident_at_once_kb = work_resident_kb();
    void *traffic[32] = { 0 };
    for (uint64_t i = 0; i < idle_ms / 5; i++) {
        void **slot = &traffic[i % 32];
        if (*slot) work_free(*slot, 64, 7);
        *slot = work_alloc(64, 7);
        work_sleep_ms(5);
    }
    work_begin("rotating", argc, argv);
    work_number("seed", seed);
    work_measured(op_count, span);
    work_check(digest);
    work_number("resident_at_once_kb", resident_at_once_kb);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
