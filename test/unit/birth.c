/* birth.c - heaps are born, die, are adopted; each has one owner at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"
#include "memory/purge.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

static unsigned born;
static bool is_told = true;
static bool on_birth(struct hak_heap *heap) {
    assert_ptr_equal(hak_self, heap);
    born++;
    return is_told;
}

static uint32_t state_of(struct hak_heap *heap) { return hak_load_relaxed(&heap->state); }

static void a_heap_lives_dies_and_is_adopted(void **state) {
    (void)state;
    hak_heap_on_birth = on_birth;
    assert_true(hak_heap_is_none(hak_self));
    struct hak_heap *heap = hak_heap_birth(hak_self);
    assert_ptr_equal(hak_self, heap);
    assert_int_equal(state_of(heap), HAK_HEAP_LIVE);
    assert_int_equal(born, 1);
    assert_false(hak_heap_dead_any());
    hak_heap_death(heap);
    assert_true(hak_heap_is_none(hak_self));
    assert_int_equal(state_of(heap), HAK_HEAP_DEAD);
    assert_true(hak_heap_dead_any());
    assert_ptr_equal(hak_heap_birth(hak_self), heap);
    assert_int_equal(heap->counters.n[HAK_C_heap_born], 1);
    assert_int_equal(heap->counters.n[HAK_C_heap_adopted], 1);
    assert_int_equal(heap->counters.n[HAK_C_heap_died], 1);
    assert_false(hak_heap_dead_any());
    hak_heap_death(heap);
    hak_heap_on_birth = NULL;
}

/* Whose thread ended borrows: a dead heap if there is one, and nobody is told of a birth. */
static void a_borrowed_heap_is_dead_again_at_once(void **state) {
    (void)state;
    hak_heap_on_birth = on_birth;
    unsigned before = born;
    struct hak_heap *heap = hak_heap_borrow();
    assert_ptr_equal(hak_self, heap);
    assert_int_equal(state_of(heap), HAK_HEAP_LIVE);
    void *block = block_take(heap, 3);
    hak_heap_give_back(heap);
    assert_true(hak_heap_is_none(hak_self) && hak_heap_is_gone(hak_self));
    assert_int_equal(state_of(heap), HAK_HEAP_DEAD);
    assert_int_equal(hak_bin_at(heap, 3)->word, 0);
    hak_stranger_free(hak_self, atomic_load(&hak_slab_of(hak_granule_at(hak_granule_of(block)))->owner), hak_granule_at(hak_granule_of(block)), block,
                      block_index(block));
    assert_ptr_equal(hak_heap_borrow(), heap);
    hak_heap_give_back(heap);
    assert_int_equal(born, before);
    assert_int_equal(heap->counters.n[HAK_C_heap_born] + heap->counters.n[HAK_C_heap_adopted], heap->counters.n[HAK_C_heap_died]);
    hak_heap_on_birth = NULL;
    AUDIT();
}

/* The program took all thread keys: whose end nobody will be told of gets no heap, and borrows. */
static void a_thread_whose_end_is_not_told_gets_no_heap(void **state) {
    (void)state;
    hak_heap_on_birth = on_birth;
    is_told = false;
    unsigned before = born;
    assert_null(hak_heap_birth(hak_self));
    assert_int_equal(born, before + 1);
    assert_true(hak_heap_is_gone(hak_self) && hak_heap_dead_any());
    struct hak_heap *heap = hak_heap_borrow();
    hak_heap_give_back(heap);
    assert_int_equal(state_of(heap), HAK_HEAP_DEAD);
    is_told = true;
    hak_heap_on_birth = NULL;
    AUDIT();
}

