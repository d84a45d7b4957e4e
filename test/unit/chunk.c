/* chunk.c - spans are taken, given back, extended; they never overlap, and the sums stay right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "base/word.h"
#include "memory/chunk.h"
#include "memory/huge.h"
#include "memory/purge.h"
#include "os/os.h"

#include <pthread.h>
#include <string.h>

enum { CHUNK = HAK_CHUNK_GRANULES };

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static int64_t used(void) { return hak_load_relaxed(&hak_purge.used_granules); }
static int64_t free_bytes(void) { return hak_load_relaxed(&hak_purge.free_bytes); }

static void a_span_of_up_to_32_granules_lies_in_one_chunk(void **state) {
    (void)state;
    size_t granule[65], dirty;
    int64_t before = used();
    for (size_t count = 1; count <= 64; count++) {
        granule[count] = hak_span_take(count, 1, &dirty);
        assert_true(granule[count] != HAK_NO_GRANULE);
        if (count <= 32) assert_true(granule[count] % HAK_CHUNK_GRANULES + count <= HAK_CHUNK_GRANULES);
        memset(hak_granule_address(granule[count]), (int)count, count * HAK_GRANULE_BYTES);
    }
    assert_int_equal(used() - before, 64 * 65 / 2);
    for (size_t count = 1; count <= 64; count++) {
        char *start = hak_granule_address(granule[count]);
        for (size_t i = 0; i < count * HAK_GRANULE_BYTES; i += 4096) REQUIRE(start[i] == (char)count);
        hak_span_give(granule[count], count, HAK_SPAN_DIRTY);
    }
    assert_int_equal(used(), before);
}

static void alignment_is_kept_for_spans_and_runs(void **state) {
    (void)state;
    for (size_t align = 1; align <= 512; align *= 2) {
        for (size_t count = 1; count <= 200; count += count < 5 ? 1 : 39) {
            size_t dirty, other, granule = hak_span_take(count, align, &dirty), odd = hak_span_take(1, 1, &other);
            assert_true(granule != HAK_NO_GRANULE && odd != HAK_NO_GRANULE);
            assert_int_equal((uintptr_t)hak_granule_address(granule) % (align * HAK_GRANULE_BYTES), 0);
            if (count > HAK_CHUNK_GRANULES && align > 1) assert_int_equal(granule % HAK_CHUNK_GRANULES, 0);
            assert_true(odd < granule || odd >= granule + count);
            hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
            hak_span_give(odd, 1, HAK_SPAN_AS_IT_WAS);
        }
    }
}

static void what_was_written_is_dirty_and_what_went_back_is_clean(void **state) {
    (void)state;
    enum { COUNT = 100 };
    size_t dirty, again;
    size_t granule = hak_span_take(COUNT, 1, &dirty);
    int64_t before = free_bytes();
    hak_span_give(granule, COUNT, HAK_SPAN_DIRTY);
    assert_int_equal(free_bytes() - before, COUNT * HAK_GRANULE_BYTES);
    again = hak_span_take(COUNT, 1, &dirty);
    assert_int_equal(again, granule);
    assert_int_equal(dirty, COUNT);
    assert_int_equal(free_bytes(), before);
    hak_span_give(granule, COUNT, HAK_SPAN_AS_IT_WAS); /* not touched: dirty still */
    assert_int_equal(free_bytes() - before, COUNT * HAK_GRANULE_BYTES);
    again = hak_span_take(COUNT, 1, &dirty);
    assert_int_equal(dirty, COUNT);
    hak_span_give(granule, COUNT, HAK_SPAN_CLEAN);
    assert_int_equal(free_bytes(), before);
    again = hak_span_take(COUNT, 1, &dirty);
    assert_int_equal(again, granule);
    assert_int_equal(dirty, 0);
    hak_span_give(granule, COUNT, HAK_SPAN_AS_IT_WAS);
    assert_int_equal(free_bytes(), before);
}

