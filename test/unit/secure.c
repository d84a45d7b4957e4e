/* secure.c - the word behind a block, and what lies between: each byte that is written there is found, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "slab/class.h"
#include "slab/secure_word.h"

static HAK_ALIGNED(16) char room[40 * 1024];

static void fresh(size_t block_bytes) { memset(room, 0, block_bytes); }

static void a_block_says_what_was_asked_for(void **state)
{
    (void)state;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        size_t block_bytes = hak_classes[c].block_bytes, most = block_bytes - HAK_SECURE_WORD_BYTES, step = most < 300 ? 1 : most / 97;
        for (size_t asked = 0; asked <= most; asked += step) {
            size_t bytes = 7;
            fresh(block_bytes);
            hak_secure_arm(room, block_bytes, asked);
            memset(room, 'u', asked); /* the program's own */
            assert_int_equal(hak_secure_look(room, block_bytes, &bytes), HAK_SECURE_LIVE);
            assert_int_equal(bytes, asked);
            assert_int_equal(hak_secure_end(room, block_bytes, &bytes), HAK_SECURE_LIVE);
            assert_int_equal(hak_secure_look(room, block_bytes, &bytes), HAK_SECURE_FREED);
            assert_int_equal(hak_secure_end(room, block_bytes, &bytes), HAK_SECURE_FREED);
            assert_true(hak_secure_written(room, block_bytes) == SIZE_MAX);
            for (size_t i = 0; i < most; i++)
                assert_int_equal(room[i], 0);
        }
    }
}

/* A byte below 128 is never what is there: a string's end, a letter, a small number. */
static void each_byte_behind_the_end_is_found(void **state)
{
    static const size_t sizes[] = {16, 32, 112, 1024, 4096, 32768};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t block_bytes = sizes[k], most = block_bytes - HAK_SECURE_WORD_BYTES;
        for (size_t asked = most > 60 ? most - 60 : 0; asked <= most; asked++)
            for (size_t at = asked; at < asked + 32 && at <= most; at++)
                for (int value = 0; value < 128; value += 31) {
                    size_t bytes;
                    fresh(block_bytes);
                    hak_secure_arm(room, block_bytes, asked);
                    room[at] = (char)value;
                    assert_int_equal(hak_secure_look(room, block_bytes, &bytes), HAK_SECURE_WRITTEN);
                    assert_int_equal(bytes, at);
                    assert_int_equal(hak_secure_end(room, block_bytes, &bytes), HAK_SECURE_WRITTEN);
                }
    }
}

static void the_whole_word_is_looked_at(void **state)
{
    (void)state;
    for (size_t asked = 90; asked <= 104; asked++)
        for (size_t bit = 0; bit < 64; bit++) {
            size_t bytes;
            fresh(112);
            hak_secure_arm(room, 112, asked);
            room[104 + bit / 8] = (char)(room[104 + bit / 8] ^ 1 << bit % 8);
            assert_int_not_equal(hak_secure_look(room, 112, &bytes), HAK_SECURE_FREED);
            bool is_found = hak_secure_look(room, 112, &bytes) == HAK_SECURE_WRITTEN;
            assert_true(is_found || bytes != asked); /* of the bits that tell the size, those that make it a little smaller are not: nothing is filled there */
            if (bit < 48)
                assert_true(is_found);
        }
}

static void a_word_is_its_blocks_alone(void **state)
{
    size_t bytes;
    (void)state;
    fresh(4096);
    hak_secure_arm(room, 112, 100);
    memcpy(room + 112, room, 112); /* as an overrun that knows the word of its own block would */
    assert_int_equal(hak_secure_look(room + 112, 112, &bytes), HAK_SECURE_WRITTEN);
}

static void each_byte_of_a_free_block_is_looked_at(void **state)
{
    static const size_t sizes[] = {16, 48, 64, 80, 112, 1024, 1152, 5120, 32768};
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t block_bytes = sizes[k], bytes;
        fresh(block_bytes);
        assert_true(hak_secure_written(room, block_bytes) == SIZE_MAX); /* never used */
        for (size_t at = 0; at < block_bytes; at += at < 200 || at > block_bytes - 40 ? 1 : 61) {
            fresh(block_bytes);
            hak_secure_arm(room, block_bytes, block_bytes / 2);
            assert_int_equal(hak_secure_end(room, block_bytes, &bytes), HAK_SECURE_LIVE);
            room[at] = (char)(room[at] ^ 0x41);
            size_t found = hak_secure_written(room, block_bytes);
            assert_int_equal(found, at < block_bytes - HAK_SECURE_WORD_BYTES ? at : block_bytes - HAK_SECURE_WORD_BYTES);
        }
    }
}

static void a_page_that_went_back_is_no_misuse(void **state)
{
    size_t bytes;
    (void)state;
    fresh(112);
    hak_secure_arm(room, 112, 100);
    assert_int_equal(hak_secure_end(room, 112, &bytes), HAK_SECURE_LIVE);
    memset(room, 0, 112);
    assert_true(hak_secure_written(room, 112) == SIZE_MAX);
    assert_int_equal(hak_secure_end(room, 112, &bytes), HAK_SECURE_FREED); /* and a free of it is a double free */
}

static void what_the_program_holds_is_told_by_the_words(void **state)
{
    size_t bytes;
    (void)state;
    fresh(64 * 112);
    for (size_t i = 0; i < 64; i++)
        if (i % 3 != 0)
            hak_secure_arm(room + i * 112, 112, 90);
    for (size_t i = 1; i < 64; i += 3)
        hak_secure_end(room + i * 112, 112, &bytes);
    uint64_t held = hak_secure_held(room, 112, 0, ~UINT64_C(0));
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(held >> i & 1, i % 3 == 2);
    assert_int_equal(hak_secure_held(room, 112, 0, 7), 4);
}

/* 64 cells of 1,000 expected: the sum of squares is beyond 150 once in fifty million times. */
static void each_bit_is_as_likely(void **state)
{
    static const uint64_t words[] = {~UINT64_C(0), UINT64_C(0x8000000000000001), UINT64_C(0xff), UINT64_C(0x5555555555555555), 1};
    uint64_t random = 0;
    (void)state;
    for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
        unsigned cells = hak_word_count(words[k]), counts[64] = {0};
        for (unsigned i = 0; i < cells * 1000; i++) {
            uint64_t bit = UINT64_C(1) << hak_secure_draw(words[k], &random);
            assert_true(bit != 0 && (bit & (bit - 1)) == 0 && (bit & words[k]) != 0);
            counts[hak_word_first(bit)]++;
        }
        double squares = 0;
        for (unsigned i = 0; i < 64; i++)
            if (words[k] >> i & 1)
                squares += ((double)counts[i] - 1000) * ((double)counts[i] - 1000) / 1000;
        assert_true(squares < 150);
    }
}

static int keys(void **state)
{
    (void)state;
    hak_secure_keys_make();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_says_what_was_asked_for),
        cmocka_unit_test(each_byte_behind_the_end_is_found),
        cmocka_unit_test(the_whole_word_is_looked_at),
        cmocka_unit_test(a_word_is_its_blocks_alone),
        cmocka_unit_test(each_byte_of_a_free_block_is_looked_at),
        cmocka_unit_test(a_page_that_went_back_is_no_misuse),
        cmocka_unit_test(what_the_program_holds_is_told_by_the_words),
        cmocka_unit_test(each_bit_is_as_likely),
    };
    return cmocka_run_group_tests(tests, keys, NULL);
}
