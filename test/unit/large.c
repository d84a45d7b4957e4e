/* large.c - blocks of one span each: their sizes, contents and zeros. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/audit.h"
#include "unit/room.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static struct hak_granule *record_of(const void *block) { return hak_granule_at(hak_granule_of(block)); }

static char *take(size_t bytes) {
    bool zeroed;
    char *block = hak_large_take(NULL, bytes, 1, 0, &zeroed);
    assert_non_null(block);
    return block;
}

static void give(void *block) { assert_true(hak_large_give(record_of(block))); }

static void audit(void) {
    struct audit audit;
    const char *wrong = audit_find(&audit, 0);
    if (wrong) fail_msg("the sums disagree: %s", wrong);
}

static void fill(char *block, size_t bytes, unsigned salt) {
    for (size_t i = 0; i < bytes; i += 509) block[i] = (char)(i / 509 * 7 + salt);
}
static void check(const char *block, size_t bytes, unsigned salt) {
    for (size_t i = 0; i < bytes; i += 509) REQUIRE(block[i] == (char)(i / 509 * 7 + salt));
}

static void a_block_holds_what_was_asked_for(void **state) {
    (void)state;
    size_t sizes[] = { 32769, 65536, 65537, 100000, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 30 * MIB };
    size_t page = (size_t)1 << hak_region.page_shift;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t align = 16; align <= 16 * MIB; align *= 8) {
            bool zeroed;
            if (align > HAK_LEAD_STEP) sizes[i] = hak_round_up(sizes[i], page); /* as front/front.h does */
            char *block = hak_large_take(NULL, sizes[i], align, 0, &zeroed);
            struct hak_granule *record = record_of(block);
            assert_non_null(block);
            assert_int_equal((uintptr_t)block % align, 0);
            assert_ptr_equal(hak_load_relaxed(&record->owner), HAK_LARGE);
            assert_ptr_equal(record->start, block);
            assert_true(hak_large_usable(record) >= sizes[i] && hak_large_usable(record) < sizes[i] + page);
            assert_int_equal((uintptr_t)(block + hak_large_usable(record)) % page, 0);
            assert_int_equal(hak_large_granules(record), (sizes[i] + HAK_GRANULE_BYTES - 1) / HAK_GRANULE_BYTES);
            for (size_t k = 1; k < hak_large_granules(record); k++)
                assert_null(hak_load_relaxed(&hak_granule_at(hak_granule_of(block) + k)->owner));
            if (zeroed)
                for (size_t k = 0; k < sizes[i]; k += 4001) REQUIRE(block[k] == 0);
            block[0] = block[hak_large_usable(record) - 1] = 1;
            give(block);
            audit();
        }
    }
}

/* Within what its size leaves of its last page: no page more. Heads lie in as many sets of a cache as there are places in that. */
static void heads_lie_at_many_places_of_their_pages(void **state) {
    (void)state;
    enum { COUNT = 64 };
    size_t page = (size_t)1 << hak_region.page_shift;
    const size_t sizes[] = { 9 * page - page + 1, 10 * page - page / 2, 17 * page - 64, 17 * page - 63, 10 * page };
    for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        char *block[COUNT];
        size_t left = hak_round_up(sizes[k], page) - sizes[k], most = left / HAK_LEAD_STEP, distinct = 0;
        if (most > HAK_LEAD_STEPS_MAX) most = HAK_LEAD_STEPS_MAX;
        bool seen[HAK_LEAD_STEPS_MAX + 1] = { false };
        for (unsigned i = 0; i < COUNT; i++) {
            block[i] = take(sizes[k]);
            char *span = hak_granule_address(hak_granule_of(block[i]));
            size_t lead = (size_t)(block[i] - span);
            assert_true(lead % HAK_LEAD_STEP == 0 && lead / HAK_LEAD_STEP <= most);
            assert_int_equal(hak_large_lead(hak_large_usable(record_of(block[i]))), lead);
            assert_int_equal(lead + hak_large_usable(record_of(block[i])), hak_round_up(sizes[k], page));
            distinct += !seen[lead / HAK_LEAD_STEP];
            seen[lead / HAK_LEAD_STEP] = true;
        }
        assert_true(distinct * 8 >= (most + 1) * 7);
        for (unsigned i = 0; i < COUNT; i++) give(block[i]);
    }
}