static void what_is_absent_of_a_free_granule_is_no_free_memory(void **state) {
    (void)state;
    size_t dirty, page = (size_t)1 << hak_region.page_shift;
    if (page == HAK_GRANULE_BYTES) skip();
    size_t granule = hak_span_take(4, 1, &dirty);
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    int64_t before = free_bytes(), rest = 4 * HAK_GRANULE_BYTES - 3 * (int64_t)page;
    hak_granule_leave_absent(granule, 3);
    hak_granule_leave_absent(granule + 2, 1);
    hak_span_give(granule, 4, HAK_SPAN_DIRTY);
    assert_int_equal(free_bytes() - before, rest);
    assert_int_equal(hak_span_take_dense(4, HAK_GROWTH_SOME), granule);
    assert_int_equal(hak_load_relaxed(&chunk->dirty) >> granule % HAK_CHUNK_GRANULES & 15, 15);
    assert_int_equal(free_bytes(), before);
    hak_span_give(granule, 4, HAK_SPAN_AS_IT_WAS); /* no slab became of it */
    assert_int_equal(free_bytes() - before, rest);
    assert_int_equal(hak_span_take(4, 1, &dirty), granule); /* who may write to all of it */
    assert_int_equal(dirty, 4);
    assert_int_equal(hak_load_relaxed(&chunk->partial), 0);
    hak_span_give(granule, 4, HAK_SPAN_DIRTY);
    assert_int_equal(free_bytes() - before, 4 * HAK_GRANULE_BYTES);
    assert_int_equal(hak_span_take(4, 1, &dirty), granule);
    hak_granule_leave_absent(granule, 1);
    hak_granule_leave_absent(granule + 3, 3);
    hak_span_give(granule, 4, HAK_SPAN_DIRTY);
    size_t first = hak_span_take(1, 1, &dirty);
    assert_int_equal(first, granule);
    assert_true(hak_span_extend(granule, 1, 3));
    assert_int_equal(hak_load_relaxed(&chunk->partial), 0);
    assert_int_equal(free_bytes(), before);
    hak_span_give(granule, 4, HAK_SPAN_CLEAN);
    assert_int_equal(free_bytes(), before);
}

static void where_few_blocks_will_be_is_what_is_clean(void **state) {
    (void)state;
    enum { MANY = 256 };
    size_t dirty, granule = hak_span_take(12, 1, &dirty), few[MANY], count = 0;
    hak_span_give(granule, 12, HAK_SPAN_DIRTY);
    while (count < MANY && (few[count] = hak_span_take_dense(4, HAK_GROWTH_LITTLE)) != granule) { /* until nothing clean is left below the top */
        uint64_t seen = hak_load_relaxed(&hak_chunk_at(few[count] / CHUNK)->dirty);
        assert_int_equal(seen >> few[count++] % CHUNK & 15, 0);
    }
    assert_in_range(count, 1, MANY - 1);
    hak_span_give(granule, 4, HAK_SPAN_AS_IT_WAS);
    assert_int_equal(hak_span_take_dense(4, HAK_GROWTH_SOME), granule);
    hak_span_give(granule, 4, HAK_SPAN_AS_IT_WAS);
    while (count > 0) hak_span_give(few[--count], 4, HAK_SPAN_CLEAN);
}

static void freed_space_is_found_again_the_lowest_first(void **state) {
    (void)state;
    enum { COUNT = 5 * HAK_CHUNK_GRANULES };
    static size_t granules[COUNT];
    size_t dirty;
    for (unsigned i = 0; i < COUNT; i++) granules[i] = hak_span_take(1, 1, &dirty);
    for (unsigned count = 1; count <= 16; count *= 2) {
        unsigned low = 0, high = COUNT - HAK_CHUNK_GRANULES; /* two holes of this size, aligned within a chunk */
        while (granules[low] % 16 != 0 || granules[low + count - 1] != granules[low] + count - 1) low++;
        while (granules[high] % 16 != 0 || granules[high + count - 1] != granules[high] + count - 1) high--;
        hak_span_give(granules[high], count, HAK_SPAN_AS_IT_WAS);
        hak_span_give(granules[low], count, HAK_SPAN_AS_IT_WAS);
        assert_int_equal(hak_span_take(count, 1, &dirty), granules[low]);
        assert_int_equal(hak_span_take(count, 1, &dirty), granules[high]);
    }
    for (unsigned i = 0; i < COUNT; i++) hak_span_give(granules[i], 1, HAK_SPAN_AS_IT_WAS);
}