static void a_dead_heap_is_claimed_by_one(void **state) {
    (void)state;
    enum { MOST = 4 * 512 };
    static struct hak_heap *others[MOST];
    struct hak_heap *heap = heap_make();
    unsigned count = 0;
    assert_false(hak_heap_dead_claim(heap)); /* it lives */
    heap_end(heap);
    assert_true(hak_heap_dead_claim(heap));
    assert_int_equal(state_of(heap), HAK_HEAP_BUSY);
    assert_false(hak_heap_dead_claim(heap));
    while (count < MOST && (others[count] = hak_heap_dead_take()) != NULL) assert_ptr_not_equal(others[count++], heap);
    hak_heap_dead_unclaim(heap);
    assert_int_equal(state_of(heap), HAK_HEAP_DEAD);
    assert_ptr_equal(hak_heap_dead_take(), heap); /* being passed by has not lost it */
    assert_int_equal(state_of(heap), HAK_HEAP_BUSY);
    hak_heap_dead_give(heap);
    assert_ptr_equal(hak_heap_dead_take(), heap);
    hak_heap_dead_give(heap);
    while (count > 0) hak_heap_dead_give(others[--count]);
}

/* All that can be taken now: heaps[] among them so often. */
enum { TAKEN_MAX = 4096 };
static void times_taken(struct hak_heap *const *heaps, unsigned count, unsigned *times) {
    static struct hak_heap *taken[TAKEN_MAX];
    unsigned taken_count = 0;
    memset(times, 0, count * sizeof *times);
    for (struct hak_heap *heap; (heap = hak_heap_dead_take()) != NULL; taken[taken_count++] = heap) {
        assert_true(taken_count < TAKEN_MAX && state_of(heap) == HAK_HEAP_BUSY);
        for (unsigned i = 0; i < count; i++) times[i] += heaps[i] == heap;
    }
    while (taken_count > 0) hak_heap_dead_give(taken[--taken_count]);
}

/* A handler that came between the caller's look and the birth got the thread a heap. */
static void a_birth_of_who_has_a_heap_by_now_is_none(void **state) {
    (void)state;
    struct hak_heap *mine = hak_self, *before = (struct hak_heap *)&hak_heap_none;
    hak_self = before;
    struct hak_heap *of_a_handler = hak_heap_birth(before);
    assert_ptr_equal(hak_heap_birth(before), of_a_handler);
    struct hak_heap *dead = heap_make();
    heap_end(dead);
    assert_true(hak_heap_adopt(before, dead));
    assert_ptr_equal(hak_self, of_a_handler);
    assert_int_equal(state_of(dead), HAK_HEAP_DEAD);
    hak_heap_death(of_a_handler);
    hak_self = mine;
    AUDIT();
}

/* Who freed one block and then allocates has that heap, too; once. */
static void a_birth_takes_the_heap_that_was_hinted_at(void **state) {
    (void)state;
    enum { COUNT = 3 };
    struct hak_heap *heaps[COUNT], *mine = hak_self;
    for (unsigned i = 0; i < COUNT; i++) heaps[i] = heap_make();
    for (unsigned i = 0; i < COUNT; i++) heap_end(heaps[i]);
    assert_false(hak_heap_hint(heaps[0]));
    assert_true(hak_heap_hint(heaps[0]));
    assert_false(hak_heap_hint(heaps[1])); /* the last counts */
    assert_ptr_equal(hak_heap_birth(mine), heaps[1]);
    hak_self = mine;
    assert_ptr_equal(hak_heap_birth(mine), heaps[2]); /* the hint was taken: the last that died */
    hak_self = mine;
    assert_false(hak_heap_hint(heaps[2])); /* it lives: another one is found */
    struct hak_heap *other = hak_heap_birth(mine);
    hak_self = mine;
    assert_ptr_equal(other, heaps[0]);
    for (unsigned i = COUNT; i-- > 0;) heap_end(heaps[i]);
    assert_false(hak_heap_hint(heaps[1]));
    assert_ptr_equal(hak_heap_birth(mine), heaps[1]);
    hak_self = mine;
    heap_end(heaps[1]);
    assert_ptr_equal(hak_heap_birth(mine), heaps[0]); /* the hint was for once */
    hak_self = mine;
    heap_end(heaps[0]);
    AUDIT();
}

static void *adopt_and_vanish(void *dead) { return hak_heap_adopt(hak_self, dead) ? dead : NULL; }

