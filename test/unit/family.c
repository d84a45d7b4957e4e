/* family.c - instances of families: what is under way while a family is cleared, who gets which instance, and what a child finds.
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include "heap/family.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLASS = 5 };
static struct hak_heap *home, *other;

static int two_heaps(void **state) {
    heap_room_start(state);
    home = hak_heap_birth(hak_self);
    assert_non_null(home);
    other = heap_make();
    return 0;
}

static int64_t taken(struct hak_family *family) { return hak_load_relaxed(&family->taken_granules); }

static void *block_of(struct hak_heap *instance) {
    class_is_common(instance, CLASS);
    void *block = block_take(instance, CLASS);
    assert_non_null(block);
    return block;
}

/* It lies in the stranger's batch, which is given back. */
static struct hak_batch *into_batch(struct hak_heap *stranger, void *block) {
    hak_stranger_gather(stranger, hak_granule_at(hak_granule_of(block)), block_index(block));
    for (unsigned i = 0; i < HAK_BATCHES; i++)
        if (stranger->batch[i].mask && stranger->batch[i].slab == slab_of(block)) return &stranger->batch[i];
    fail();
    return NULL;
}

static void a_block_in_a_batch_or_in_flight_is_not_freed_again(void **state) {
    (void)state;
    for (int in_flight = 0; in_flight < 2; in_flight++) {
        struct hak_family *family = hak_family_new(0);
        struct hak_heap *instance = hak_family_find(family, home);
        void *blocks[20];
        for (int i = 0; i < 20; i++) blocks[i] = block_of(instance);
        struct hak_slab *slab = slab_of(blocks[0]);
        struct hak_batch *batch = into_batch(other, blocks[7]);
        uint64_t mask = batch->mask;
        if (in_flight) { /* as in batch_flush(), before the bits are in the row */
            hak_store_relaxed(&other->flying_mask, mask);
            hak_store_release(&other->flying, batch);
            batch->mask = 0;
        }
        hak_family_clear(family);
        assert_int_equal(hak_row_out(hak_slab_row(slab)), 1);
        assert_int_equal(hak_load_relaxed(&instance->slab_count), 1);
        assert_int_equal(taken(family), hak_slab_class(slab)->granules);
        assert_ptr_equal(hak_family_look(family, home), instance);
        batch->mask = mask;
        hak_store_release(&other->flying, NULL);
        hak_batch_flush(other);
        hak_mail_take(instance);
        assert_int_equal(hak_load_relaxed(&instance->slab_count), 0);
        assert_int_equal(taken(family), 0);
        hak_family_destroy(family);
        AUDIT();
    }
}

static void an_instance_with_a_block_under_way_is_nobodys(void **state) {
    (void)state;
    struct hak_family *family = hak_family_new(0), *next = hak_family_new(0), *last = hak_family_new(0);
    struct hak_heap *instance = hak_family_find(family, home);
    void *block = block_of(instance);
    into_batch(other, block);
    hak_family_destroy(family);
    assert_int_equal(hak_load_relaxed(&instance->slab_count), 1);
    struct hak_heap *another = hak_family_find(next, home);
    assert_ptr_not_equal(another, instance);
    hak_batch_flush(other);
    struct hak_heap *home_of_third = heap_make();
    assert_ptr_equal(hak_family_find(last, home_of_third), instance);
    assert_int_equal(hak_load_relaxed(&instance->slab_count), 0);
    hak_family_destroy(next);
    hak_family_destroy(last);
    heap_end(home_of_third);
    AUDIT();
}

/* Who had it for a moment left it by longjmp, or never runs again. */
static void who_clears_does_not_wait_for_ever(void **state) {
    (void)state;
    struct hak_family *family = hak_family_new(0);
    struct hak_heap *second = heap_make(), *left = hak_family_find(family, second), *mine = hak_family_find(family, home);
    void *stays = block_of(left);
    block_of(mine);
    heap_end(second);
    assert_true(hak_heap_dead_claim(left));
    hak_family_clear(family);
    assert_int_equal(hak_load_relaxed(&mine->slab_count), 0);
    assert_null(hak_load_relaxed(&left->family));
    assert_int_equal(hak_load_relaxed(&left->slab_count), 1);
    assert_int_equal(hak_row_out(hak_slab_row(slab_of(stays))), 1);
    hak_family_destroy(family);
    hak_heap_dead_unclaim(left);
    hak_stranger_gather(other, hak_granule_at(hak_granule_of(stays)), block_index(stays)); /* its block can be freed */
    hak_batch_flush(other);
    hak_mail_of_dead(left);
    assert_int_equal(hak_load_relaxed(&left->slab_count), 0);
    struct hak_family *next = hak_family_new(0); /* but it is no other family's: large blocks may bear its name */
    for (unsigned i = 0; i < 64; i++) assert_ptr_not_equal(hak_family_find(next, heap_make()), left);
    hak_family_destroy(next);
    AUDIT();
}

