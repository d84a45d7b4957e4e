/* server.c - a store of keys and values with clients and workers in threads of their own.
 *
 * Arguments: clients 4, workers 2, requests a client 100000, keys a client 2000, seed 12345.
 * A client allocates a request (32 bytes and, in a write, a copy of the value), and puts it into the ring of the
 * worker whose key it is. The worker writes (a new entry, or its value replaced), reads (the answer is a copy) or
 * deletes, in a table of its own, frees a write's value, and sends the request back with the answer; the client
 * checks both and frees them. So blocks go from thread to thread in both directions, while the store's own are
 * long-lived. Values are 16 bytes to 32 KiB, each doubling equally often up to 4 KiB, the larger ones once in 20.
 * Of the requests 60% read, 35% write, 5% delete; a client has up to 256 under way. Each client has keys of its own,
 * so that the answers do not depend on chance.
 */
#include "work.h"
#include <sched.h>

enum { RING = 512, CLIENTS_MAX = 1024, WORKERS_MAX = 64, UNDER_WAY_MAX = 256, BUCKETS = 1 << 14 };
enum what { READ, WRITE, DELETE };
struct request {
    uint64_t key;
    unsigned char *value; /* of a write: the worker copies and frees it; of an answer: the client frees it */
    uint32_t bytes;
    uint8_t what, tag, is_found, worker;
};
struct entry { struct entry *chain; uint64_t key; unsigned char *value; uint32_t bytes; uint8_t tag; };
struct ring { /* one writer, one reader */
    _Alignas(64) atomic_ulong head;
    _Alignas(64) atomic_ulong tail;
    _Alignas(64) struct request *place[RING];
};
struct known { uint32_t bytes; uint8_t tag, is_there; }; /* what a client knows of a key, for its checks */
static struct ring (*to_worker)[WORKERS_MAX], (*to_client)[WORKERS_MAX]; /* [client][worker] */
static uint64_t client_count, worker_count, request_count, key_count, seed;
static atomic_ulong digest, clients_left;
static pthread_barrier_t start;

static bool ring_put(struct ring *ring, struct request *request) {
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    /* acquire: pairs with ring_take's release; the place is free */
    if (head - atomic_load_explicit(&ring->tail, memory_order_acquire) == RING) return false;
    ring->place[head % RING] = request;
    /* release: pairs with ring_take's acquire; publishes the place */
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}
static struct request *ring_take(struct ring *ring) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&ring->head, memory_order_acquire)) return NULL;
    struct request *request = ring->place[tail % RING];
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return request;
}

static unsigned char *value_copy(const unsigned char *value, uint32_t bytes) {
    unsigned char *copy = malloc(bytes);
    work_aligned(copy, bytes);
    memcpy(copy, value, bytes);
    return copy;
}

/* --- a worker --------------------------------------------------------------------------------------- */

static void request_serve(struct entry **bucket, struct request *request) {
    struct entry **link = &bucket[(request->key * 0x9e3779b97f4a7c15u) >> 50], *entry;
    while ((entry = *link) && entry->key != request->key) link = &entry->chain;
    request->is_found = entry != NULL;
    if (request->what == WRITE) {
        if (!entry) {
            entry = malloc(sizeof *entry);
            work_aligned(entry, sizeof *entry);
            *entry = (struct entry){ .key = request->key };
            *link = entry;
        }
        free(entry->value);
        entry->value = value_copy(request->value, request->bytes);
        entry->bytes = request->bytes;
        entry->tag = request->tag;
        free(request->value);
        request->value = NULL;
    } else if (request->what == READ && entry) {
        request->value = value_copy(entry->value, entry->bytes);
        request->bytes = entry->bytes;
        request->tag = entry->tag;
    } else if (request->what == DELETE && entry) {
        *link = entry->chain;
        work_free(entry->value, entry->bytes, entry->tag);
        free(entry);
    }
}

static void *worker_run(void *argument) {
    uint64_t me = (uintptr_t)argument;
    struct entry **bucket = work_table(BUCKETS * sizeof *bucket);
    pthread_barrier_wait(&start);
    for (bool is_idle = false; atomic_load_explicit(&clients_left, memory_order_acquire);) {
        if (is_idle) sched_yield();
        is_idle = true;
        for (uint64_t client = 0; client < client_count; client++)
            for (struct request *request; (request = ring_take(&to_worker[client][me]));) {
                is_idle = false;
                request_serve(bucket, request);
                /* always room: a client has fewer under way than a ring has places */
                if (!ring_put(&to_client[client][me], request)) work_die(1, "a ring is full");
            }
    }
    for (uint64_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = bucket[i], *next; entry; entry = next) {
            next = entry->chain;
            work_free(entry->value, entry->bytes, entry->tag);
            free(entry);
        }
    return NULL;
}