/* What a thread is started with may be freed after its last destructor: who takes over a heap then says nothing of its end. */
static void a_successor_that_ends_unseen_is_soon_found(void **state) {
    (void)state;
    enum { OTHERS = 4096, MANY = 64 };
    static struct hak_heap *others[OTHERS], *made[MANY];
    struct hak_heap *mine = hak_self, *left = heap_make();
    pthread_t thread;
    void *adopted = NULL;
    unsigned other_count = 0, made_count = 0;
    heap_end(left);
    assert_int_equal(pthread_create(&thread, NULL, adopt_and_vanish, left), 0);
    pthread_join(thread, &adopted);
    assert_ptr_equal(adopted, left);
    while (!hak_os_thread_is_gone((uint32_t)hak_load_relaxed(&left->thread))) sched_yield(); /* to the kernel, which has the join go on before */
    assert_int_equal(state_of(left), HAK_HEAP_LIVE);
    while (other_count < OTHERS && (others[other_count] = hak_heap_dead_take()) != NULL) other_count++;
    struct hak_census census;
    hak_census_take(&census);
    do {
        assert_true(made_count < MANY);
        assert_non_null(made[made_count] = hak_heap_birth(hak_self));
        hak_self = mine;
    } while (made[made_count++] != left);
    assert_true(made_count <= census.heap_count / 16 + 4 + 2);
    while (made_count > 0) heap_end(made[--made_count]);
    while (other_count > 0) hak_heap_dead_give(others[--other_count]);
    AUDIT();
}

/* A thread to which one that ended left a block takes over that heap, wherever in the list it is. */
static void a_dead_heap_is_wanted_by_name(void **state) {
    (void)state;
    enum { COUNT = 3 };
    struct hak_heap *heaps[COUNT], *mine = hak_self;
    unsigned times[COUNT];
    for (unsigned i = 0; i < COUNT; i++) heaps[i] = heap_make();
    for (unsigned i = 0; i < COUNT; i++) heap_end(heaps[i]);
    assert_true(hak_heap_adopt(mine, heaps[1])); /* not the last that died */
    assert_ptr_equal(hak_self, heaps[1]);
    hak_self = mine;
    assert_int_equal(state_of(heaps[1]), HAK_HEAP_LIVE);
    times_taken(heaps, COUNT, times); /* it is in the list and nobody's to take */
    assert_true(times[0] == 1 && times[1] == 0 && times[2] == 1);
    assert_int_equal(hak_load_relaxed(&heaps[1]->listed), 0); /* nobody comes by it again */
    heap_end(heaps[1]); /* it was dropped from the list */
    times_taken(heaps, COUNT, times);
    assert_true(times[0] == 1 && times[1] == 1 && times[2] == 1);
    assert_true(hak_heap_adopt(mine, heaps[0]));
    hak_self = mine;
    heap_end(heaps[0]); /* it is in the list still */
    times_taken(heaps, COUNT, times);
    assert_true(times[0] == 1 && times[1] == 1 && times[2] == 1);
    assert_true(hak_heap_adopt(mine, heaps[2]));
    hak_self = mine;
    assert_false(hak_heap_adopt(mine, heaps[2])); /* it lives */
    assert_ptr_equal(hak_self, mine);
    heap_end(heaps[2]);
    AUDIT();
}

static atomic_int turn_of_delivery;
static void *deliver_when_asked(void *heap) {
    atomic_store(&turn_of_delivery, 1);
    while (atomic_load(&turn_of_delivery) != 2) sched_yield();
    hak_heap_dead_unclaim(heap);
    return NULL;
}

