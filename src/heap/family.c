/* family.c - see family.h.
 *
 * Clearing: the instances are owned, their bins and what they keep go back to the slabs, and mail is read. Then what a slab's row and the strangers'
 * row leave is live or lies in some thread's batch (heap/census.c tells them apart): the live blocks' bits are set, a word at a
 * time, as if their owner freed them, and the slab's event does the rest. What lies in a batch comes back like any stranger's free.
 *
 * Waits:     who clears waits, yielding, for an instance that another thread has for a moment: it ends, or delivers mail. For five seconds: who
 *            left it by longjmp never comes back. Then its blocks stay, and are no family's. Nobody else waits.
 */
#include "heap/family.h"

#include "heap/kept.h"
#include "heap/secure.h"
#include "heap/walk.h"
#include "memory/purge.h"
#include "os/os.h"

#include <string.h>

hak_atomic_u32 hak_family_any, hak_family_limited, hak_family_pages;

static hak_atomic_i64 spare_count; /* about: instances without a family */
static hak_atomic_u32 is_recounted; /* 1: a child, in which what its thread was about to take is not counted */
static _Atomic(struct hak_heap *) spare_last; /* the last that became one, or NULL */

/* --- where they lie --- */

struct page {
    struct page *next;
    hak_atomic_u32 used_count; /* about: nobody looks through a page that seems to be full */
    struct hak_family family[];
};
enum { FAMILIES = (HAK_GRANULE_BYTES - HAK_LINE) / sizeof(struct hak_family) };
HAK_STATIC(offsetof(struct page, family) == HAK_LINE && (int)FAMILIES >= 30);
static _Atomic(struct page *) pages;
static _Atomic(struct hak_family *) ended_last;

static hak_atomic_u32 *used_count_of(struct hak_family *family) {
    return &((struct page *)((uintptr_t)family & -(uintptr_t)HAK_GRANULE_BYTES))->used_count;
}

static bool family_take(struct hak_family *family) {
    uint32_t none = 0;
    if (!family || hak_load_relaxed(&family->is_used) != 0 || !hak_cas(&family->is_used, &none, 1)) return false;
    hak_add(used_count_of(family), 1);
    return true;
}

static struct hak_family *family_free(void) {
    struct hak_family *last = hak_load_relaxed(&ended_last) ? hak_exchange(&ended_last, NULL) : NULL;
    if (family_take(last)) return last;
    for (struct page *page = hak_load_acquire(&pages); page; page = page->next)
        for (unsigned i = 0; i < FAMILIES && hak_load_relaxed(&page->used_count) < FAMILIES; i++)
            if (family_take(&page->family[i])) return &page->family[i];
    return NULL;
}

static bool page_new(void) {
    size_t dirty, granule = hak_span_take(1, 1, &dirty);
    if (granule == HAK_NO_GRANULE) return false;
    struct page *page = (struct page *)(void *)hak_granule_address(granule);
    if (dirty) memset((void *)page, 0, HAK_GRANULE_BYTES);
    page->next = hak_load_acquire(&pages);
    while (!hak_cas_weak(&pages, &page->next, page)) {}
    hak_add(&hak_family_pages, 1);
    return true;
}

void hak_family_free(struct hak_family *family) {
    hak_add(used_count_of(family), -1); /* first: what is free is counted so */
    hak_store_release(&family->is_used, 0);
}

HAK_COLD struct hak_family *hak_family_new(uint64_t limit_bytes) {
    struct hak_family *family = family_free();
    while (!family) {
        if (!page_new()) return NULL;
        family = family_free();
    }
    uint64_t granules = limit_bytes >> HAK_GRANULE_SHIFT;
    hak_store_relaxed(&family->limit_granules, limit_bytes == 0 ? 0 : granules == 0 ? 1 : (int64_t)granules);
    hak_store_relaxed(&family->taken_granules, 0);
    hak_store_relaxed(&family->has_any, 0);
    hak_store_relaxed(&family->has_ended, 0);
    hak_store_relaxed(&hak_family_any, 1);
    if (limit_bytes) hak_store_relaxed(&hak_family_limited, 1);
    return family;
}

