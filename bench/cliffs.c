/* cliffs.c - a program that does one thing after another, by chance, and times simple loops after each; run by cliffs.py.
 *
 *     cliffs SEED STEPS LIMIT_NS [LIMIT_LARGE_NS]
 *
 * A step grows, frees, churns, sleeps, reallocates, or has threads allocate and free with it. Then a block of some size is allocated and freed again
 * and again (pair), and the oldest of some is replaced (turn). What takes longer than LIMIT_NS an operation, or for blocks above 32 KiB
 * LIMIT_LARGE_NS, in four loops one after the other, is a line of its own: an allocator that is in such a state does not leave it. The last steps are told behind it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TIMES = 20000, TIMES_LARGE = 2000, LARGE = 32 << 10, AGAIN = 3, LOOPS = 6, HELD_MAX = 200 };
static const size_t bytes_of[] = { 0, 24, 64, 100, 256, 500, 1000, 1500, 4000, 10000, 30000, 40000, 150000, 700000 };
static const unsigned held_of[] = { 1, 10, 50, 100, HELD_MAX };
static const size_t most_bytes = (size_t)400 << 20;

static uint64_t state;
static uint32_t chance(uint32_t below) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 33) % below);
}
static size_t size_between(unsigned low, unsigned high) { /* as powers of two */
    size_t power = (size_t)1 << (low + chance(high - low));
    return power + chance((uint32_t)power);
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* --- what was done --- */

static char told[1 << 16];
static size_t told_length;
static __attribute__((format(printf, 1, 2))) void tell(const char *format, ...) {
    if (told_length > sizeof told - 200) told_length = 0;
    va_list arguments;
    va_start(arguments, format);
    told_length += (size_t)vsnprintf(told + told_length, 200, format, arguments);
    va_end(arguments);
}

/* --- what is held --- */

static struct { char *block; size_t bytes; } *held;
static size_t held_count, held_room, held_bytes;

static char *need(void *block) {
    if (block) return block;
    fputs("cliffs: no memory\n", stderr);
    exit(1);
}
static void keep(size_t bytes) {
    if (held_count == held_room) {
        held_room = held_room ? held_room * 2 : 1024;
        held = (void *)need(realloc(held, held_room * sizeof *held));
    }
    char *block = need(malloc(bytes));
    block[0] = block[bytes - 1] = 1;
    held[held_count].block = block;
    held[held_count++].bytes = bytes;
    held_bytes += bytes;
}
static void drop(size_t at) {
    free(held[at].block);
    held_bytes -= held[at].bytes;
    held[at] = held[--held_count];
}

/* --- threads --- */

struct job { void **blocks; int count; size_t bytes; enum { MAKES, FREES, TURNS } does; };
static void *work(void *argument) {
    struct job *job = argument;
    void *some[64] = { 0 };
    for (int i = 0; i < job->count; i++) {
        if (job->does == FREES) free(job->blocks[i]);
        if (job->does == MAKES) *(volatile char *)(job->blocks[i] = need(malloc(job->bytes))) = 1;
        if (job->does == TURNS) {
            free(some[i % 64]);
            some[i % 64] = malloc(job->bytes + (size_t)i % 300);
        }
    }
    for (int i = 0; i < 64; i++) free(some[i]);
    return NULL;
}
static void start(pthread_t *thread, struct job *job) {
    if (pthread_create(thread, NULL, work, job) == 0) return;
    fputs("cliffs: no thread\n", stderr);
    exit(1);
}
static void handed(int count, size_t bytes, int by_us) {
    void **blocks = (void *)need(malloc((size_t)count * sizeof *blocks));
    struct job job = { blocks, count, bytes, by_us ? FREES : MAKES };
    pthread_t thread;
    for (int i = 0; by_us && i < count; i++) *(volatile char *)(blocks[i] = need(malloc(bytes))) = 1;
    start(&thread, &job);
    pthread_join(thread, NULL);
    for (int i = 0; !by_us && i < count; i++) free(blocks[i]);
    free(blocks);
}
static void crowd(unsigned count, size_t bytes) {
    pthread_t thread[40];
    struct job job = { NULL, 2000, bytes, TURNS };
    for (unsigned i = 0; i < count; i++) start(&thread[i], &job);
    for (unsigned i = 0; i < count; i++) pthread_join(thread[i], NULL);
}

/* --- steps --- */

