/* larson.c - threads replace random ones of their blocks; a thread hands its blocks to its successor.
 *
 * Arguments, in the order of the benchmark of that name (Larson and Krishnan, 1998): seconds 2, smallest 8,
 * largest 128, blocks a thread 1024, rounds before the successor 1, seed 12345, threads 4.
 * A round replaces as many blocks as the thread holds; after its rounds the thread starts a successor, which
 * inherits the blocks, and ends. So nearly every block is freed by another thread than its maker in the first
 * round, and threads are born and die all the time.
 */
#include "work.h"

struct held { unsigned char *block; uint32_t bytes; };
struct line { /* a line of threads, each the successor of the one before */
    struct held *held;
    uint64_t random, op_count, thread_count;
    char pad[64];
};
static uint64_t bytes_min, bytes_max, block_count, round_count;
static atomic_bool is_over;
static atomic_uint line_count_live;

static void held_make(struct line *line, struct held *one) {
    one->bytes = (uint32_t)(bytes_min + work_below(&line->random, bytes_max - bytes_min + 1));
    one->block = work_alloc(one->bytes, (unsigned char)one->bytes);
}

static void *line_run(void *argument) {
    struct line *line = argument;
    pthread_detach(pthread_self());
    for (uint64_t i = 0; i < round_count * block_count && !atomic_load_explicit(&is_over, memory_order_relaxed); i++) {
        struct held *one = &line->held[work_below(&line->random, block_count)];
        work_free(one->block, one->bytes, (unsigned char)one->bytes);
        held_make(line, one);
        line->op_count++;
    }
    line->thread_count++;
    if (atomic_load(&is_over))
        atomic_fetch_sub(&line_count_live, 1);
    else
        work_thread(line_run, line);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t run_s = work_arg(argc, argv, 1, "seconds", 2, 1, 3600);
    bytes_min = work_arg(argc, argv, 2, "smallest", 8, 1, 1u << 26);
    bytes_max = work_arg(argc, argv, 3, "largest", 128, bytes_min, 1u << 26);
    block_count = work_arg(argc, argv, 4, "blocks", 1024, 1, 1u << 24);
    round_count = work_arg(argc, argv, 5, "rounds", 1, 1, 1u << 24);
    uint64_t seed = work_arg(argc, argv, 6, "seed", 12345, 0, UINT64_MAX);
    uint64_t line_count = work_arg(argc, argv, 7, "threads", 4, 1, 1024);
    work_args_end(argc, argv, 7);
    struct line *line = work_table(line_count * sizeof *line);
    atomic_store(&line_count_live, (unsigned)line_count);
    for (uint64_t i = 0; i < line_count; i++) {
        line[i].random = seed + i * 7919;
        line[i].held = work_table(block_count * sizeof *line[i].held);
        for (uint64_t k = 0; k < block_count; k++) held_make(&line[i], &line[i].held[k]);
    }
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t i = 0; i < line_count; i++) work_thread(line_run, &line[i]);
    work_sleep_ms(run_s * 1000);
    atomic_store(&is_over, true);
    while (atomic_load(&line_count_live)) work_sleep_ms(1);
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    uint64_t op_count = 0, thread_count = 0;
    for (uint64_t i = 0; i < line_count; i++) {
        op_count += line[i].op_count;
        thread_count += line[i].thread_count;
        for (uint64_t k = 0; k < block_count; k++)
            work_verify(line[i].held[k].block, line[i].held[k].bytes, (unsigned char)line[i].held[k].bytes);
    }
    work_begin("larson", argc, argv);
    work_number("seed", seed);
    work_number("ops", op_count);
    work_number("threads", thread_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
