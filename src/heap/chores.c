/* chores.c - what waits for the next visit: batches, mail, events that were put off, what is kept, the clock; and who is in a hurry.
 *
 * Threads:   the owner.
 * Measured:  redis, 48 MB of keys, FLUSHALL, then nothing, or a PING ten times a second: 12 MB two seconds later. Without a hurry all 48 stayed
 *            for good, for what a server allocates that does nothing is at hand for long, and nobody looked at the clock. sqlite, 67 MB closed and
 *            another database opened, two statements in two seconds: 5 MB; with 32 hurried visits instead of 512: 67 at times.
 */
#include "heap/family.h"
#include "heap/hooks.h"
#include "heap/pool.h"
#include "memory/purge.h"

void hak_visit_chores_due(struct hak_heap *heap) {
    hak_fork_check(heap);
    heap->clock_in += heap->clock_rest;
    heap->clock_rest = 0;
    if (heap->clock_in <= 0) hak_visit_chores(heap);
}

void hak_visit_chores(struct hak_heap *heap) {
    hak_fork_check(heap);
    heap->batch_since = 0;
    heap->flushes++;
    if (heap->batches) hak_batch_flush(heap);
    if (hak_mail_any(heap)) hak_mail_take(heap);
    if (heap->pending) hak_event_pending(heap);
    hak_middle_settle(heap);
    hak_free_note_in(&heap->free_sum, 0);
    hak_pool_look(heap);
    if (HAK_UNLIKELY(hak_load_acquire(&hak_hooks.generation) != heap->follows)) HAK_HOOK(follow)(heap);
    hak_sweep_clock(heap);
}

enum { FEW = 2, VISITS_SLOW = 32, PAUSE = 8 * HAK_TICKS }; /* the last: who is busy pays for it so often */

/* The next visit's chores are due, and what is above 32 KiB goes a longer way until then. */
static void visit_calls(struct hak_heap *heap) {
    heap->clock_rest = 0;
    if (heap->clock_in > HAK_VISIT_CLOCK) heap->clock_in = HAK_VISIT_CLOCK;
}

static HAK_COLD void put_back(struct hak_heap *heap) {
    for (unsigned index = 1; index < hak_shelf_end(heap); index++) hak_bin_trim(heap, index, 0);
}

HAK_COLD void hak_heap_hurry_freed(struct hak_heap *heap) {
    uint64_t ticks = hak_os_ticks();
    if (heap->at_hand_most == HAK_AT_HAND_ASKED) heap->at_hand_most = 0;
    if (ticks - heap->hurried < PAUSE) return;
    heap->hurried = ticks;
    put_back(heap);
    heap->at_hand_most = 1;
    heap->hurry_visits = HAK_HURRY_VISITS * HAK_HURRY_DUE;
    visit_calls(heap);
}

/* A visit in a hurry counts for an eighth of one that comes to the chores. Where each free is an event it comes to them first, and no visit does:
 * such a hurry never ended, and each malloc and free of a block was a visit and an event, 44 ns instead of 4. */
static void hurry_less(struct hak_heap *heap, uint32_t less) { heap->hurry_visits -= heap->hurry_visits < less ? heap->hurry_visits : less; }

HAK_COLD void hak_heap_hurry(struct hak_heap *heap) {
    bool is_slow = hak_heap_is_slow(heap);
    hurry_less(heap, HAK_HURRY_DUE - 1); /* and one at its end */
    if (is_slow) {
        if (heap->hurry_visits < VISITS_SLOW * HAK_HURRY_DUE) heap->hurry_visits = VISITS_SLOW * HAK_HURRY_DUE;
        put_back(heap);
    }
    heap->at_hand_most = is_slow ? 1 : heap->hurry_visits > 0 ? FEW + 1 : 0;
}

HAK_COLD void hak_heap_hurried(struct hak_heap *heap, unsigned shelf_index) {
    hak_bin_trim(heap, shelf_index, heap->at_hand_most - 1);
    visit_calls(heap);
    if (heap->at_hand_most == HAK_AT_HAND_ASKED) return;
    hurry_less(heap, 1);
    if (heap->hurry_visits == 0 && !hak_heap_is_slow(heap)) heap->at_hand_most = 0;
}
