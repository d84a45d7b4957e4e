/* malloc.c - sizes that can never be had: ENOMEM, and nothing else happens. Sizes of rare classes where heaps are many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"
#include "unit/split.h"

#include "front/front.h"
#include "memory/purge.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

static unsigned shortages;
static void on_shortage(void) { shortages++; }

static void *(*volatile hidden_malloc)(size_t bytes) = malloc; /* the compiler knows sizes that are too large, and warns */
static void *(*volatile hidden_calloc)(size_t count, size_t each) = calloc;
static void *(*volatile hidden_reallocarray)(void *block, size_t count, size_t each) = reallocarray;
static void *(*volatile hidden_aligned)(size_t align, size_t bytes) = aligned_alloc;

static void *ask(unsigned way) {
    switch (way) {
    case 0: return hidden_malloc((size_t)1 << 46);
    case 1: return hidden_malloc((size_t)PTRDIFF_MAX + 1);
    case 2: return hidden_calloc((size_t)1 << 40, 100);
    case 3: return hidden_calloc(SIZE_MAX / 2, 3);
    case 4: return hidden_reallocarray(NULL, SIZE_MAX / 2, 3);
    default: return hidden_aligned(1 << 20, (size_t)1 << 46);
    }
}
enum { WAYS = 6 };

/* What the thread keeps for its next blocks goes back when memory is short. */
static void it_is_refused_and_nothing_goes_back(unsigned way) {
    enum { COUNT = 4, CALLS = 100 };
    void *block[COUNT];
    for (int i = 0; i < COUNT; i++) block[i] = malloc(100000);
    for (int i = 0; i < COUNT; i++) free(block[i]);
    uint64_t kept = hak_load_relaxed(&hak_self->kept.bytes), returns = hak_load_relaxed(&hak_purge.return_calls);
    uint64_t swept = hak_self->counters.n[HAK_C_sweep_slab];
    assert_true(kept > 0);
    shortages = 0;
    for (int i = 0; i < CALLS; i++) {
        errno = 0;
        assert_null(ask(way));
        assert_int_equal(errno, ENOMEM);
    }
    assert_int_equal(shortages, 0);
    assert_int_equal(hak_load_relaxed(&hak_self->kept.bytes), kept);
    assert_int_equal(hak_load_relaxed(&hak_purge.return_calls), returns);
    assert_int_equal(hak_self->counters.n[HAK_C_sweep_slab], swept);
}

static void what_can_never_be_had_empties_nothing(void **state) {
    (void)state;
    for (unsigned way = 0; way < WAYS; way++) it_is_refused_and_nothing_goes_back(way);
}

