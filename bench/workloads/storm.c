/* storm.c - threads allocate and free batches of blocks of 1 to 1,000 bytes.
 *
 * Arguments: threads 4, batches a thread 3000, blocks in the largest batch 1000, seed 12345.
 * A batch is allocated, first and last bytes written, and freed in order, in reverse or at random.
 */
#include "work.h"

struct storm {
    uint64_t seed, batch_count, block_count_max, op_count, random_end;
    pthread_barrier_t *start;
};
struct held { unsigned char *block; uint32_t bytes; };

static void held_free(struct held *one, unsigned char tag) {
    work_free(one->block, one->bytes, (unsigned char)(tag + one->bytes));
}

static void *storm_run(void *argument) {
    struct storm *storm = argument;
    struct held *held = work_table(storm->block_count_max * sizeof *held);
    uint64_t random = storm->seed;
    pthread_barrier_wait(storm->start);
    for (uint64_t batch = 0; batch < storm->batch_count; batch++) {
        uint64_t count = 1 + work_below(&random, storm->block_count_max);
        unsigned order = (unsigned)work_below(&random, 3);
        unsigned char tag = (unsigned char)batch;
        for (uint64_t i = 0; i < count; i++) {
            uint32_t bytes = 1 + (uint32_t)work_below(&random, 1000);
            struct held one = { work_alloc(bytes, (unsigned char)(tag + bytes)), bytes };
            if (order == 2) { /* a shuffle as it grows */
                uint64_t other = work_below(&random, i + 1);
                held[i] = held[other];
                held[other] = one;
            } else {
                held[i] = one;
            }
        }
        if (order == 1)
            for (uint64_t i = count; i-- > 0;) held_free(&held[i], tag);
        else
            for (uint64_t i = 0; i < count; i++) held_free(&held[i], tag);
        storm->op_count += count;
    }
    storm->random_end = random;
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t thread_count = work_arg(argc, argv, 1, "threads", 4, 1, 1024);
    uint64_t batch_count = work_arg(argc, argv, 2, "batches", 3000, 1, 1u << 30);
    uint64_t block_count_max = work_arg(argc, argv, 3, "blocks", 1000, 1, 1u << 24);
    uint64_t seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 4);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)thread_count + 1);
    struct storm *storm = work_table(thread_count * sizeof *storm);
    pthread_t *thread = work_table(thread_count * sizeof *thread);
    for (uint64_t i = 0; i < thread_count; i++) {
        storm[i] = (struct storm){ seed + i * 7919, batch_count, block_count_max, 0, 0, &start };
        thread[i] = work_thread(storm_run, &storm[i]);
    }
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns(), op_count = 0, digest = 0; /* nobody starts before us */
    pthread_barrier_wait(&start);
    for (uint64_t i = 0; i < thread_count; i++) {
        work_join(thread[i]);
        op_count += storm[i].op_count;
        digest += storm[i].random_end;
    }
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    work_begin("storm", argc, argv);
    work_number("seed", seed);
    work_number("ops", op_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(digest);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
