/* birth.c - heaps come and go with threads.
 *
 * Owns:      where heaps lie (granules of their own, never given back), and the list of dead heaps.
 * Threads:   any. The list is a stack whose head holds index, epoch and a tag in one word (no ABA); being in it
 *            is not enough to own a heap: DEAD -> BUSY by CAS is.
 * Invariant: a heap that is DEAD is in the list, or its claimer is about to put it there. `listed` is the epoch from before it is put there
 *            until who took it off says otherwise: one that was claimed by name stays in the list while it lives. A list of an older
 *            epoch is void, and what was listed there is not any more: fork.c puts those heaps into the child's.
 * Measured:  thread births (200 blocks of 64 classes a thread): slabs cut 19 -> 0.4 a thread, peak 10.6 -> 3.9 MiB, 33 -> 20 us.
 * Rejected:  orphan lists of slabs per class: ABA, lists lost with a thread, mail to the wrong heap.
 */
#include "heap/borrow.h"
#include "heap/family.h"
#include "heap/hooks.h"
#include "heap/kept.h"

#include "memory/limit.h"
#include "memory/purge.h"
#include "os/stack.h"

#include <string.h>

_Thread_local struct hak_heap *hak_self = (struct hak_heap *)&hak_heap_none;
const struct hak_heap hak_heap_none = { .split = ~UINT64_C(0), .index = HAK_HEAP_NOBODY };
const struct hak_heap hak_heap_gone = { .split = ~UINT64_C(0), .index = HAK_HEAP_NOBODY };
bool (*hak_heap_on_birth)(struct hak_heap *heap);

enum {
    PAGE = HAK_HEAP_FIRST_BYTES,
    STRIDE = (sizeof(struct hak_heap) + PAGE - 1) & -PAGE, /* what lies between is never touched */
    PER_GRANULE = HAK_GRANULE_BYTES / STRIDE,
    GRANULES_MAX = HAK_HEAPS_MAX / PER_GRANULE,
    INSTANCES_MAX = HAK_HEAPS_MAX / 4 * 3, /* the others are for threads: without one malloc fails */
};

HAK_STATIC(PER_GRANULE == 3 && HAK_HEAPS_MAX % PER_GRANULE == 0 && HAK_HEAPS_MAX % 64 == 0);
static _Atomic(char *) homes[GRANULES_MAX];
static hak_atomic_u32 heap_count, instance_count; /* all; of these, those of families */
static hak_atomic_u64 instances[HAK_HEAPS_MAX / 64]; /* which these are, as bits by their index */
hak_atomic_u32 hak_rare_blocks = HAK_RARE_BLOCKS;

static struct hak_heap *heap_at(uint32_t index) {
    char *home = hak_load_acquire(&homes[index / PER_GRANULE]);
    return home ? (struct hak_heap *)(void *)(home + index % PER_GRANULE * STRIDE) : NULL;
}

uint64_t hak_heap_keep_most(void) { return hak_purge_bound() / 2 / (hak_heap_living() + hak_load_relaxed(&instance_count)); }

struct hak_heap *hak_heap_named(uint32_t name) { return name - 1 < hak_load_acquire(&heap_count) ? heap_at(name - 1) : NULL; }

void hak_heap_each(void (*function)(struct hak_heap *heap, void *context), void *context) {
    uint32_t count = hak_load_acquire(&heap_count);
    for (uint32_t i = 0; i < count; i++) {
        struct hak_heap *heap = heap_at(i);
        if (heap && hak_load_acquire(&heap->epoch) != 0) function(heap, context);
    }
}

void hak_heap_each_own(hak_heap_look_function *function, void *context) {
    uint32_t count = hak_load_acquire(&heap_count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t others = hak_load_relaxed(&instances[i / 64]) >> i % 64;
        if (HAK_UNLIKELY(others & 1)) {
            i += hak_word_count(others ^ (others + 1)) - 2; /* a run of them */
            continue;
        }
        struct hak_heap *heap = heap_at(i);
        if (heap && hak_load_acquire(&heap->epoch) != 0 && function(heap, context)) return;
    }
}

/* --- the list of dead heaps: head = index + 1 (24 bits), epoch (8 bits), tag (32 bits) --- */

