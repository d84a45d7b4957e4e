/* idle_pool.c - a pool's threads allocate, free everything and block; what is resident afterwards?
 *
 * Arguments: threads 8, MB a thread 100, seconds of idleness 15, seed 12345.
 * Each thread allocates blocks of 64 to 4,096 bytes and one in 1,000 of 100,000 bytes, writes them whole,
 * holds them until all threads hold theirs, frees them in order and blocks on a condition for good. The main
 * thread sleeps; nobody calls the allocator again.
 */
#include "work.h"

static pthread_barrier_t all_hold, all_seen, all_free;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static bool is_over;
static uint64_t thread_bytes, seed;
struct held { unsigned char *block; uint32_t bytes; };
static atomic_ulong block_count;

static void *pool_run(void *argument) {
    uint64_t random = seed + (uintptr_t)argument * 7919, count = 0, bytes_held = 0;
    uint64_t count_max = thread_bytes / 1000 + 1024, table_bytes = count_max * sizeof(struct held);
    struct held *held = work_table(table_bytes);
    while (bytes_held < thread_bytes) {
        uint32_t bytes = work_below(&random, 1000) ? 64 + (uint32_t)work_below(&random, 4033) : 100000;
        if (count == count_max) work_die(1, "a table is full");
        held[count] = (struct held){ work_alloc(bytes, (unsigned char)count), bytes };
        memset(held[count].block, (unsigned char)count, bytes);
        bytes_held += bytes;
        count++;
    }
    pthread_barrier_wait(&all_hold);
    pthread_barrier_wait(&all_seen);
    for (uint64_t i = 0; i < count; i++) work_free(held[i].block, held[i].bytes, (unsigned char)i);
    work_table_free(held, table_bytes);
    atomic_fetch_add(&block_count, count);
    pthread_barrier_wait(&all_free);
    pthread_mutex_lock(&lock);
    while (!is_over) pthread_cond_wait(&wake, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int argc, char **argv) {
    uint64_t thread_count = work_arg(argc, argv, 1, "threads", 8, 1, 1024);
    thread_bytes = 1000000 * work_arg(argc, argv, 2, "mb", 100, 1, 1u << 16);
    uint64_t idle_s = work_arg(argc, argv, 3, "idle_s", 15, 0, 3600);
    seed = work_arg(argc, argv, 4, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 4);
    pthread_barrier_init(&all_hold, NULL, (unsigned)thread_count + 1);
    pthread_barrier_init(&all_seen, NULL, (unsigned)thread_count + 1);
    pthread_barrier_init(&all_free, NULL, (unsigned)thread_count + 1);
    pthread_t *thread = work_table(thread_count * sizeof *thread);
    uint64_t resident_before_kb = work_resident_kb();
    struct work_span span = work_start();
    for (uint64_t i = 0; i < thread_count; i++) thread[i] = work_thread(pool_run, (void *)(uintptr_t)i);
    pthread_barrier_wait(&all_hold);
    uint64_t resident_full_kb = work_resident_amid(&span);
    pthread_barrier_wait(&all_seen);
    pthread_barrier_wait(&all_free);
    work_stop(&span);
    uint64_t resident_at_once_kb = work_resident_kb();
    work_sleep_ms(idle_s * 1000);
    uint64_t resident_kb = work_resident_kb();
    pthread_mutex_lock(&lock);
    is_over = true;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    for (uint64_t i = 0; i < thread_count; i++) work_join(thread[i]);
    work_begin("idle_pool", argc, argv);
    work_number("seed", seed);
    work_measured(atomic_load(&block_count), span);
    work_check(atomic_load(&block_count));
    work_number("resident_before_kb", resident_before_kb);
    work_number("resident_full_kb", resident_full_kb);
    work_number("resident_at_once_kb", resident_at_once_kb);
    work_number("resident_kb", resident_kb);
    return work_end();
}