/* --- whose is an instance, without touching it ---
 *
 * A program may have thousands of heaps, each with an instance or more, and one page of every heap takes a cache line and a TLB entry. Names in rows
 * of their own say which are worth a look; the heap itself has the truth, and whoever finds that it is otherwise passes by. Who makes an instance a
 * family's writes its name first. */

enum { KIN_EACH = HAK_GRANULE_BYTES / (2 * sizeof(hak_atomic_u32)), KIN_SPARE = UINT32_MAX };
HAK_STATIC(HAK_HEAPS_MAX % KIN_EACH == 0);
static _Atomic(struct kin *) kins[HAK_HEAPS_MAX / KIN_EACH];
struct kin { /* by the heap's index; 0: an ordinary one */
    hak_atomic_u32 family[KIN_EACH], home[KIN_EACH];
};
static hak_atomic_u32 kin_end; /* one more than the last instance's index */

static uint32_t family_name(const struct hak_family *family) { return (uint32_t)((uintptr_t)family / HAK_LINE); }
static uint32_t home_name(const struct hak_heap *home) { return home->index + 1; }

/* There are rows for the heap with this index. */
static bool kin_ready(uint32_t index) {
    size_t dirty, granule;
    if (index >= HAK_HEAPS_MAX || hak_load_acquire(&kins[index / KIN_EACH])) return true;
    granule = hak_span_take(1, 1, &dirty);
    if (granule == HAK_NO_GRANULE) return false;
    struct kin *kin = (struct kin *)(void *)hak_granule_address(granule), *none = NULL;
    if (dirty) memset((void *)kin, 0, HAK_GRANULE_BYTES);
    if (!hak_cas(&kins[index / KIN_EACH], &none, kin)) hak_span_give(granule, 1, dirty ? HAK_SPAN_DIRTY : HAK_SPAN_AS_IT_WAS);
    else hak_add(&hak_family_pages, 1);
    return true;
}

static struct kin *kin_of(const struct hak_heap *heap) { return hak_load_acquire(&kins[heap->index / KIN_EACH]); }

static void family_set(struct hak_heap *heap, struct hak_family *family) {
    hak_atomic_u32 *name = &kin_of(heap)->family[heap->index % KIN_EACH];
    if (family) hak_store_relaxed(name, family_name(family));
    hak_store_relaxed(&heap->family, family);
    if (!family) hak_store_relaxed(name, KIN_SPARE);
}

static void home_set(struct hak_heap *heap, struct hak_heap *home) {
    hak_store_relaxed(&kin_of(heap)->home[heap->index % KIN_EACH], home_name(home));
    hak_store_release(&heap->home, home); /* a child of a handler's fork finds it as the survivor's */
}

/* Calls a function for each heap that bears the name, and for some that do not, until it gives true. */
static void named_each(size_t row, uint32_t name, hak_heap_look_function *function, void *context) {
    uint32_t end = hak_load_acquire(&kin_end);
    for (uint32_t from = 0; from < end; from += KIN_EACH) {
        struct kin *kin = hak_load_acquire(&kins[from / KIN_EACH]);
        if (!kin) continue;
        const hak_atomic_u32 *names = (const hak_atomic_u32 *)(const void *)((char *)kin + row);
        for (uint32_t i = 0; i < KIN_EACH && from + i < end; i++)
            if (HAK_UNLIKELY(hak_load_relaxed(&names[i]) == name) && function(hak_heap_named(from + i + 1), context)) return;
    }
}

void hak_family_each(struct hak_family *family, hak_heap_look_function *function, void *context) {
    named_each(offsetof(struct kin, family), family ? family_name(family) : KIN_SPARE, function, context);
}
void hak_family_each_of_home(struct hak_heap *home, hak_heap_look_function *function, void *context) {
    named_each(offsetof(struct kin, home), home_name(home), function, context);
}

/* --- a thread's instance --- */

struct found {
    struct hak_family *family;
    struct hak_heap *home, *heap;
};

static bool found_of_home(struct hak_heap *heap, void *context) {
    struct found *found = context;
    if (!hak_family_fits(heap, found->family, found->home)) return false;
    found->heap = heap;
    return true;
}