/* Where a block lies in its first page is its own as long as it lives. */
static void a_block_that_changes_its_size_begins_where_it_did(void **state) {
    (void)state;
    size_t page = (size_t)1 << hak_region.page_shift, bytes = 20 * MIB + 1;
    char *first = take(1), *block = take(bytes); /* of the window's first granule it is 0 */
    size_t lead = (size_t)(block - hak_granule_address(hak_granule_of(block)));
    assert_true(lead > 0);
    fill(block, bytes, 9);
    for (size_t less = 9 * MIB; less > 9 * MIB - 2 * page; less -= 63) {
        assert_true(hak_large_resize(record_of(block), less));
        size_t usable = hak_large_usable(record_of(block));
        assert_true(usable >= less && usable < less + page);
        assert_int_equal(lead + usable, hak_round_up(lead + less, page));
        assert_int_equal(hak_large_granules(record_of(block)), hak_round_up(lead + usable, HAK_GRANULE_BYTES) / HAK_GRANULE_BYTES);
        audit();
    }
    char *moved = hak_large_move(record_of(block), bytes);
    if (moved) {
        assert_int_equal((size_t)(moved - hak_granule_address(hak_granule_of(moved))), lead);
        block = moved;
    }
    check(block, 9 * MIB - 2 * page, 9);
    give(block);
    give(first);
    audit();
}

static void what_was_used_is_not_called_zero(void **state) {
    (void)state;
    hak_purge_spans(0);
    bool zeroed = false;
    char *block = hak_large_take(NULL, 300000, 1, 0, &zeroed);
    assert_true(zeroed);
    memset(block, 1, 300000);
    give(block);
    char *again = hak_large_take(NULL, 300000, 1, 0, &zeroed);
    assert_ptr_equal(again, block);
    assert_false(zeroed);
    give(again);
}

static void clear_zeroes_only_what_is_dirty(void **state) {
    (void)state;
    enum { COUNT = 150 }; /* granules; more than two chunks */
    hak_purge_spans(0);
    size_t bytes = (size_t)COUNT * HAK_GRANULE_BYTES;
    char *block = take(bytes);
    size_t granule = hak_granule_of(block);
    const unsigned from[] = { 0, 10, 63, 100, COUNT - 1 }, length[] = { 1, 20, 2, 49, 1 };
    for (unsigned k = 0; k < 5; k++) memset(block + (size_t)from[k] * HAK_GRANULE_BYTES, 0x77, (size_t)length[k] * HAK_GRANULE_BYTES);
    hak_large_give(record_of(block)); /* all dirty; those that were not written are made clean */
    hak_purge_spans(0);
    block = take(bytes);
    assert_int_equal(hak_granule_of(block), granule);
    for (unsigned k = 0; k < 5; k++) memset(block + (size_t)from[k] * HAK_GRANULE_BYTES, 0x77, (size_t)length[k] * HAK_GRANULE_BYTES);
    struct hak_granule *record = record_of(block);
    struct hak_heap *owner = HAK_LARGE;
    assert_true(hak_cas(&record->owner, &owner, NULL)); /* given back by hand, part by part */
    for (unsigned i = 0; i < COUNT; i++) {
        bool written = false;
        for (unsigned k = 0; k < 5; k++) written |= i >= from[k] && i < from[k] + length[k];
        hak_span_give(granule + i, 1, written ? HAK_SPAN_DIRTY : HAK_SPAN_CLEAN);
    }
    hak_add(&hak_large_live_count, -1);
    hak_add(&hak_large_live_bytes, -(int64_t)bytes);
    bool zeroed;
    block = hak_large_take(NULL, bytes, 1, 0, &zeroed);
    assert_int_equal(hak_granule_of(block), granule);
    assert_false(zeroed);
    hak_large_clear(record_of(block), bytes - 1000);
    static unsigned char resident[COUNT * HAK_GRANULE_BYTES / 4096];
    assert_int_equal(mincore(block, bytes, resident), 0);
    bool emulated = getenv("HAK_TEST_EMULATED") != NULL;
    for (unsigned i = 0; i < COUNT && !emulated; i++) {
        bool written = false;
        for (unsigned k = 0; k < 5; k++) written |= i >= from[k] && i < from[k] + length[k];
        if (!written) REQUIRE((resident[(size_t)i * HAK_GRANULE_BYTES >> hak_region.page_shift] & 1) == 0);
    }
    for (size_t i = 0; i < bytes - 1000; i++) REQUIRE(block[i] == 0);
    give(block);
    audit();
}

