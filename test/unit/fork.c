/* fork.c - in a child the vanished threads' heaps are rebuilt from the bits; nothing of theirs is lost or doubled.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "os/os.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 3000, CLASSES = 12 };
static struct { void *mine[BLOCKS], *theirs[BLOCKS]; } held;
static const unsigned classes[CLASSES] = { 1, 2, 5, 9, 16, 33, 64, 66, 75, 88, 96, HAK_CLASS_COUNT - 1 };
static struct hak_heap *mine, *theirs; /* theirs: of a thread that is not there in the child */

/* In a child cmocka's asserts would end the wrong process. */
#define CHILD_REQUIRE(condition)                                                     \
    do {                                                                             \
        if (!(condition)) {                                                          \
            dprintf(2, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                                \
        }                                                                            \
    } while (0)

static void in_a_child(void (*function)(void)) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        function();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static uint64_t live_all(void) {
    struct hak_census census;
    uint64_t live = 0;
    hak_census_take(&census);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) live += census.live[c];
    return live;
}

static uint64_t slabs_all(void) {
    struct hak_census census;
    uint64_t slabs = 0;
    hak_census_take(&census);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) slabs += census.slabs[c];
    return slabs;
}

static void audit_in_child(void) {
    struct audit audit;
    const char *wrong = audit_find(&audit, 0);
    if (wrong) dprintf(2, "the sums disagree: %s\n", wrong);
    CHILD_REQUIRE(!wrong);
}

static void slabs_check(struct hak_heap *heap, void *unused) {
    (void)unused;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        for (struct hak_slab *slab = hak_slab_named(heap->shelf[c].partial); slab; slab = hak_slab_named(slab->next)) {
            CHILD_REQUIRE(atomic_load(&slab->owner) == heap && slab->class_index == c && slab->place == HAK_SLAB_PARTIAL);
            hak_slab_check(slab);
        }
}

static int two_heaps(void **state) {
    heap_room_start(state);
    mine = hak_heap_birth(hak_self);
    theirs = heap_make();
    for (unsigned i = 0; i < BLOCKS; i++) {
        class_is_common(mine, classes[i % CLASSES]);
        class_is_common(theirs, classes[i % CLASSES]);
        held.mine[i] = block_take(mine, classes[i % CLASSES]);
        held.theirs[i] = block_take(theirs, classes[i % CLASSES]);
    }
    return 0;
}

static void the_epoch_moves_on_in_the_child_only(void) {
    CHILD_REQUIRE(hak_load_relaxed(&hak_epoch) == 1 && hak_os_is_forked());
    hak_fork_check(mine);
    CHILD_REQUIRE(hak_os_is_forked());
    CHILD_REQUIRE(hak_load_relaxed(&hak_epoch) == 2 && hak_load_relaxed(hak_region.fork_page) == 2);
    CHILD_REQUIRE(hak_load_relaxed(&mine->epoch) == 2 && mine->is_survivor);
    CHILD_REQUIRE(hak_load_relaxed(&theirs->epoch) == 1);
    hak_fork_check(mine);
    CHILD_REQUIRE(hak_load_relaxed(&hak_epoch) == 2);
}

static void vanished_heaps_blocks_are_given_back(void) {
    uint64_t live = live_all();
    struct hak_census before, after;
    CHILD_REQUIRE(live == 2 * BLOCKS);
    hak_census_take(&before);
    hak_fork_check(mine);
    hak_fork_rebuild(mine);
    hak_census_take(&after);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++)
        CHILD_REQUIRE(before.handed[c] == after.handed[c] && before.live[c] == after.live[c]);
    CHILD_REQUIRE(live_all() == live); /* what the program held, it holds */
    CHILD_REQUIRE(!mine->is_survivor && hak_load_relaxed(&theirs->state) == HAK_HEAP_DEAD && hak_heap_dead_any());
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) CHILD_REQUIRE(hak_bin_at(theirs, c)->word == 0 && !theirs->shelf[c].current);
    hak_heap_each(slabs_check, NULL);
    audit_in_child();
    for (unsigned i = 0; i < BLOCKS; i++) {
        block_give(mine, held.mine[i]);
        block_give(mine, held.theirs[i]);
    }
    hak_heap_collect(mine);
    CHILD_REQUIRE(live_all() == 0 && slabs_all() == 0);
    audit_in_child();
}