static void an_instance_is_in_no_list_of_dead_heaps(void **state) {
    (void)state;
    struct hak_family *family = hak_family_new(0);
    struct hak_heap *second = heap_make(), *instance = hak_family_find(family, second), *dead[64];
    void *block = block_of(instance);
    heap_end(second);
    assert_int_equal(hak_load_relaxed(&instance->state), HAK_HEAP_DEAD);
    assert_null(hak_load_relaxed(&instance->home));
    assert_false(hak_heap_hint(instance) || hak_heap_hint(instance));
    unsigned count = 0;
    while (count < 64 && (dead[count] = hak_heap_dead_take()) != NULL) assert_false(hak_load_relaxed(&dead[count++]->is_instance));
    while (count > 0) hak_heap_dead_give(dead[--count]);
    assert_ptr_equal(hak_family_find(family, home), instance); /* the family's next thread has it, block and all */
    assert_ptr_equal(atomic_load(&slab_of(block)->owner), instance);
    hak_family_destroy(family);
    AUDIT();
}

static void a_slab_that_is_refused_leaves_the_sum_as_it_was(void **state) {
    (void)state;
    struct hak_family *family = hak_family_new(2 << HAK_GRANULE_SHIFT);
    struct hak_heap *instance = hak_family_find(family, home);
    unsigned large_class = hak_class_of(3000);
    block_of(instance);
    assert_int_equal(taken(family), 1);
    class_is_common(instance, large_class);
    assert_null(hak_visit(3000, instance, large_class));
    assert_int_equal(taken(family), 1);
    assert_int_equal(instance->is_refused, 1);
    assert_false(hak_family_reserve(family, 2));
    assert_true(hak_family_reserve(family, 1));
    hak_family_note(family, -1);
    hak_family_destroy(family);
    AUDIT();
}

static void each_of_many_threads_has_its_own(void **state) {
    (void)state;
    enum { THREADS = 400 };
    static struct hak_heap *homes[THREADS], *instances[THREADS];
    struct hak_family *family = hak_family_new(0);
    for (unsigned i = 0; i < THREADS; i++) {
        homes[i] = heap_make();
        instances[i] = hak_family_find(family, homes[i]);
        assert_int_equal(hak_load_relaxed(&instances[i]->is_instance), 1);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_ptr_equal(hak_family_find(family, homes[i]), instances[i]);
        assert_ptr_equal(hak_load_relaxed(&instances[i]->home), homes[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) heap_end(homes[i]);
    for (unsigned i = 0; i < THREADS; i++) assert_int_equal(hak_load_relaxed(&instances[i]->state), HAK_HEAP_DEAD);
    hak_family_destroy(family);
    AUDIT();
}

/* In a child cmocka's asserts would end the wrong process. */
#define CHILD_REQUIRE(condition) ((condition) ? (void)0 : (dprintf(2, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition), _exit(1)))

static void in_a_child(struct hak_family *family, void (*function)(struct hak_family *family)) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        function(family);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *left_behind;

static void child(struct hak_family *family) {
    struct hak_heap *mine = hak_family_look(family, home), *theirs = hak_family_look(family, other);
    int64_t before = taken(family);
    hak_family_note(family, 5); /* a vanished thread was about to cut a slab */
    hak_fork_child(mine);       /* whichever of its heaps finds out */
    CHILD_REQUIRE(home->is_survivor == 1 && mine->is_survivor == 0);
    CHILD_REQUIRE(hak_load_relaxed(&mine->epoch) == hak_load_relaxed(&hak_epoch) && hak_load_relaxed(&home->epoch) == hak_load_relaxed(&hak_epoch));
    hak_fork_rebuild(home);
    CHILD_REQUIRE(hak_family_look(family, home) == mine && hak_load_relaxed(&mine->state) == HAK_HEAP_LIVE);
    CHILD_REQUIRE(hak_load_relaxed(&theirs->state) == HAK_HEAP_DEAD && !hak_load_relaxed(&theirs->home) && hak_load_relaxed(&theirs->slab_count) == 1);
    CHILD_REQUIRE(taken(family) == before);
    CHILD_REQUIRE(atomic_load(&slab_of(left_behind)->owner) == theirs);
    hak_family_clear(family);
    CHILD_REQUIRE(taken(family) == 0 && hak_load_relaxed(&theirs->slab_count) == 0);
    CHILD_REQUIRE(hak_family_look(family, home) == mine);
}

static void in_a_child_the_forking_threads_stays_and_the_others_are_dead(void **state) {
    (void)state;
    struct hak_family *family = hak_family_new(0);
    block_of(hak_family_find(family, home));
    left_behind = block_of(hak_family_find(family, other));
    in_a_child(family, child);
    assert_int_equal(taken(family), 2);
    hak_family_destroy(family);
    AUDIT();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_in_a_batch_or_in_flight_is_not_freed_again),
        cmocka_unit_test(an_instance_with_a_block_under_way_is_nobodys),
        cmocka_unit_test(who_clears_does_not_wait_for_ever),
        cmocka_unit_test(an_instance_is_in_no_list_of_dead_heaps),
        cmocka_unit_test(a_slab_that_is_refused_leaves_the_sum_as_it_was),
        cmocka_unit_test(each_of_many_threads_has_its_own),
        cmocka_unit_test(in_a_child_the_forking_threads_stays_and_the_others_are_dead),
    };
    return cmocka_run_group_tests(tests, two_heaps, NULL);
}