static bool found_ended(struct hak_heap *heap, void *context) {
    struct found *found = context;
    if (hak_load_relaxed(&heap->family) != found->family || !hak_heap_dead_claim(heap)) return false;
    if (hak_load_relaxed(&heap->family) == found->family) found->heap = heap;
    else hak_heap_dead_unclaim(heap);
    return found->heap != NULL;
}

static bool is_spare(struct hak_heap *heap) {
    return !hak_load_relaxed(&heap->family) && hak_load_relaxed(&kin_of(heap)->family[heap->index % KIN_EACH]) == KIN_SPARE;
}

static bool found_spare(struct hak_heap *heap, void *context) {
    struct found *found = context;
    if (!is_spare(heap) || !hak_heap_dead_claim(heap)) return false;
    if (is_spare(heap) && hak_load_relaxed(&heap->slab_count)) { /* a block of its last family may be back by now */
        hak_mail_take(heap);
        hak_event_pending(heap);
    }
    if (is_spare(heap) && hak_load_relaxed(&heap->slab_count) == 0) found->heap = heap;
    else hak_heap_dead_unclaim(heap);
    return found->heap != NULL;
}

static struct hak_heap *spare_take(void) {
    struct found found = { NULL, NULL, NULL };
    struct hak_heap *last = hak_load_relaxed(&spare_last) ? hak_exchange(&spare_last, NULL) : NULL;
    if (hak_load_relaxed(&spare_count) <= 0) return NULL;
    if (!last || !found_spare(last, &found)) hak_family_each(NULL, found_spare, &found);
    if (found.heap) hak_add(&spare_count, -1);
    return found.heap;
}

static struct hak_heap *instance_new(const struct hak_family *family) {
    enum { OTHERS = 64 }; /* threads that begin meanwhile, and take an index each */
    uint32_t next = hak_heap_next_index(), end = hak_load_relaxed(&kin_end);
    if (!kin_ready(next) || !kin_ready(next + OTHERS)) return NULL;
    struct hak_heap *heap = hak_heap_instance_new(family == hak_load_relaxed(&hak_secure_family));
    if (!heap || HAK_UNLIKELY(!kin_ready(heap->index))) return NULL; /* more of them, and memory is short: it is nobody's */
    while (end <= heap->index && !hak_cas_weak(&kin_end, &end, heap->index + 1)) {}
    return heap;
}

/* Claimed: one that lost its thread, one whose family ended, or a new one. */
static struct hak_heap *instance_take(struct hak_family *family) {
    struct found found = { family, NULL, NULL };
    if (hak_load_relaxed(&family->has_ended)) hak_family_each(family, found_ended, &found);
    if (found.heap) return found.heap;
    found.heap = spare_take();
    if (!found.heap) found.heap = instance_new(family);
    if (found.heap) family_set(found.heap, family);
    return found.heap;
}

static _Atomic(struct hak_heap *) *slot_of(struct hak_family *family, const struct hak_heap *home, unsigned probe) {
    return &family->slot[(hak_family_hash(home) + probe) % HAK_FAMILY_SLOTS];
}

/* The first place that no thread's instance needs, or the last; whoever is displaced finds his by a search. */
static void slot_set(struct hak_family *family, struct hak_heap *home, struct hak_heap *heap) {
    unsigned probe = 0;
    for (struct hak_heap *there; probe < HAK_FAMILY_PROBES - 1; probe++) {
        there = hak_load_relaxed(slot_of(family, home, probe));
        if (!there || hak_load_relaxed(&there->family) != family || !hak_load_relaxed(&there->home)) break;
    }
    hak_store_relaxed(slot_of(family, home, probe), heap);
}

static HAK_COLD struct hak_heap *instance_find(struct hak_family *family, struct hak_heap *home) {
    struct found found = { family, home, NULL };
    bool may_be_there = hak_load_relaxed(&home->has_instances) && hak_load_relaxed(&family->has_any);
    if (may_be_there) hak_family_each(family, found_of_home, &found);
    if (!found.heap) {
        hak_store_relaxed(&family->has_any, 1); /* first: a child of a fork in the middle of it looks for what there may be */
        found.heap = instance_take(family);
        if (!found.heap) return NULL;
        hak_store_relaxed(&home->has_instances, 1);
        home_set(found.heap, home); /* first, as said there */
        hak_heap_instance_begin(found.heap);
    }
    slot_set(family, home, found.heap);
    return found.heap;
}