/* --- a client ------------------------------------------------------------------------------------------ */

static struct request *request_make(uint64_t me, uint64_t *random) {
    struct request *request = malloc(sizeof *request);
    work_aligned(request, sizeof *request);
    uint64_t number = work_skewed(random, key_count), draw = work_below(random, 100);
    *request = (struct request){ .key = me << 32 | number, .what = draw < 60 ? READ : draw < 95 ? WRITE : DELETE };
    request->worker = (uint8_t)(number % worker_count);
    if (request->what != WRITE) return request;
    request->bytes = (uint32_t)(work_below(random, 20) ? work_log_size(random, 4, 12) : work_log_size(random, 12, 15));
    request->tag = (uint8_t)work_random(random);
    request->value = work_alloc(request->bytes, request->tag);
    memset(request->value, request->tag, request->bytes);
    return request;
}

/* Requests of one key are answered in the order they were made, for they go by the same two rings. */
static uint64_t answer_check(struct known *known, struct request *request) {
    struct known *key = &known[(uint32_t)request->key];
    if (request->is_found != key->is_there)
        work_die(1, "key %" PRIx64 " was%s found", request->key, key->is_there ? " not" : "");
    uint64_t sum = request->what + 1;
    if (request->what == READ && request->is_found) {
        if (request->bytes != key->bytes || request->tag != key->tag)
            work_die(1, "key %" PRIx64 " has another value", request->key);
        work_verify(request->value, request->bytes, request->tag);
        sum += request->value[request->bytes / 2];
        free(request->value);
    } else if (request->what == WRITE) {
        *key = (struct known){ request->bytes, request->tag, 1 };
    } else if (request->what == DELETE) {
        key->is_there = 0;
    }
    free(request);
    return sum;
}

static void *client_run(void *argument) {
    uint64_t me = (uintptr_t)argument, random = seed + me * 7919, made = 0, answered = 0, sum = 0;
    struct known *known = work_table(key_count * sizeof *known);
    pthread_barrier_wait(&start);
    while (answered < request_count) {
        uint64_t before = answered;
        for (uint64_t worker = 0; worker < worker_count; worker++)
            for (struct request *request; (request = ring_take(&to_client[me][worker])); answered++)
                sum += answer_check(known, request);
        if (before == answered && (made - answered == UNDER_WAY_MAX || made == request_count)) sched_yield();
        for (; made < request_count && made - answered < UNDER_WAY_MAX; made++) {
            struct request *request = request_make(me, &random);
            if (!ring_put(&to_worker[me][request->worker], request)) work_die(1, "a ring is full");
        }
    }
    atomic_fetch_add(&digest, sum);
    /* release: pairs with the workers' acquire */
    atomic_fetch_sub_explicit(&clients_left, 1, memory_order_release);
    return NULL;
}

int main(int argc, char **argv) {
    client_count = work_arg(argc, argv, 1, "clients", 4, 1, CLIENTS_MAX);
    worker_count = work_arg(argc, argv, 2, "workers", 2, 1, WORKERS_MAX);
    request_count = work_arg(argc, argv, 3, "requests", 100000, 1, UINT32_MAX);
    key_count = work_arg(argc, argv, 4, "keys", 2000, 1, 1u << 24);
    seed = work_arg(argc, argv, 5, "seed", 12345, 0, UINT64_MAX);
    work_args_end(argc, argv, 5);
    to_worker = work_table(client_count * sizeof *to_worker);
    to_client = work_table(client_count * sizeof *to_client);
    atomic_store(&clients_left, client_count);
    pthread_barrier_init(&start, NULL, (unsigned)(client_count + worker_count) + 1);
    pthread_t thread[CLIENTS_MAX + WORKERS_MAX];
    for (uint64_t i = 0; i < worker_count; i++) thread[i] = work_thread(worker_run, (void *)(uintptr_t)i);
    for (uint64_t i = 0; i < client_count; i++)
        thread[worker_count + i] = work_thread(client_run, (void *)(uintptr_t)i);
    struct work_span span = work_start(); /* nobody starts before us */
    pthread_barrier_wait(&start);
    for (uint64_t i = 0; i < client_count + worker_count; i++) work_join(thread[i]);
    work_stop(&span);
    work_begin("server", argc, argv);
    work_number("seed", seed);
    work_measured(client_count * request_count, span);
    work_check(atomic_load(&digest));
    work_number("resident_kb", work_resident_kb());
    return work_end();
}
