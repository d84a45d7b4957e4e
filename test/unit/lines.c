/* lines.c - rows for the slabs of a chunk: they fit whatever the slabs are, and go back wholly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "slab/class.h"
#include "slab/lines.h"

#include <string.h>

enum { LINES = HAK_META_BYTES / HAK_LINE, SLABS = HAK_CHUNK_GRANULES, CHUNK = 0 };

static unsigned char taken[LINES];

struct rows {
    unsigned words, owner;
};

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static void mark(unsigned line, unsigned count, int value) {
    for (unsigned i = line; i < line + count; i++) {
        REQUIRE(i >= SLABS && i < LINES && taken[i] != value);
        taken[i] = (unsigned char)value;
    }
}

static unsigned owner_lines(unsigned words) { return (32 + words * 8 + HAK_LINE - 1) / HAK_LINE; }

static unsigned behind(const struct rows *rows) { return hak_lines_behind(rows->owner * HAK_LINE); }

static void rows_take(struct rows *rows, unsigned words) {
    rows->words = words;
    rows->owner = hak_lines_take(CHUNK, words);
    REQUIRE(rows->owner);
    mark(rows->owner, owner_lines(words), 1);
    mark(rows->owner + behind(rows), owner_lines(words), 1);
}

static void rows_give(struct rows *rows) {
    hak_lines_give(CHUNK, rows->words, rows->owner);
    mark(rows->owner, owner_lines(rows->words), 0);
    mark(rows->owner + behind(rows), owner_lines(rows->words), 0);
}

static void all_lines_are_free(void) {
    const char *bits = (const char *)hak_meta_at(CHUNK) + SLABS * HAK_LINE;
    for (unsigned i = 0; i < HAK_LINE; i++) REQUIRE(bits[i] == 0);
    bits += 128 * HAK_LINE; /* the far ones' */
    for (unsigned i = 0; i < 2 * HAK_LINE; i++) REQUIRE(bits[i] == 0);
    for (unsigned i = 0; i < LINES; i++) REQUIRE(taken[i] == 0);
}

static void rows_for_64_slabs_of_one_class_fit(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        struct rows rows[SLABS];
        for (unsigned i = 0; i < SLABS; i++) rows_take(&rows[i], hak_classes[c].word_count);
        for (unsigned i = 0; i < SLABS; i++) rows_give(&rows[i]);
        all_lines_are_free();
    }
}

static void rows_for_64_slabs_of_any_classes_fit_in_any_order(void **state) {
    (void)state;
    uint64_t dice = 23;
    struct rows rows[SLABS];
    for (unsigned round = 0; round < 300; round++) {
        for (unsigned i = 0; i < SLABS; i++) rows_take(&rows[i], hak_classes[1 + dice_next(&dice) % (HAK_CLASS_COUNT - 1)].word_count);
        for (unsigned i = 0; i < 200; i++) { /* fragmented as chunks get in a long life */
            struct rows *one = &rows[dice_next(&dice) % SLABS];
            rows_give(one);
            rows_take(one, hak_classes[1 + dice_next(&dice) % (HAK_CLASS_COUNT - 1)].word_count);
        }
        for (unsigned i = 0; i < SLABS; i++) rows_give(&rows[i]);
        all_lines_are_free();
    }
}

static void the_worst_fragments_leave_room_for_the_longest_row(void **state) {
    (void)state;
    unsigned longest = 0;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        if (hak_classes[c].word_count > longest) longest = hak_classes[c].word_count;
    struct rows rows[SLABS];
    for (unsigned short_words = 1; short_words <= longest; short_words++) {
        for (unsigned i = 0; i < SLABS; i++) rows_take(&rows[i], i % 2 ? longest : short_words);
        for (unsigned i = 0; i < SLABS; i += 2) { /* each short one makes way for a long one */
            rows_give(&rows[i]);
            rows_take(&rows[i], longest);
        }
        for (unsigned i = 0; i < SLABS; i++) rows_give(&rows[i]);
        all_lines_are_free();
    }
}

static void a_take_without_room_takes_nothing(void **state) {
    (void)state;
    static struct rows rows[LINES];
    unsigned count = 0;
    while ((rows[count].owner = hak_lines_take(CHUNK, 64)) != 0) {
        rows[count].words = 64;
        mark(rows[count].owner, owner_lines(64), 1);
        mark(rows[count].owner + behind(&rows[count]), owner_lines(64), 1);
        count++;
        assert_true(count < LINES);
    }
    assert_true(count >= SLABS);
    while (count > 0) rows_give(&rows[--count]);
    all_lines_are_free(); /* also what the last, refused one had for a moment */
}

/* Both rows of the first slabs lie in the page behind the headers. */
static void a_chunk_of_few_slabs_has_two_pages(void **state) {
    (void)state;
    struct rows rows[15];
    for (unsigned i = 0; i < 15; i++) {
        rows_take(&rows[i], 8); /* 512-byte blocks in 256 KiB */
        assert_in_range(rows[i].owner, 64, 95);
        assert_in_range(rows[i].owner + behind(&rows[i]), 96, 127);
    }
    for (unsigned i = 0; i < 15; i++) rows_give(&rows[i]);
    all_lines_are_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_for_64_slabs_of_one_class_fit),
        cmocka_unit_test(rows_for_64_slabs_of_any_classes_fit_in_any_order),
        cmocka_unit_test(the_worst_fragments_leave_room_for_the_longest_row),
        cmocka_unit_test(a_chunk_of_few_slabs_has_two_pages),
        cmocka_unit_test(a_take_without_room_takes_nothing),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