/* Many threads that ended at once: to the heaps at the list's head mail is being delivered, and there was a new heap for each thread then. */
static void heaps_that_are_busy_are_passed_by_or_waited_for(void **state) {
    (void)state;
    enum { COUNT = 12, OTHERS = 4096 };
    static struct hak_heap *heaps[COUNT], *others[OTHERS]; /* of other tests, whose number grows with that of the processors */
    unsigned other_count = 0;
    while (other_count < OTHERS && (others[other_count] = hak_heap_dead_take()) != NULL) other_count++;
    for (unsigned i = 0; i < COUNT; i++) heaps[i] = heap_make();
    for (unsigned i = 0; i < COUNT; i++) heap_end(heaps[i]);
    for (unsigned i = 1; i < COUNT; i++) assert_true(hak_heap_dead_claim(heaps[i]));
    assert_ptr_equal(hak_heap_dead_take(), heaps[0]);
    assert_null(hak_heap_dead_take());
    for (unsigned i = 1; i < COUNT; i++) hak_heap_dead_unclaim(heaps[i]);
    hak_heap_dead_give(heaps[0]);
    for (unsigned i = 0; i < COUNT; i++) assert_non_null(hak_heap_dead_take()); /* none was lost */
    assert_null(hak_heap_dead_take());
    hak_heap_dead_give(heaps[0]);
    struct hak_heap *borrowed = NULL;
    while (borrowed != heaps[0]) { /* the other thread may have no turn within a millisecond: then it is a new one */
        if (borrowed) {
            hak_heap_give_back(borrowed);
            REQUIRE(other_count < OTHERS && (others[other_count++] = hak_heap_dead_take()) == borrowed);
        }
        assert_true(hak_heap_dead_claim(heaps[0]));
        pthread_t thread;
        atomic_store(&turn_of_delivery, 0);
        assert_int_equal(pthread_create(&thread, NULL, deliver_when_asked, heaps[0]), 0);
        while (atomic_load(&turn_of_delivery) != 1) sched_yield();
        atomic_store(&turn_of_delivery, 2);
        borrowed = hak_heap_borrow();
        pthread_join(thread, NULL);
    }
    hak_heap_give_back(heaps[0]);
    for (unsigned i = 1; i < COUNT; i++) hak_heap_dead_give(heaps[i]);
    while (other_count > 0) hak_heap_dead_give(others[--other_count]);
}

static struct hak_heap *of_handler;
static void birth_in_a_handler(int number) {
    (void)number;
    if (hak_heap_is_none(hak_self)) of_handler = hak_heap_birth(hak_self);
}
static void count_live(struct hak_heap *heap, void *count) { *(unsigned *)count += state_of(heap) == HAK_HEAP_LIVE; }
static unsigned live_heaps(void) {
    unsigned count = 0;
    hak_heap_each(count_live, &count);
    return count;
}

/* A birth waits for a busy heap, and a signal handler allocates meanwhile: its heap is the thread's, and none is LIVE without a thread. */
static void the_heap_of_a_handler_that_came_while_a_birth_waits_is_the_threads(void **state) {
    (void)state;
    enum { OTHERS = 4096, TRIES = 200 };
    static struct hak_heap *others[OTHERS];
    struct sigaction action = { .sa_handler = birth_in_a_handler }, old;
    const struct itimerval soon = { .it_value = { 0, 400 } }, never = { { 0, 0 }, { 0, 0 } }; /* 16 naps of 50 us at least */
    unsigned other_count = 0, live = live_heaps();
    struct hak_heap *busy = heap_make();
    heap_end(busy);
    assert_true(hak_heap_dead_claim(busy));
    sigaction(SIGALRM, &action, &old);
    bool is_met = false;
    for (unsigned try = 0; try < TRIES && !is_met; try++) {
        while (other_count < OTHERS && (others[other_count] = hak_heap_dead_take()) != NULL) other_count++;
        of_handler = NULL;
        setitimer(ITIMER_REAL, &soon, NULL);
        struct hak_heap *heap = hak_heap_birth(hak_self);
        setitimer(ITIMER_REAL, &never, NULL);
        is_met = of_handler != NULL;
        assert_ptr_equal(hak_self, heap);
        if (is_met) assert_ptr_equal(heap, of_handler);
        assert_int_equal(live_heaps(), live + 1);
        hak_heap_death(heap);
    }
    sigaction(SIGALRM, &old, NULL);
    assert_true(is_met);
    hak_heap_dead_unclaim(busy);
    while (other_count > 0) hak_heap_dead_give(others[--other_count]);
}