struct hak_heap *hak_family_find(struct hak_family *family, struct hak_heap *home) {
    for (unsigned probe = 0; probe < HAK_FAMILY_PROBES; probe++) {
        struct hak_heap *heap = hak_load_relaxed(slot_of(family, home, probe));
        if (hak_family_fits(heap, family, home)) return heap;
    }
    return instance_find(family, home);
}

static bool give_up(struct hak_heap *heap, void *context) {
    struct hak_heap *home = context;
    if (hak_load_relaxed(&heap->home) != home || !hak_cas(&heap->home, &home, NULL)) return false;
    struct hak_family *family = hak_load_relaxed(&heap->family);
    hak_heap_put_back(heap);
    if (family) hak_store_relaxed(&family->has_ended, 1);
    hak_heap_dead_give(heap);
    return false;
}

HAK_COLD void hak_family_give_up(struct hak_heap *home) {
    hak_store_relaxed(&home->has_instances, 0);
    hak_family_each_of_home(home, give_up, home);
}

/* --- whose is it --- */

struct hak_family *hak_family_of_large(const struct hak_granule *record) {
    if (!(hak_large_facts(record) & HAK_LARGE_FAMILY)) return NULL;
    return hak_family_of_heap(hak_heap_named(hak_large_name(record)));
}

/* --- the limit --- */

bool hak_family_reserve(struct hak_family *family, size_t granules) {
    int64_t most = hak_load_relaxed(&family->limit_granules), more = (int64_t)granules;
    int64_t taken = hak_add(&family->taken_granules, more) + more;
    if (HAK_LIKELY(most == 0 || taken <= most)) return true;
    hak_family_note(family, -more);
    return false;
}

HAK_COLD void hak_family_slab_begins(struct hak_heap *heap, size_t granules) {
    heap->is_refused = !hak_family_reserve(hak_load_relaxed(&heap->family), granules);
    if (!heap->is_refused) hak_add(&heap->slab_count, 1);
}

HAK_COLD void hak_family_slab_fails(struct hak_heap *heap, size_t granules) {
    if (HAK_LIKELY(!hak_load_relaxed(&heap->is_instance))) return;
    hak_family_note(hak_load_relaxed(&heap->family), -(int64_t)granules);
    hak_add(&heap->slab_count, -1);
}

HAK_COLD bool hak_family_slab_again(struct hak_heap *heap, size_t granules) {
    hak_family_slab_begins(heap, granules);
    if (!heap->is_refused) return true;
    hak_family_note(hak_load_relaxed(&heap->family), (int64_t)granules);
    hak_add(&heap->slab_count, 1);
    return false;
}

HAK_COLD void hak_family_slab_ends(struct hak_heap *heap, const struct hak_slab *slab) {
    struct hak_family *family = hak_load_relaxed(&heap->family);
    if (family) hak_family_note(family, -(int64_t)hak_slab_class(slab)->granules);
    hak_add(&heap->slab_count, -1);
}

HAK_COLD void hak_family_slab_moves(struct hak_heap *from, struct hak_heap *to) {
    hak_add(&from->slab_count, -1);
    hak_add(&to->slab_count, 1);
}

HAK_COLD void hak_family_large_ended(struct hak_granule *record) {
    struct hak_family *family = hak_family_of_large(record);
    if (family) hak_family_note(family, -(int64_t)hak_family_granules(record));
    hak_large_family_clear(record);
}

HAK_COLD bool hak_family_resize_begin(struct hak_family_resize *resize, const struct hak_granule *record, size_t wanted) {
    resize->family = hak_family_of_large(record);
    if (!resize->family) return true;
    resize->name = hak_large_name(record);
    resize->before = resize->reserved = hak_family_granules(record);
    if (wanted <= resize->before) return true;
    if (!hak_family_reserve(resize->family, wanted - resize->before)) return false;
    resize->reserved = wanted;
    return true;
}

