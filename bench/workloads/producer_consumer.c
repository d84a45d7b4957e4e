/* producer_consumer.c - producers allocate, consumers free.
 *
 * Arguments: producers 1, blocks a producer 3000000, seed 12345, blocks in a burst 0, consumers 1.
 * Each producer has a ring of 4,096 places to its consumer (the producers are dealt out to the consumers by turns), or
 * as many as a burst; who finds it full, or all of them empty, gives the processor away. Sizes 16 to 512. Producers free nothing, the consumer allocates nothing:
 * memory must stay bounded by what the rings hold. With bursts, a producer shows its blocks only when the burst is
 * whole, and begins the next one when the consumer has freed it all.
 */
#include "work.h"
#include <sched.h>

enum { RING = 4096, PRODUCER_COUNT_MAX = 1024 };
struct place { unsigned char *block; uint32_t bytes; };
struct ring {
    _Alignas(64) atomic_ulong head; /* written by the producer */
    _Alignas(64) atomic_ulong tail; /* written by the consumer */
    _Alignas(64) struct place *place;
};
static struct ring *ring;
static uint64_t block_count, seed, producer_count, consumer_count, burst_count, ring_count = RING;
static atomic_ulong digest;

static void *producer_run(void *argument) {
    struct ring *mine = &ring[(uintptr_t)argument];
    struct place *place = mine->place;
    uint64_t random = seed + (uintptr_t)argument * 7919, mask = ring_count - 1, in_burst = 0;
    for (uint64_t i = 0; i < block_count; i++) {
        /* acquire: pairs with the consumer's release; the place is read no more */
        uint64_t room = burst_count && !in_burst ? 1 : ring_count;
        while (i - atomic_load_explicit(&mine->tail, memory_order_acquire) >= room) sched_yield();
        uint32_t bytes = 16 + (uint32_t)work_below(&random, 497);
        place[i & mask].bytes = bytes;
        place[i & mask].block = work_alloc(bytes, (unsigned char)bytes);
        if (++in_burst < burst_count && i + 1 < block_count) continue;
        in_burst = 0;
        /* release: pairs with the consumer's acquire; publishes the places */
        atomic_store_explicit(&mine->head, i + 1, memory_order_release);
    }
    atomic_fetch_add(&digest, random);
    return NULL;
}

static void *consumer_run(void *argument) {
    uint64_t first = (uintptr_t)argument, mask = ring_count - 1;
    uint64_t mine = (producer_count - first + consumer_count - 1) / consumer_count;
    for (uint64_t left = mine * block_count; left;) {
        uint64_t found = 0;
        for (uint64_t r = first; r < producer_count; r += consumer_count) {
            uint64_t tail = atomic_load_explicit(&ring[r].tail, memory_order_relaxed);
            uint64_t head = atomic_load_explicit(&ring[r].head, memory_order_acquire);
            for (; tail < head; tail++, found++)
                work_free(ring[r].place[tail & mask].block, ring[r].place[tail & mask].bytes,
                          (unsigned char)ring[r].place[tail & mask].bytes);
            atomic_store_explicit(&ring[r].tail, tail, memory_order_release);
        }
        left -= found;
        if (!found) sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv) {
    producer_count = work_arg(argc, argv, 1, "producers", 1, 1, PRODUCER_COUNT_MAX);
    block_count = work_arg(argc, argv, 2, "blocks", 3000000, 1, UINT32_MAX);
    seed = work_arg(argc, argv, 3, "seed", 12345, 0, UINT64_MAX);
    burst_count = work_arg(argc, argv, 4, "burst", 0, 0, 1u << 22);
    consumer_count = work_arg(argc, argv, 5, "consumers", 1, 1, producer_count);
    work_args_end(argc, argv, 5);
    while (ring_count < burst_count) ring_count *= 2;
    ring = work_table(producer_count * sizeof *ring);
    for (uint64_t i = 0; i < producer_count; i++) ring[i].place = work_table(ring_count * sizeof *ring[i].place);
    pthread_t producer[PRODUCER_COUNT_MAX], consumer[PRODUCER_COUNT_MAX];
    uint64_t wall_ns = work_wall_ns(), cpu_ns = work_cpu_ns();
    for (uint64_t i = 0; i < consumer_count; i++) consumer[i] = work_thread(consumer_run, (void *)(uintptr_t)i);
    for (uint64_t i = 0; i < producer_count; i++) producer[i] = work_thread(producer_run, (void *)(uintptr_t)i);
    for (uint64_t i = 0; i < producer_count; i++) work_join(producer[i]);
    for (uint64_t i = 0; i < consumer_count; i++) work_join(consumer[i]);
    wall_ns = work_wall_ns() - wall_ns;
    cpu_ns = work_cpu_ns() - cpu_ns;
    work_begin("producer_consumer", argc, argv);
    work_number("seed", seed);
    work_number("ops", producer_count * block_count);
    work_number("wall_ns", wall_ns);
    work_number("cpu_ns", cpu_ns);
    work_check(atomic_load(&digest));
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
