/* pool.c - split classes: who gets blocks from where, and that splitting at any moment loses nothing. ctest: timeout=300 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/audit.h"
#include "unit/room.h"
#include "unit/split.h"

#include "front/front.h"
#include "heap/walk.h"
#include "memory/purge.h"
#include "rules/options.h"
#include "watch/sample.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define NOIPA __attribute__((noinline)) /* clang does not merge functions */
#else
#define NOIPA __attribute__((noipa))
#endif

/* Call sites: noipa, or they would become one; and no tail calls, or their callers would be the sites. */
#define SITE(name, parameters, call)                \
    NOIPA static void *name parameters {            \
        void *block = call;                         \
        __asm__ volatile("" : "+r"(block));         \
        return block;                               \
    }
SITE(site_a, (size_t bytes), malloc(bytes))
SITE(site_b, (size_t bytes), malloc(bytes))
SITE(site_calloc, (size_t bytes), calloc(1, bytes))
SITE(site_realloc, (void *old, size_t bytes), realloc(old, bytes))

static unsigned index_of(const void *block) {
    return hak_slab_of(hak_granule_at(hak_granule_of(block)))->class_index;
}

static void sites_set(uint64_t bits) {
    for (unsigned c = 1; c <= HAK_SMALL_CLASS_MAX; c++)
        for (unsigned i = 0; i < (1 << HAK_POOL_SITE_BITS) / 64; i++) hak_store_relaxed(&hak_pool_sites[c][i], bits);
    hak_pools_tell();
}
static void site_set(unsigned class_index, unsigned hash, bool is_long) {
    uint64_t bit = UINT64_C(1) << hash % 64;
    if (is_long) hak_or(&hak_pool_sites[class_index][hash / 64], bit);
    else hak_and(&hak_pool_sites[class_index][hash / 64], ~bit);
    hak_pools_tell();
    hak_pool_look(hak_self);
}
static void the_class_has_slabs(size_t bytes) {
    void *held[64];
    for (int i = 0; i < 64; i++) held[i] = malloc(bytes);
    for (int i = 0; i < 64; i++) free(held[i]);
}

static void marked_sites_have_their_own_slabs(void **state) {
    (void)state;
    the_class_has_slabs(96);
    sites_set(~UINT64_C(0));
    split_here(UINT64_C(1) << 5); /* class 6: 96 bytes */
    void *held[200];
    for (int i = 0; i < 200; i++) {
        held[i] = i % 4 == 0 ? site_calloc(96) : i % 4 == 1 ? site_realloc(NULL, 90) : site_a(96);
        assert_int_equal(malloc_usable_size(held[i]), i >= 40 ? 96 : malloc_usable_size(held[i]));
        if (i >= 40) assert_int_equal(index_of(held[i]), hak_pool_of(6)); /* before, the pool is rare in this heap */
        assert_int_equal((uintptr_t)held[i] % 16, 0);
    }
    sites_set(0);
    hak_pool_look(hak_self);
    void *other = site_b(96);
    assert_int_equal(index_of(other), 6);
    assert_int_equal(hak_self->bin[6].word, 0);
    void *not_split = site_a(112);
    assert_int_not_equal(index_of(not_split), hak_pool_of(7));
    free(not_split);
    free(other);
    for (int i = 0; i < 200; i++) free(held[i]);
    split_here(0);
    other = site_b(96);
    assert_int_equal(index_of(other), 6);
    free(other);
}

/* By each way that a block of 0 bytes is asked for, also when the bin is empty. */
static void zero_bytes_of_a_split_class(void **state) {
    (void)state;
    the_class_has_slabs(16);
    for (int is_long = 0; is_long < 2; is_long++) {
        split_here(1);
        sites_set(is_long ? ~UINT64_C(0) : 0);
        void *held[600];
        for (int i = 0; i < 600; i++) {
            held[i] = i % 3 == 0 ? malloc(0) : i % 3 == 1 ? calloc(0, 8) : aligned_alloc(16, 0);
            assert_non_null(held[i]);
            assert_int_equal(malloc_usable_size(held[i]) % 16, 0);
        }
        for (int i = 0; i < 600; i++) free(held[i]);
    }
    sites_set(0);
    split_here(0);
}

