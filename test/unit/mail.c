/* mail.c - blocks that strangers free come back to their owner, whoever that is by then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/batch.h"

#include "rules/options.h"

#include <pthread.h>
#include <string.h>

enum { BLOCKS_MAX = 1 << 14 };
static void *blocks[BLOCKS_MAX];

static struct hak_slab *take_many(struct hak_heap *heap, unsigned c, unsigned count) {
    class_is_common(heap, c);
    for (unsigned i = 0; i < count; i++) blocks[i] = block_take(heap, c);
    return slab_of(blocks[0]);
}

static void give_many(struct hak_heap *heap, unsigned from, unsigned to) {
    for (unsigned i = from; i < to; i++) block_give(heap, blocks[i]);
    hak_batch_flush(heap);
}

static void give_one(struct hak_heap *heap, void *block) {
    block_give(heap, block);
    hak_batch_flush(heap);
}

static void stranger_frees_reach_the_owner(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        unsigned count = hak_classes[c].capacity / 2;
        struct hak_slab *slab = take_many(owner, c, count);
        uint64_t sent = stranger->counters.n[HAK_C_mail_sent];
        give_many(stranger, 0, count);
        assert_int_equal(stranger->counters.n[HAK_C_mail_sent], sent + 1); /* once, however many words */
        assert_true(hak_slab_mailed(slab));
        assert_int_equal(live_blocks(c), 0);
        uint64_t collected = owner->counters.n[HAK_C_collected];
        hak_mail_take(owner);
        assert_int_equal(owner->counters.n[HAK_C_collected] - collected, count);
        assert_false(hak_slab_mailed(slab));
        assert_true(hak_load_relaxed(&owner->mail) == 0 || live_slabs(c) == 0);
        assert_int_equal(live_blocks(c), 0);
        hak_bin_put_back(owner, c);
        assert_int_equal(live_slabs(c), 0);
    }
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

static unsigned random_below(unsigned count) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % count;
}

/* All are compared at once: also where tags are neighbours, for which a carry would tell one too many. */
static void the_first_batch_with_a_tag_is_found(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    for (unsigned round = 0; round < 100000; round++) {
        uint16_t *tags = &heap->batch_tag[round % 16 * HAK_BATCH_WAYS], tag = (uint16_t)random_below(round % 2 ? 4 : 65536);
        for (unsigned way = 0; way < HAK_BATCH_WAYS; way++) tags[way] = (uint16_t)(tag + random_below(5) - 2);
        size_t found = HAK_BATCH_NONE;
        for (unsigned way = HAK_BATCH_WAYS; way-- > 0;)
            if (tags[way] == tag) found = way * sizeof(struct hak_batch);
        assert_int_equal(hak_batch_way(heap, round % 16, tag), found);
    }
    memset(heap->batch_tag, 0, sizeof heap->batch_tag);
    heap_end(heap);
}

/* By chance it has the other's tag, and a handler may have flushed the batch just now. */
static void a_tag_alone_is_no_batch(void **state) {
    (void)state;
    static hak_atomic_u64 words[1 << 22];
    struct hak_heap *heap = heap_make();
    uint64_t hash = hak_batch_hash(words);
    hak_atomic_u64 *other = words + 1, *end = words + sizeof words / sizeof *words;
    while (other < end && (hak_batch_set(hak_batch_hash(other)) != hak_batch_set(hash) || hak_batch_tag_of(hak_batch_hash(other)) != hak_batch_tag_of(hash))) other++;
    assert_true(other < end);
    struct hak_batch *batch = hak_batch_at(heap, hak_batch_set(hash), 2 * sizeof(struct hak_batch));
    *batch = (struct hak_batch){ .word = words, .mask = 1, .room = 9 };
    hak_batch_tag(heap, batch, hak_batch_tag_of(hash));
    assert_ptr_equal(hak_batch_find(heap, words), batch);
    assert_null(hak_batch_find(heap, other));
    batch->mask = 0;
    assert_null(hak_batch_find(heap, words));
    *batch = (struct hak_batch){ 0 };
    hak_batch_tag(heap, batch, 0);
    heap_end(heap);
}