/* What the window could hold, and the kernel refuses. */
static void what_is_not_to_be_had_now_is_a_shortage(void **state) {
    (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    skip(); /* they map as they like */
#endif
    if (getenv("HAK_TEST_EMULATED")) skip(); /* qemu-user knows no limit of the program's own */
    struct rlimit before, limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)1 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    shortages = 0;
    errno = 0;
    assert_null(hidden_malloc((size_t)1 << 30));
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(shortages, 1);
    assert_int_equal(hak_load_relaxed(&hak_self->kept.bytes), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
}

static uint64_t visits(void) { return hak_self->counters.n[HAK_C_visit_coarse]; }
static bool malloc_is_of(size_t bytes, unsigned class_index) {
    void *block = hidden_malloc(bytes);
    bool is = hak_slab_of(hak_granule_at(hak_granule_of(block)))->class_index == class_index;
    free(block);
    return is;
}

/* Each malloc of one was a visit. Until its class has earned a slab malloc takes it from the coarser class's bin; then from its own. */
static void where_heaps_are_many_a_rare_size_is_no_visit_each_time(void **state) {
    (void)state;
    enum { OFTEN = 2000, LEAST = 8, EACH = 2 }; /* a page of the largest coarser class has four blocks */
    for (unsigned c = 1; c <= HAK_SMALL_CLASS_MAX; c++) {
        unsigned coarse = hak_classes[c].coarse, asked = 0;
        size_t bytes = hak_classes[c].block_bytes - (c > HAK_NARROW_CLASS_MAX && c % 4 == 0 ? 16 : 0); /* either step of a class */
        if (coarse == c || hak_class_small(bytes) != c) continue;
        hak_bin_put_back(hak_self, c);
        if (hak_self->shelf[c].partial) continue; /* it has a slab that others' blocks hold */
        hak_self->shelf[c].rare = 0;
        hak_self->shelf[coarse].rare = HAK_RARE_GREW;
        hak_store_relaxed(&hak_rare_blocks, OFTEN);
        uint64_t before = visits();
        while (asked <= 2 * OFTEN && malloc_is_of(bytes, coarse)) asked++;
        assert_in_range(asked, OFTEN / LEAST, 2 * OFTEN);
        assert_in_range(visits() - before, 1, asked / EACH);
        for (unsigned i = 0; i < OFTEN; i++) assert_true(malloc_is_of(bytes, c));
        hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
    }
}

/* A heap of which some class is split serves the others so; where the coarser class or the class itself is split the pools are asked. */
static void a_class_that_is_split_hinders_no_other(void **state) {
    (void)state;
    enum { C = 6, OTHER = 40, TURNS = 2000, HEAPS = 1000 };
    unsigned coarse = hak_classes[C].coarse;
    uint64_t bit[] = { UINT64_C(1) << (OTHER - 1), UINT64_C(1) << (coarse - 1), UINT64_C(1) << (C - 1) };
    for (unsigned i = 0; i < 3; i++) {
        split_here(0);
        hak_bin_put_back(hak_self, C);
        hak_self->shelf[C].rare = 0;
        hak_self->shelf[coarse].rare = HAK_RARE_GREW;
        hak_store_relaxed(&hak_rare_blocks, HEAPS * HAK_RARE_ASKS);
        for (unsigned k = 0; k < TURNS / 10; k++) assert_true(malloc_is_of(C * 16, coarse)); /* it is served before, too */
        split_here(bit[i]);
        assert_int_equal(hak_load_relaxed(&hak_self->split), bit[i]);
        uint64_t before = visits();
        for (unsigned k = 0; k < TURNS; k++) {
            void *block = hidden_malloc(C * 16);
            unsigned shelf = hak_slab_of(hak_granule_at(hak_granule_of(block)))->class_index;
            assert_true(hak_class_plain(shelf) == coarse || (i == 2 && hak_class_plain(shelf) == C));
            free(block);
        }
        if (i == 0) assert_in_range(visits() - before, 1, TURNS / 8);
        hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
    }
    split_here(0);
}

enum { HELD_MOST = 1000 };
static unsigned hold_until_of(void **held, size_t bytes, unsigned class_index) {
    for (unsigned count = 0; count < HELD_MOST;) {
        void *block = held[count++] = hidden_malloc(bytes);
        if (hak_slab_of(hak_granule_at(hak_granule_of(block)))->class_index == class_index) return count;
    }
    return HELD_MOST + 1;
}
static void let_go(void **held, unsigned count) {
    while (count-- > 0) free(held[count]);
}

/* The same above 1 KiB: what was freed last of the coarser class serves it, too. Who holds much of it makes it earn a slab; so does anybody once
 * heaps are few again. */
static void above_1_kib_a_rare_size_is_no_visit_each_time(void **state) {
    (void)state;
    enum { TURNS = 500, HEAPS = 20, ROUNDS = 2 };
    static void *held[HELD_MOST];
    assert_int_equal(hak_self->middle_lent & HAK_CLASSES_LENT, 0); /* all are their own */
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_SIZE_CLASS_COUNT; c++) {
        unsigned coarse = hak_classes[c].coarse;
        size_t bytes = hak_classes[c].block_bytes;
        if (coarse == c) continue;
        for (unsigned round = 0; round < ROUNDS; round++) {
            hak_middle_flush(hak_self);
            hak_bin_put_back(hak_self, c);
            assert_int_equal(hak_self->shelf[c].partial, 0);
            hak_self->shelf[c].rare = 0;
            hak_self->shelf[coarse].rare = HAK_RARE_GREW;
            hak_store_relaxed(&hak_rare_blocks, HEAPS * HAK_RARE_ASKS);
            uint64_t before = visits();
            for (unsigned i = 0; i < TURNS; i++) assert_true(malloc_is_of(bytes, coarse));
            assert_in_range(visits() - before, 1, 2);
            if (round > 0) hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
            unsigned count = hold_until_of(held, bytes, c);
            assert_in_range(count, 2, HELD_MOST);
            let_go(held, count);
            assert_true(malloc_is_of(bytes, c));
            assert_int_equal(hak_self->middle_lent >> 63, round == 0); /* HAK_MIDDLE_SERVED: visits compare nothing any more */
            hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
        }
    }
}