static HAK_ALIGNED(HAK_LINE) hak_atomic_u64 dead_head;

static uint64_t head_make(uint32_t index_plus_1, uint64_t old) {
    uint64_t epoch = hak_load_relaxed(&hak_epoch) & 0xff;
    return (uint64_t)((uint32_t)(old >> 32) + 1) << 32 | epoch << 24 | index_plus_1;
}
static uint32_t head_first(uint64_t head) {
    return (head >> 24 & 0xff) == (hak_load_relaxed(&hak_epoch) & 0xff) ? (uint32_t)head & 0xffffff : 0;
}

/* Each epoch, or a list of 256 epochs ago would be one again. */
static void dead_void(void) {
    uint64_t head = hak_load_relaxed(&dead_head), epoch = hak_load_relaxed(&hak_epoch) & 0xff;
    while ((head >> 24 & 0xff) != epoch && !hak_cas(&dead_head, &head, head_make(0, head))) {}
}

bool hak_heap_dead_any(void) { return head_first(hak_load_relaxed(&dead_head)) != 0; }

static void dead_push(struct hak_heap *heap) {
    uint64_t head = hak_load_relaxed(&dead_head);
    do hak_store_relaxed(&heap->next_dead, head_first(head));
    while (!hak_cas_weak(&dead_head, &head, head_make(heap->index + 1, head)));
}

static struct hak_heap *dead_pop(void) {
    uint64_t head = hak_load_acquire(&dead_head);
    struct hak_heap *heap;
    do {
        uint32_t first = head_first(head);
        if (!first) return NULL;
        heap = heap_at(first - 1); /* heaps are never unmapped: a stale next_dead is caught by the tag */
    } while (!hak_cas_weak(&dead_head, &head, head_make(hak_load_relaxed(&heap->next_dead), head)));
    return heap;
}

/* It was not LIVE a moment ago. Once: it may be there already. */
static void dead_list(struct hak_heap *heap) {
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->is_instance))) return; /* its family's: heap/family.c finds it */
    uint32_t epoch = hak_load_relaxed(&hak_epoch);
    if (hak_exchange(&heap->listed, epoch) != epoch) dead_push(heap);
}

/* The caller took it off in that epoch, and did not say so. A handler may have forked since: then it is in the child's list, or it is not. */
static void dead_push_back(struct hak_heap *heap, uint32_t epoch) {
    if (HAK_LIKELY(hak_load_relaxed(&hak_epoch) == epoch)) dead_push(heap);
    else dead_list(heap);
}

/* The caller took it off and saw it LIVE. If it died meanwhile its thread saw it in the list. */
static void dead_unlist(struct hak_heap *heap) {
    hak_exchange(&heap->listed, 0); /* not a store: what the thread wrote before its own exchange, DEAD, is seen below (test/model) */
    if (hak_load_relaxed(&heap->state) != HAK_HEAP_LIVE) dead_list(heap); /* BUSY, too: who leaves a heap that he claimed does not list it */
}

bool hak_heap_dead_claim(struct hak_heap *heap) {
    if (hak_load_relaxed(&heap->epoch) != hak_load_relaxed(&hak_epoch)) return false; /* fork.c rebuilds it */
    uint32_t seen = HAK_HEAP_DEAD;
    return hak_cas(&heap->state, &seen, HAK_HEAP_BUSY);
}

/* Those to which somebody delivers mail just now are set aside, however many: with four at most, eight threads that ended at once on 16
 * processors made 392 heaps. It takes but moments; who would make a new one, which stays for ever, waits for so many turns, and holds none
 * meanwhile. */
static struct hak_heap *dead_take(unsigned turns) {
    enum { ASIDE = 64 };
    for (unsigned turn = 0;; turn++) {
        uint32_t epoch = hak_load_relaxed(&hak_epoch);
        struct hak_heap *aside[ASIDE], *found = NULL, *heap;
        unsigned count = 0;
        while (count < ASIDE && !found && (heap = dead_pop()) != NULL) {
            if (hak_heap_dead_claim(heap)) found = heap;
            else if (hak_load_relaxed(&heap->state) == HAK_HEAP_LIVE) dead_unlist(heap);
            else aside[count++] = heap;
        }
        if (found) hak_exchange(&found->listed, 0); /* whoever pushes it next does so after all that was done with it in the list */
        bool is_worth_waiting = !found && count > 0 && turn < turns;
        while (count > 0) dead_push_back(aside[--count], epoch);
        if (!is_worth_waiting) return found;
        hak_os_yield(turn);
    }
}

