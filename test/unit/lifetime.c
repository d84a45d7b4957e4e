/* lifetime.c - which sites are called long-lived, and when classes are split for it. Each test in a child of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/room.h"

#include "front/front.h"
#include "heap/pool.h"
#include "learn/lifetime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define NOIPA __attribute__((noinline)) /* clang does not merge functions */
#else
#define NOIPA __attribute__((noipa))
#endif

#define SITE(name)                                                  \
    NOIPA static void *name(size_t bytes) {        \
        void *block = malloc(bytes);                                \
        __asm__ volatile("" : "+r"(block));                         \
        return block;                                               \
    }
SITE(site_long)
SITE(site_brief)
SITE(site_other)

enum { PEAK_BYTES = 40 << 20, KEPT_MAX = 1 << 16, BRIEF_MAX = 1 << 20 };
static void *kept[KEPT_MAX], *brief[BRIEF_MAX];
static unsigned kept_count, brief_count;
static uint64_t dice;

static enum hak_lifetime_stage stage_now(void) {
    struct hak_lifetime_stats stats;
    hak_lifetime_stats_get(&stats);
    return stats.stage;
}
static void look_at_all(void) {
    hak_sweep_all(false);
    hak_lifetime_decide();
}

/* One in `part` blocks is kept, from a site of its own if `two`; all others are freed when the peak is over. */
static void peak(unsigned part, bool two, bool keeps) {
    for (size_t left = PEAK_BYTES; left > 1024;) {
        size_t bytes = 16 + dice_next(&dice) % 497;
        bool is_long = dice_next(&dice) % part == 0;
        void *block = is_long && two ? site_long(bytes) : site_brief(bytes);
        left -= bytes;
        if (is_long && keeps && kept_count < KEPT_MAX) kept[kept_count++] = block;
        else brief[brief_count++] = block;
    }
    while (brief_count > 0) free(brief[--brief_count]);
}
static void kept_free(void) {
    while (kept_count > 0) free(kept[--kept_count]);
}

/* Whatever the order of sizes and sites is: one of them proves little. */
static void in_child(void (*test)(void)) {
    enum { ORDERS = 12 };
    for (uint64_t order = 1; order <= ORDERS; order++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(100);
            dice = order * UINT64_C(0x9e3779b97f4a7c15);
            test();
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0) fail_msg("order %u", (unsigned)order);
    }
}
#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #x), _exit(1)))

static void guess_then_learn(void) {
    CHECK(stage_now() == HAK_LIFETIME_TOGETHER);
    peak(50, true, true);
    CHECK(stage_now() == HAK_LIFETIME_GUESSED); /* nothing had died when the last slab was cut */
    CHECK(hak_load_relaxed(&hak_split_classes) != 0);
    for (int i = 0; i < 2; i++) {
        peak(50, true, true);
        look_at_all();
    }
    CHECK(stage_now() == HAK_LIFETIME_LEARNT);
    struct hak_lifetime_site site;
    unsigned long_count = 0, brief_long = 0;
    for (uint32_t i = 0; hak_lifetime_site_get(i, &site); i++) {
        if (site.class_index != 0) continue;
        long_count += site.is_long;
        brief_long += site.is_long && site.dead > site.alive;
    }
    CHECK(long_count >= 1 && long_count <= 2 && brief_long == 0);
}
static void a_guess_is_followed_by_knowledge(void **state) {
    (void)state;
    in_child(guess_then_learn);
}

/* Nothing is to be told apart: its classes are split for a while only, until there is somebody else. */
static void alone_then_not(void) {
    bool was_guessed = false;
    for (size_t left = PEAK_BYTES; left > 1024; left -= 1024) {
        brief[brief_count++] = site_brief(1024);
        was_guessed |= stage_now() == HAK_LIFETIME_GUESSED;
    }
    CHECK(was_guessed);
    CHECK(stage_now() == HAK_LIFETIME_TOGETHER);
    CHECK(hak_load_relaxed(&hak_split_classes) == 0);
    for (unsigned i = 0; i < 2000; i++) kept[kept_count++] = site_long(i % 2 ? 1024 : 512);
    for (size_t left = PEAK_BYTES / 2; left > 1024; left -= 1024) brief[brief_count++] = site_brief(1024);
    CHECK(stage_now() == HAK_LIFETIME_GUESSED);
    CHECK(hak_load_relaxed(&hak_split_classes) != 0);
}
static void a_guess_about_nobody_is_given_up(void **state) {
    (void)state;
    in_child(alone_then_not);
}