static void blocks_of_one_word_go_back_in_one_batch(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 8, bytes = hak_classes[c].block_bytes;
    struct hak_slab *slab = take_many(owner, c, 192);
    assert_int_equal(64 * bytes, 8192);
    for (unsigned i = 0; i < 63; i++) block_give(stranger, blocks[i]);
    for (unsigned i = 64; i < 70; i++) block_give(stranger, blocks[i]); /* another word: a batch beside the first */
    assert_int_equal(live_blocks(c), 192 - 69); /* the census knows of both */
    assert_int_equal(stranger->counters.n[HAK_C_free_batch], 0);
    block_give(stranger, blocks[63]); /* 8 KiB */
    assert_int_equal(stranger->counters.n[HAK_C_free_batch], 1);
    assert_true(hak_load_relaxed(&hak_slab_remote(slab)[0]) == ~UINT64_C(0));
    assert_true(hak_load_relaxed(&hak_slab_remote(slab)[1]) == 0);
    hak_batch_flush(stranger);
    assert_int_equal(stranger->counters.n[HAK_C_free_batch], 2);
    hak_batch_flush(stranger);
    assert_int_equal(stranger->counters.n[HAK_C_free_batch], 2);
    give_many(stranger, 70, 192);
    hak_mail_take(owner);
    heap_end(owner);
    heap_end(stranger);
    assert_int_equal(live_slabs(c), 0);
}

/* However many words there are and however they fall into the table: what a thread keeps back is bounded. */
/* A consumer gets blocks of many sizes mixed, each size from its producer's word in use. With one batch for each of 32 hashes of words a block of
 * another word came on every third; now four words of one hash are gathered side by side. */
static void four_words_of_one_hash_are_gathered_by_turns(void **state) {
    (void)state;
    enum { WORDS = 64, SETS = 16, AT_ONCE = 4, EACH = 30 };
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 8, in_set[SETS][AT_ONCE], count[SETS] = { 0 }, full = SETS; /* 128 bytes: a block a bit, 64 a word */
    take_many(owner, c, WORDS * 64);
    for (unsigned i = 0; i < WORDS * 64 && full == SETS; i += 64) {
        const struct hak_granule *record = hak_granule_at(hak_granule_of(blocks[i]));
        unsigned set = (unsigned)((uintptr_t)&record->words[block_index(blocks[i]) / 64] * UINT64_C(0x9e3779b97f4a7c15) >> 60);
        in_set[set][count[set]++] = i;
        if (count[set] == AT_ONCE) full = set;
    }
    assert_true(full < SETS); /* 64 words in 16 sets: one has four */
    uint64_t batches = stranger->counters.n[HAK_C_free_batch];
    for (unsigned i = 0; i < EACH; i++)
        for (unsigned w = 0; w < AT_ONCE; w++) block_give(stranger, blocks[in_set[full][w] + i]);
    assert_int_equal(stranger->counters.n[HAK_C_free_batch], batches);
    hak_batch_flush(stranger);
    assert_int_equal(stranger->counters.n[HAK_C_free_batch], batches + AT_ONCE);
    hak_mail_take(owner);
    for (unsigned i = 0; i < WORDS * 64; i++) {
        bool is_given = false;
        for (unsigned w = 0; w < AT_ONCE; w++) is_given |= i - in_set[full][w] < EACH;
        if (!is_given) block_give(owner, blocks[i]);
    }
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

/* It has a heap, perhaps one that another thread left with slabs, and makes no visits. */
static void a_thread_that_only_frees_reads_its_mail(void **state) {
    (void)state;
    struct hak_heap *mine = hak_self, *other = heap_make(), *frees = heap_make();
    unsigned c = hak_class_of(4096);
    take_many(frees, 8, 64);
    give_many(other, 0, 64);
    assert_int_not_equal(hak_load_relaxed(&frees->mail), 0);
    hak_self = frees;
    for (unsigned i = 0; i < 1100; i++) block_give(frees, block_take(other, c)); /* a batch each */
    hak_self = mine;
    assert_int_equal(hak_load_relaxed(&frees->mail), 0);
    assert_int_equal(live_blocks(8), 0);
    heap_end(other);
    heap_end(frees);
    AUDIT();
}

static void batches_hold_eight_kib_each_at_most(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    uint64_t dice = 59;
    enum { COUNT = 6000 };
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned c = 1 + (unsigned)(dice_next(&dice) % 8);
        class_is_common(owner, c);
        blocks[i] = block_take(owner, c);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        block_give(stranger, blocks[i]);
        for (unsigned k = 0; k < HAK_BATCHES; k++) {
            const struct hak_batch *batch = &stranger->batch[k];
            if (!batch->mask) continue;
            REQUIRE(stranger->batches >> k & 1);
            REQUIRE(hak_word_count(batch->mask) * hak_slab_class(batch->slab)->block_bytes < 8192);
        }
    }
    assert_true(stranger->counters.n[HAK_C_free_batch] < COUNT / 2);
    hak_batch_flush(stranger);
    hak_mail_take(owner);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live_blocks(c), 0);
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

