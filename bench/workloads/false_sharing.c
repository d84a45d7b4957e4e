/* false_sharing.c - threads write small blocks of their own: do these share cache lines with another thread's?
 *
 * Arguments: way own (own, given, dealt), threads 2, rounds a thread 20000, writes a block 200, bytes 8.
 * own:   each thread allocates a block, writes it, frees it, again and again. The blocks are nobody else's
 *        business; an allocator that cuts one line for two threads makes them wait for each other.
 * given: before that, one thread allocates a block for each thread, beside one another as they come; each thread
 *        writes the one it was given and frees it first. An allocator that hands such a block out again, to its
 *        new thread, keeps the line shared for good.
 * dealt: one thread allocates 64 blocks for each thread, dealt by turns as cards are; the threads only write, and
 *        the dealer frees. Meant for blocks of one cache line (64): two threads then never share one if blocks
 *        are lines.
 * An operation is one write of a block, its first and last eight bytes. On one processor nothing is to be seen.
 */
#include "work.h"

enum { THREADS_MAX = 256, DEALT = 64 };
struct player {
    _Alignas(128) uint64_t writes_done;
    volatile unsigned char *given;
    volatile unsigned char *dealt[DEALT];
};
static pthread_barrier_t start;
static struct player *player;
static uint64_t round_count, write_count;
static size_t bytes;
static unsigned way;

/* Blocks of 8 bytes or more; the counters in them begin at `tag` and must be there again at the end. */
static void block_write(volatile unsigned char *block, unsigned char tag) {
    volatile uint64_t *first = (volatile uint64_t *)block, *last = (volatile uint64_t *)(block + (bytes & ~7u) - 8);
    *first = tag;
    *last = tag;
    for (uint64_t i = 0; i < write_count; i++) {
        *first = *first + 1;
        *last = *last + 1;
    }
    uint64_t expected = tag + (first == last ? 2 : 1) * write_count;
    if (*first != expected || *last != expected) work_die(1, "another thread wrote into block %p", (void *)block);
}

static void *player_run(void *argument) {
    struct player *me = argument;
    unsigned char tag = (unsigned char)(me - player);
    pthread_barrier_wait(&start);
    if (way == 1) {
        block_write(me->given, tag);
        free((void *)me->given);
    }
    for (uint64_t round = 0; round < round_count; round++) {
        if (way == 2) {
            block_write(me->dealt[round % DEALT], tag);
        } else {
            volatile unsigned char *block = malloc(bytes);
            work_aligned((void *)block, bytes);
            block_write(block, tag);
            free((void *)block);
        }
        me->writes_done += write_count;
    }
    return NULL;
}

static volatile unsigned char *block_made(void) {
    volatile unsigned char *block = malloc(bytes);
    work_aligned((void *)block, bytes);
    return block;
}

int main(int argc, char **argv) {
    static const char *const word[] = { "own", "given", "dealt" };
    way = work_choice(argc, argv, 1, "way", word, 3);
    uint64_t thread_count = work_arg(argc, argv, 2, "threads", 2, 1, THREADS_MAX);
    round_count = work_arg(argc, argv, 3, "rounds", 20000, 1, UINT32_MAX);
    write_count = work_arg(argc, argv, 4, "writes", 200, 1, 1u << 30);
    bytes = work_arg(argc, argv, 5, "bytes", 8, 8, 1u << 20);
    work_args_end(argc, argv, 5);
    player = work_table(thread_count * sizeof *player);
    for (uint64_t i = 0; i < thread_count && way == 1; i++) player[i].given = block_made();
    for (uint64_t k = 0; k < DEALT && way == 2; k++)
        for (uint64_t i = 0; i < thread_count; i++) player[i].dealt[k] = block_made();
    pthread_t thread[THREADS_MAX];
    pthread_barrier_init(&start, NULL, (unsigned)thread_count + 1);
    for (uint64_t i = 0; i < thread_count; i++) thread[i] = work_thread(player_run, &player[i]);
    struct work_span span = work_start(); /* nobody starts before us */
    pthread_barrier_wait(&start);
    uint64_t op_count = 0;
    for (uint64_t i = 0; i < thread_count; i++) {
        work_join(thread[i]);
        op_count += player[i].writes_done;
    }
    work_stop(&span);
    for (uint64_t i = 0; i < thread_count && way == 2; i++)
        for (uint64_t k = 0; k < DEALT; k++) free((void *)player[i].dealt[k]);
    work_begin("false_sharing", argc, argv);
    work_measured(op_count, span);
    work_check(op_count);
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
