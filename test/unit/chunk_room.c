/* chunk_room.c - no room is hidden: where so many granules in a row are free, the bit says so that leads there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "memory/chunk.c"

#include "unit/room.h"

#include <pthread.h>

enum { SPANS = 64 };
struct span { size_t granule, count; };

/* Nobody is at it. A bit that is set and should not be costs a look. */
static bool is_all_room_known(void) {
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        if (!is_ready(number)) continue;
        uint64_t free = ~hak_load_relaxed(&hak_chunk_at(number)->used);
        for (unsigned k = 0; k < SIZES; k++)
            if (hak_word_runs(free, least[k]) && !(hak_load_relaxed(room_word(number, k)) >> number % GROUP & 1)) return false;
    }
    return true;
}

/* One of them goes back, in any of the states, or comes: most of up to 12 granules, some of more than a chunk. */
static void step(struct span span[SPANS], uint64_t *dice) {
    struct span *one = &span[dice_next(dice) % SPANS];
    if (one->count) {
        hak_span_give(one->granule, one->count, (enum hak_span_state)(dice_next(dice) % 3));
        one->count = 0;
    } else {
        size_t dirty, count = 1 + dice_next(dice) % (dice_next(dice) % 8 ? 12 : 70);
        one->granule = hak_span_take(count, 1, &dirty);
        one->count = one->granule == HAK_NO_GRANULE ? 0 : count;
    }
}

static void all_go_back(struct span span[SPANS]) {
    for (unsigned i = 0; i < SPANS; i++)
        if (span[i].count) hak_span_give(span[i].granule, span[i].count, HAK_SPAN_DIRTY);
}

static void all_room_is_known_after_each_step(void **state) {
    (void)state;
    enum { STEPS = 30000 };
    static struct span span[SPANS];
    uint64_t dice = 7;
    for (unsigned i = 0; i < STEPS; i++) {
        step(span, &dice);
        assert_true(is_all_room_known());
    }
    all_go_back(span);
    assert_true(is_all_room_known());
}

/* As many of each size as fit into some chunks: what is left of those leads nobody there. Of 13 granules, and of 22, each malloc looked at all
 * the heap. */
static void full_chunks_are_not_looked_at(void **state) {
    (void)state;
    enum { CHUNKS = 6, MOST = CHUNKS * HAK_CHUNK_GRANULES };
    static size_t taken[MOST];
    for (unsigned count = 1; count <= HAK_CHUNK_GRANULES; count++) {
        size_t dirty, many = (size_t)(HAK_CHUNK_GRANULES / count) * CHUNKS, looked_at = 0;
        for (size_t i = 0; i < many; i++) {
            taken[i] = hak_span_take(count, 1, &dirty);
            REQUIRE(taken[i] != HAK_NO_GRANULE);
        }
        unsigned k = size_of(count);
        for (size_t number = 0; number <= taken[many - 1] / HAK_CHUNK_GRANULES; number++)
            looked_at += (hak_load_relaxed(room_word(number, k)) >> number % GROUP & 1) && !hak_word_runs(~hak_load_relaxed(&hak_chunk_at(number)->used), count);
        if (looked_at > 2) fail_msg("of %u granules: %zu chunks", count, looked_at);
        for (size_t i = 0; i < many; i++) hak_span_give(taken[i], count, HAK_SPAN_AS_IT_WAS);
    }
}

enum { THREADS = 4 };
static struct span spans[THREADS][SPANS];

static void *work(void *seed) {
    enum { STEPS = 10000, PURGE_EACH = 64 };
    uint64_t dice = (uintptr_t)seed;
    for (unsigned i = 0; i < STEPS; i++) {
        step(spans[(uintptr_t)seed % THREADS], &dice);
        if (dice_next(&dice) % PURGE_EACH == 0) hak_purge_chunk(dice_next(&dice) % hak_load_acquire(&hak_chunk_top), true);
    }
    return NULL;
}

static void all_room_is_known_when_many_were_at_it(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    for (uintptr_t round = 0; round < ROUNDS; round++) {
        pthread_t thread[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++) REQUIRE(pthread_create(&thread[i], NULL, work, (void *)(round * THREADS + i + 1)) == 0);
        for (unsigned i = 0; i < THREADS; i++) REQUIRE(pthread_join(thread[i], NULL) == 0);
        assert_true(is_all_room_known()); /* while some are held: what goes back last would heal what was missed */
    }
    for (unsigned i = 0; i < THREADS; i++) all_go_back(spans[i]);
    assert_true(is_all_room_known());
}

/* Between its release and the note somebody took a part of it. */
static void the_rest_of_what_was_taken_again_is_known(void **state) {
    (void)state;
    enum { COUNT = 8 };
    size_t dirty, granule = hak_span_take(COUNT, 1, &dirty), number = granule / HAK_CHUNK_GRANULES;
    uint64_t mask = hak_word_mask((unsigned)(granule % HAK_CHUNK_GRANULES), COUNT), part = mask & ~(mask << 3);
    struct hak_chunk *chunk = hak_chunk_at(number);
    hak_chunk_release(chunk, mask);
    hak_or(&chunk->used, part);
    for (unsigned k = 0; k < SIZES; k++) hak_and(room_word(number, k), ~(UINT64_C(1) << number % GROUP));
    room_note(number, mask);
    assert_true(is_all_room_known());
    hak_chunk_release(chunk, part);
    hak_span_room(number);
    hak_or(&chunk->used, mask);
    hak_span_give(granule, COUNT, HAK_SPAN_AS_IT_WAS);
    assert_true(is_all_room_known());
}

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_of_what_was_taken_again_is_known),
        cmocka_unit_test(all_room_is_known_after_each_step),
        cmocka_unit_test(full_chunks_are_not_looked_at),
        cmocka_unit_test(all_room_is_known_when_many_were_at_it),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