/* Mail need not be read on each visit: with the clock, and before anything else when the heap would grow. */
static void mail_is_read_before_a_heap_grows(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 64, other = 32, capacity = hak_classes[c].capacity;
    take_many(owner, c, capacity); /* the next visit finds this slab used up */
    class_is_common(owner, other);
    void *block = block_take(owner, other);
    give_many(stranger, 0, capacity / 2);
    assert_true(hak_load_relaxed(&owner->mail) != 0);
    owner->clock_in = 1 << 30; /* not by the clock */
    uint64_t cut = owner->counters.n[HAK_C_visit_new_slab];
    blocks[0] = block_take(owner, c);
    assert_true(hak_load_relaxed(&owner->mail) == 0);
    assert_int_equal(owner->counters.n[HAK_C_visit_new_slab], cut);
    give_many(stranger, 0, 1);
    while (hak_bin_at(owner, other)->word) block_give(owner, block_take(owner, other)); /* a visit with words left reads none .. */
    owner->clock_in = 0;
    block_give(owner, block_take(owner, other)); /* .. but by the clock */
    assert_true(hak_load_relaxed(&owner->mail) == 0);
    block_give(owner, block);
    give_many(stranger, capacity / 2, capacity);
    hak_mail_take(owner);
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

static void a_thread_without_a_heap_gives_back_too(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make();
    take_many(owner, 9, 10);
    for (unsigned i = 0; i < 10; i++) block_give((struct hak_heap *)(uintptr_t)&hak_heap_none, blocks[i]);
    hak_mail_take(owner);
    assert_int_equal(live_blocks(9), 0);
    heap_end(owner);
    AUDIT();
}

static void a_full_slab_comes_back_by_mail(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 16, capacity = hak_classes[c].capacity;
    struct hak_slab *slab = take_many(owner, c, capacity);
    blocks[capacity] = block_take(owner, c);
    assert_int_equal(slab->place, HAK_SLAB_FULL);
    give_many(stranger, 0, capacity / 4);
    hak_mail_take(owner);
    assert_int_equal(slab->place, HAK_SLAB_PARTIAL);
    size_t granule = hak_slab_granule(slab);
    give_many(stranger, capacity / 4, capacity);
    hak_mail_take(owner);
    assert_false(hak_slab_live(granule));
    block_give(owner, blocks[capacity]);
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

static void mail_for_an_ended_slab_is_dropped(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 14;
    struct hak_slab *slab = take_many(owner, c, 20);
    size_t granule = hak_slab_granule(slab);
    give_many(stranger, 0, 20);
    struct hak_row *row = hak_slab_row(slab); /* the owner finds them without having read its mail */
    hak_row_arm(row, hak_row_out(row) - hak_slab_collect(slab), 1);
    hak_bin_put_back(owner, c);
    assert_false(hak_slab_live(granule));
    assert_true(hak_slab_mailed(slab));
    uint64_t collected = owner->counters.n[HAK_C_collected];
    hak_mail_take(owner);
    assert_false(hak_slab_mailed(slab));
    assert_int_equal(owner->counters.n[HAK_C_collected], collected);
    assert_int_equal(slab->place, HAK_SLAB_NONE);
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

static void dead_heaps_mail_is_delivered(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 18, capacity = hak_classes[c].capacity;
    struct hak_slab *slab = take_many(owner, c, capacity);
    size_t granule = hak_slab_granule(slab);
    heap_end(owner);
    give_many(stranger, 0, capacity);
    assert_int_equal(live_blocks(c), 0);
    stranger->tick = 0;
    hak_visit_chores(stranger);
    assert_false(hak_slab_live(granule)); /* nobody but the stranger was there to end it */
    assert_int_equal(hak_load_relaxed(&owner->state), HAK_HEAP_DEAD);
    heap_end(stranger);
    AUDIT();
}

static void the_poster_of_a_dead_heaps_mail_delivers_it_at_its_end(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 18, capacity = hak_classes[c].capacity;
    struct hak_slab *slab = take_many(owner, c, capacity);
    size_t granule = hak_slab_granule(slab);
    heap_end(owner);
    give_many(stranger, 0, capacity);
    heap_end(stranger);
    assert_false(hak_slab_live(granule));
    AUDIT();
}

/* The poster remembers the last one only; the others' mail is the sweep's, when it comes round. */
static void mail_for_several_dead_heaps_is_read(void **state) {
    (void)state;
    enum { HEAPS = 3, CLASS = 18 };
    struct hak_heap *owner[HEAPS], *stranger = heap_make();
    void *block[HEAPS];
    for (unsigned i = 0; i < HEAPS; i++) {
        owner[i] = heap_make();
        class_is_common(owner[i], CLASS);
        block[i] = block_take(owner[i], CLASS);
    }
    for (unsigned i = 0; i < HEAPS; i++) heap_end(owner[i]);
    for (unsigned i = 0; i < HEAPS; i++) give_one(stranger, block[i]);
    assert_int_equal(live_slabs(CLASS), HEAPS);
    hak_sweep_all(true);
    assert_int_equal(live_slabs(CLASS), 0);
    heap_end(stranger);
    AUDIT();
}

/* However many slabs: at most seven wait. */
static void eight_slabs_of_a_dead_heap_do_not_wait(void **state) {
    (void)state;
    enum { SLABS = 16 };
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    static const unsigned first_class = 20;
    void *block[SLABS];
    for (unsigned i = 0; i < SLABS; i++) {
        class_is_common(owner, first_class + i);
        block[i] = block_take(owner, first_class + i);
    }
    heap_end(owner);
    for (unsigned i = 0; i < SLABS; i++) {
        block_give(stranger, block[i]);
        hak_batch_flush(stranger);
        uint64_t slabs = 0;
        for (unsigned k = 0; k < SLABS; k++) slabs += live_slabs(first_class + k);
        assert_in_range(slabs, SLABS - 1 - i, SLABS - 1 - i + 7);
    }
    heap_end(stranger);
    AUDIT();
}

/* What is looked at again and again is no more settled for it: a third of it was looked at three times, the rest never, and stayed. */
static void what_strangers_gave_is_settled_once(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = HAK_SMALL_CLASS_MAX / 2, capacity = hak_classes[c].capacity, count = 24 * capacity;
    hak_store_relaxed(&hak_purge.given_bytes, 0);
    hak_store_relaxed(&hak_purge.settled_bytes, 0);
    take_many(owner, c, count);
    for (unsigned i = 0; i < count; i++) *(char *)blocks[i] = 1;
    hak_options.free_max_mb = 0;
    hak_options.free_share = 1024;
    for (unsigned part = 0; part < 2; part++) { /* no page is free after the first */
        for (unsigned i = part; i < count; i += 2) block_give(stranger, blocks[i]);
        hak_batch_flush(stranger);
        hak_given_flush(&stranger->given_sum);
        if (part == 0)
            for (unsigned i = 0; i < 10; i++) hak_sweep_given();
    }
    for (unsigned i = 0; i < 10 && hak_given_over(); i++) hak_sweep_given();
    uint64_t resident = 0;
    for (unsigned i = 0; i < count; i += capacity) {
        struct hak_slab *slab = slab_of(blocks[i]);
        resident += hak_word_count(hak_slab_pages(hak_slab_class(slab)) & ~slab->returned);
    }
    assert_true(resident <= 2 * hak_word_count(hak_slab_pages(&hak_classes[c])));
    hak_options.free_max_mb = 6;
    hak_options.free_share = 8;
    heap_end(owner);
    heap_end(stranger);
    AUDIT();
}

static void mail_that_came_while_a_dead_heap_was_busy_is_delivered_after(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 20;
    struct hak_slab *slab = take_many(owner, c, 30);
    size_t granule = hak_slab_granule(slab);
    heap_end(owner);
    assert_true(hak_heap_dead_claim(owner));
    give_many(stranger, 0, 30);
    assert_true(hak_slab_live(granule) && hak_slab_mailed(slab));
    hak_heap_dead_unclaim(owner);
    assert_false(hak_slab_live(granule));
    heap_end(stranger);
    AUDIT();
}

static void mail_for_a_slab_that_changed_hands_is_forwarded(void **state) {
    (void)state;
    struct hak_heap *old = heap_make(), *new = heap_make(), *stranger = heap_make();
    unsigned c = 22;
    struct hak_slab *slab = take_many(old, c, 40);
    size_t granule = hak_slab_granule(slab);
    hak_bin_put_back(old, c);
    give_many(stranger, 0, 40);
    hak_list_remove(old, slab);
    assert_true(hak_slab_claim(slab));
    hak_slab_give_claimed(slab, new);
    hak_slab_unclaim(slab);
    hak_list_push(new, slab);
    hak_mail_take(old);
    assert_int_equal(old->counters.n[HAK_C_mail_forwarded], 1);
    assert_true(hak_slab_live(granule));
    hak_mail_take(new);
    assert_false(hak_slab_live(granule));
    heap_end(old);
    heap_end(new);
    heap_end(stranger);
    AUDIT();
}

static bool is_found(struct hak_heap *heap, void *block) {
    room_misused = NULL;
    if (!setjmp(room_caught)) {
        block_give(heap, block);
        hak_batch_flush(heap); /* across threads it is found when the batch goes back */
        hak_batch_flush(heap);
    }
    return room_misused == block;
}

static void a_stranger_who_frees_twice_is_found(void **state) {
    (void)state;
    struct hak_heap *owner = heap_make(), *stranger = heap_make();
    unsigned c = 6;
    take_many(owner, c, 10);
    block_give(stranger, blocks[0]);
    assert_true(is_found(stranger, blocks[0])); /* within a batch */
    hak_batch_flush(stranger);
    assert_true(is_found(stranger, blocks[0])); /* after it */
    block_give(owner, blocks[1]);
    assert_true(is_found(stranger, blocks[1])); /* the owner was first */
    hak_mail_take(owner);
    assert_true(is_found(stranger, blocks[0])); /* the owner has taken it in */
    give_many(owner, 2, 10);
    heap_end(owner);
    memset(stranger->batch, 0, sizeof stranger->batch);
    heap_end(stranger);
}

/* --- two threads: one takes, the other gives --- */

enum { RING = 1 << 12, PASSED = 300000 };
static _Atomic(void *) ring[RING];

static void *consumer(void *unused) {
    (void)unused;
    struct hak_heap *heap = hak_heap_birth(hak_self);
    for (unsigned i = 0; i < PASSED; i++) {
        void *block;
        while (!(block = hak_exchange(&ring[i % RING], NULL))) sched_yield();
        *(volatile char *)block = 1;
        block_give(heap, block);
        if (i % 97 == 0) hak_visit_chores(heap);
    }
    hak_heap_death(heap);
    return NULL;
}

static void all_that_is_passed_to_another_thread_comes_back(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    pthread_t thread;
    uint64_t dice = 53;
    assert_int_equal(pthread_create(&thread, NULL, consumer, NULL), 0);
    for (unsigned i = 0; i < PASSED; i++) {
        while (hak_load_acquire(&ring[i % RING])) sched_yield();
        void *block = block_take(heap, 1 + (unsigned)(dice_next(&dice) % HAK_SMALL_CLASS_MAX));
        REQUIRE(block != NULL);
        *(volatile char *)block = 2;
        hak_store_release(&ring[i % RING], block);
    }
    pthread_join(thread, NULL);
    hak_mail_take(heap);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live_blocks(c), 0);
    heap_end(heap);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) assert_int_equal(live_slabs(c), 0);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stranger_frees_reach_the_owner),
        cmocka_unit_test(the_first_batch_with_a_tag_is_found),
        cmocka_unit_test(a_tag_alone_is_no_batch),
        cmocka_unit_test(blocks_of_one_word_go_back_in_one_batch),
        cmocka_unit_test(four_words_of_one_hash_are_gathered_by_turns),
        cmocka_unit_test(a_thread_that_only_frees_reads_its_mail),
        cmocka_unit_test(batches_hold_eight_kib_each_at_most),
        cmocka_unit_test(mail_is_read_before_a_heap_grows),
        cmocka_unit_test(a_thread_without_a_heap_gives_back_too),
        cmocka_unit_test(a_full_slab_comes_back_by_mail),
        cmocka_unit_test(mail_for_an_ended_slab_is_dropped),
        cmocka_unit_test(dead_heaps_mail_is_delivered),
        cmocka_unit_test(the_poster_of_a_dead_heaps_mail_delivers_it_at_its_end),
        cmocka_unit_test(mail_for_several_dead_heaps_is_read),
        cmocka_unit_test(eight_slabs_of_a_dead_heap_do_not_wait),
        cmocka_unit_test(what_strangers_gave_is_settled_once),
        cmocka_unit_test(mail_that_came_while_a_dead_heap_was_busy_is_delivered_after),
        cmocka_unit_test(mail_for_a_slab_that_changed_hands_is_forwarded),
        cmocka_unit_test(a_stranger_who_frees_twice_is_found),
        cmocka_unit_test(all_that_is_passed_to_another_thread_comes_back),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