static void one_site(void) {
    for (int i = 0; i < 3; i++) {
        peak(50, false, true);
        look_at_all();
    }
    CHECK(stage_now() != HAK_LIFETIME_LEARNT);
    struct hak_lifetime_site site;
    for (uint32_t i = 0; hak_lifetime_site_get(i, &site); i++) /* one class may be, by chance; that proves nothing by itself */
        CHECK(!site.is_long || site.class_index != 0);
}
static void a_site_of_both_kinds_is_not_long(void **state) {
    (void)state;
    in_child(one_site);
}

static void refuted(void) {
    peak(50, true, false); /* the small site's blocks die with all others */
    CHECK(stage_now() == HAK_LIFETIME_GUESSED);
    for (int i = 0; i < 3; i++) {
        look_at_all();
        peak(50, true, false);
    }
    CHECK(stage_now() == HAK_LIFETIME_TOGETHER);
    CHECK(hak_load_relaxed(&hak_split_classes) == 0);
    peak(50, true, false);
    CHECK(hak_load_relaxed(&hak_split_classes) == 0); /* and is not made again */
}
static void a_guess_that_deaths_refute_is_given_up(void **state) {
    (void)state;
    in_child(refuted);
}

/* A peak of both sites goes in the order in which it came, and sweeps look at it all the while: what is not yet freed has not
 * outlived what was. */
static void goes_in_order(void) {
    for (int wave = 0; wave < 3; wave++) {
        for (size_t left = PEAK_BYTES; left > 1024;) {
            size_t bytes = 16 + dice_next(&dice) % 497;
            brief[brief_count++] = dice_next(&dice) % 4 == 0 ? site_other(bytes) : site_brief(bytes);
            left -= bytes;
        }
        for (unsigned i = 0; i < brief_count; i++) {
            free(brief[i]);
            if (i % 4096 == 0) hak_sweep_all(false);
        }
        brief_count = 0;
        look_at_all();
    }
    struct hak_lifetime_site site;
    uint32_t alive = 0, dead = 0;
    for (uint32_t i = 0; hak_lifetime_site_get(i, &site); i++) alive += site.alive, dead += site.dead;
    CHECK(dead > 100 && alive * 20 < dead);
    CHECK(stage_now() != HAK_LIFETIME_LEARNT);
}
static void what_goes_last_of_a_peak_is_not_long_lived(void **state) {
    (void)state;
    in_child(goes_in_order);
}

static void grows_only(void) { /* nothing dies: no site is longer-lived than another */
    for (int i = 0; i < 200000 && kept_count < KEPT_MAX; i++) kept[kept_count++] = i % 2 ? site_other(300) : site_brief(200);
    look_at_all();
    CHECK(stage_now() != HAK_LIFETIME_LEARNT);
    kept_free();
}
static void a_heap_that_only_grows_teaches_nothing(void **state) {
    (void)state;
    in_child(grows_only);
}

static void taught(void) {
    /* what an earlier run found: the first peak is split by it as soon as classes have slabs */
    peak(50, true, true);
    for (int i = 0; i < 2; i++) {
        peak(50, true, true);
        look_at_all();
    }
    CHECK(stage_now() == HAK_LIFETIME_LEARNT);
    struct hak_lifetime_site site;
    for (uint32_t i = 0; hak_lifetime_site_get(i, &site); i++) {
        if (!site.is_long || site.class_index) continue;
        struct hak_lifetime_stats before, after;
        hak_lifetime_stats_get(&before);
        hak_lifetime_teach(site.address, site.height, 0, 100, 90);
        hak_lifetime_stats_get(&after);
        CHECK(before.site_count == after.site_count); /* the same site */
        return;
    }
    CHECK(!"a long-lived site");
}
static void teaching_finds_the_same_site(void **state) {
    (void)state;
    in_child(taught);
}

static bool put_all(struct hak_policy_site *site, void *count) { return site->number[2] > 0 && ++*(unsigned *)count > 0; }
static bool put_all_too(struct hak_policy_site *site, void *none) { return !none && site->number[2] > 0; }