static void two_sites_are_told_apart(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(__clang__)
    skip(); /* neither a sanitizer's build nor clang's -O1 makes tail calls: malloc is everybody's caller */
#endif
    the_class_has_slabs(256);
    split_here(UINT64_C(1) << 15);
    sites_set(0);
    /* which hash is site_a's: the only one by which it reaches the pool */
    unsigned found = 0, hash_of_a = 0;
    for (unsigned hash = 0; hash < 1 << HAK_POOL_SITE_BITS; hash++) {
        site_set(16, hash, true);
        void *block = site_a(256); /* of a size that rare classes have too */
        if (index_of(block) == hak_pool_of(16)) found++, hash_of_a = hash;
        free(block);
        site_set(16, hash, false);
    }
    assert_int_equal(found, 1);
    site_set(16, hash_of_a, true);
    void *a = site_a(256), *b = site_b(256), *aligned = aligned_alloc(64, 256);
    assert_int_equal(index_of(a), hak_pool_of(16));
    assert_int_equal(index_of(b), 16);
    assert_int_equal((uintptr_t)aligned % 64, 0);
    free(a);
    free(b);
    free(aligned);
    split_here(0);
}

/* --- no memory --- */

enum { MOST = 1 << 19, ROOM_BYTES = 16 << 20 };
static void *filled[MOST];