HAK_COLD void hak_family_resize_end(struct hak_family_resize *resize, struct hak_granule *record) {
    if (!resize->family) return;
    size_t now = record ? hak_family_granules(record) : resize->before;
    if (record && !(hak_large_facts(record) & HAK_LARGE_FAMILY)) hak_large_family_set(record, resize->name); /* its pages were moved */
    hak_family_note(resize->family, (int64_t)now - (int64_t)resize->reserved);
}

static bool collect_ended(struct hak_heap *heap, void *family) {
    if (hak_load_relaxed(&heap->family) != family || !hak_heap_dead_claim(heap)) return false;
    hak_heap_empty(heap);
    hak_heap_dead_unclaim(heap);
    return false;
}

HAK_COLD void hak_family_collect(struct hak_family *family, struct hak_heap *heap) {
    hak_heap_empty(heap);
    if (hak_load_relaxed(&family->has_ended)) hak_family_each(family, collect_ended, family);
}

/* --- all of it --- */

/* BUSY, and nobody's but the caller's. */
static bool instance_own(struct hak_family *family, struct hak_heap *heap) {
    enum { TURNS_OF_CHILD = 200, TURNS_MAX = 50000 }; /* some 20 ms, some five seconds */
    for (unsigned turn = 0;; turn++) {
        struct hak_heap *home = hak_load_relaxed(&heap->home);
        if (hak_load_relaxed(&heap->family) != family) return false;
        /* a child of _Fork: who forked has not rebuilt it yet, and its blocks stay */
        bool is_parents = hak_load_relaxed(&heap->epoch) != hak_load_relaxed(&hak_epoch);
        if (turn >= (is_parents ? TURNS_OF_CHILD : TURNS_MAX)) {
            /* no spare, for ever: large blocks may bear its name, and who has it may come back */
            hak_store_relaxed(&heap->family, NULL);
            hak_store_relaxed(&kin_of(heap)->family[heap->index % KIN_EACH], 0);
            return false;
        }
        if (!is_parents && home && hak_cas(&heap->home, &home, NULL)) {
            hak_store_relaxed(&heap->state, HAK_HEAP_BUSY);
            return true;
        }
        if (!is_parents && !home && hak_heap_dead_claim(heap)) return true;
        hak_os_yield(turn);
    }
}

/* What each slab and large block of the family becomes: free, or of heap `to`. No other thread uses the family: it gets no further instance. */
enum { INSTANCES_KNOWN = 16 };
struct change {
    struct hak_family *family;
    struct hak_heap *to;
    struct hak_heap *self, *mine; /* the calling thread's own heap, and its instance */
    struct hak_heap *instance[INSTANCES_KNOWN]; /* its instances, if they are no more: then no other slab's heap is touched */
    unsigned instance_count;
    struct hak_apart apart;
};

static bool is_ones_slab(const struct change *change, struct hak_heap *heap) {
    if (change->instance_count > INSTANCES_KNOWN) return hak_family_of_heap(heap) == change->family;
    for (unsigned i = 0; i < change->instance_count; i++)
        if (change->instance[i] == heap) return true;
    return false;
}

static bool family_own(struct hak_heap *heap, void *context) {
    struct change *change = context;
    bool is_mine = hak_load_relaxed(&heap->home) == change->self;
    if (hak_load_relaxed(&heap->family) != change->family || !instance_own(change->family, heap)) return false;
    if (is_mine && !hak_heap_is_none(change->self)) change->mine = heap;
    if (change->instance_count < INSTANCES_KNOWN) change->instance[change->instance_count] = heap;
    change->instance_count++;
    hak_heap_put_back(heap);
    return false;
}

/* Slabs that somebody had claimed when they were to end. */
static void pending_end(struct hak_heap *heap) {
    enum { TURNS_MAX = 200 };
    for (unsigned turn = 0; heap->pending && turn < TURNS_MAX; turn++) {
        hak_event_pending(heap);
        if (heap->pending) hak_os_yield(turn);
    }
}

/* The calling thread's is its again; the others' threads take one when they come. */
static bool family_leave(struct hak_heap *heap, void *context) {
    struct change *change = context;
    if (hak_load_relaxed(&heap->family) != change->family) return false;
    pending_end(heap);
    if (heap == change->mine) {
        hak_store_relaxed(&heap->state, HAK_HEAP_LIVE);
        home_set(heap, change->self);
    } else {
        hak_store_relaxed(&change->family->has_ended, 1);
        hak_heap_dead_unclaim(heap);
    }
    return false;
}