/* operator new, which says who asked, comes by another way than malloc: the slab it earns there is malloc's, too. A bin that had blocks was filled. */
static void what_earns_a_slab_elsewhere_serves_malloc(void **state) {
    (void)state;
    enum { C = 3, OFTEN = 300, TURNS = 4000 };
    void *blocks[4] = { NULL };
    hak_bin_put_back(hak_self, C);
    hak_self->shelf[C].rare = 0;
    hak_store_relaxed(&hak_rare_blocks, OFTEN);
    for (unsigned i = 0; i < TURNS; i++) {
        void **block = &blocks[i % 4];
        free(*block);
        bool is_malloc = i % 3 == 0 || hak_bin_at(hak_self, C)->word != 0;
        *block = is_malloc ? hidden_malloc(C * 16) : hak_malloc_slow_from(C * 16, &shortages, 0);
    }
    for (unsigned i = 0; i < 4; i++) free(blocks[i]);
    hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
    assert_true(hak_self->shelf[C].rare >= HAK_RARE_OFTEN);
    assert_int_equal(hak_self->class_bytes[C - 1], C * 16);
    hak_bin_put_back(hak_self, C);
    struct hak_row *row = hak_self->shelf[C].current;
    assert_true(!row || hak_row_out(row) == 0); /* none was lost with a bin that was filled twice */
}

/* The heaps are few again before it has asked often. */
static void a_rare_size_is_its_own_soon_when_heaps_are_few_again(void **state) {
    (void)state;
    enum { C = 5, OFTEN = 100000, SOON = 200 };
    unsigned coarse = hak_classes[C].coarse, asked = 0;
    hak_bin_put_back(hak_self, C);
    hak_self->shelf[C].rare = 0;
    hak_store_relaxed(&hak_rare_blocks, OFTEN);
    for (unsigned i = 0; i < SOON; i++) assert_true(malloc_is_of(C * 16, coarse));
    hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
    while (asked <= SOON && !malloc_is_of(C * 16, C)) asked++;
    assert_in_range(asked, 0, SOON);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_can_never_be_had_empties_nothing),
        cmocka_unit_test(what_is_not_to_be_had_now_is_a_shortage),
        cmocka_unit_test(where_heaps_are_many_a_rare_size_is_no_visit_each_time),
        cmocka_unit_test(a_class_that_is_split_hinders_no_other),
        cmocka_unit_test(above_1_kib_a_rare_size_is_no_visit_each_time),
        cmocka_unit_test(what_earns_a_slab_elsewhere_serves_malloc),
        cmocka_unit_test(a_rare_size_is_its_own_soon_when_heaps_are_few_again),
    };
    free(malloc(1));
    hak_store_release(&hak_hooks.shortage, on_shortage);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