static bool refuse_return(enum hak_os_call call) { return call == HAK_OS_RETURN; }

static void clear_leaves_absent_what_was_never_touched(void **state) {
    (void)state;
    size_t page = (size_t)1 << hak_region.page_shift, bytes = 10 * MIB - 1000, pages = (bytes + page - 1) / page;
    bool emulated = getenv("HAK_TEST_EMULATED") != NULL;
    static unsigned char resident[10 * MIB / 4096];
    for (unsigned refused = 0; refused < 2; refused++) {
        hak_purge_spans(0);
        char *block = take(bytes);
        assert_true(hak_span_is_blank(hak_granule_of(block), hak_large_granules(record_of(block))));
        memset(block, 0x77, 3 * MIB);
        for (size_t at = 6 * MIB; at < 9 * MIB; at += 200 * 1024) memset(block + at, 0x77, 3000); /* here and there */
        block[bytes - 1] = 0x77;
        give(block);
        bool zeroed;
        assert_ptr_equal(hak_large_take(NULL, bytes, 1, 0, &zeroed), block);
        assert_false(zeroed);
        hak_os_fault = refused ? refuse_return : NULL;
        hak_large_clear(record_of(block), bytes);
        hak_os_fault = NULL;
        assert_int_equal(mincore(block, bytes, resident), 0);
        size_t there = 0;
        for (size_t i = 0; i < pages; i++) there += resident[i] & 1;
        if (!refused && !emulated) assert_true(there <= 3 * MIB / page + 2 * 16 + 1);
        for (size_t i = 0; i < bytes; i++) REQUIRE(block[i] == 0);
        give(block);
    }
    audit();
}

static void a_block_grows_and_shrinks_where_it_is(void **state) {
    (void)state;
    hak_purge_spans(0);
    char *block = take(50 * MIB);
    struct hak_granule *record = record_of(block);
    assert_true(hak_large_resize(record, 100000)); /* all behind it is free now */
    fill(block, 100000, 1);
    int64_t live = hak_load_relaxed(&hak_large_live_bytes);
    for (size_t bytes = 150000; bytes <= 50 * MIB; bytes = bytes * 3 / 2) {
        assert_true(hak_large_resize(record, bytes));
        assert_true(hak_large_usable(record) >= bytes);
        assert_int_equal(hak_large_granules(record), (bytes + HAK_GRANULE_BYTES - 1) / HAK_GRANULE_BYTES);
        block[bytes - 1] = 1;
        check(block, 100000, 1);
        audit();
    }
    assert_true(hak_large_resize(record, 100000));
    assert_int_equal(hak_load_relaxed(&hak_large_live_bytes), live);
    check(block, 100000, 1);
    char *behind = take(HAK_GRANULE_BYTES);
    assert_ptr_equal(behind, block + 2 * HAK_GRANULE_BYTES);
    assert_false(hak_large_resize(record, 3 * HAK_GRANULE_BYTES));
    assert_true(hak_large_resize(record, 2 * HAK_GRANULE_BYTES));
    assert_int_equal(hak_large_granules(record), 2);
    check(block, 100000, 1);
    give(behind);
    give(block);
    audit();
}