struct hak_heap *hak_heap_dead_take(void) { return dead_take(0); }

struct hak_heap *hak_heap_dead_first(void) {
    enum { TRIES = 4 };
    uint32_t first = head_first(hak_load_acquire(&dead_head));
    for (unsigned tries = 0; first && tries < TRIES; tries++) { /* a stale next_dead leads to some heap: the claim decides */
        struct hak_heap *heap = heap_at(first - 1);
        if (hak_heap_dead_claim(heap)) return heap;
        if (hak_load_relaxed(&heap->state) == HAK_HEAP_LIVE) return dead_take(0); /* one that lives hides those behind it */
        first = hak_load_relaxed(&heap->next_dead);
    }
    return NULL;
}

static void deliver_late_mail(struct hak_heap *heap) {
    /* mail that came while the heap was not DEAD found nobody to deliver it */
    /* a read that writes: a plain load could come before the store of DEAD (test/model, mutant) */
    while (hak_or(&heap->mail, 0) && hak_heap_dead_claim(heap)) {
        hak_mail_take(heap);
        atomic_store(&heap->state, HAK_HEAP_DEAD);
    }
}

void hak_heap_dead_unclaim(struct hak_heap *heap) {
    hak_middle_settle(heap);
    hak_free_flush(&heap->free_sum);
    hak_given_flush(&heap->given_sum);
    hak_rush_flush(&heap->rush);
    atomic_store(&heap->state, HAK_HEAP_DEAD); /* seq_cst: pairs with the push and the look at state in mail.c */
    deliver_late_mail(heap);
}

void hak_heap_dead_give(struct hak_heap *heap) {
    hak_middle_settle(heap);
    hak_free_flush(&heap->free_sum);
    hak_given_flush(&heap->given_sum);
    hak_rush_flush(&heap->rush);
    atomic_store(&heap->state, HAK_HEAP_DEAD);
    dead_list(heap);
    deliver_late_mail(heap);
}

/* --- birth --- */

static hak_atomic_u32 few; /* heaps for so many processors; 0: not known yet */

/* 0: unknown. */
static HAK_COLD uint32_t processors_count(void) {
    uint32_t there = hak_os_processors(), allowed = HAK_OPT(cgroup) ? hak_os_group_processors() : 0;
    return there == 0 || (allowed != 0 && allowed < there) ? allowed : there;
}

/* More threads than the processors can run wait with what they hold. `living`: heaps that have one; about so many, for a fork and a thread
 * that vanished leave it as it was until the next look. */
enum { FEW = 8 };
static hak_atomic_u32 living, calm; /* the second: looks in a row at which they were few */

static uint32_t most_of_few(void) {
    enum { EACH = 4, MANY = 16 };
    uint32_t most = hak_load_relaxed(&few);
    if (HAK_LIKELY(most != 0)) return most;
    uint32_t processors = processors_count();
    most = (processors && processors < UINT32_MAX / EACH ? processors : MANY) * EACH;
    if (most < FEW) most = FEW;
    hak_store_relaxed(&few, most);
    return most;
}

static void thread_has_heap(void) {
    uint32_t count = hak_add(&living, 1) + 1;
    if (HAK_LIKELY(count <= FEW) || count <= most_of_few()) return;
    hak_store_relaxed(&calm, 0);
    if (count <= hak_heap_crowd()) return;
    hak_store_relaxed(&hak_rare_blocks, count * HAK_RARE_ASKS);
    hak_store_relaxed(&hak_purge.crowded, 1);
}
static void thread_has_none(void) { hak_add(&living, -1); }

uint32_t hak_heap_living(void) {
    uint32_t count = hak_load_relaxed(&living);
    return count - 1 < HAK_HEAPS_MAX ? count : 1;
}

static bool count_living(struct hak_heap *heap, void *count) {
    *(uint32_t *)count += hak_load_relaxed(&heap->state) == HAK_HEAP_LIVE;
    return false;
}

