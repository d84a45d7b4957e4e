/* letters.c - a block that a stranger frees is told to its owner by its address, and comes back to its slab whatever happens meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/letters.h"
#include "os/os.h"
#include "rules/options.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { CLASS = 8, WORD = 64, WORDS = 32 }; /* 128 bytes */
static void *blocks[WORDS * WORD];
static struct hak_heap *owner, *stranger;

static int begin(void **state) {
    (void)state;
    owner = heap_make();
    stranger = heap_make();
    memset(stranger->letter_pause, 0, sizeof stranger->letter_pause); /* it may have been another's */
    stranger->gathered = 0;
    hak_store_relaxed(&owner->takes_letters, 1);
    class_is_common(owner, CLASS);
    for (unsigned i = 0; i < WORDS * WORD; i++) blocks[i] = block_take(owner, CLASS);
    return 0;
}

static void end(void) {
    heap_end(owner);
    heap_end(stranger);
    assert_int_equal(live_blocks(CLASS), 0);
    assert_int_equal(live_slabs(CLASS), 0);
    AUDIT();
}

static uint64_t sent(void) { return stranger->counters.n[HAK_C_letter_sent]; }
static uint64_t letters_read(const struct hak_heap *heap) { return heap->counters.n[HAK_C_letter_read]; }
static void give_all_but_one_each(void) { /* of each word the first is gone */
    for (unsigned i = 0; i < WORDS * WORD; i++)
        if (i % WORD) block_give(owner, blocks[i]);
}

static void one_of_each_word_goes_by_letter(void **state) {
    (void)state;
    uint64_t before = sent(), mail = stranger->counters.n[HAK_C_mail_sent];
    for (unsigned w = 0; w < WORDS; w++) block_give(stranger, blocks[w * WORD]);
    assert_int_equal(sent() - before, WORDS);
    assert_int_equal(in_letters(owner), WORDS);
    assert_int_equal(stranger->batches, 0);
    assert_true(hak_load_relaxed(&owner->letters) != 0);
    assert_int_equal(live_blocks(CLASS), WORDS * WORD - WORDS); /* the census knows of them */
    for (unsigned w = 0; w < WORDS; w++) {
        struct hak_slab *slab = slab_of(blocks[w * WORD]);
        assert_int_equal(hak_load_relaxed(&hak_slab_remote(slab)[block_index(blocks[w * WORD]) / 64]), 0);
        assert_false(hak_slab_mailed(slab));
    }
    assert_int_equal(stranger->counters.n[HAK_C_mail_sent], mail);
    uint64_t before_read = letters_read(owner);
    hak_mail_take(owner);
    assert_int_equal(letters_read(owner) - before_read, WORDS);
    assert_int_equal(in_letters(owner), 0);
    assert_true(hak_load_relaxed(&owner->letters) == 0);
    assert_int_equal(live_blocks(CLASS), WORDS * WORD - WORDS);
    give_all_but_one_each();
    end();
}