static void a_move_keeps_the_contents(void **state) {
    (void)state;
    for (size_t bytes = 1 * MIB + 777; bytes < 24 * MIB; bytes *= 2) {
        char *block = take(bytes), *moved;
        fill(block, bytes, 3);
        int64_t live = hak_load_relaxed(&hak_large_live_count);
        moved = hak_large_move(record_of(block), 2 * bytes);
        if (!moved) {
            print_message("mremap does not move here: skipped\n");
            give(block);
            return;
        }
        assert_ptr_not_equal(moved, block);
        assert_int_equal(hak_load_relaxed(&hak_large_live_count), live);
        assert_null(hak_load_relaxed(&record_of(block)->owner));
        assert_true(hak_large_usable(record_of(moved)) >= 2 * bytes);
        check(moved, bytes, 3);
        memset(moved + bytes, 5, bytes);
        audit();
        for (unsigned i = 0; i < 3; i++) { /* and on, also of what was moved before */
            char *further = hak_large_move(record_of(moved), 2 * bytes);
            assert_non_null(further);
            check(further, bytes, 3);
            moved = further;
        }
        assert_true(hak_large_resize(record_of(moved), bytes));
        check(moved, bytes, 3);
        give(moved);
        audit();
        bool zeroed; /* where it was is free memory as any other, and zero if it is said to be */
        char *again = hak_large_take(NULL, bytes, 1, 0, &zeroed);
        if (zeroed)
            for (size_t i = 0; i < bytes; i++) REQUIRE(again[i] == 0);
        give(again);
    }
    audit();
}

static bool refuse_move(enum hak_os_call call) { return call == HAK_OS_MOVE; }
static bool refuse_fresh(enum hak_os_call call) { return call == HAK_OS_FRESH; }

static void a_move_that_is_refused_changes_nothing(void **state) {
    (void)state;
    char *block = take(2 * MIB);
    fill(block, 2 * MIB, 9);
    hak_os_fault = refuse_move;
    assert_null(hak_large_move(record_of(block), 4 * MIB));
    hak_os_fault = NULL;
    check(block, 2 * MIB, 9);
    assert_int_equal(hak_large_usable(record_of(block)), 2 * MIB);
    audit();
    hak_os_fault = refuse_fresh; /* the old place cannot be mapped anew: it is free memory all the same */
    char *moved = hak_large_move(record_of(block), 4 * MIB);
    hak_os_fault = NULL;
    if (moved) check(moved, 2 * MIB, 9);
    audit();
    give(moved ? moved : block);
    audit();
}

static bool refuse_move_and_fresh(enum hak_os_call call) { return call == HAK_OS_MOVE || call == HAK_OS_FRESH; }

static void moves_again(char *block) {
    assert_int_equal(hak_load_relaxed(&hak_large_lost_granules), 0);
    audit();
    char *moved = hak_large_move(record_of(block), 4 * MIB);
    assert_non_null(moved);
    check(moved, 2 * MIB, 9);
    give(moved);
}

/* There may be no room for it elsewhere, under a limit on address space. */
static void where_a_refused_move_leaves_a_hole_it_is_mapped_where_it_is(void **state) {
    (void)state;
    char *dirty = take(4 * MIB), *block = take(2 * MIB);
    memset(dirty, 5, 4 * MIB);
    fill(block, 2 * MIB, 9);
    give(dirty);
    hak_os_fault = refuse_move_and_fresh;
    assert_null(hak_large_move(record_of(block), 4 * MIB));
    hak_os_fault = NULL;
    bool zeroed;
    dirty = hak_large_take(NULL, 4 * MIB, 1, 0, &zeroed); /* it was taken for that move; half of it is as it was left */
    if (!zeroed) hak_large_clear(record_of(dirty), 4 * MIB);
    for (size_t i = 0; i < 4 * MIB; i += 64) REQUIRE(dirty[i] == 0);
    give(dirty);
    moves_again(block);
}