/* A pool of threads that was there for a while, as in a build, is no reason to give each large block back for good. */
void hak_heap_crowd_look(uint64_t now_ms) {
    enum { LOOK_MS = 1000, CALM = 2 };
    static hak_atomic_u64 looked_ms;
    uint64_t looked = hak_load_relaxed(&looked_ms);
    uint32_t count = 0;
    if (now_ms - looked < LOOK_MS || !hak_cas(&looked_ms, &looked, now_ms)) return;
    hak_heap_each_own(count_living, &count);
    hak_store_relaxed(&living, count);
    bool is_calm = count <= most_of_few() / 2;
    hak_store_relaxed(&calm, is_calm ? hak_load_relaxed(&calm) + 1 : 0);
    if (!is_calm || hak_load_relaxed(&calm) < CALM) return;
    hak_store_relaxed(&calm, 0);
    hak_store_relaxed(&hak_purge.crowded, 0);
    hak_store_relaxed(&hak_rare_blocks, HAK_RARE_BLOCKS);
}

static struct hak_heap *heap_new(void) {
    uint32_t index = hak_load_relaxed(&heap_count);
    for (;;) {
        if (index >= (uint32_t)HAK_HEAPS_MAX) return NULL;
        _Atomic(char *) *home = &homes[index / PER_GRANULE];
        if (!hak_load_acquire(home)) {
            size_t dirty;
            size_t granule = hak_span_take(1, 1, &dirty);
            if (granule == HAK_NO_GRANULE) return NULL;
            char *address = hak_granule_address(granule), *none = NULL;
            if (dirty) memset(address, 0, HAK_GRANULE_BYTES);
            if (!hak_cas(home, &none, address)) hak_span_give(granule, 1, dirty ? HAK_SPAN_DIRTY : HAK_SPAN_AS_IT_WAS);
        }
        if (hak_cas_weak(&heap_count, &index, index + 1)) break;
    }
    struct hak_heap *heap = heap_at(index);
    heap->index = index;
    hak_borrow_serve_none(heap);
    heap->middle_lent = index < HAK_HEAPS_ALONE ? 0 : HAK_CLASSES_LENT;
    return heap;
}

/* --- heaps whose thread is gone, and said nothing ---
 *
 * A thread whose very first allocation comes in the last round of destructors is not told of its end. So a heap bears its thread's
 * number, and who would make a new one asks now and then which of them are gone. A number that was given to another
 * thread keeps the heap until that one ends. A process that shares our memory (vfork, clone) has another process number:
 * what is born there bears none, and it asks for none. */

static hak_atomic_u32 process; /* whose threads' numbers are in the heaps; 0: nobody's yet */
static hak_atomic_u32 look_in = 64, looking; /* heaps still to be made before the next look; the epoch in which somebody is at it */

void hak_heap_new_process(void) {
    hak_store_relaxed(&process, 0);
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_limit_moving_granules) != 0)) hak_store_relaxed(&hak_limit_moving_granules, 0);
    if (HAK_UNLIKELY(hak_load_relaxed(&few) != 0)) hak_store_relaxed(&few, 0);
    if (hak_load_relaxed(&living) > 1) hak_store_relaxed(&living, 1); /* ours, if we have one */
    hak_limit_group_forget();
    dead_void();
    void (*on_fork)(void) = HAK_HOOK(forked);
    if (HAK_LIKELY(on_fork != NULL)) on_fork();
}

void hak_heap_unstamp(struct hak_heap *heap) {
    hak_store_release(&heap->thread, hak_load_relaxed(&heap->thread) & ~(uint64_t)UINT32_MAX);
}

static bool is_our_process(void) {
    uint32_t self = hak_os_pid(), seen = 0;
    return hak_cas(&process, &seen, self) || seen == self;
}

static void stamp(struct hak_heap *heap) {
    uint64_t given = (hak_load_relaxed(&heap->thread) >> 32) + 1;
    hak_store_release(&heap->thread, given << 32 | (is_our_process() ? hak_os_tid() : 0));
}

static void put_all_back(struct hak_heap *heap);