/* Thirty sites of 1,024 samples each in the file: a new one with sixteen is an eighth of nothing, but worth the next run's while. */
static void thirty_sites_are_known(void) {
    unsigned count = 0;
    for (unsigned i = 0; i < 30; i++) {
        struct hak_policy_site known = { .address = 0x1000 + 64 * i, .height = 800, .kind = HAK_POLICY_POOL, .number = { 0, i == 7 ? 900 : 0, 1024 } };
        hak_lifetime_sites.take(&known);
    }
    CHECK(!hak_lifetime_sites.give(put_all, &count) && count == 30);
    hak_lifetime_teach((const void *)0x9000, 800, 0, 16, 0); /* one more that is not long-lived: not worth a file */
    CHECK(!hak_lifetime_sites.give(put_all, &count));
    hak_lifetime_teach((const void *)0x9040, 800, 0, 16, 15);
    CHECK(hak_lifetime_sites.give(put_all, &count));
    hak_lifetime_sites.note(put_all_too); /* a child of this has no news of its own */
    CHECK(!hak_lifetime_sites.give(put_all, &count));
    hak_lifetime_teach((const void *)0x9080, 800, 0, 16, 15);
    CHECK(hak_lifetime_sites.give(put_all, &count)); /* but what it learns itself is */
}
static void a_new_long_lived_site_is_news_beside_many_known_ones(void **state) {
    (void)state;
    in_child(thirty_sites_are_known);
}

static bool row_is_there(uintptr_t address) {
    struct hak_lifetime_site site;
    for (uint32_t i = 0; hak_lifetime_site_get(i, &site); i++)
        if ((uintptr_t)site.address == address) return true;
    return false;
}

/* An old file filled the table with sites that this run does not have. */
static void table_is_full(void) {
    for (unsigned i = 0; i < 1100; i++) hak_lifetime_teach((const void *)(uintptr_t)(0x1000 + 64 * i), 800, 0, 2, 0);
    struct hak_lifetime_stats stats;
    hak_lifetime_stats_get(&stats);
    CHECK(stats.site_count == 1023 && row_is_there(0x1000));
    uintptr_t late = 0x900000;
    hak_lifetime_teach((const void *)late, 800, 0, 16, 15);
    CHECK(!row_is_there(late));
    for (unsigned round = 0; round < 4; round++) { /* what is there goes on, and of the others no more is seen */
        hak_lifetime_teach((const void *)0x1000, 800, 0, 4096, 0);
        hak_lifetime_teach((const void *)late, 800, 0, 16, 15);
        hak_lifetime_decide();
    }
    CHECK(row_is_there(late) && row_is_there(0x1000) && !row_is_there(0x1040));
    for (unsigned i = 0; i < 500; i++) hak_lifetime_teach((const void *)(late + 64 * i), 800, 0, 16, 1);
    for (unsigned i = 0; i < 500; i++) CHECK(row_is_there(late + 64 * i));
}
static void a_site_that_is_seen_no_more_makes_way_for_a_new_one(void **state) {
    (void)state;
    in_child(table_is_full);
}

/* A sweep may judge a block between its owner's first look and the claim. */
static void nothing_is_watched(void) {
    peak(50, true, true);
    unsigned looks = 0;
    for (size_t number = 0; number < hak_load_acquire(&hak_chunk_top); number++)
        for (uint64_t live = hak_chunk_slabs(number); live; live &= live - 1) {
            struct hak_slab *slab = hak_slab_at(number * HAK_CHUNK_GRANULES + hak_word_first(live));
            CHECK(hak_slab_claim(slab));
            hak_store_relaxed(&slab->sample, 0);
            hak_slab_look_claimed(slab);
            CHECK(hak_load_relaxed(&slab->sample) == 0);
            hak_slab_unclaim(slab);
            looks++;
        }
    CHECK(looks > 0);
}
static void a_block_that_was_judged_meanwhile_is_not_looked_at(void **state) {
    (void)state;
    in_child(nothing_is_watched);
}

int main(void) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(__clang__)
    return 77; /* neither a sanitizer's build nor clang's -O1 makes tail calls: all sites are one */
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guess_is_followed_by_knowledge),
        cmocka_unit_test(a_guess_about_nobody_is_given_up),
        cmocka_unit_test(a_site_of_both_kinds_is_not_long),
        cmocka_unit_test(a_guess_that_deaths_refute_is_given_up),
        cmocka_unit_test(a_heap_that_only_grows_teaches_nothing),
        cmocka_unit_test(what_goes_last_of_a_peak_is_not_long_lived),
        cmocka_unit_test(teaching_finds_the_same_site),
        cmocka_unit_test(a_block_that_was_judged_meanwhile_is_not_looked_at),
        cmocka_unit_test(a_new_long_lived_site_is_news_beside_many_known_ones),
        cmocka_unit_test(a_site_that_is_seen_no_more_makes_way_for_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