static void top_covers_every_span_and_does_not_run_away(void **state) {
    (void)state;
    size_t dirty, count = 40 * HAK_CHUNK_GRANULES + 3, granule = hak_span_take(count, 1, &dirty);
    assert_true((granule + count - 1) / HAK_CHUNK_GRANULES < hak_load_relaxed(&hak_chunk_top));
    uint64_t top = hak_load_relaxed(&hak_chunk_top);
    hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
    for (unsigned i = 0; i < 50; i++) {
        granule = hak_span_take(count, 1, &dirty);
        hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
    }
    assert_int_equal(hak_load_relaxed(&hak_chunk_top), top);
}

static void a_span_grows_into_free_granules_behind_it(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(300, 1, &dirty);
    int64_t before = used();
    hak_span_give(granule + 3, 297, HAK_SPAN_AS_IT_WAS);
    assert_true(hak_span_extend(granule, 3, 7));
    assert_true(hak_span_extend(granule, 10, 290)); /* over four chunks */
    assert_int_equal(used(), before);
    memset(hak_granule_address(granule), 1, 300 * (size_t)HAK_GRANULE_BYTES);
    hak_span_give(granule, 300, HAK_SPAN_DIRTY);
}

static void a_span_that_cannot_grow_wholly_does_not_grow_at_all(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(300, 1, &dirty);
    /* all but the first three and one far behind, in the third chunk from here, are free again */
    hak_span_give(granule + 3, 197, HAK_SPAN_AS_IT_WAS);
    hak_span_give(granule + 201, 99, HAK_SPAN_AS_IT_WAS);
    int64_t before = used(), free_before = free_bytes();
    assert_false(hak_span_extend(granule, 3, 250));
    size_t top = hak_load_relaxed(&hak_chunk_top);
    assert_false(hak_span_extend(granule, 3, (top + 2) * CHUNK - granule - 3));
    assert_int_equal(hak_load_relaxed(&hak_chunk_top), top); /* nothing was mapped for it: that would stay */
    assert_int_equal(used(), before);
    assert_int_equal(free_bytes(), free_before);
    assert_true(hak_span_extend(granule, 3, 197));
    assert_false(hak_span_extend(granule, 200, 1));
    assert_false(hak_span_extend(granule, 200, SIZE_MAX / 4 / HAK_GRANULE_BYTES));
    hak_span_give(granule, 201, HAK_SPAN_AS_IT_WAS);
}

static void what_was_taken_for_a_moment_was_not_drawn(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(2 * CHUNK, CHUNK, &dirty);
    memset(hak_granule_address(granule), 1, CHUNK * (size_t)HAK_GRANULE_BYTES);
    hak_span_give(granule + 3, CHUNK - 3, HAK_SPAN_DIRTY); /* the next chunk is in use */
    hak_store_relaxed(&hak_purge.drawn_bytes, 0);
    hak_store_relaxed(&hak_purge.free_peak_bytes, hak_free_unpurged(free_bytes()));
    assert_false(hak_span_extend(granule, 3, CHUNK));
    assert_int_equal(hak_load_relaxed(&hak_purge.drawn_bytes), 0);
    hak_span_give(granule, 3, HAK_SPAN_DIRTY);
    hak_span_give(granule + CHUNK, CHUNK, HAK_SPAN_AS_IT_WAS);
}

/* Who looks for what is unseen while somebody has it passes it by; it is looked for again once it is free. */
static void what_is_unseen_and_given_back_is_looked_for_again(void **state) {
    (void)state;
    size_t dirty, granule = hak_span_take(8, 1, &dirty);
    hak_span_leave_unseen(granule, 8);
    hak_span_give(granule, 8, HAK_SPAN_DIRTY);
    hak_store_relaxed(&hak_purge.unseen, 1);
    assert_int_equal(hak_span_take_dense(8, HAK_GROWTH_SOME), granule);
    hak_purge_look();
    assert_int_equal(hak_load_relaxed(&hak_purge.unseen), 0);
    hak_span_give(granule, 8, HAK_SPAN_AS_IT_WAS);
    assert_int_equal(hak_load_relaxed(&hak_purge.unseen), 1);
    hak_purge_look();
    assert_int_equal(hak_load_relaxed(&hak_purge.unseen), 0);
    assert_int_equal(hak_load_relaxed(&hak_chunk_at(granule / CHUNK)->unseen) >> granule % CHUNK & 255, 0);
}