static void many_of_one_word_are_gathered(void **state) {
    (void)state;
    enum { FEW = 4 };
    uint64_t before = sent();
    for (unsigned i = 0; i < WORD; i++) block_give(stranger, blocks[i]);
    assert_int_equal(sent() - before, FEW);
    hak_batch_flush(stranger);
    hak_mail_take(owner);
    assert_int_equal(live_blocks(CLASS), (WORDS - 1) * WORD);
    for (unsigned i = WORD; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    end();
}

/* What an owner does not read is bounded; the rest is gathered, and all of it comes back. */
static void a_full_owner_is_told_no_more(void **state) {
    (void)state;
    for (unsigned i = 0; i < WORD; i++) /* every word once, 64 times over; as if batches were flushed between */
        for (unsigned w = 0; w < WORDS; w++) {
            if (w == 0) stranger->flushes++;
            block_give(stranger, blocks[w * WORD + i]);
        }
    assert_int_equal(in_letters(owner), 8 * HAK_LETTER_BLOCKS); /* of four heaps each has eight lines */
    assert_int_equal(live_blocks(CLASS), 0);
    hak_batch_flush(stranger);
    hak_mail_take(owner);
    end();
}

static void who_takes_none_is_told_none(void **state) {
    (void)state;
    hak_store_relaxed(&owner->takes_letters, 0);
    uint64_t before = sent();
    block_give(stranger, blocks[0]);
    assert_int_equal(sent(), before);
    hak_store_relaxed(&owner->takes_letters, 1);
    block_give(stranger, blocks[2 * WORD]);
    assert_int_equal(sent(), before + 1);
    hak_store_relaxed(&hak_rare_blocks, HAK_RARE_ASKS * 100); /* heaps are many */
    block_give(stranger, blocks[4 * WORD]);
    hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
    assert_int_equal(sent(), before + 1);
    hak_batch_flush(stranger);
    hak_mail_take(owner);
    for (unsigned i = 0; i < WORDS * WORD; i++)
        if (i != 0 && i != 2 * WORD && i != 4 * WORD) block_give(owner, blocks[i]);
    end();
}

/* So many blocks of the class at least, until the next would be of a page of its own; returns how many. */
static unsigned take_some(unsigned c, void **taken, unsigned least) {
    unsigned count = 0;
    class_is_common(owner, c);
    while (count < least || hak_bin_at(owner, c)->word) taken[count++] = block_take(owner, c);
    assert_true(count < hak_classes[c].capacity);
    return count;
}

static void a_letter_is_read_before_a_page_is_opened(void **state) {
    (void)state;
    enum { C = 12, TOLD = 16 };
    void *more[512];
    unsigned count = take_some(C, more, 200);
    for (unsigned i = 0; i < TOLD; i++) {
        stranger->flushes++; /* each is told */
        block_give(stranger, more[i]);
    }
    assert_int_equal(in_letters(owner), TOLD);
    uint64_t opened = owner->opened_bytes, before = letters_read(owner);
    owner->clock_in = 1 << 30; /* no chores */
    void *block = block_take(owner, C);
    assert_int_equal(letters_read(owner) - before, TOLD);
    assert_int_equal(owner->opened_bytes, opened);
    bool is_told = false;
    for (unsigned i = 0; i < TOLD; i++) is_told |= block == more[i];
    assert_true(is_told);
    block_give(owner, block);
    for (unsigned i = TOLD; i < count; i++) block_give(owner, more[i]);
    for (unsigned i = 0; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    end();
    assert_int_equal(live_blocks(C), 0);
}

static void a_thread_takes_letters_while_it_lives(void **state) {
    (void)state;
    struct hak_heap *mine = hak_self, *heap = hak_heap_birth(hak_self);
    assert_true(hak_load_relaxed(&heap->takes_letters) == 1);
    hak_heap_death(heap);
    assert_true(hak_load_relaxed(&heap->takes_letters) == 0);
    heap = hak_heap_borrow();
    assert_true(hak_load_relaxed(&heap->takes_letters) == 0);
    hak_heap_give_back(heap);
    hak_self = mine;
    for (unsigned i = 0; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    end();
}

#define MISUSED(block, call)               \
    do {                                   \
        room_misused = NULL;               \
        if (setjmp(room_caught) == 0) {    \
            call;                          \
            fail_msg("nothing was found"); \
        }                                  \
        assert_ptr_equal(room_misused, block); \
    } while (0)

static void twice_by_one_stranger_is_found_at_once(void **state) {
    (void)state;
    block_give(stranger, blocks[0]);
    MISUSED(blocks[0], block_give(stranger, blocks[0]));
    hak_mail_take(owner);
    give_all_but_one_each();
    for (unsigned w = 1; w < WORDS; w++) block_give(owner, blocks[w * WORD]);
    end();
}

static void twice_by_two_strangers_is_found_by_the_owner(void **state) {
    (void)state;
    struct hak_heap *other = heap_make();
    block_give(stranger, blocks[0]);
    block_give(other, blocks[0]);
    assert_int_equal(in_letters(owner), 2);
    MISUSED(blocks[0], hak_mail_take(owner));
    heap_end(other);
    give_all_but_one_each();
    for (unsigned w = 1; w < WORDS; w++) block_give(owner, blocks[w * WORD]);
    end();
}

static void by_its_owner_and_a_stranger_is_found_by_the_owner(void **state) {
    (void)state;
    block_give(owner, blocks[0]);
    block_give(stranger, blocks[0]);
    MISUSED(blocks[0], hak_mail_take(owner));
    block_give(stranger, blocks[WORD]);
    block_give(owner, blocks[WORD]);
    MISUSED(blocks[WORD], hak_mail_take(owner));
    give_all_but_one_each();
    for (unsigned w = 2; w < WORDS; w++) block_give(owner, blocks[w * WORD]);
    end();
}

/* Above 1 KiB the owner keeps what he frees, and hands it out first: who frees it, too, is found before that, in the strangers' row. */
static void no_letter_is_sent_above_1_kib(void **state) {
    (void)state;
    unsigned c = HAK_SMALL_CLASS_MAX + 1;
    class_is_common(owner, c);
    void *block = block_take(owner, c);
    uint64_t before = sent();
    block_give(stranger, block);
    assert_int_equal(sent(), before);
    hak_batch_flush(stranger);
    hak_mail_take(owner);
    for (unsigned i = 0; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    end();
}

/* As if there were too much free memory: a slab in use that is all free ends. */
static void bound_is_broken(bool is) {
    hak_options.free_max_mb = is ? 0 : 6;
    hak_store_relaxed(&hak_purge.keep_bytes, 0);
    hak_add(&hak_purge.free_bytes, is ? 1 << 20 : -(1 << 20));
}

/* The other free, and those of all other blocks, end the slab before the letter is read. */
static void twice_is_found_when_the_slab_ends(void **state) {
    (void)state;
    void *more[64];
    unsigned c = HAK_SMALL_CLASS_MAX, count = take_some(c, more, 32);
    struct hak_slab *slab = slab_of(more[0]);
    bound_is_broken(true);
    block_give(stranger, more[0]);
    assert_int_equal(in_letters(owner), 1);
    for (unsigned i = 1; i < count; i++) block_give(owner, more[i]);
    MISUSED(more[0], block_give(owner, more[0]));
    hak_slab_unclaim(slab);
    bound_is_broken(false);
    hak_letters_forward(stranger, owner); /* else it is found again */
    for (unsigned i = 0; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    /* these heaps are not ended: one has a slab that was about to */
    hak_store_relaxed(&owner->takes_letters, 0);
}

/* It ended, and nobody saw the letter then. */
static void a_letter_of_a_slab_that_is_no_more_is_misuse(void **state) {
    (void)state;
    void *more[64];
    unsigned c = HAK_SMALL_CLASS_MAX, count = take_some(c, more, 32);
    bound_is_broken(true);
    block_give(stranger, more[0]);
    hak_store_relaxed(&owner->letters, 0);
    for (unsigned i = 0; i < count; i++) block_give(owner, more[i]);
    bound_is_broken(false);
    assert_int_equal(live_slabs(c), 0);
    hak_store_relaxed(&owner->letters, UINT32_MAX);
    MISUSED(more[0], hak_mail_take(owner));
    for (unsigned i = 0; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    end();
}

/* Letters that are read before a page is opened may end the slab that it would be of, and its row be another heap's at once. */
static void the_slab_in_use_may_end_by_a_letter(void **state) {
    (void)state;
    void *more[64];
    unsigned c = HAK_SMALL_CLASS_MAX, count = take_some(c, more, 32);
    bound_is_broken(true);
    for (unsigned i = 0; i < count; i++) {
        stranger->flushes++;
        block_give(stranger, more[i]);
    }
    assert_int_equal(in_letters(owner), count);
    uint64_t released = owner->counters.n[HAK_C_slab_released];
    owner->clock_in = 1 << 30; /* no chores */
    void *block = block_take(owner, c);
    assert_int_equal(owner->counters.n[HAK_C_slab_released], released + 1);
    assert_int_equal(in_letters(owner), 0);
    bound_is_broken(false);
    block_give(owner, block);
    for (unsigned i = 0; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    end();
}

static void a_hidden_line_is_found_at_the_end(void **state) {
    (void)state;
    block_give(stranger, blocks[0]);
    hak_mail_take(owner);
    block_give(stranger, blocks[WORD]);
    hak_store_relaxed(&owner->letters, 0);
    for (unsigned i = 0; i < WORDS * WORD; i++)
        if (i != 0 && i != WORD) block_give(owner, blocks[i]);
    end();
    assert_int_equal(in_letters(owner), 0);
}

static void what_comes_after_the_end_is_found_by_who_takes_the_heap(void **state) {
    (void)state;
    for (unsigned i = 0; i < WORDS * WORD; i++)
        if (i != 0 && i != WORD) block_give(owner, blocks[i]);
    uint64_t before = letters_read(owner);
    block_give(stranger, blocks[0]); /* read at the end */
    heap_end(owner);
    assert_int_equal(letters_read(owner) - before, 1);
    assert_true(hak_load_relaxed(&owner->takes_letters) == 0);
    hak_store_relaxed(&owner->takes_letters, 1); /* a stranger has looked already */
    block_give(stranger, blocks[WORD]);
    hak_store_relaxed(&owner->takes_letters, 0);
    assert_int_equal(in_letters(owner), 1);
    struct hak_heap *next = heap_make();
    assert_ptr_equal(next, owner);
    hak_visit_chores(next);
    assert_int_equal(in_letters(owner), 0);
    end();
}

/* The slab went to another heap meanwhile: its letter goes on by mail. */
static void a_slab_that_changed_hands_is_told_of_by_its_letter(void **state) {
    (void)state;
    struct hak_heap *taker = heap_make();
    class_is_common(taker, CLASS);
    struct hak_slab *slab = slab_of(blocks[0]);
    block_give(stranger, blocks[0]);
    for (unsigned i = 1; i < WORD; i++) block_give(owner, blocks[i]);
    assert_true(hak_slab_claim(slab));
    if (slab->place == HAK_SLAB_PARTIAL) hak_list_remove(owner, slab);
    hak_slab_give_claimed(slab, taker);
    hak_slab_unclaim(slab);
    hak_list_push(taker, slab);
    hak_mail_take(owner);
    assert_int_equal(in_letters(owner), 0);
    assert_int_equal(owner->batches, 0); /* it may be a dead heap's: nobody would flush them */
    uint64_t collected = taker->counters.n[HAK_C_collected];
    hak_mail_take(taker);
    assert_int_equal(taker->counters.n[HAK_C_collected] - collected, 1);
    for (unsigned i = WORD; i < WORDS * WORD; i++) block_give(slab_of(blocks[i]) == slab ? taker : owner, blocks[i]);
    heap_end(taker);
    end();
}

static void others_give_back_what_an_idle_owner_does_not_read(void **state) {
    (void)state;
    struct hak_heap *mine = hak_self;
    for (unsigned w = 0; w < WORDS; w++) block_give(stranger, blocks[w * WORD]);
    hak_letters_forward(stranger, owner);
    assert_int_equal(in_letters(owner), 0);
    assert_true(hak_load_relaxed(&owner->letters) == 0);
    assert_int_equal(live_blocks(CLASS), WORDS * WORD - WORDS);
    assert_true(hak_load_relaxed(&owner->mail) != 0);
    uint64_t collected = owner->counters.n[HAK_C_collected], told = letters_read(owner);
    hak_mail_take(owner);
    assert_int_equal(owner->counters.n[HAK_C_collected] - collected, WORDS);
    assert_int_equal(letters_read(owner), told);
    hak_self = mine;
    give_all_but_one_each();
    end();
}

/* He is idle for two delays: the sweep sees to it. */
static void the_sweep_gives_back_what_an_idle_owner_does_not_read(void **state) {
    (void)state;
    struct hak_heap *mine = hak_self;
    hak_self = stranger;
    hak_options.purge_delay_ms = 40;
    hak_store_relaxed(&hak_purge.delay_ms, 0);
    for (unsigned w = 0; w < WORDS; w++) block_give(stranger, blocks[w * WORD]);
    uint64_t told = letters_read(owner);
    hak_store_relaxed(&owner->kept_ms, hak_os_clock_ms());
    for (unsigned i = 0; i < 400 && in_letters(owner) > 0; i++) {
        usleep(10000);
        stranger->tick = 0;
        hak_visit_chores(stranger);
    }
    assert_int_equal(in_letters(owner), 0);
    assert_int_equal(letters_read(owner), told);
    assert_true(hak_load_relaxed(&owner->mail) != 0);
    hak_mail_take(owner);
    hak_options.purge_delay_ms = 800;
    hak_self = mine;
    give_all_but_one_each();
    end();
}

/* Who wrote the first block of a line never set its bit: he left by a longjmp. Those after him see the block and set none. */
static void a_hidden_line_is_found_by_its_owners_clock(void **state) {
    (void)state;
    block_give(stranger, blocks[0]);
    hak_mail_take(owner); /* it has had letters */
    block_give(stranger, blocks[WORD]);
    hak_store_relaxed(&owner->letters, 0);
    block_give(stranger, blocks[2 * WORD]);
    assert_true(hak_load_relaxed(&owner->letters) == 0);
    hak_options.purge_delay_ms = 40;
    for (unsigned i = 0; i < 400 && in_letters(owner) > 0; i++) {
        usleep(10000);
        owner->tick = 0;
        hak_visit_chores(owner);
    }
    hak_options.purge_delay_ms = 800;
    assert_int_equal(in_letters(owner), 0);
    for (unsigned i = 0; i < WORDS * WORD; i++)
        if (i != 0 && i != WORD && i != 2 * WORD) block_give(owner, blocks[i]);
    end();
}

/* Three strangers tell, the owner reads, in every second round a fourth thread takes away what it finds: every block comes back once. */
enum { STRANGERS = 3, ROUNDS = 400 };
static atomic_bool over;
static void *tell(void *from) {
    struct hak_heap *heap = hak_heap_birth(hak_self);
    hak_store_relaxed(&heap->takes_letters, 0);
    for (unsigned i = (unsigned)(uintptr_t)from; i < WORDS * WORD; i += STRANGERS) {
        heap->flushes++; /* each is told, if there is room */
        heap->gathered = 0;
        block_give(heap, blocks[i]);
        if (i % 7 == 0) hak_os_yield(0);
    }
    hak_heap_death(heap);
    return NULL;
}
static void *take_away(void *unused) {
    (void)unused;
    struct hak_heap *heap = hak_heap_birth(hak_self);
    hak_store_relaxed(&heap->takes_letters, 0);
    while (!atomic_load(&over)) {
        hak_letters_forward(heap, owner);
        hak_batch_flush(heap);
        hak_os_yield(0);
    }
    hak_heap_death(heap);
    return NULL;
}
static void all_come_back_once(void **state) {
    (void)state;
    uint64_t before = letters_read(owner);
    for (unsigned i = 0; i < WORDS * WORD; i++) block_give(owner, blocks[i]);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t thread[STRANGERS + 1];
        atomic_store(&over, false);
        for (unsigned i = 0; i < WORDS * WORD; i++) blocks[i] = block_take(owner, CLASS);
        for (unsigned i = 0; i < STRANGERS; i++) assert_int_equal(pthread_create(&thread[i], NULL, tell, (void *)(uintptr_t)i), 0);
        if (round % 2) assert_int_equal(pthread_create(&thread[STRANGERS], NULL, take_away, NULL), 0);
        for (unsigned i = 0; i < 200; i++) {
            hak_mail_take(owner);
            hak_os_yield(0);
        }
        for (unsigned i = 0; i < STRANGERS; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
        atomic_store(&over, true);
        if (round % 2) assert_int_equal(pthread_join(thread[STRANGERS], NULL), 0);
        hak_mail_take(owner);
        assert_int_equal(in_letters(owner), 0);
        assert_int_equal(live_blocks(CLASS), 0);
    }
    assert_true(letters_read(owner) > before);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_of_each_word_goes_by_letter, begin),
        cmocka_unit_test_setup(many_of_one_word_are_gathered, begin),
        cmocka_unit_test_setup(a_full_owner_is_told_no_more, begin),
        cmocka_unit_test_setup(who_takes_none_is_told_none, begin),
        cmocka_unit_test_setup(twice_by_one_stranger_is_found_at_once, begin),
        cmocka_unit_test_setup(twice_by_two_strangers_is_found_by_the_owner, begin),
        cmocka_unit_test_setup(by_its_owner_and_a_stranger_is_found_by_the_owner, begin),
        cmocka_unit_test_setup(no_letter_is_sent_above_1_kib, begin),
        cmocka_unit_test_setup(the_slab_in_use_may_end_by_a_letter, begin),
        cmocka_unit_test_setup(a_letter_of_a_slab_that_is_no_more_is_misuse, begin),
        cmocka_unit_test_setup(a_hidden_line_is_found_at_the_end, begin),
        cmocka_unit_test_setup(what_comes_after_the_end_is_found_by_who_takes_the_heap, begin),
        cmocka_unit_test_setup(a_slab_that_changed_hands_is_told_of_by_its_letter, begin),
        cmocka_unit_test_setup(others_give_back_what_an_idle_owner_does_not_read, begin),
        cmocka_unit_test_setup(the_sweep_gives_back_what_an_idle_owner_does_not_read, begin),
        cmocka_unit_test_setup(a_hidden_line_is_found_by_its_owners_clock, begin),
        cmocka_unit_test_setup(all_come_back_once, begin),
        cmocka_unit_test_setup(a_letter_is_read_before_a_page_is_opened, begin),
        cmocka_unit_test_setup(a_thread_takes_letters_while_it_lives, begin),
        cmocka_unit_test_setup(twice_is_found_when_the_slab_ends, begin),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