static bool refuse_early(enum hak_os_call call) { return call == HAK_OS_MOVE_EARLY; }
static bool refuse_early_and_fresh(enum hak_os_call call) { return call == HAK_OS_MOVE_EARLY || call == HAK_OS_FRESH; }
static bool refuse_early_and_maps(enum hak_os_call call) {
    return call == HAK_OS_MOVE_EARLY || call == HAK_OS_FRESH || call == HAK_OS_MAP_AT;
}

/* At the kernel's limit on mappings, which refuses further ones, too; or one that cannot move so. */
static void a_move_that_is_refused_before_it_begins_leaves_its_place_as_it_was(void **state) {
    (void)state;
    bool (*const refusals[])(enum hak_os_call) = { refuse_early, refuse_early_and_fresh, refuse_early_and_maps };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        char *dirty = take(4 * MIB), *block = take(2 * MIB);
        memset(dirty, 5, 4 * MIB);
        fill(block, 2 * MIB, 9);
        give(dirty);
        hak_os_fault = refusals[i];
        assert_null(hak_large_move(record_of(block), 4 * MIB));
        hak_os_fault = NULL;
        check(block, 2 * MIB, 9);
        bool zeroed;
        char *again = hak_large_take(NULL, 4 * MIB, 1, 0, &zeroed);
        if (again == dirty) assert_false(zeroed);
        if (again == dirty) assert_int_equal(again[4 * MIB - 1], 5); /* the copy finds its pages there */
        give(again);
        moves_again(block);
    }
}

static bool refuse_late(enum hak_os_call call) { return call == HAK_OS_FRESH_LATE; }
static bool refuse_late_and_maps(enum hak_os_call call) { return call == HAK_OS_FRESH_LATE || call == HAK_OS_MAP_AT; }

/* Of 4 MiB, whose span has a mapping of its own. */
static char *take_moved(void) {
    char *block = take(2 * MIB);
    fill(block, 2 * MIB, 9);
    char *moved = hak_large_move(record_of(block), 4 * MIB);
    assert_non_null(moved);
    return moved;
}

/* What the kernel takes away before it refuses to map zeros over it is not given out as a hole. */
static void where_a_refused_mapping_leaves_a_hole_it_is_mapped_where_it_is(void **state) {
    (void)state;
    char *moved = take_moved();
    hak_os_fault = refuse_late;
    give(moved); /* its span has a mapping of its own, which ends here */
    hak_os_fault = NULL;
    assert_int_equal(hak_load_relaxed(&hak_large_lost_granules), 0);
    audit();
    unsigned char page[4 * MIB / 4096];
    assert_true(hak_os_resident(moved, 4 * MIB, page));
    for (size_t i = 0; i < 4 * MIB; i += 64) REQUIRE(moved[i] == 0);
}

/* Nor is what is not to be had again. */
static void a_hole_that_stays_is_given_to_nobody(void **state) {
    (void)state;
    char *moved = take_moved();
    hak_os_fault = refuse_late_and_maps;
    give(moved);
    hak_os_fault = NULL;
    assert_int_equal(hak_load_relaxed(&hak_large_lost_granules), 4 * MIB / HAK_GRANULE_BYTES);
    char *again = take(4 * MIB);
    assert_ptr_not_equal(again, moved);
    memset(again, 5, 4 * MIB);
    give(again);
}

static void a_move_that_cannot_begin_gives_its_place_back(void **state) {
    (void)state;
    struct rlimit files, none = { 0, 0 };
    char *block = take(2 * MIB);
    fill(block, 2 * MIB, 9);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    none.rlim_max = files.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    hak_os_fault = refuse_fresh;
    char *moved = hak_large_move(record_of(block), 4 * MIB);
    hak_os_fault = NULL;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    assert_null(moved); /* /proc/thread-self/maps is not to be had */
    moves_again(block);
}

