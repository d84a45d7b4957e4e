/* lifetimes.c - blocks of all sizes whose lives are of very different length: most die young, a few stay.
 *
 * Arguments: rounds 2000000, seed 12345.
 * A round allocates one block: 8 bytes to 1 KiB nine times in ten, else to 32 KiB, one in 1,000 to 1 MiB, each
 * doubling equally often. It lives for a random number of rounds: up to 16 (60%), up to 1,024 (30%), up to 65,536
 * (9%) or to 1,048,576 (1%), and is freed in the round in which its life ends. The calendar of ends is the
 * workload's own.
 */
#include "work.h"

enum { CALENDAR = 1 << 21 }; /* longer than the longest life */
struct held { unsigned char *block; uint32_t bytes, next; };

int main(int argc, char **argv) {
    uint64_t round_count = work_arg(argc, argv, 1, "rounds", 2000000, 1, 1u << 31);
    uint64_t seed = work_arg(argc, argv, 2, "seed", 12345, 0, UINT64_MAX), random = seed;
    work_args_end(argc, argv, 2);
    uint32_t place_count = 1u << 18, place_free = 1; /* 60,000 to 70,000 blocks live at once */
    struct held *held = work_table(place_count * sizeof *held);
    uint32_t *calendar = work_table(CALENDAR * sizeof *calendar); /* first of the list that ends in that round */
    for (uint32_t i = 1; i < place_count; i++) held[i].next = i + 1 < place_count ? i + 1 : 0;
    uint64_t live_bytes = 0, live_peak_bytes = 0;
    struct work_span span = work_start();
    for (uint64_t round = 0; round < round_count; round++) {
        for (uint32_t i = calendar[round % CALENDAR], next; i; i = next) {
            next = held[i].next;
            work_free(held[i].block, held[i].bytes, (unsigned char)held[i].bytes);
            live_bytes -= held[i].bytes;
            held[i].next = place_free;
            place_free = i;
        }
        calendar[round % CALENDAR] = 0;
        uint64_t kind = work_below(&random, 1000), life_kind = work_below(&random, 100);
        size_t bytes = kind == 0   ? work_log_size(&random, 15, 20)
                       : kind < 100 ? work_log_size(&random, 10, 15)
                                    : work_log_size(&random, 3, 10);
        uint64_t life = 1 + work_below(&random, life_kind < 60   ? 16
                                                : life_kind < 90 ? 1024
                                                : life_kind < 99 ? 65536
                                                                 : 1048576);
        uint32_t i = place_free;
        if (!i) work_die(1, "the table is full");
        place_free = held[i].next;
        held[i] = (struct held){ work_alloc(bytes, (unsigned char)bytes), (uint32_t)bytes,
                                 calendar[(round + life) % CALENDAR] };
        calendar[(round + life) % CALENDAR] = i;
        live_bytes += bytes;
        if (live_bytes > live_peak_bytes) live_peak_bytes = live_bytes;
    }
    work_stop(&span);
    uint64_t table_kb = (place_count * sizeof *held + CALENDAR * sizeof *calendar) >> 10;
    uint64_t resident_kb = work_resident_kb();
    for (uint64_t round = 0; round < CALENDAR; round++)
        for (uint32_t i = calendar[round]; i; i = held[i].next)
            work_free(held[i].block, held[i].bytes, (unsigned char)held[i].bytes);
    work_begin("lifetimes", argc, argv);
    work_number("seed", seed);
    work_measured(round_count, span);
    work_check(random + live_bytes);
    work_number("live_bytes", live_bytes);
    work_number("live_peak_bytes", live_peak_bytes);
    work_number("resident_kb", resident_kb - table_kb);
    return work_end();
}