/* Instances that wait for the next family with all their pages. */
enum { SPARES_WHOLE = 16 };

static bool family_end(struct hak_heap *heap, void *family) {
    if (hak_load_relaxed(&heap->family) != family) return false;
    pending_end(heap);
    heap->follows = 0; /* what it counts to is to be set anew */
    family_set(heap, NULL);
    bool is_one_of_many = hak_add(&spare_count, 1) >= SPARES_WHOLE;
    if (is_one_of_many && hak_load_relaxed(&heap->slab_count) == 0) hak_heap_instance_shrink(heap);
    hak_heap_dead_unclaim(heap);
    hak_store_relaxed(&spare_last, heap);
    return false;
}

/* Under the secure level free memory of slabs reads as zeros. */
static HAK_COLD void blocks_wipe(const struct hak_row *row, unsigned index, uint64_t live) {
    for (; live; live &= live - 1) memset(row->start + (index * 64 + hak_word_first(live)) * (size_t)row->block_bytes, 0, row->block_bytes);
}

static void slab_clear(struct hak_heap *heap, struct hak_slab *slab, const struct hak_apart *apart) {
    uint64_t live[HAK_SLAB_WORDS_MAX];
    struct hak_row *row = hak_slab_row(slab);
    if (slab->place == HAK_SLAB_NONE || slab->pending) return;
    uint32_t given = hak_slab_collect(slab), count = 0;
    if (given) hak_given_taken(heap, row, given);
    hak_held_by_program(slab, apart, live);
    for (unsigned i = 0; i < hak_slab_class(slab)->word_count; i++) {
        if (!live[i]) continue;
        if (HAK_UNLIKELY(hak_secure_is_on())) blocks_wipe(row, i, live[i]);
        HAK_ASSERT(!(hak_load_relaxed(&row->word[i]) & live[i]));
        hak_store_release(&row->word[i], hak_load_relaxed(&row->word[i]) | live[i]);
        count += hak_word_count(live[i]);
    }
    if (given + count == 0) return;
    hak_row_arm(row, hak_row_out(row) - given - count, 0);
    hak_event(heap, slab);
}

static void slab_pass(struct hak_heap *from, struct hak_slab *slab, struct hak_heap *to) {
    enum { TURNS_MAX = 200 };
    unsigned turn = 0;
    if (slab->place == HAK_SLAB_NONE || slab->pending) return; /* nothing of it is held */
    while (!hak_slab_claim(slab)) {
        if (turn == TURNS_MAX) return; /* somebody left it claimed: it stays, and its instance waits for its blocks */
        hak_os_yield(turn++);
    }
    bool is_partial = slab->place == HAK_SLAB_PARTIAL;
    if (is_partial) hak_list_remove(from, slab);
    hak_slab_give_claimed(slab, to);
    hak_slab_unclaim(slab);
    hak_add(&from->slab_count, -1);
    hak_family_note(hak_load_relaxed(&from->family), -(int64_t)hak_slab_class(slab)->granules);
    if (HAK_UNLIKELY(hak_load_relaxed(&to->is_instance))) { /* of the secure level's family */
        hak_add(&to->slab_count, 1);
        hak_family_note(hak_load_relaxed(&to->family), hak_slab_class(slab)->granules);
    }
    if (is_partial) hak_list_push(to, slab);
}

static void large_change(const struct change *change, struct hak_granule *record) {
    if (hak_load_acquire(&record->owner) != HAK_LARGE || hak_family_of_large(record) != change->family) return;
    if (change->to) {
        hak_family_note(change->family, -(int64_t)hak_family_granules(record));
        hak_large_family_clear(record);
        return;
    }
    if (!hak_large_end(record)) return;
    hak_family_large_ended(record);
    if (HAK_UNLIKELY(hak_secure_is_on())) hak_secure_large_ended(record);
    else hak_large_finish(NULL, record);
}