static void a_second_give_is_refused(void **state) {
    (void)state;
    char *block = take(70000);
    int64_t count = hak_load_relaxed(&hak_large_live_count), used = hak_load_relaxed(&hak_purge.used_granules);
    assert_true(hak_large_give(record_of(block)));
    assert_false(hak_large_give(record_of(block)));
    assert_int_equal(hak_load_relaxed(&hak_large_live_count), count - 1);
    assert_int_equal(hak_load_relaxed(&hak_purge.used_granules), used - 2);
    audit();
}

static atomic_bool is_over;
static void *ends_and_is_a_slab(void *block) {
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        struct hak_granule *record = record_of(block);
        give(block);
        __atomic_store_n(&record->words, (hak_atomic_u64 *)(void *)&is_over, __ATOMIC_RELEASE); /* as slab/slab.c does before the owner is named */
        block = take(70000);
    }
    give(block);
    return NULL;
}
static void who_looks_beside_an_end_finds_its_size_or_nothing(void **state) {
    (void)state;
    char *block = take(70000);
    const struct hak_granule *record = record_of(block);
    size_t bytes = hak_large_held(record), none = 0, held = 0;
    pthread_t other;
    assert_int_equal(bytes, hak_large_usable(record));
    assert_int_equal(pthread_create(&other, NULL, ends_and_is_a_slab, block), 0);
    for (unsigned i = 0; i < 20000000 || !none || !held; i++) {
        size_t now = hak_large_held(record);
        REQUIRE(now == 0 || now == bytes);
        now ? held++ : none++;
    }
    atomic_store(&is_over, true);
    pthread_join(other, NULL);
    audit();
}

static void what_cannot_be_had_is_refused(void **state) {
    (void)state;
    bool zeroed;
    assert_null(hak_large_take(NULL, PTRDIFF_MAX, 1, 0, &zeroed));
    assert_null(hak_large_take(NULL, SIZE_MAX - HAK_GRANULE_BYTES + 1, 1, 0, &zeroed));
    assert_null(hak_large_take(NULL, 100000, (size_t)1 << 62, 0, &zeroed));
    char *block = take(100000);
    assert_false(hak_large_resize(record_of(block), PTRDIFF_MAX));
    assert_null(hak_large_move(record_of(block), PTRDIFF_MAX));
    assert_true(hak_large_usable(record_of(block)) >= 100000);
    give(block);
    audit();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_holds_what_was_asked_for),
        cmocka_unit_test(heads_lie_at_many_places_of_their_pages),
        cmocka_unit_test(a_block_that_changes_its_size_begins_where_it_did),
        cmocka_unit_test(what_was_used_is_not_called_zero),
        cmocka_unit_test(clear_zeroes_only_what_is_dirty),
        cmocka_unit_test(clear_leaves_absent_what_was_never_touched),
        cmocka_unit_test(a_block_grows_and_shrinks_where_it_is),
        cmocka_unit_test(a_move_keeps_the_contents),
        cmocka_unit_test(a_move_that_is_refused_changes_nothing),
        cmocka_unit_test(where_a_refused_move_leaves_a_hole_it_is_mapped_where_it_is),
        cmocka_unit_test(a_move_that_is_refused_before_it_begins_leaves_its_place_as_it_was),
        cmocka_unit_test(a_move_that_cannot_begin_gives_its_place_back),
        cmocka_unit_test(a_second_give_is_refused),
        cmocka_unit_test(who_looks_beside_an_end_finds_its_size_or_nothing),
        cmocka_unit_test(where_a_refused_mapping_leaves_a_hole_it_is_mapped_where_it_is),
        cmocka_unit_test(what_cannot_be_had_is_refused),
        cmocka_unit_test(a_hole_that_stays_is_given_to_nobody), /* the last: nothing is moved after it */
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
