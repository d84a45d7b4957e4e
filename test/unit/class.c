/* class.c - the table of classes: every size, every offset of every slab. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "front/front.h"

/* Of 32 bytes' distance from 256 to 1 KiB. */
static bool has_blocks(unsigned c) { return c <= 16 || c > HAK_SMALL_CLASS_MAX || c % 2 == 0; }

static void every_size_gets_the_smallest_class_that_holds_it(void **state) {
    (void)state;
    assert_int_equal(hak_class_small(0), 0);
    for (size_t bytes = 1; bytes <= HAK_SLAB_BLOCK_BYTES_MAX; bytes++) {
        unsigned class = hak_class_of(bytes), best = 0;
        for (unsigned c = 1; c < HAK_SIZE_CLASS_COUNT && !best; c++)
            if (has_blocks(c) && hak_classes[c].block_bytes >= bytes) best = c;
        REQUIRE(class == best);
    }
}

/* As a free that states a size asks it: front/fast.h. */
static void a_step_tells_a_small_class_s_own_sizes(void **state) {
    (void)state;
    const size_t odd[] = { SIZE_MAX, SIZE_MAX - 1023, SIZE_MAX / 2, (size_t)UINT32_MAX + 1, (size_t)UINT32_MAX + 513 };
    for (unsigned c = 1; c <= HAK_SMALL_CLASS_MAX; c++) {
        if (!has_blocks(c)) continue;
        for (size_t bytes = 0; bytes <= 2 * HAK_SMALL_BYTES_MAX; bytes++)
            REQUIRE((hak_classes[c].block_bytes - bytes < hak_classes[c].step) == (bytes != 0 && hak_class_of(bytes) == c));
        for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) REQUIRE(hak_classes[c].block_bytes - odd[i] >= hak_classes[c].step);
        assert_int_equal(hak_classes[hak_pool_of(c)].step, hak_classes[c].step);
    }
}

/* sqlite's pages of 4,096 bytes with their headers, and what others keep beside a page. */
static void a_page_and_its_header_waste_little(void **state) {
    (void)state;
    size_t block = hak_classes[hak_class_of(4096 + 272)].block_bytes;
    assert_true(block - (4096 + 272) <= 128);
    assert_int_equal(hak_class_pair(hak_class_of(4096 + 272)), hak_class_of(4096 + 272)); /* in every thread */
}

static void classes_grow_and_waste_little(void **state) {
    (void)state;
    assert_int_equal(hak_classes[0].block_bytes, 0);
    assert_int_equal(hak_classes[HAK_SIZE_CLASS_COUNT - 1].block_bytes, HAK_SLAB_BLOCK_BYTES_MAX);
    for (unsigned c = 1; c < HAK_SIZE_CLASS_COUNT; c++) {
        size_t bytes = hak_classes[c].block_bytes, below = hak_classes[c - 1].block_bytes;
        assert_true(bytes > below && bytes % 16 == 0);
        assert_true(bytes <= HAK_SMALL_BYTES_MAX ? bytes == below + 16 : (bytes - below) * 8 <= bytes + 8 * HAK_CLASS_PAD);
        size_t pad = bytes > HAK_CLASS_PADDED_FROM ? HAK_CLASS_PAD : 0;
        if (c > 16 && has_blocks(c)) assert_true((hak_classes[c].step - pad) * 8 <= bytes); /* what a block may waste */
        if (c > HAK_SMALL_CLASS_MAX) assert_int_equal(hak_classes[c].step, bytes - below);
        if (c <= HAK_SMALL_CLASS_MAX) assert_int_equal(bytes, 16 * c); /* the fast path counts on it */
    }
}

static void by_size_they_ascend(void **state) {
    (void)state;
    bool seen[HAK_CLASS_COUNT] = { false };
    for (unsigned i = 1; i < HAK_CLASS_COUNT; i++) {
        unsigned c = hak_class_by_size(i);
        assert_true(c > 0 && c < HAK_CLASS_COUNT && !seen[c]);
        seen[c] = true;
        if (i > 1) assert_true(hak_classes[c].block_bytes > hak_classes[hak_class_by_size(i - 1)].block_bytes);
    }
    for (size_t bytes = 1; bytes < 2 * HAK_SLAB_BLOCK_BYTES_MAX; bytes++) {
        bool is_power = (bytes & (bytes - 1)) == 0 && bytes >= 4096 && bytes <= 32768;
        REQUIRE(hak_class_has_power(bytes) == is_power);
        if (is_power) REQUIRE(hak_classes[hak_class_power(bytes)].block_bytes == bytes && hak_class_align(&hak_classes[hak_class_power(bytes)]) == bytes);
    }
}