/* What is free in a vanished heap's slabs is used before new slabs are cut. */
static void the_vanished_heaps_slabs_serve_the_child(void) {
    uint64_t slabs = slabs_all(), born = mine->counters.n[HAK_C_visit_new_slab];
    for (unsigned i = 0; i < 2 * CLASSES; i++) {
        unsigned c = classes[i % CLASSES];
        for (unsigned n = 0; n < 64; n++) {
            void *block = block_take(mine, c);
            CHILD_REQUIRE(block != NULL);
            for (unsigned k = 0; k < BLOCKS; k++) CHILD_REQUIRE(block != held.mine[k] && block != held.theirs[k]);
        }
    }
    CHILD_REQUIRE(mine->counters.n[HAK_C_visit_new_slab] - born == slabs_all() - slabs);
    CHILD_REQUIRE(mine->counters.n[HAK_C_visit_dead] > 0);
    audit_in_child();
}

static void the_first_steps_of_a_child(void **state) {
    (void)state;
    in_a_child(the_epoch_moves_on_in_the_child_only);
    in_a_child(vanished_heaps_blocks_are_given_back);
    in_a_child(the_vanished_heaps_slabs_serve_the_child);
    assert_int_equal(hak_load_relaxed(&hak_epoch), 1);
    assert_int_equal(hak_load_relaxed(hak_region.fork_page), 1);
    hak_fork_child(mine); /* where nobody forked */
    assert_false(hak_os_is_forked());
    assert_int_equal(live_all(), 2 * BLOCKS);
    AUDIT();
}

/* The other thread was in the middle of a call. Its marks are not the next thread's. */
static void who_gets_a_vanished_heap_gets_it_whole(void) {
    for (unsigned i = 0; i < 2; i++) { /* whichever is adopted first */
        hak_fork_check(mine);
        if (mine->is_survivor) hak_fork_rebuild(mine);
        struct hak_heap *heap = hak_heap_birth(hak_self);
        CHILD_REQUIRE(heap != mine && !heap->is_short && !heap->is_ahead && !heap->is_survivor && !heap->from_address);
    }
}
static void a_vanished_threads_marks_are_void(void **state) {
    (void)state;
    theirs->is_short = theirs->is_ahead = theirs->is_survivor = 1;
    theirs->from_address = &state;
    in_a_child(who_gets_a_vanished_heap_gets_it_whole);
    theirs->is_short = theirs->is_ahead = theirs->is_survivor = 0;
    theirs->from_address = NULL;
}

/* The other thread was in the middle of things: a slab claimed, mail posted and not read, a batch not yet given
 * back, an event put off, a heap just made BUSY. */