static bool end_if_vanished(struct hak_heap *heap, void *context) {
    uint64_t thread = hak_load_acquire(&heap->thread);
    if (!(uint32_t)thread || hak_load_relaxed(&heap->epoch) != hak_load_relaxed(&hak_epoch)) return false;
    if (!hak_os_thread_is_gone((uint32_t)thread)) return false;
    /* the same gift still: nobody gave the heap up and another thread of this number got it meanwhile */
    if (!hak_cas(&heap->thread, &thread, thread & ~(uint64_t)UINT32_MAX)) return false;
    atomic_thread_fence(memory_order_seq_cst); /* all that the thread wrote came before it went */
    hak_store_relaxed(&heap->state, HAK_HEAP_BUSY);
    thread_has_none();
    put_all_back(heap);
    HAK_COUNT(&heap->counters, heap_died, 1);
    hak_heap_dead_give(heap);
    ++*(uint32_t *)context;
    return false;
}

static HAK_COLD bool vanished_look(uint32_t count) {
    uint32_t found = 0, epoch = hak_load_relaxed(&hak_epoch), seen = hak_load_relaxed(&looking);
    if (!is_our_process() || seen == epoch || !hak_cas(&looking, &seen, epoch)) return false;
    hak_heap_each_own(end_if_vanished, &found);
    hak_store_relaxed(&look_in, found >= count / 8 && found ? 0 : count / 4 > 64 ? count / 4 : 64);
    hak_store_release(&looking, 0);
    return found != 0;
}

static bool vanished_any(void) {
    uint32_t count = hak_load_relaxed(&heap_count), left = hak_load_relaxed(&look_in);
    if (left == 0 || count >= (uint32_t)HAK_HEAPS_MAX) return vanished_look(count);
    hak_store_relaxed(&look_in, left - 1);
    return false;
}

