/* word.c - questions to words of bits, each answered a second time by looking at every bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "base/word.h"

enum { WORDS = 2000 };

static uint64_t word_draw(uint64_t *dice) {
    uint64_t word = dice_next(dice);
    unsigned density = (unsigned)(dice_next(dice) % 5);
    if (density == 0) return word & dice_next(dice) & dice_next(dice);
    if (density == 1) return word & dice_next(dice);
    if (density == 2) return word | dice_next(dice) | dice_next(dice);
    if (density == 3) return word | dice_next(dice) | dice_next(dice) | dice_next(dice) | dice_next(dice);
    return word;
}

static void the_first_and_last_bit_are_found(void **state) {
    (void)state;
    uint64_t dice = 7;
    for (unsigned first = 0; first < 64; first++) {
        for (unsigned last = first; last < 64; last++) {
            uint64_t word = UINT64_C(1) << first | UINT64_C(1) << last;
            for (unsigned i = first; i < last; i++) word |= (dice_next(&dice) & 1) << i;
            REQUIRE(hak_word_first(word) == first && hak_word_last(word) == last);
        }
    }
}

static void bits_are_counted(void **state) {
    (void)state;
    uint64_t dice = 11;
    REQUIRE(hak_word_count(0) == 0 && hak_word_count(~UINT64_C(0)) == 64);
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t word = word_draw(&dice);
        unsigned count = 0;
        for (unsigned bit = 0; bit < 64; bit++) count += word >> bit & 1;
        REQUIRE(hak_word_count(word) == count);
    }
    for (unsigned a = 0; a < 64; a++)
        for (unsigned b = 0; b < 64; b++) REQUIRE(hak_word_count(UINT64_C(1) << a | UINT64_C(1) << b) == 1u + (a != b));
}

static void a_mask_is_its_bits(void **state) {
    (void)state;
    for (unsigned first = 0; first < 64; first++) {
        for (unsigned count = 0; first + count <= 64; count++) {
            uint64_t mask = hak_word_mask(first, count);
            for (unsigned bit = 0; bit < 64; bit++) REQUIRE((mask >> bit & 1) == (bit >= first && bit < first + count));
        }
    }
}

static void runs_begin_where_enough_bits_follow(void **state) {
    (void)state;
    uint64_t dice = 13;
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t word = i == 0 ? 0 : i == 1 ? ~UINT64_C(0) : word_draw(&dice);
        for (unsigned count = 1; count <= 64; count++) {
            uint64_t runs = hak_word_runs(word, count), naive = 0;
            for (unsigned bit = 0, length = 0; bit < 64; bit++) {
                length = word >> bit & 1 ? length + 1 : 0;
                if (length >= count) naive |= UINT64_C(1) << (bit + 1 - count);
            }
            REQUIRE(runs == naive);
        }
    }
}

static void multiples_are_every_step_th_bit(void **state) {
    (void)state;
    for (unsigned step = 1; step <= 64; step *= 2)
        for (unsigned bit = 0; bit < 64; bit++) REQUIRE((hak_word_multiples(step) >> bit & 1) == (bit % step == 0));
}

static void rounding_reaches_the_next_multiple(void **state) {
    (void)state;
    for (size_t power = 1; power <= 4096; power *= 2) {
        for (size_t n = 0; n < 10000; n++) {
            REQUIRE(hak_round_up(n, power) == (n + power - 1) / power * power);
            REQUIRE(hak_round_down(n, power) == n / power * power);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_and_last_bit_are_found),
        cmocka_unit_test(bits_are_counted),
        cmocka_unit_test(a_mask_is_its_bits),
        cmocka_unit_test(runs_begin_where_enough_bits_follow),
        cmocka_unit_test(multiples_are_every_step_th_bit),
        cmocka_unit_test(rounding_reaches_the_next_multiple),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