static void every_dead_heap_is_taken_once(void **state) {
    (void)state;
    enum { COUNT = 60, OTHERS = 4096 };
    static struct hak_heap *taken[COUNT + OTHERS];
    struct hak_heap *heaps[COUNT], *heap;
    unsigned count = 0, found = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        heaps[i] = heap_make();
        for (unsigned j = 0; j < i; j++) /* they do not overlap */
            assert_true(heaps[i] >= heaps[j] + 1 || heaps[j] >= heaps[i] + 1);
        assert_int_equal((uintptr_t)heaps[i] % HAK_LINE, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) heap_end(heaps[i]);
    while ((heap = hak_heap_dead_take()) != NULL) { /* also those of other tests */
        unsigned i = 0;
        while (i < COUNT && heaps[i] != heap) i++;
        for (unsigned k = 0; k < count; k++) assert_ptr_not_equal(taken[k], heap);
        assert_true(count < COUNT + OTHERS);
        found += i < COUNT;
        taken[count++] = heap;
    }
    assert_int_equal(found, COUNT);
    while (count > 0) hak_heap_dead_give(taken[--count]);
}

static void a_dead_heap_holds_back_nothing_but_what_the_program_holds(void **state) {
    (void)state;
    struct hak_heap *heap = heap_make();
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) block_take(heap, c);
    void *kept = block_take(heap, 1);
    heap_end(heap);
    struct hak_slab *slab = slab_of(kept);
    assert_ptr_equal(atomic_load(&slab->owner), heap);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        assert_true(hak_bin_at(heap, c)->word == 0 && !heap->shelf[c].current);
        for (slab = hak_slab_named(heap->shelf[c].partial); slab; slab = hak_slab_named(slab->next)) hak_slab_check(slab);
    }
    AUDIT();
}

/* A pool of short threads, each asking a little of each class, has the coarser classes' slabs; one that asks often, its own. */
static void what_threads_asked_for_together_earns_no_slab(void **state) {
    (void)state;
    enum { LITTLE = HAK_RARE_AGAIN / 4, OFTEN = 2 * HAK_RARE_AGAIN };
    unsigned c = 5;
    hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS); /* as where heaps are few */
    heap_end(heap_make()); /* it has had a thread: a new one would borrow but two blocks */
    for (unsigned life = 0; life < 40; life++) {
        struct hak_heap *heap = heap_make();
        unsigned count = life < 20 || life % 2 ? LITTLE : OFTEN;
        void *blocks[OFTEN];
        uint64_t coarse = heap->counters.n[HAK_C_visit_coarse];
        for (unsigned i = 0; i < count; i++) blocks[i] = block_take(heap, c);
        coarse = heap->counters.n[HAK_C_visit_coarse] - coarse;
        if (life < 20) assert_int_equal(coarse, LITTLE);
        else if (count == OFTEN) assert_int_equal(coarse, HAK_RARE_AGAIN); /* the last thread asked little */
        else assert_int_equal(coarse, 0);                                       /* the last thread asked often */
        for (unsigned i = 0; i < count; i++) block_give(heap, blocks[i]);
        heap_end(heap);
    }
    AUDIT();
}

/* More threads than processors can run; then a class asks more often for a slab of its own. A second or two after they ended it is as before, and
 * comes again with them, though they find their heaps. */
static void classes_are_rare_for_longer_where_heaps_are_many(void **state) {
    (void)state;
    enum { MOST = 4 * 512, TIMES = 2, SOME = 3 };
    static struct hak_heap *heaps[MOST];
    unsigned few = 4 * hak_os_processors();
    if (few < 8) few = 8;
    if (few >= MOST) skip();
    hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
    uint64_t now = hak_os_clock_ms() + 10000;
    for (unsigned times = 0, count = 0; times < TIMES; times++) {
        hak_heap_crowd_look(now += 1000); /* whatever other tests left: it counts anew */
        while (count < few) heaps[count++] = heap_make();
        assert_int_equal(hak_load_relaxed(&hak_rare_blocks), HAK_RARE_BLOCKS);
        heaps[count++] = heap_make();
        assert_int_equal(hak_load_relaxed(&hak_rare_blocks), 64 * count);
        assert_int_equal(hak_load_relaxed(&hak_purge.crowded), 1);
        for (unsigned looks = 0; looks < SOME; looks++) hak_heap_crowd_look(now += 1000); /* they are still there */
        assert_int_equal(hak_heap_crowd(), count);
        while (count > 0) heap_end(heaps[--count]);
        assert_int_equal(hak_heap_crowd(), few + 1);
        hak_heap_crowd_look(now += 1000);
        hak_heap_crowd_look(now + 999); /* not so soon */
        assert_int_equal(hak_heap_crowd(), few + 1);
        hak_heap_crowd_look(now += 1000);
        assert_int_equal(hak_load_relaxed(&hak_rare_blocks), HAK_RARE_BLOCKS);
        assert_int_equal(hak_load_relaxed(&hak_purge.crowded), 0);
    }
}