static void a_run_goes_round_what_is_in_its_way(void **state) {
    (void)state;
    size_t dirty, wall = hak_span_take(1000, 1, &dirty);
    hak_span_give(wall, 70, HAK_SPAN_AS_IT_WAS);
    hak_span_give(wall + 71, 929, HAK_SPAN_AS_IT_WAS); /* granule 70 stands */
    size_t run = hak_span_take(130, 1, &dirty);
    assert_true(run != HAK_NO_GRANULE && (run + 130 <= wall + 70 || run > wall + 70));
    hak_span_give(run, 130, HAK_SPAN_AS_IT_WAS);
    hak_span_give(wall + 70, 1, HAK_SPAN_AS_IT_WAS);
}

/* The top passes chunks on the way to an aligned run; they serve small spans, the lowest first. */
static void chunks_in_a_gap_are_used(void **state) {
    (void)state;
    enum { ALIGN = 64 * HAK_CHUNK_GRANULES };
    size_t dirty, before = hak_load_relaxed(&hak_chunk_top), run = hak_span_take(ALIGN, ALIGN, &dirty), count = 0;
    size_t next = hak_span_take(ALIGN, ALIGN, &dirty); /* one of them begins behind a gap, wherever the window is */
    assert_true(run != HAK_NO_GRANULE && next != HAK_NO_GRANULE);
    size_t first = (run < next ? run : next) / HAK_CHUNK_GRANULES, top = hak_load_relaxed(&hak_chunk_top);
    static size_t spans[64];
    for (; count < 64 && count + before < first; count++) {
        spans[count] = hak_span_take(20 + count % 40, 1, &dirty);
        REQUIRE(spans[count] / HAK_CHUNK_GRANULES < first);
    }
    assert_int_equal(hak_load_relaxed(&hak_chunk_top), top);
    for (size_t i = 0; i < count; i++) hak_span_give(spans[i], 20 + i % 40, HAK_SPAN_AS_IT_WAS);
    hak_span_give(run, ALIGN, HAK_SPAN_AS_IT_WAS);
    hak_span_give(next, ALIGN, HAK_SPAN_AS_IT_WAS);
}

static bool refuse_all(enum hak_os_call call) {
    (void)call;
    return true;
}

enum { FILLED_MAX = 1 << 16 };
static struct {
    size_t granule, count;
} filled[FILLED_MAX];
static size_t filled_count;

static void fill_with(size_t granule, size_t count) {
    assert_true(granule != HAK_NO_GRANULE && filled_count < FILLED_MAX);
    filled[filled_count].granule = granule;
    filled[filled_count++].count = count;
}

/* Takes all that is free below the top, and returns the first granule above. */
static size_t fill_below_top(void) {
    size_t dirty, end = hak_load_relaxed(&hak_chunk_top) * CHUNK, granule;
    for (size_t count = CHUNK; count > 0; count /= 2) {
        while ((granule = hak_span_take(count, count, &dirty)) < end) fill_with(granule, count);
        hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
    }
    size_t top = hak_load_relaxed(&hak_chunk_top) * CHUNK;
    if (top > end) fill_with(hak_span_take(top - end, CHUNK, &dirty), top - end);
    return top;
}

static void empty_below_top(void) {
    while (filled_count > 0) {
        filled_count--;
        hak_span_give(filled[filled_count].granule, filled[filled_count].count, HAK_SPAN_AS_IT_WAS);
    }
}

/* Each of them was asked for by each malloc near RLIMIT_AS: 230 ms for one block. */
static unsigned map_count;
static bool refuse_and_count(enum hak_os_call call) {
    if (call != HAK_OS_MAP_AT) return false;
    map_count++;
    return true;
}
static void a_gap_is_asked_for_once_where_the_kernel_refuses(void **state) {
    (void)state;
    enum { ALIGN = 512 * HAK_CHUNK_GRANULES, MOST = 4096 };
    static size_t spans[MOST];
    size_t dirty, count = 0, run = hak_span_take(1, ALIGN, &dirty), next = hak_span_take(1, ALIGN, &dirty); /* one of them begins behind a gap */
    assert_true(run != HAK_NO_GRANULE && next != HAK_NO_GRANULE);
    hak_os_fault = refuse_and_count;
    do {
        map_count = 0;
        REQUIRE(count < MOST);
        spans[count] = hak_span_take(CHUNK, 1, &dirty); /* until what is ready is taken */
    } while (spans[count] != HAK_NO_GRANULE && ++count);
    hak_os_fault = NULL;
    assert_in_range(map_count, 1, 8);
    while (count > 0) hak_span_give(spans[--count], CHUNK, HAK_SPAN_AS_IT_WAS);
    hak_span_give(run, 1, HAK_SPAN_AS_IT_WAS);
    hak_span_give(next, 1, HAK_SPAN_AS_IT_WAS);
}