static void a_slab_holds_what_its_row_says(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        const struct hak_class *class = &hak_classes[c];
        size_t slab_bytes = (size_t)class->granules * HAK_GRANULE_BYTES;
        assert_int_equal(slab_bytes, (size_t)1 << class->slab_shift);
        assert_int_equal(class->capacity, slab_bytes / class->block_bytes);
        assert_true(class->granules <= HAK_CHUNK_GRANULES && class->capacity >= 8);
        assert_int_equal(class->surplus, slab_bytes % class->block_bytes != 0);
        if (c > HAK_SMALL_CLASS_MAX) assert_int_equal(class->block_bytes % 128, 0); /* heap.h: hak_middle_block(), middle_at */
        assert_true(class->word_count * 64u >= class->capacity + class->surplus);
        assert_true((class->word_count - 1) * 64u < class->capacity + class->surplus);
        /* the first block may begin further back, by less than itself and a page; but not that of a power of two, which is aligned */
        assert_true(class->lead_steps * HAK_LEAD_STEP + (size_t)class->capacity * class->block_bytes <= slab_bytes);
        assert_true(class->lead_steps * HAK_LEAD_STEP < class->block_bytes && class->lead_steps <= HAK_LEAD_STEPS_MAX);
        bool is_power = (class->block_bytes & (class->block_bytes - 1)) == 0;
        assert_true(c <= HAK_SMALL_CLASS_MAX || is_power ? class->lead_steps == 0 : class->lead_steps > 0);
        /* every index that the reciprocal can give has a bit; the surplus one is in no valid mask */
        assert_true((slab_bytes - 1) / class->block_bytes < class->word_count * 64u);
        unsigned valid = 0;
        for (unsigned i = 0; i < class->word_count; i++)
            for (unsigned bit = 0; bit < 64; bit++) {
                bool is_valid = hak_class_valid(class, i) >> bit & 1;
                REQUIRE(is_valid == (i * 64 + bit < class->capacity));
                valid += is_valid;
            }
        assert_int_equal(valid, class->capacity);
    }
}

static void the_reciprocal_divides_every_offset_exactly(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        const struct hak_class *class = &hak_classes[c];
        uint64_t bytes = class->block_bytes, end = (uint64_t)class->granules * HAK_GRANULE_BYTES;
        uint64_t index = 0, rest = 0;
        for (uint64_t offset = 0; offset < end; offset++) {
            unsigned __int128 product = (unsigned __int128)offset * class->reciprocal;
            if ((uint64_t)(product >> 64) != index || ((uint64_t)product < class->reciprocal) != (rest == 0))
                fail_msg("class of %llu bytes, offset %llu", (unsigned long long)bytes, (unsigned long long)offset);
            if (++rest == bytes) rest = 0, index++;
        }
        for (uint64_t front = 1; front < bytes && front <= class->lead_steps * HAK_LEAD_STEP; front++) /* no block starts in front of the first */
            if (-front * class->reciprocal < class->reciprocal) fail_msg("class of %llu bytes, %llu in front", (unsigned long long)bytes, (unsigned long long)front);
    }
}

static void a_coarse_class_holds_and_is_its_own(void **state) {
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        const struct hak_class *coarse = &hak_classes[hak_classes[c].coarse];
        assert_true(coarse->block_bytes >= hak_classes[c].block_bytes);
        assert_int_equal(coarse->coarse, hak_classes[c].coarse); /* no second step */
        size_t eighth = hak_classes[c].block_bytes; /* a doubling's, that this one or half of it is */
        if (eighth == HAK_CLASS_PAGE_BYTES) eighth += HAK_CLASS_PAGE_STEP;
        if (c > HAK_SMALL_CLASS_MAX) assert_true(hak_classes[hak_classes[c].coarse].block_bytes * 3 <= eighth * 4);
        if (c > 1 && !hak_class_is_power(c)) assert_true(hak_classes[c].coarse >= hak_classes[c - 1].coarse);
        if (hak_class_is_power(c)) assert_true(hak_classes[c].coarse == c && hak_class_pair(c) == c && !hak_class_is_pair(c));
    }
}