static void chunk_change(const struct change *change, size_t number) {
    size_t first = number * HAK_CHUNK_GRANULES;
    if (!hak_unit_ready(number)) return;
    uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used);
    for (uint64_t slabs = hak_chunk_slabs(number); slabs; slabs &= slabs - 1) {
        unsigned at = hak_word_first(slabs);
        struct hak_slab *slab = hak_slab_at(first + at);
        struct hak_heap *heap = hak_load_acquire(&slab->owner); /* another's may end meanwhile, the family's may not */
        used &= ~hak_word_mask(at, 1);
        if (!is_ones_slab(change, heap)) continue;
        if (change->to) slab_pass(heap, slab, change->to);
        else slab_clear(heap, slab, &change->apart);
    }
    for (; used; used &= used - 1) large_change(change, hak_granule_at(first + hak_word_first(used)));
}

static void family_change(struct change *change, struct hak_family *family, struct hak_heap *to) {
    change->family = family;
    change->to = to;
    change->self = hak_self;
    change->mine = NULL;
    change->instance_count = 0;
    if (!hak_heap_is_none(hak_self)) hak_batch_flush(hak_self); /* else it would keep slabs of what the caller has freed */
    if (!hak_load_relaxed(&family->has_any)) return;
    hak_family_each(family, family_own, change);
    if (!to) hak_apart_look(&change->apart, false); /* after what the heaps themselves had: all that was freed before is found */
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        if (hak_load_relaxed(&family->taken_granules) == 0 && HAK_LIKELY(!hak_load_relaxed(&is_recounted))) break; /* nothing is left */
        chunk_change(change, number);
    }
}

/* The instances that family_own() found. */
static void owned_each(const struct change *change, hak_heap_look_function *function, void *context) {
    if (change->instance_count > INSTANCES_KNOWN) hak_family_each(change->family, function, context);
    else for (unsigned i = 0; i < change->instance_count; i++) function(change->instance[i], context);
}

HAK_COLD void hak_family_clear(struct hak_family *family) {
    struct change change;
    family_change(&change, family, NULL);
    owned_each(&change, family_leave, &change);
}

static void family_give_back(struct hak_family *family, const struct change *change) {
    owned_each(change, family_end, family);
    for (unsigned i = 0; i < HAK_FAMILY_SLOTS; i++)
        if (hak_load_relaxed(&family->slot[i])) hak_store_relaxed(&family->slot[i], NULL);
    hak_family_free(family);
    hak_store_relaxed(&ended_last, family);
}

HAK_COLD void hak_family_destroy(struct hak_family *family) {
    struct change change;
    family_change(&change, family, NULL);
    family_give_back(family, &change);
}

HAK_COLD void hak_family_delete(struct hak_family *family, struct hak_heap *heap) {
    struct change change;
    HAK_ASSERT(heap != NULL);
    family_change(&change, family, heap);
    family_give_back(family, &change);
}

/* --- fork --- */

HAK_COLD void hak_family_recount(void) {
    if (HAK_LIKELY(!hak_load_relaxed(&hak_family_any))) return;
    hak_store_relaxed(&is_recounted, 1);
    for (struct page *page = hak_load_acquire(&pages); page; page = page->next)
        for (unsigned i = 0; i < FAMILIES; i++) {
            hak_store_relaxed(&page->family[i].taken_granules, 0);
            hak_store_relaxed(&page->family[i].has_ended, 1);
        }
    size_t top = hak_load_acquire(&hak_chunk_top);
    for (size_t number = 0; number < top; number++) {
        if (!hak_unit_ready(number)) continue;
        for (uint64_t slabs = hak_chunk_slabs(number); slabs; slabs &= slabs - 1) {
            struct hak_slab *slab = hak_slab_at(number * HAK_CHUNK_GRANULES + hak_word_first(slabs));
            struct hak_family *family = hak_family_of_heap(hak_load_acquire(&slab->owner));
            if (family) hak_family_note(family, hak_slab_class(slab)->granules);
        }
        for (uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used); used; used &= used - 1) {
            const struct hak_granule *record = hak_granule_at(number * HAK_CHUNK_GRANULES + hak_word_first(used));
            struct hak_family *family = hak_load_acquire(&record->owner) == HAK_LARGE ? hak_family_of_large(record) : NULL;
            if (family) hak_family_note(family, (int64_t)hak_family_granules(record));
        }
    }
}