static void grow(void) {
    unsigned count = 1u << (4 + chance(14)), low = 3 + chance(10), high = low + 1 + chance(3);
    tell("grow by %u of 2^%u to 2^%u; ", count, low, high);
    for (unsigned i = 0; i < count && held_bytes < most_bytes / 2; i++) keep(size_between(low, high));
}
static void grow_large(void) {
    unsigned count = 1 + chance(16), low = 15 + chance(6);
    tell("grow by %u of 2^%u; ", count, low);
    for (unsigned i = 0; i < count && held_bytes < most_bytes; i++) {
        keep(size_between(low, low + 2));
        memset(held[held_count - 1].block, 1, held[held_count - 1].bytes);
    }
}
static void free_some(unsigned percent) {
    tell("free %u%%; ", percent);
    for (size_t i = held_count; i-- > 0;)
        if (chance(100) < percent) drop(i);
}
static void churn(void) {
    unsigned count = 1u << (10 + chance(8));
    tell("churn %u; ", count);
    for (unsigned i = 0; i < count && held_count > 0; i++) {
        size_t at = chance((uint32_t)held_count), bytes = held[at].bytes;
        free(held[at].block);
        *(held[at].block = need(malloc(bytes))) = 1;
    }
}
static void wait_ms(unsigned ms) {
    struct timespec nap = { ms / 1000, (long)(ms % 1000) * 1000000 };
    tell("wait %u ms; ", ms);
    nanosleep(&nap, NULL);
}
static void reallocate(void) {
    unsigned count = 1u << (4 + chance(10)), low = 4 + chance(13);
    tell("reallocate %u to 2^%u; ", count, low);
    for (unsigned i = 0; i < count && held_count > 0 && held_bytes < most_bytes; i++) {
        size_t at = chance((uint32_t)held_count), bytes = size_between(low, low + 1);
        held_bytes += bytes - held[at].bytes;
        held[at].block = need(realloc(held[at].block, bytes));
        held[at].block[bytes - 1] = 1;
        held[at].bytes = bytes;
    }
}
static void turns(void) {
    unsigned count = 1u << (8 + chance(10)), room = 1u << (3 + chance(10)), bytes = 1 + chance(1500);
    void **some = (void *)need(calloc(room, sizeof *some));
    tell("%u turns of %u of %u bytes; ", count, room, bytes);
    for (unsigned i = 0; i < count; i++) {
        free(some[i % room]);
        some[i % room] = malloc(bytes);
    }
    for (unsigned i = 0; i < room; i++) free(some[i]);
    free(some);
}
static void bursts(void) {
    unsigned count = 1 + chance(64);
    size_t bytes = size_between(14, 20);
    char *some[64];
    tell("bursts of %u of %zu bytes; ", count, bytes);
    for (unsigned i = 0; i < 10; i++) {
        for (unsigned k = 0; k < count; k++) *(some[k] = need(malloc(bytes))) = 1;
        for (unsigned k = 0; k < count; k++) free(some[k]);
    }
}
static void stack(void) {
    unsigned count = 1u << (8 + chance(10)), bytes = 1 + chance(1000);
    size_t before = held_count;
    tell("a stack of %u of %u bytes; ", count, bytes);
    for (unsigned i = 0; i < count; i++) keep(bytes);
    while (held_count > before) drop(held_count - 1);
}

static void step(void) {
    unsigned what = chance(13);
    if (what == 0) grow();
    else if (what == 1) grow_large();
    else if (what == 2) free_some(1 + chance(99));
    else if (what == 3) free_some(100);
    else if (what == 4) churn();
    else if (what == 5) wait_ms(1 + chance(chance(4) ? 300 : 3000));
    else if (what == 6 || what == 7) {
        unsigned count = 1u << (6 + chance(10)), bytes = 1 + chance(2000);
        tell(what == 6 ? "a thread makes %u of %u bytes, we free them; " : "we make %u of %u bytes, a thread frees them; ", count, bytes);
        handed((int)count, bytes, what == 7);
    } else if (what == 8) {
        unsigned count = 1 + chance(40), bytes = 1 + chance(3000);
        tell("%u threads of %u bytes; ", count, bytes);
        crowd(count, bytes);
    } else if (what == 9) reallocate();
    else if (what == 10) turns();
    else if (what == 11) bursts();
    else stack();
}

/* --- loops --- */

static double pair_ns(size_t bytes) {
    static void *volatile seen __attribute__((unused));
    int times = bytes > LARGE ? TIMES_LARGE : TIMES;
    double begin = now_ns();
    for (int i = 0; i < times; i++) {
        void *block = malloc(bytes);
        seen = block;
        free(block);
    }
    return (now_ns() - begin) / times;
}
static double turn_ns(size_t bytes, unsigned count) {
    int times = bytes > LARGE ? TIMES_LARGE : TIMES;
    void *some[HELD_MAX];
    for (unsigned i = 0; i < count; i++) some[i] = malloc(bytes);
    double begin = now_ns();
    for (int i = 0; i < times; i++) {
        unsigned at = (unsigned)i % count;
        free(some[at]);
        some[at] = malloc(bytes);
    }
    double ns = (now_ns() - begin) / times;
    for (unsigned i = 0; i < count; i++) free(some[i]);
    return ns;
}

static void look(uint64_t seed, unsigned number, size_t bytes, unsigned count, double limit) {
    for (unsigned turned = 0; turned < 2; turned++) {
        double ns = 0;
        unsigned tries = 0;
        while (tries <= AGAIN && (ns = turned ? turn_ns(bytes, count) : pair_ns(bytes)) > limit) tries++;
        if (tries <= AGAIN) continue;
        size_t from = told_length > 300 ? told_length - 300 : 0;
        printf("%" PRIu64 "\t%u\t%s\t%zu\t%u\t%.1f\t%zu\t...%s\n", seed, number, turned ? "turn" : "pair", bytes, turned ? count : 1, ns, held_bytes >> 20, told + from);
        fflush(stdout);
    }
}

int main(int count, char **arguments) {
    uint64_t seed = count > 3 ? strtoull(arguments[1], NULL, 10) : 0;
    unsigned steps = count > 3 ? (unsigned)strtoul(arguments[2], NULL, 10) : 0;
    double limit = count > 3 ? strtod(arguments[3], NULL) : 0, limit_large = count > 4 ? strtod(arguments[4], NULL) : limit * 4;
    if (steps == 0 || !(limit > 0) || !(limit_large > 0)) {
        fputs("cliffs: SEED STEPS LIMIT_NS [LIMIT_LARGE_NS]\n", stderr);
        return 2;
    }
    state = seed;
    for (unsigned i = 0; i < 10; i++) chance(2);
    for (unsigned number = 0; number < steps; number++) {
        for (unsigned left = 1 + chance(4); left > 0; left--) step();
        for (unsigned i = 0; i < LOOPS; i++) {
            size_t bytes = bytes_of[chance(sizeof bytes_of / sizeof *bytes_of)];
            look(seed, number, bytes, held_of[chance(sizeof held_of / sizeof *held_of)], bytes > LARGE ? limit_large : limit);
        }
    }
    return 0;
}