static void a_size_rounded_to_an_alignment_has_an_aligned_class(void **state) {
    (void)state;
    for (size_t align = 32; align <= HAK_SLAB_BLOCK_BYTES_MAX; align *= 2) {
        for (size_t asked = 1; asked <= HAK_SLAB_BLOCK_BYTES_MAX; asked++) {
            size_t bytes = hak_front_aligned_bytes(align, asked);
            REQUIRE(bytes >= asked);
            if (bytes > HAK_SLAB_BLOCK_BYTES_MAX) continue; /* a large one's */
            if (align <= HAK_LEAD_STEP || bytes <= HAK_SMALL_BYTES_MAX) REQUIRE(bytes - asked < align);
            unsigned c = hak_front_has_power(align, bytes) ? hak_class_power(bytes) : hak_class_of(bytes);
            const struct hak_class *class = &hak_classes[c];
            REQUIRE(class->block_bytes >= bytes && hak_class_align(class) >= align);
            REQUIRE(hak_class_align(&hak_classes[class->coarse]) >= align);
            const struct hak_class *pair = &hak_classes[hak_class_pair(c)];
            REQUIRE(hak_class_align(pair) >= align && pair->block_bytes >= class->block_bytes && pair->coarse == class->coarse);
            REQUIRE(hak_size_align(bytes, class) >= align); /* no class of less serves it where memory is short, or before a page is opened */
        }
    }
}

static void windows_stay_within_their_bounds(void **state) {
    (void)state;
    const size_t word_bytes[] = { 1024, 4096, 5000, 8192, 16384, 24576, 262144 };
    uint32_t before[HAK_CLASS_COUNT], few_before[HAK_CLASS_COUNT];
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        before[c] = hak_load_relaxed(&hak_shares[c].blocks);
        few_before[c] = hak_load_relaxed(&hak_shares[c].few);
    }
    for (unsigned i = 0; i < sizeof word_bytes / sizeof *word_bytes; i++) {
        hak_window_set(word_bytes[i]);
        for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
            uint32_t blocks = hak_load_relaxed(&hak_shares[c].blocks);
            size_t bytes = hak_classes[c].block_bytes, least = bytes <= 8192 ? 4 : bytes <= 16384 ? 2 : 1;
            assert_true(blocks >= least && blocks <= 64 && blocks <= hak_classes[c].capacity);
            if (blocks > least) assert_true(blocks * bytes <= word_bytes[i]);
            if (blocks < 64) assert_true((blocks + 1) * bytes > word_bytes[i]);
            uint32_t few = hak_load_relaxed(&hak_shares[c].few);
            assert_true(few >= least && few <= blocks && (few == least || few * bytes <= HAK_FEW_BYTES));
            if (word_bytes[i] <= HAK_FEW_BYTES) assert_int_equal(few, blocks);
        }
    }
    hak_window_set(HAK_WORD_BYTES);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) { /* the table is the default's */
        assert_int_equal(hak_load_relaxed(&hak_shares[c].blocks), before[c]);
        assert_int_equal(hak_load_relaxed(&hak_shares[c].few), few_before[c]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_gets_the_smallest_class_that_holds_it),
        cmocka_unit_test(a_step_tells_a_small_class_s_own_sizes),
        cmocka_unit_test(classes_grow_and_waste_little),
        cmocka_unit_test(a_page_and_its_header_waste_little),
        cmocka_unit_test(by_size_they_ascend),
        cmocka_unit_test(a_slab_holds_what_its_row_says),
        cmocka_unit_test(the_reciprocal_divides_every_offset_exactly),
        cmocka_unit_test(a_coarse_class_holds_and_is_its_own),
        cmocka_unit_test(a_size_rounded_to_an_alignment_has_an_aligned_class),
        cmocka_unit_test(windows_stay_within_their_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