static bool refuse_all(enum hak_os_call call) {
    (void)call;
    return true;
}

static void a_birth_without_memory_is_refused(void **state) {
    (void)state;
    enum { MANY = 4000 };
    static struct hak_heap *heaps[MANY];
    unsigned count = 0;
    struct hak_heap *mine = hak_self;
    hak_os_fault = refuse_all;
    while (count < MANY && (heaps[count] = hak_heap_birth(hak_self)) != NULL) {
        hak_self = mine;
        count++;
    }
    hak_os_fault = NULL;
    assert_true(count < MANY); /* the first chunks are full of heaps now */
    assert_ptr_equal(hak_self, mine);
    heaps[count] = heap_make();
    for (unsigned i = 0; i <= count; i++) heap_end(heaps[i]);
    AUDIT();
}

/* --- threads come and go --- */

enum { THREADS = 4, LIVES = 3000, HEAPS_MAX = 1 << 14 };
static hak_atomic_u32 lives_in[HEAPS_MAX], shared;
static _Atomic(struct hak_heap *) left_last;

static void *live_and_die(void *seed) {
    uint64_t dice = (uintptr_t)seed;
    for (unsigned i = 0; i < LIVES; i++) {
        struct hak_heap *before = hak_self, *left = dice_next(&dice) % 4 ? NULL : hak_load_acquire(&left_last);
        struct hak_heap *heap = left && hak_heap_adopt(before, left) ? left : hak_heap_birth(before);
        if (hak_add(&lives_in[heap->index], 1) != 0) hak_add(&shared, 1);
        void *block = block_take(heap, 1 + (unsigned)(dice_next(&dice) % HAK_SMALL_CLASS_MAX));
        if (!block) hak_add(&shared, 1);
        else block_give(heap, block);
        hak_add(&lives_in[heap->index], -1u);
        if (dice_next(&dice) % 4 == 0) hak_store_release(&left_last, heap);
        hak_heap_death(heap);
    }
    return NULL;
}

static void no_heap_has_two_threads(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, live_and_die, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(hak_load_relaxed(&shared), 0);
    struct hak_census census;
    hak_census_take(&census);
    assert_int_equal(census.heap_count, census.dead_heap_count);
    struct hak_heap *taken[256]; /* each is in the list once */
    unsigned count = 0;
    while (count < sizeof taken / sizeof *taken && (taken[count] = hak_heap_dead_take()) != NULL) count++;
    if (count < sizeof taken / sizeof *taken) assert_int_equal(count, census.heap_count);
    while (count > 0) hak_heap_dead_give(taken[--count]);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_heap_lives_dies_and_is_adopted),
        cmocka_unit_test(classes_are_rare_for_longer_where_heaps_are_many), /* early: heaps are never unmade */
        cmocka_unit_test(a_borrowed_heap_is_dead_again_at_once),
        cmocka_unit_test(a_thread_whose_end_is_not_told_gets_no_heap),
        cmocka_unit_test(a_dead_heap_is_claimed_by_one),
        cmocka_unit_test(a_birth_of_who_has_a_heap_by_now_is_none),
        cmocka_unit_test(a_successor_that_ends_unseen_is_soon_found),
        cmocka_unit_test(a_dead_heap_is_wanted_by_name),
        cmocka_unit_test(a_birth_takes_the_heap_that_was_hinted_at),
        cmocka_unit_test(heaps_that_are_busy_are_passed_by_or_waited_for),
        cmocka_unit_test(the_heap_of_a_handler_that_came_while_a_birth_waits_is_the_threads),
        cmocka_unit_test(every_dead_heap_is_taken_once),
        cmocka_unit_test(a_dead_heap_holds_back_nothing_but_what_the_program_holds),
        cmocka_unit_test(what_threads_asked_for_together_earns_no_slab),
        cmocka_unit_test(a_birth_without_memory_is_refused),
        cmocka_unit_test(no_heap_has_two_threads),
    };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