static void a_larger_span_goes_from_one_chunk_into_the_next(void **state) {
    (void)state;
    int64_t all = used();
    size_t dirty, start = fill_below_top(), hole = start + CHUNK - 20, other;
    assert_int_equal(hak_span_take(4 * CHUNK, CHUNK, &dirty), start);
    hak_span_give(hole, 20 + 16, HAK_SPAN_CLEAN);
    other = hak_span_take(37, 1, &dirty); /* one more than there are */
    assert_true(other >= start + 4 * CHUNK);
    hak_span_give(other, 37, HAK_SPAN_AS_IT_WAS);
    other = hak_span_take(20, 1, &dirty); /* it would fit into the first; so small a one finds it there */
    assert_int_equal(other, hole);
    hak_span_give(other, 20, HAK_SPAN_AS_IT_WAS);
    assert_int_equal(hak_span_take(4 * CHUNK, CHUNK, &dirty), start + 4 * CHUNK); /* nothing is left below the top but the hole */
    int64_t before = used();
    assert_int_equal(hak_span_take(36, 1, &dirty), hole);
    assert_int_equal(dirty, 0);
    assert_int_equal(used() - before, 36);
    assert_int_equal(hak_load_relaxed(&hak_chunk_at(start / CHUNK)->used), ~UINT64_C(0));
    assert_int_equal(hak_load_relaxed(&hak_chunk_at(start / CHUNK + 1)->used), ~UINT64_C(0));
    memset(hak_granule_address(hole), 1, 36 * HAK_GRANULE_BYTES);
    hak_span_give(hole, 36, HAK_SPAN_DIRTY);
    other = hak_span_take(36, 2, &dirty); /* who wants it aligned gets it in one chunk */
    assert_true(other >= start + 8 * CHUNK && other % CHUNK + 36 <= CHUNK);
    hak_span_give(hole + 36, CHUNK - 16 + 7, HAK_SPAN_AS_IT_WAS); /* and a whole chunk, and a part of the next */
    assert_int_equal(hak_span_take(20 + CHUNK + 7, 1, &dirty), hole);
    assert_int_equal(dirty, 36);
    hak_span_give(other, 36, HAK_SPAN_AS_IT_WAS);
    hak_span_give(start, 8 * CHUNK, HAK_SPAN_AS_IT_WAS);
    empty_below_top();
    assert_int_equal(used(), all);
}

static void a_larger_span_begins_in_the_last_chunk_and_ends_in_new_ones(void **state) {
    (void)state;
    int64_t all = used();
    size_t dirty, start = fill_below_top(), number = start / CHUNK;
    assert_int_equal(hak_span_take(10, 1, &dirty), start);
    while (hak_unit_ready(number) && hak_chunk_ready(number)) number++; /* mapped already, with this one or by other tests */
    size_t count = number * CHUNK + 3 * CHUNK - start;
    hak_os_fault = refuse_all;
    assert_true(hak_span_take(count, 1, &dirty) == HAK_NO_GRANULE);
    hak_os_fault = NULL;
    assert_int_equal(hak_load_relaxed(&hak_chunk_at(start / CHUNK)->used), (UINT64_C(1) << 10) - 1);
    size_t begin = start + HAK_HALF_GRANULES; /* so long a one, at a huge page's start */
    assert_int_equal(hak_span_take(count, 1, &dirty), begin);
    assert_int_equal(hak_load_relaxed(&hak_chunk_top), number + 4);
    hak_span_give(begin, count, HAK_SPAN_AS_IT_WAS);
    hak_span_give(start, 10, HAK_SPAN_AS_IT_WAS);
    empty_below_top();
    assert_int_equal(used(), all);
}