/* One instruction: a signal handler comes before it or after. */
static bool self_becomes(struct hak_heap **before, struct hak_heap *heap) {
    return __atomic_compare_exchange_n(&hak_self, before, heap, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Whose block a thread without a heap freed last, if that was a dead one's: by the address of its hak_self, which the next thread may
 * have, too, with six bits of the hash of its number. Who comes by the same place later makes it forgotten; a heap that is not DEAD by then
 * is nobody's. */
static _Atomic(uintptr_t) hints[HAK_LINE];

static _Atomic(uintptr_t) *hint_of_self(void) {
    return &hints[(uintptr_t)&hak_self / 16 * UINT64_C(0x9e3779b97f4a7c15) >> 58];
}

static uintptr_t tag_of_self(void) { return hak_os_tid() * UINT64_C(0x9e3779b97f4a7c15) >> 58; }

bool hak_heap_hint(struct hak_heap *dead) {
    HAK_STATIC(HAK_LINE == 1 << (64 - 58));
    if (HAK_UNLIKELY(hak_load_relaxed(&dead->is_instance))) return false; /* nobody's successor has that */
    _Atomic(uintptr_t) *hint = hint_of_self();
    uintptr_t mark = (uintptr_t)dead | tag_of_self();
    if (hak_load_relaxed(hint) == mark) return true;
    hak_store_relaxed(hint, mark);
    return false;
}

static HAK_COLD struct hak_heap *take_hinted(void) {
    _Atomic(uintptr_t) *hint = hint_of_self();
    uintptr_t mark = hak_load_relaxed(hint);
    if (mark == 0) return NULL;
    hak_store_relaxed(hint, 0);
    struct hak_heap *heap = (struct hak_heap *)(mark & -(uintptr_t)HAK_LINE);
    return mark % HAK_LINE == tag_of_self() && hak_heap_dead_claim(heap) ? heap : NULL;
}

/* A dead heap or a new one, claimed. */
static HAK_COLD struct hak_heap *heap_find(bool *is_new) {
    enum { TURNS = 32 }; /* the last 16 are of 50 us */
    struct hak_heap *heap = NULL;
    if (hak_heap_dead_any()) {
        heap = take_hinted();
        if (!heap) heap = dead_take(TURNS);
    }
    if (!heap && HAK_UNLIKELY(vanished_any())) heap = hak_heap_dead_take();
    *is_new = heap == NULL;
    return heap ? heap : heap_new();
}

HAK_INLINE void heap_live(struct hak_heap *heap) {
    hak_store_relaxed(&heap->state, HAK_HEAP_LIVE);
    hak_store_release(&heap->epoch, hak_load_relaxed(&hak_epoch));
    heap->clock_in = 0;
    heap->stack_top = hak_os_stack_top();
    heap->clock_step = HAK_VISIT_CLOCK;
    heap->ticks_seen = hak_os_ticks(); /* what its last thread freed, and how long that was ago, is no reason to hurry */
    heap->at_hand_most = heap->hurry_visits = 0;
    heap->is_short = heap->is_ahead = heap->is_survivor = 0; /* its last thread may have vanished by a fork, in the middle of it */
    heap->from_address = NULL;
    heap->rush.heat = 0;
}

/* It is the calling thread's, or one that a signal handler made for it meanwhile. */
static HAK_COLD struct hak_heap *heap_begin(struct hak_heap *before, struct hak_heap *heap, bool is_new) {
    heap_live(heap);
    thread_has_heap();
    if (is_new) HAK_COUNT(&heap->counters, heap_born, 1);
    while (!self_becomes(&before, heap)) {
        if (hak_heap_is_none(before)) continue;
        thread_has_none();
        HAK_COUNT(&heap->counters, heap_died, 1); /* a signal handler allocated while we waited, and made one */
        hak_heap_dead_give(heap);
        return before;
    }
    hak_fork_born(heap);
    return heap;
}

/* False: nobody will be told of the thread's end. */
static HAK_COLD bool heap_told(struct hak_heap *heap, bool is_new) {
    stamp(heap);
    if (!is_new) HAK_COUNT(&heap->counters, heap_adopted, 1);
    bool (*on_birth)(struct hak_heap *) = __atomic_load_n(&hak_heap_on_birth, __ATOMIC_RELAXED); /* another first call may be about to write it, too */
    if (HAK_LIKELY(!on_birth || on_birth(heap))) {
        hak_store_relaxed(&heap->takes_letters, 1);
        return true;
    }
    hak_heap_give_back(heap);
    return false;
}

HAK_COLD struct hak_heap *hak_heap_birth(struct hak_heap *before) {
    bool is_new;
    hak_fork_child((struct hak_heap *)&hak_heap_none); /* in a child the epoch moves on before anything else */
    struct hak_heap *heap = heap_find(&is_new);
    if (!heap) return NULL;
    heap = heap_begin(before, heap, is_new);
    return heap_told(heap, is_new) ? heap : NULL;
}

/* A thread that frees and allocates nothing may be past its destructors (glibc frees what it was started with after them): it will be
 * looked for sooner. */
static void look_soon(void) {
    enum { SOON = 4, SHARE = 16 };
    uint32_t soon = hak_load_relaxed(&heap_count) / SHARE;
    if (soon < SOON) soon = SOON;
    if (hak_load_relaxed(&look_in) > soon) hak_store_relaxed(&look_in, soon);
}

HAK_COLD bool hak_heap_adopt(struct hak_heap *before, struct hak_heap *dead) {
    hak_fork_child((struct hak_heap *)&hak_heap_none);
    if (hak_load_relaxed(&dead->state) != HAK_HEAP_DEAD || !hak_heap_dead_claim(dead)) return false;
    look_soon();
    return heap_told(heap_begin(before, dead, false), false);
}

/* --- instances: heap/family.c --- */

uint32_t hak_heap_next_index(void) { return hak_load_relaxed(&heap_count); }

HAK_COLD struct hak_heap *hak_heap_instance_new(bool is_mallocs) {
    bool is_there_room = hak_add(&instance_count, 1) < INSTANCES_MAX || is_mallocs; /* counted first: it is no thread's */
    struct hak_heap *heap = is_there_room ? heap_new() : NULL;
    if (!heap) {
        hak_add(&instance_count, -1);
        return NULL;
    }
    hak_or(&instances[heap->index / 64], UINT64_C(1) << heap->index % 64);
    hak_store_relaxed(&heap->is_instance, 1);
    hak_store_relaxed(&heap->state, HAK_HEAP_BUSY);
    hak_store_release(&heap->epoch, hak_load_relaxed(&hak_epoch));
    HAK_COUNT(&heap->counters, heap_born, 1);
    return heap;
}

hak_atomic_u64 hak_handed_ended[HAK_CLASS_COUNT];

HAK_COLD void hak_heap_instance_shrink(struct hak_heap *heap) {
    struct hak_range rest = { (char *)heap + PAGE, STRIDE - PAGE };
    uint64_t calls = 0;
    if (hak_region.page_shift != 12 || hak_region.is_limited) return;
    for (unsigned c = HAK_SMALL_CLASS_MAX + 1; c < HAK_CLASS_COUNT; c++) {
        uint64_t *by_visits = &heap->shelf[c].handed, *by_kept = &hak_middle_of(heap, c)->handed, handed = *by_visits + *by_kept;
        HAK_ASSERT(!heap->shelf[c].current && !heap->shelf[c].partial && hak_middle_count(hak_middle_of(heap, c)) == 0);
        if (handed == 0) continue;
        hak_add(&hak_handed_ended[c], handed);
        hak_add(&hak_handed_ended[0], handed * hak_classes[c].block_bytes);
        __atomic_store_n(by_visits, 0, __ATOMIC_RELAXED); /* the kernel may refuse */
        __atomic_store_n(by_kept, 0, __ATOMIC_RELAXED);
    }
    hak_os_return(&rest, 1, &calls);
}

HAK_COLD void hak_heap_instance_begin(struct hak_heap *heap) { heap_live(heap); }

/* --- death --- */

/* What threads asked for together is no promise of the next one: a heap that served hundreds of short ones, a few blocks of each
 * class to each, would have a slab of every class. */
static void rare_again(struct hak_heap *heap, unsigned c) {
    struct hak_shelf *shelf = &heap->shelf[c];
    uint32_t handed = (uint32_t)shelf->handed;
    bool is_earned = shelf->rare >= HAK_RARE_OFTEN && (int32_t)(handed - heap->handed_due[c]) >= HAK_RARE_AGAIN;
    if (!is_earned) shelf->rare = HAK_RARE_BLOCKS - HAK_RARE_AGAIN;
    heap->handed_due[c] = is_earned ? handed : handed - HAK_RARE_AGAIN;
}

static void put_all_back(struct hak_heap *heap) {
    hak_store_relaxed(&heap->takes_letters, 0); /* one that comes nevertheless is found by who takes the heap, or by the sweep */
    hak_fork_check(heap);
    if (heap->is_survivor) hak_fork_rebuild(heap); /* nobody else can */
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->has_instances))) hak_family_give_up(heap);
    hak_batch_flush(heap);
    hak_mail_left(heap);
    hak_middle_flush(heap);
    hak_kept_flush(heap);
    hak_kept_forget(heap);
    for (unsigned c = 1; c < hak_shelf_end(heap); c++) hak_bin_put_back(heap, c);
    if (heap->had_letters) hak_or(&heap->letters, UINT32_MAX); /* as each second */
    hak_mail_take(heap);
    if (heap->batches) hak_batch_flush(heap); /* of letters whose slabs changed hands */
    hak_event_pending(heap);
}