static void nothing_that_was_under_way_is_lost(void **state) {
    (void)state;
    struct hak_heap *busy = heap_make();
    class_is_common(busy, 30);
    void *kept = block_take(busy, 30);
    heap_end(busy);
    assert_true(hak_heap_dead_claim(busy));
    struct hak_slab *claimed = slab_of(held.theirs[BLOCKS - 1]);
    for (unsigned i = 0; i < BLOCKS / 2; i++) {
        block_give(mine, held.theirs[i]); /* mail to the vanished */
        block_give(theirs, held.mine[i]); /* and from it, the last of it in its batch */
    }
    uint64_t expected = BLOCKS + 1;
    assert_int_equal(live_all(), expected);
    assert_true(hak_slab_claim(claimed));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        hak_fork_check(mine);
        CHILD_REQUIRE(hak_slab_claim(claimed)); /* the vanished thread's claim is void */
        hak_slab_unclaim(claimed);
        hak_batch_flush(mine);
        hak_fork_rebuild(mine);
        CHILD_REQUIRE(live_all() == expected);
        hak_heap_each(slabs_check, NULL);
        audit_in_child();
        for (unsigned i = BLOCKS / 2; i < BLOCKS; i++) {
            block_give(mine, held.mine[i]);
            block_give(mine, held.theirs[i]);
        }
        block_give(mine, kept);
        hak_heap_collect(mine);
        hak_heap_collect(mine);
        CHILD_REQUIRE(live_all() == 0);
        CHILD_REQUIRE(slabs_all() == 0);
        CHILD_REQUIRE(hak_load_relaxed(&busy->state) == HAK_HEAP_DEAD);
        audit_in_child();
        /* and a grandchild is a child like any other */
        pid_t grandchild = fork();
        if (grandchild == 0) {
            hak_fork_check(mine);
            CHILD_REQUIRE(hak_load_relaxed(&hak_epoch) == 3);
            class_is_common(mine, 40);
            CHILD_REQUIRE(block_take(mine, 40) != NULL);
            audit_in_child();
            _exit(0);
        }
        int status;
        CHILD_REQUIRE(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    hak_slab_unclaim(claimed);
    hak_heap_dead_unclaim(busy);
}

static uint64_t letters_live;
static void they_are_read_in_the_child(void) {
    CHILD_REQUIRE(live_all() == letters_live);
    hak_fork_check(mine);
    CHILD_REQUIRE(hak_load_relaxed(&mine->letters) != 0);
    hak_fork_rebuild(mine);
    CHILD_REQUIRE(!hak_load_relaxed(&theirs->takes_letters));
    CHILD_REQUIRE(live_all() == letters_live);
    hak_mail_take(mine);
    CHILD_REQUIRE(in_letters(mine) == 0 && in_letters(theirs) == 0);
    CHILD_REQUIRE(live_all() == letters_live);
    for (unsigned i = BLOCKS * 3 / 4; i < BLOCKS; i++) {
        block_give(mine, held.mine[i]);
        block_give(mine, held.theirs[i]);
    }
    hak_heap_collect(mine);
    hak_heap_collect(mine);
    uint64_t left = letters_live - 2 * (BLOCKS - BLOCKS * 3 / 4);
    CHILD_REQUIRE(live_all() == left && slabs_all() <= left);
    audit_in_child();
}

/* Both had told the other of blocks, and had not read yet; of none the bit was set that says where. */
static void letters_that_were_not_read_are(void **state) {
    (void)state;
    hak_store_relaxed(&mine->takes_letters, 1);
    hak_store_relaxed(&theirs->takes_letters, 1);
    hak_batch_flush(mine);
    hak_batch_flush(theirs);
    for (unsigned i = BLOCKS / 2; i < BLOCKS * 3 / 4; i++) { /* told of each, until the lines are full */
        mine->gathered = theirs->gathered = 0;
        mine->flushes = ++theirs->flushes;
        block_give(mine, held.theirs[i]);
        block_give(theirs, held.mine[i]);
    }
    assert_true(in_letters(mine) > CLASSES && in_letters(theirs) > CLASSES);
    hak_store_relaxed(&mine->letters, 0);
    hak_store_relaxed(&theirs->letters, 0);
    mine->had_letters = theirs->had_letters = 1;
    letters_live = live_all();
    in_a_child(they_are_read_in_the_child);
    hak_store_relaxed(&mine->letters, UINT32_MAX);
    hak_store_relaxed(&theirs->letters, UINT32_MAX);
    hak_mail_take(mine);
    hak_mail_take(theirs);
    assert_int_equal(in_letters(mine) + in_letters(theirs), 0);
    assert_int_equal(live_all(), letters_live);
}

/* A chunk's slabs are seen at a moment; one may end meanwhile, and the chunk's headers be wiped. */
static void a_slab_that_ended_meanwhile_is_nobodys(void) {
    hak_fork_check(mine);
    for (unsigned i = 0; i < BLOCKS; i += 100) atomic_store(&slab_of(held.theirs[i])->owner, NULL);
    hak_fork_rebuild(mine);
    CHILD_REQUIRE(hak_load_relaxed(&theirs->state) == HAK_HEAP_DEAD);
}

static void slabs_end_while_heaps_are_rebuilt(void **state) {
    (void)state;
    in_a_child(a_slab_that_ended_meanwhile_is_nobodys);
}

/* The list's head has eight bits of the epoch. */
static void a_child_of_256_children(void) {
    enum { EPOCHS = 256 };
    hak_fork_check(mine);
    hak_fork_rebuild(mine);
    CHILD_REQUIRE(hak_heap_dead_any());
    for (int i = 0; i < EPOCHS; i++) {
        pid_t child = fork();
        CHILD_REQUIRE(child >= 0);
        if (child > 0) {
            int status;
            _exit(waitpid(child, &status, 0) != child || status != 0);
        }
        hak_fork_check(mine);
        CHILD_REQUIRE(!hak_heap_dead_any());
    }
    hak_fork_rebuild(mine);
    CHILD_REQUIRE(hak_heap_dead_take() != NULL);
}

/* A heap that was claimed by name is in its parent's list, and the child's is another. */
static void what_the_parents_list_has_is_in_the_childs(void) {
    hak_fork_check(mine);
    hak_fork_rebuild(mine);
    bool is_theirs = false, is_mine = false;
    for (struct hak_heap *heap; (heap = hak_heap_dead_take()) != NULL;) is_theirs |= heap == theirs;
    CHILD_REQUIRE(is_theirs);
    hak_heap_death(mine);
    for (struct hak_heap *heap; (heap = hak_heap_dead_take()) != NULL;) is_mine |= heap == mine;
    CHILD_REQUIRE(is_mine);
}

/* The fork came from a handler in the middle of a look through dead heaps, which the child then ends: it gives back what its parent took. */
static void a_heap_that_a_forking_handler_met_is_listed_once(void) {
    hak_store_relaxed(&theirs->state, HAK_HEAP_BUSY);
    hak_store_relaxed(&theirs->listed, 0);
    hak_fork_check(mine);
    hak_heap_dead_give(theirs);
    hak_fork_rebuild(mine);
    unsigned count = 0;
    for (struct hak_heap *heap; count < 2 && (heap = hak_heap_dead_take()) != NULL;) count += heap == theirs;
    CHILD_REQUIRE(count == 1);
}

static void heaps_that_are_listed_and_live_are_listed_in_the_child(void **state) {
    (void)state;
    hak_store_relaxed(&mine->listed, hak_load_relaxed(&hak_epoch));
    hak_store_relaxed(&theirs->listed, hak_load_relaxed(&hak_epoch));
    in_a_child(what_the_parents_list_has_is_in_the_childs);
    in_a_child(a_heap_that_a_forking_handler_met_is_listed_once);
    hak_store_relaxed(&mine->listed, 0);
    hak_store_relaxed(&theirs->listed, 0);
}

static void a_list_of_long_ago_is_void(void **state) {
    (void)state;
    in_a_child(a_child_of_256_children);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_steps_of_a_child),
        cmocka_unit_test(a_vanished_threads_marks_are_void),
        cmocka_unit_test(slabs_end_while_heaps_are_rebuilt),
        cmocka_unit_test(nothing_that_was_under_way_is_lost),
        cmocka_unit_test(letters_that_were_not_read_are),
        cmocka_unit_test(a_list_of_long_ago_is_void),
        cmocka_unit_test(heaps_that_are_listed_and_live_are_listed_in_the_child),
    };
    return cmocka_run_group_tests(tests, two_heaps, NULL);
}