static void what_cannot_be_had_takes_nothing(void **state) {
    (void)state;
    size_t dirty;
    int64_t before = used();
    size_t all = hak_region.chunk_count * HAK_CHUNK_GRANULES;
    assert_true(hak_span_take(all + 1, 1, &dirty) == HAK_NO_GRANULE);
    assert_int_equal(used(), before);
}

static void when_the_kernel_refuses_nothing_is_taken(void **state) {
    (void)state;
    size_t dirty, count = (hak_load_relaxed(&hak_chunk_top) + 64) * HAK_CHUNK_GRANULES;
    int64_t before = used();
    hak_os_fault = refuse_all;
    assert_true(hak_span_take(count, 1, &dirty) == HAK_NO_GRANULE);
    hak_os_fault = NULL;
    assert_int_equal(used(), before);
    size_t granule = hak_span_take(count, 1, &dirty);
    assert_true(granule != HAK_NO_GRANULE);
    hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
}

static size_t intruder_chunk;

/* While the run's last chunk is being mapped, another thread takes a granule in the middle of it. */
static bool intrude(enum hak_os_call call) {
    if (call == HAK_OS_MAP_AT && intruder_chunk) {
        hak_or(&hak_chunk_at(intruder_chunk)->used, UINT64_C(1) << 9);
        hak_free_note(0, 1);
        intruder_chunk = 0;
    }
    return false;
}

static void a_run_that_somebody_crosses_is_given_back_and_found_elsewhere(void **state) {
    (void)state;
    size_t dirty, first = 0; /* behind all that is used */
    for (size_t number = 0; number < hak_load_relaxed(&hak_chunk_top); number++)
        if (hak_unit_ready(number) && hak_load_relaxed(&hak_chunk_at(number)->used)) first = number + 1;
    int64_t before = used();
    size_t number = first;
    while (number < hak_region.chunk_count && hak_unit_ready(number) && hak_chunk_ready(number)) number++;
    assert_true(number >= first + 2);
    size_t count = (number + 20 - first) * HAK_CHUNK_GRANULES; /* over the end of what is mapped */
    size_t crossed = intruder_chunk = number - 1;
    hak_os_fault = intrude;
    size_t granule = hak_span_take(count, 1, &dirty);
    hak_os_fault = NULL;
    assert_int_equal(intruder_chunk, 0);
    assert_true(granule != HAK_NO_GRANULE && granule > crossed * HAK_CHUNK_GRANULES + 9);
    assert_int_equal(used() - before, (int64_t)count + 1); /* what was taken before it was met is free again */
    hak_span_give(granule, count, HAK_SPAN_AS_IT_WAS);
    hak_span_give(crossed * HAK_CHUNK_GRANULES + 9, 1, HAK_SPAN_AS_IT_WAS);
    assert_int_equal(used(), before);
}

/* --- two threads --- */

enum { HAMMER_GRANULES = 1 << 16, HELD = 24, ROUNDS = 30000 };
static hak_atomic_u32 holder[HAMMER_GRANULES];
static hak_atomic_u32 collisions;

static void hold(size_t granule, size_t count, uint32_t from, uint32_t to) {
    for (size_t i = granule; i < granule + count && i < HAMMER_GRANULES; i++) {
        uint32_t seen = from;
        if (!hak_cas(&holder[i], &seen, to)) hak_add(&collisions, 1);
    }
}

static void *hammer(void *number) {
    uint32_t self = (uint32_t)(uintptr_t)number;
    uint64_t dice = 1000 + self;
    struct {
        size_t granule, count;
    } held[HELD] = { { 0, 0 } };
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned k = (unsigned)(dice_next(&dice) % HELD);
        if (!held[k].count) {
            size_t draw = dice_next(&dice) % 100, dirty;
            size_t count = draw < 60 ? 1 + dice_next(&dice) % 8 : draw < 90 ? 1 + dice_next(&dice) % 64 : 65 + dice_next(&dice) % 300;
            size_t align = (size_t)1 << dice_next(&dice) % 4;
            held[k].granule = hak_span_take(count, align, &dirty);
            if (held[k].granule == HAK_NO_GRANULE) continue;
            held[k].count = count;
            hold(held[k].granule, count, 0, self);
        } else if (dice_next(&dice) % 3 == 0) {
            size_t more = 1 + dice_next(&dice) % 100;
            if (hak_span_extend(held[k].granule, held[k].count, more)) {
                hold(held[k].granule + held[k].count, more, 0, self);
                held[k].count += more;
            }
        } else {
            hold(held[k].granule, held[k].count, self, 0);
            hak_span_give(held[k].granule, held[k].count, (enum hak_span_state)(dice_next(&dice) % 3));
            held[k].count = 0;
        }
    }
    for (unsigned k = 0; k < HELD; k++)
        if (held[k].count) {
            hold(held[k].granule, held[k].count, self, 0);
            hak_span_give(held[k].granule, held[k].count, HAK_SPAN_AS_IT_WAS);
        }
    return NULL;
}