void hak_heap_put_back(struct hak_heap *heap) { put_all_back(heap); }

static void heap_end(struct hak_heap *heap) {
    hak_self = (struct hak_heap *)&hak_heap_gone;
    hak_heap_unstamp(heap);
    thread_has_none();
    hak_heap_dead_give(heap);
}

void hak_heap_death(struct hak_heap *heap) {
    put_all_back(heap);
    for (unsigned c = 1; c <= HAK_SMALL_CLASS_MAX; c++) rare_again(heap, c);
    hak_borrow_forget(heap, true);
    HAK_COUNT(&heap->counters, heap_died, 1);
    heap_end(heap);
}

/* --- after death ---
 *
 * A destructor may allocate in the last round there is. A heap of its own would then be LIVE for ever, with no thread: the key's
 * destructor does not run again, and which round is the last nobody is told. So each such allocation is a short life. */

struct hak_heap *hak_heap_borrow(void) {
    bool is_new;
    struct hak_heap *before = hak_self;
    hak_fork_child((struct hak_heap *)&hak_heap_none);
    struct hak_heap *heap = heap_find(&is_new);
    return heap ? heap_begin(before, heap, is_new) : NULL;
}

void hak_heap_give_back(struct hak_heap *heap) {
    put_all_back(heap);
    heap_end(heap);
}