static size_t address_space_bytes(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_true(file && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* One is filled until there is no memory, half of it is freed, and the other asked for as much. */
static void fill_one_and_ask_the_other(bool is_long) {
    struct rlimit before, limit;
    size_t count = 0, freed = 0, again = 0;
    sites_set(is_long ? ~UINT64_C(0) : 0);
    split_here(UINT64_C(1) << 5);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = address_space_bytes() + ROOM_BYTES;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    while (count < MOST && (filled[count] = site_a(96)) != NULL) count++;
    for (size_t i = 0; i < count; i += 2, freed++) {
        free(filled[i]);
        filled[i] = NULL;
    }
    sites_set(is_long ? 0 : ~UINT64_C(0));
    hak_pool_look(hak_self);
    while (again < freed && (filled[2 * again] = site_a(96)) != NULL) again++;
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_true(count > 10000 && count < MOST);
    if (again + freed / 100 < freed) fail_msg("%zu of %zu", again, freed);
    for (size_t i = 0; i < count; i++) free(filled[i]);
    sites_set(0);
    split_here(0);
}

static void what_is_free_in_one_serves_the_other_when_memory_is_short(void **state) {
    (void)state;
    if (getenv("HAK_TEST_EMULATED")) skip(); /* qemu-user knows no limit of the program's own */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* they map as they like */
#endif
    the_class_has_slabs(96);
    fill_one_and_ask_the_other(true);
    fill_one_and_ask_the_other(false);
}

/* --- random work, while classes are split and joined --- */

enum { SLOTS = 1500 };
struct slot {
    unsigned char *at;
    size_t bytes;
    unsigned char stamp;
};

static void slot_check(struct slot *slot) {
    if (!slot->at) return;
    for (size_t i = 0; i < slot->bytes; i += 61) REQUIRE(slot->at[i] == slot->stamp);
    REQUIRE(slot->at[slot->bytes - 1] == slot->stamp);
}

static void slot_step(struct slot *slot, uint64_t *dice) {
    uint64_t roll = dice_next(dice);
    slot_check(slot);
    size_t bytes = 1 + roll % (roll >> 20 & 15 ? 600 : 3000), kept = slot->bytes < bytes ? slot->bytes : bytes;
    switch (roll >> 40 & 7) {
    case 0:
    case 1:
    case 2: {
        unsigned char *grown = slot->at ? site_realloc(slot->at, bytes) : site_b(bytes);
        for (size_t i = 0; slot->at && i < kept; i += 61) REQUIRE(grown[i] == slot->stamp);
        slot->at = grown;
        break;
    }
    case 3:
        free(slot->at);
        slot->at = site_calloc(bytes);
        for (size_t i = 0; i < bytes; i += 61) REQUIRE(slot->at[i] == 0);
        break;
    case 4:
        free(slot->at);
        slot->at = aligned_alloc(64, bytes);
        break;
    default:
        free(slot->at);
        slot->at = roll >> 50 & 1 ? site_a(bytes) : site_b(bytes);
    }
    slot->bytes = bytes;
    slot->stamp = (unsigned char)roll;
    memset(slot->at, slot->stamp, bytes);
}

static void slots_end(struct slot *slots) {
    for (unsigned i = 0; i < SLOTS; i++) {
        slot_check(&slots[i]);
        free(slots[i].at);
        slots[i] = (struct slot){ NULL, 0, 0 };
    }
}

/* Any bits: which classes and sites does not matter, only that it changes. */
static void split_anyhow(uint64_t *dice) {
    uint64_t roll = dice_next(dice);
    sites_set(dice_next(dice));
    hak_store_release(&hak_split_classes, roll % 5 == 0 ? 0 : roll % 5 == 1 ? ~UINT64_C(0) : dice_next(dice));
    hak_pools_tell();
}

static void nothing_is_lost(void) {
    split_here(0);
    hak_heap_collect(hak_self);
    hak_heap_collect(hak_self);
    struct audit audit;
    const char *wrong = audit_find(&audit, 0);
    if (wrong) print_error("%s: used %lld explained %lld\n", wrong, (long long)audit.used, (long long)audit.explained);
    assert_null(wrong);
}

static int by_class(const struct hak_held *held, void *live) {
    if (!held->large) ((uint64_t *)live)[hak_class_of(held->bytes)]++;
    return 0;
}
/* What waits in the words of either pool is not shown, and all else is. */
static void a_walk_shows_what_is_counted(void) {
    struct hak_census census;
    uint64_t live[HAK_CLASS_COUNT] = { 0 };
    assert_int_equal(hak_walk_all(&(struct hak_walk){ .each = by_class, .context = live }), 0);
    hak_census_take(&census);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live[c], census.live[c]);
}

static void splitting_at_any_moment_loses_nothing(void **state) {
    (void)state;
    static struct slot slots[SLOTS];
    uint64_t dice = 88172645463325252u;
    for (unsigned step = 0; step < 400000; step++) {
        slot_step(&slots[dice_next(&dice) % SLOTS], &dice);
        if (dice_next(&dice) % 300 == 0) split_anyhow(&dice);
        if (dice_next(&dice) % 40000 == 0) hak_heap_collect(hak_self);
        if (dice_next(&dice) % 1000 == 0) hak_heap_chores_call(hak_self); /* chores at odd moments */
        if (step % 2000 == 0) a_walk_shows_what_is_counted();
    }
    slots_end(slots);
    nothing_is_lost();
}

/* Watched blocks come from classes and pools alike, and each is told of. */
static hak_atomic_u64 sample_count, sample_bytes;
static void on_sample(struct hak_heap *heap, const struct hak_sample *sample) {
    (void)heap;
    REQUIRE(sample->class_index < HAK_CLASS_COUNT);
    if (sample->class_index != 10) return;
    hak_add(&sample_count, 1);
    hak_add(&sample_bytes, (uint64_t)(sample->weight * (double)sample->block_bytes));
}

static void samples_of_split_classes_weigh_what_they_stand_for(void **state) {
    (void)state;
    enum { COUNT = 400000 };
    uint64_t dice = 4711;
    assert_true(hak_sample_observe(on_sample, NULL));
    hak_options.sample_most = 0; /* the rate stays as it is */
    hak_sample_want(HAK_SAMPLE_LIFETIMES, 16 << 10, false);
    hak_heap_chores_call(hak_self);
    the_class_has_slabs(160);
    hak_store_relaxed(&sample_count, 0);
    hak_store_relaxed(&sample_bytes, 0);
    for (int i = 0; i < COUNT; i++) {
        if (i % 5000 == 0) split_anyhow(&dice);
        free(i % 3 ? site_a(160) : site_b(160));
    }
    hak_sample_want(HAK_SAMPLE_LIFETIMES, 0, false);
    double bytes = (double)hak_load_relaxed(&sample_bytes), wanted = COUNT * 160.0; /* 3,900 samples: 1.6% is one sigma */
    if (bytes < wanted * 0.92 || bytes > wanted * 1.08) print_error("%g of %g\n", bytes, wanted);
    assert_true(hak_load_relaxed(&sample_count) > 1000 && bytes > wanted * 0.92 && bytes < wanted * 1.08);
    nothing_is_lost();
}

static void splitting_while_sampling_loses_nothing(void **state) {
    hak_sample_want(HAK_SAMPLE_LIFETIMES, 8 << 10, true);
    splitting_at_any_moment_loses_nothing(state);
    hak_sample_want(HAK_SAMPLE_LIFETIMES, 0, false);
}

static void counts_are_exact(void **state) {
    (void)state;
    struct hak_census before, after;
    enum { COUNT = 5000 };
    static void *held[COUNT];
    uint64_t dice = 1234567;
    the_class_has_slabs(48);
    hak_census_take(&before);
    for (int i = 0; i < COUNT; i++) {
        if (i % 100 == 0) split_anyhow(&dice);
        held[i] = i % 2 ? site_a(48) : site_b(48);
        assert_int_equal(malloc_usable_size(held[i]) / 48, 1); /* rare pools serve 128 bytes */
    }
    hak_census_take(&after);
    uint64_t handed = 0, live = 0;
    for (unsigned c = 3; c <= 8; c++) {
        handed += after.handed[c] - before.handed[c];
        live += after.live[c] - before.live[c];
    }
    assert_int_equal(handed, COUNT);
    assert_int_equal(live, COUNT);
    for (int i = 0; i < COUNT; i++) free(held[i]);
    hak_census_take(&after);
    live = 0;
    for (unsigned c = 3; c <= 8; c++) live += after.live[c] - before.live[c];
    assert_int_equal(live, 0);
    nothing_is_lost();
}

/* --- threads that free each other's blocks --- */

enum { THREADS = 4, EXCHANGE = 512 };
static _Atomic(void *) exchange[EXCHANGE];
static hak_atomic_u32 threads_left;

static void *thread_work(void *seed) {
    struct slot *slots = calloc(SLOTS, sizeof *slots);
    uint64_t dice = (uintptr_t)seed * UINT64_C(0x9e3779b97f4a7c15);
    for (unsigned step = 0; step < 60000; step++) {
        slot_step(&slots[dice_next(&dice) % SLOTS], &dice);
        uint64_t roll = dice_next(&dice);
        if (roll % 3 == 0) free(atomic_exchange(&exchange[roll >> 8 & (EXCHANGE - 1)], site_a(1 + (roll >> 20) % 500)));
    }
    slots_end(slots);
    free(slots);
    hak_add(&threads_left, (uint32_t)-1);
    return NULL;
}

static void *flip(void *seed) {
    uint64_t dice = (uintptr_t)seed;
    while (hak_load_relaxed(&threads_left) > 0) {
        split_anyhow(&dice);
        usleep(200);
    }
    return NULL;
}

static void threads_run(bool forks) {
    pthread_t thread[THREADS], flipper;
    hak_store_relaxed(&threads_left, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, thread_work, (void *)(i + 1)), 0);
    assert_int_equal(pthread_create(&flipper, NULL, flip, (void *)(uintptr_t)77), 0);
    for (int i = 0; forks && i < 12; i++) {
        usleep(15000);
        pid_t child = fork();
        if (child == 0) { /* with the blocks and pools of threads that are gone */
            alarm(60);
            static struct slot slots[SLOTS];
            uint64_t dice = 99 + (uint64_t)i;
            for (int k = 0; k < EXCHANGE; k++) free(atomic_exchange(&exchange[k], NULL));
            for (unsigned step = 0; step < 20000; step++) {
                slot_step(&slots[dice_next(&dice) % SLOTS], &dice);
                if (step % 500 == 0) split_anyhow(&dice);
            }
            slots_end(slots);
            hak_heap_collect(hak_self);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    pthread_join(flipper, NULL);
    for (int i = 0; i < EXCHANGE; i++) free(atomic_exchange(&exchange[i], NULL));
}

static void threads_free_each_others_blocks_and_end(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) threads_run(false);
    nothing_is_lost();
}

static void a_child_of_fork_goes_on(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its runtime starts no threads in a child */
#endif
    threads_run(true);
    nothing_is_lost();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marked_sites_have_their_own_slabs),
        cmocka_unit_test(zero_bytes_of_a_split_class),
        cmocka_unit_test(two_sites_are_told_apart),
        cmocka_unit_test(what_is_free_in_one_serves_the_other_when_memory_is_short),
        cmocka_unit_test(splitting_at_any_moment_loses_nothing),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(samples_of_split_classes_weigh_what_they_stand_for),
        cmocka_unit_test(splitting_while_sampling_loses_nothing),
        cmocka_unit_test(threads_free_each_others_blocks_and_end),
        cmocka_unit_test(a_child_of_fork_goes_on),
    };
    free(malloc(1));
    hak_heap_on_slab = NULL; /* nobody else steers the split */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