static void spans_of_two_threads_never_overlap(void **state) {
    (void)state;
    pthread_t threads[2];
    int64_t before = used();
    for (uintptr_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(hak_load_relaxed(&collisions), 0);
    assert_int_equal(used(), before);
    int64_t dirty = 0;
    for (size_t number = 0; number < hak_load_relaxed(&hak_chunk_top); number++) {
        if (!hak_unit_ready(number)) continue;
        struct hak_chunk *chunk = hak_chunk_at(number);
        dirty += hak_word_count(hak_load_relaxed(&chunk->dirty) & ~hak_load_relaxed(&chunk->used));
    }
    assert_int_equal(free_bytes(), dirty * HAK_GRANULE_BYTES);
}

/* After all that: no chunk below the top with room for a size is hidden from who looks for one. */
static void all_room_below_the_top_is_found(void **state) {
    (void)state;
    enum { MOST = 1 << 19 };
    static size_t spans[MOST];
    size_t dirty, top = hak_load_relaxed(&hak_chunk_top);
    for (unsigned count = 1; count <= HAK_CHUNK_GRANULES; count++) {
        size_t possible = 0, taken = 0;
        for (size_t number = 0; number < top; number++) {
            if (!hak_unit_ready(number) || !hak_chunk_ready(number)) continue;
            for (uint64_t room = ~hak_load_relaxed(&hak_chunk_at(number)->used), starts; (starts = hak_word_runs(room, count)) != 0; possible++)
                room &= ~hak_word_mask(hak_word_first(starts), count);
        }
        assert_in_range(possible, 1, MOST);
        for (; taken < possible; taken++) {
            spans[taken] = hak_span_take(count, 1, &dirty);
            REQUIRE(spans[taken] / HAK_CHUNK_GRANULES < top);
        }
        while (taken > 0) hak_span_give(spans[--taken], count, HAK_SPAN_AS_IT_WAS);
    }
    assert_int_equal(hak_load_relaxed(&hak_chunk_top), top);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_of_up_to_32_granules_lies_in_one_chunk),
        cmocka_unit_test(alignment_is_kept_for_spans_and_runs),
        cmocka_unit_test(what_was_written_is_dirty_and_what_went_back_is_clean),
        cmocka_unit_test(what_is_absent_of_a_free_granule_is_no_free_memory),
        cmocka_unit_test(where_few_blocks_will_be_is_what_is_clean),
        cmocka_unit_test(freed_space_is_found_again_the_lowest_first),
        cmocka_unit_test(top_covers_every_span_and_does_not_run_away),
        cmocka_unit_test(a_span_grows_into_free_granules_behind_it),
        cmocka_unit_test(a_span_that_cannot_grow_wholly_does_not_grow_at_all),
        cmocka_unit_test(what_was_taken_for_a_moment_was_not_drawn),
        cmocka_unit_test(what_is_unseen_and_given_back_is_looked_for_again),
        cmocka_unit_test(a_run_goes_round_what_is_in_its_way),
        cmocka_unit_test(chunks_in_a_gap_are_used),
        cmocka_unit_test(a_gap_is_asked_for_once_where_the_kernel_refuses),
        cmocka_unit_test(a_larger_span_goes_from_one_chunk_into_the_next),
        cmocka_unit_test(a_larger_span_begins_in_the_last_chunk_and_ends_in_new_ones),
        cmocka_unit_test(what_cannot_be_had_takes_nothing),
        cmocka_unit_test(when_the_kernel_refuses_nothing_is_taken),
        cmocka_unit_test(a_run_that_somebody_crosses_is_given_back_and_found_elsewhere),
        cmocka_unit_test(spans_of_two_threads_never_overlap),
        cmocka_unit_test(all_room_below_the_top_is_found),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
