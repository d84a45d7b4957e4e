/* guard.c - see guard.h.
 *
 *   | none | place: 32 KiB, or 1 MiB  | none | place ..     the block stands at the right end of its place (as near to it as
 *          |            | page, block  |                     its alignment allows) or at the left one, by chance; pages of
 *                                                            the place that it does not need stay closed as well
 *
 * What is left of its own pages holds a pattern, which free() looks at. A freed block's pages are closed and given back; its
 * place is used again when no other was free for longer.
 *
 * Invariant: a place's word is { serial << 2 | enum hak_guard_state }, and every change but the owner's of a BUSY one takes a
 *            new serial; so a compare-and-swap on a word that was read earlier fails if anything happened meanwhile.
 * Rejected:  a mapping for each block: two system calls more, and an address that was unmapped is somebody else's next.
 */
#include "watch/guard.h"

#include "heap/heap.h"
#include "heap/walk.h"
#include "memory/large.h"
#include "memory/outside.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/alone.h"
#include "watch/draw.h"
#include "watch/sampler.h"

#include <string.h>

enum { PLACES_LEAST = 8, PLACES_SMALL = 16, STATE_BITS = 2, STATE_MASK = (1 << STATE_BITS) - 1, PICKS = 4 };
enum { SIZES = 2, LARGE_SHARE = 16 }; /* a large place for so many others */

struct place {
    hak_atomic_u64 word;
    hak_atomic_u32 number; /* its sample's, record.c */
    unsigned char pattern;
    bool is_unclean;       /* some of its pages did not go back when it was closed, or stayed open */
    uint32_t page_bytes;   /* open while the block lives */
    char *page;
};

/* Places of one size, one behind another. */
struct places {
    uintptr_t base;
    size_t place_bytes, stride;
    uint32_t first, count;
    hak_atomic_u32 unused; /* from the first on so many were used */
};

static struct {
    uintptr_t base; /* a page that is never opened, and then all places */
    size_t bytes;   /* 0: there are none yet */
    size_t page_bytes;
    struct places of[SIZES];
    struct place *place;
    struct hak_guard_row *row;
} pool = { .of = { { .place_bytes = 32 << 10 }, { .place_bytes = 1 << 20 } } };

static hak_atomic_u32 started; /* HAK_MADE: the pool is there */
static hak_atomic_u64 serials, open_bytes;
static hak_atomic_u64 handed_count[HAK_CLASS_COUNT];

#define ADD(field, amount) __atomic_fetch_add(&hakmem_published.field, (uint64_t)(amount), __ATOMIC_RELAXED)

/* --- start --- */

/* So many small places, and their share of large ones unless address space is short; in bytes. */
static size_t pool_lay(uint32_t count) {
    size_t bytes = pool.page_bytes;
    for (unsigned i = 0; i < SIZES; i++) {
        struct places *places = &pool.of[i];
        places->place_bytes = hak_round_up(places->place_bytes, pool.page_bytes);
        places->stride = places->place_bytes + pool.page_bytes;
        places->first = i ? count : 0;
        places->count = i == 0 ? count : hak_region.is_limited ? 0 : (count + LARGE_SHARE - 1) / LARGE_SHARE;
        places->base = bytes;
        bytes += places->count * places->stride;
    }
    return bytes;
}

/* free() asks the window's records first, so no place of it may be one of ours. */
static char *reserve_apart(size_t bytes) {
    char *at = hak_os_reserve(bytes);
    if (!at || HAK_LIKELY(!hak_outside_meets_window((uintptr_t)at, bytes))) return at;
    hak_os_unmap(at, bytes);
    at = hak_outside_map(bytes);
    if (!at || hak_os_protect(at, bytes, false) == 0) return at;
    hak_os_unmap(at, bytes);
    return NULL;
}

static bool pool_map(void) {
    pool.page_bytes = hak_os_page_bytes();
    uint32_t count = (uint32_t)HAK_OPT(guard_blocks);
    if (hak_region.is_limited && count > PLACES_SMALL) count = PLACES_SMALL;
    size_t bytes = pool_lay(count);
    char *at = reserve_apart(bytes);
    for (; !at && count / 2 >= PLACES_LEAST; at = reserve_apart(bytes)) bytes = pool_lay(count /= 2);
    if (!at) return false;
    uint32_t rows = pool.of[SIZES - 1].first + pool.of[SIZES - 1].count;
    size_t row_bytes = hak_round_up(rows * sizeof(struct hak_guard_row), pool.page_bytes);
    pool.row = hak_os_map(row_bytes + hak_round_up(rows * sizeof(struct place), pool.page_bytes));
    if (!pool.row) {
        hak_os_unmap(at, bytes);
        return false;
    }
    hak_stack_ours_find();
    pool.place = (struct place *)(void *)((char *)pool.row + row_bytes);
    pool.base = (uintptr_t)at;
    for (unsigned i = 0; i < SIZES; i++) pool.of[i].base += (uintptr_t)at;
    hakmem_published.guards = (struct hak_table){ (uintptr_t)pool.row, sizeof *pool.row, rows, rows };
    __atomic_store_n(&pool.bytes, bytes, __ATOMIC_RELEASE); /* pairs with hak_guard_holds() */
    return true;
}

static bool pool_ready(void) {
    if (HAK_LIKELY(hak_load_acquire(&started) == HAK_MADE)) return true;
    if (hak_make_begin(&started)) hak_store_release(&started, pool_map() ? (uint32_t)HAK_MADE : 0u);
    return hak_load_acquire(&started) == HAK_MADE;
}

/* --- which place --- */

bool hak_guard_holds(const void *address) {
    size_t bytes = __atomic_load_n(&pool.bytes, __ATOMIC_ACQUIRE);
    return bytes && (uintptr_t)address - pool.base < bytes;
}

static uint32_t rows_count(void) { return (uint32_t)hakmem_published.guards.capacity; }

/* Of an address that is held; the page before the first place counts to that. */
static uint32_t index_of(const void *address) {
    const struct places *places = &pool.of[SIZES - 1];
    for (; places > pool.of && ((uintptr_t)address < places->base || !places->count); places--) {}
    uintptr_t offset = (uintptr_t)address < places->base ? 0 : (uintptr_t)address - places->base;
    return places->first + (uint32_t)(offset / places->stride);
}

static enum hak_guard_state state_of(uint64_t word) { return (enum hak_guard_state)(word & STATE_MASK); }
static uint64_t word_new(enum hak_guard_state state) { return (hak_add(&serials, 1) + 1) << STATE_BITS | state; }

/* One that was never used, else the one that was freed first. *was: what its word is to be if it is given back. */
static struct place *place_pick(struct places *places, uint64_t *was) {
    struct place *first = &pool.place[places->first];
    uint32_t next = hak_load_relaxed(&places->unused);
    while (next < places->count)
        if (hak_cas_weak(&places->unused, &next, next + 1)) {
            *was = HAK_GUARD_FREED; /* serial 0: the first to be used again */
            hak_store_relaxed(&first[next].word, HAK_GUARD_BUSY);
            return &first[next];
        }
    for (unsigned picks = 0; picks < PICKS; picks++) {
        struct place *oldest = NULL;
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < places->count; i++) {
            uint64_t word = hak_load_relaxed(&first[i].word);
            if (state_of(word) != HAK_GUARD_FREED || word >= least) continue;
            least = word;
            oldest = &first[i];
        }
        if (!oldest) return NULL;
        *was = least;
        if (hak_cas(&oldest->word, &least, word_new(HAK_GUARD_BUSY))) return oldest;
    }
    return NULL;
}

/* --- rows --- */

static struct hak_guard_row *row_of(const struct place *place) { return &pool.row[place - pool.place]; }

void hak_guard_event_begin(struct hak_guard_event *event) {
    event->time_ns = hak_os_clock_ns();
    event->tid = hak_os_tid();
    event->frame_count = 0;
    hak_os_thread_name(event->name);
}

static void event_fill(struct hak_guard_event *event, struct hak_stack_here here, struct hak_stack_bounds *bounds) {
    hak_guard_event_begin(event);
    event->frame_count = hak_stack_frames(here, bounds, event->frame, HAK_GUARD_FRAMES_MAX);
}

/* --- taking --- */

static struct places *places_for(size_t bytes) {
    for (unsigned i = 0; i < SIZES; i++)
        if (bytes <= pool.of[i].place_bytes && pool.of[i].count) return &pool.of[i];
    return NULL;
}

/* Where the block goes in its place; 0: its alignment leaves no room. */
static uintptr_t block_put(uintptr_t low, uintptr_t high, size_t bytes, size_t align, bool at_right) {
    if (align < 16) align = 16;
    uintptr_t left = (low + align - 1) & -align, right = (high - (bytes ? bytes : 1)) & -align;
    if (left + bytes > high || right < low) return 0;
    return at_right ? right : left;
}

/* The bytes of its pages before and behind the block. */
static void slack_fill(const struct place *place, const struct hak_guard_row *row) {
    char *block = (char *)(uintptr_t)row->block, *end = block + row->requested_bytes, *pages_end = place->page + place->page_bytes;
    memset(place->page, place->pattern, (size_t)(block - place->page));
    memset(end, place->pattern, (size_t)(pages_end - end));
}

static bool place_open(struct place *place, uintptr_t block, size_t bytes) {
    uintptr_t page = block & -(uintptr_t)pool.page_bytes;
    uintptr_t end = hak_round_up(block + (bytes ? bytes : 1), pool.page_bytes);
    uint64_t open = end - page, most = HAK_OPT(guard_kb) << 10;
    if (hak_add(&open_bytes, open) + open <= most && hak_os_protect((void *)page, open, true) == 0) {
        place->page = (char *)page;
        place->page_bytes = (uint32_t)open;
        return true;
    }
    hak_add(&open_bytes, -open);
    return false;
}

static void *short_of(struct hak_heap *heap) {
    HAK_COUNT(&heap->counters, guard_short, 1);
    ADD(guard_short, 1);
    return NULL;
}

static bool is_large(size_t bytes) { return bytes > HAK_SLAB_BLOCK_BYTES_MAX; }

/* It is counted as other blocks of its size are. */
static void counted(size_t bytes, int64_t count) {
    if (!is_large(bytes)) {
        if (count > 0) hak_add(&handed_count[hak_class_of(bytes ? bytes : 1)], 1);
        return;
    }
    hak_add(&hak_large_live_count, count);
    hak_add(&hak_large_live_bytes, count * (int64_t)hak_round_up(bytes, pool.page_bytes));
}

void *hak_guard_take(struct hak_heap *heap, size_t bytes, size_t align, struct hak_stack_here here,
                     struct hak_stack_bounds *bounds, uint64_t *random, hak_atomic_u32 **number) {
    uint64_t was, dice = hak_draw_bits(random);
    struct places *places = pool_ready() ? places_for(bytes) : NULL;
    struct place *place = places ? place_pick(places, &was) : NULL;
    if (!place) return short_of(heap);
    uintptr_t low = places->base + (size_t)(place - pool.place - places->first) * places->stride;
    uintptr_t block = block_put(low, low + places->place_bytes, bytes, align, dice & 1);
    if (!block || !place_open(place, block, bytes)) {
        hak_store_release(&place->word, was);
        return short_of(heap);
    }
    hak_guard_listen();
    place->pattern = (unsigned char)(0x80 | dice >> 8);
    struct hak_guard_row *row = row_of(place);
    hak_row_write_begin(&row->sequence);
    row->state = HAK_GUARD_LIVE;
    row->low = low;
    row->high = low + places->place_bytes;
    row->block = block;
    row->requested_bytes = bytes;
    row->serial = ADD(guarded, 1);
    row->free.tid = 0;
    event_fill(&row->alloc, here, bounds);
    hak_row_write_end(&row->sequence);
    if (place->is_unclean && is_large(bytes)) memset((void *)block, 0, bytes);
    slack_fill(place, row);
    hak_store_relaxed(&place->number, 0);
    *number = &place->number;
    hak_store_release(&place->word, word_new(HAK_GUARD_LIVE));
    ADD(guarded_live, 1);
    if (was >> STATE_BITS) ADD(guarded_freed, -1);
    counted(bytes, 1);
    HAK_COUNT(&heap->counters, guard_alloc, 1);
    return (void *)block;
}

/* --- finding --- */

static struct place *live_at(const void *block, uint64_t *word) {
    if (!hak_guard_holds(block)) return NULL;
    struct place *place = &pool.place[index_of(block)];
    *word = hak_load_acquire(&place->word);
    return state_of(*word) == HAK_GUARD_LIVE && row_of(place)->block == (uintptr_t)block ? place : NULL;
}

/* Who asks how much of a block of no bytes may be used is told 1, and may use it. */
size_t hak_guard_usable(const void *block) {
    uint64_t word;
    struct place *place = live_at(block, &word);
    if (!place) return 0;
    struct hak_guard_row *row = row_of(place);
    if (row->requested_bytes == 0) row->requested_bytes = 1;
    return (size_t)row->requested_bytes;
}

hak_atomic_u32 *hak_guard_number(const void *block) {
    uint64_t word;
    struct place *place = live_at(block, &word);
    return place ? &place->number : NULL;
}

struct hak_guard_row *hak_guard_near(const void *address) {
    struct hak_guard_row *nearest = NULL;
    uint64_t least = UINT64_MAX;
    if (!hak_guard_holds(address)) return NULL;
    uint32_t index = index_of(address);
    for (uint32_t i = index ? index - 1 : 0; i <= index + 1 && i < rows_count(); i++) {
        struct hak_guard_row *row = &pool.row[i];
        uint64_t at = (uintptr_t)address, end = row->block + row->requested_bytes;
        if (row->state == HAK_GUARD_UNUSED) continue;
        uint64_t far = at < row->block ? row->block - at : at >= end ? at - end + 1 : 0;
        if (far >= least) continue;
        least = far;
        nearest = row;
    }
    return nearest;
}

/* --- freeing --- */

/* The byte next to the block that is not the pattern any more, behind it or else before it. */
static const char *slack_damage(const struct place *place, const struct hak_guard_row *row) {
    const char *block = (const char *)(uintptr_t)row->block, *end = place->page + place->page_bytes;
    for (const char *at = block + row->requested_bytes; at < end; at++)
        if ((unsigned char)*at != place->pattern) return at;
    for (const char *at = block; at > place->page; at--)
        if ((unsigned char)at[-1] != place->pattern) return at - 1;
    return NULL;
}

static void place_close(struct place *place, const struct hak_guard_row *row) {
    struct hak_range pages = { place->page, place->page_bytes };
    if (place->is_unclean) pages = (struct hak_range){ (void *)(uintptr_t)row->low, (size_t)(row->high - row->low) };
    uint64_t calls = 0;
    bool is_closed = hak_os_protect(pages.start, pages.bytes, false) == 0;
    place->is_unclean = hak_os_return(&pages, 1, &calls) != 1 || !is_closed;
    hak_add(&open_bytes, -(uint64_t)place->page_bytes);
}

bool hak_guard_free(struct hak_heap *heap, void *block, struct hak_stack_here here, struct hak_stack_bounds *bounds) {
    uint64_t word;
    struct place *place = live_at(block, &word);
    if (!place || !hak_cas(&place->word, &word, word_new(HAK_GUARD_BUSY))) return false;
    struct hak_guard_row *row = row_of(place);
    hak_row_write_begin(&row->sequence);
    event_fill(&row->free, here, bounds);
    row->state = HAK_GUARD_FREED;
    hak_row_write_end(&row->sequence);
    const char *damage = slack_damage(place, row);
    place_close(place, row);
    size_t bytes = (size_t)row->requested_bytes;
    hak_store_release(&place->word, word_new(HAK_GUARD_FREED));
    ADD(guarded_live, -1);
    ADD(guarded_freed, 1);
    counted(bytes, -1);
    if (HAK_UNLIKELY(damage != NULL)) hak_guard_overwritten(row, damage); /* last: a handler of SIGABRT may leave by longjmp */
    if (hak_heap_is_none(heap)) return true;
    HAK_COUNT(&heap->counters, guard_free, 1);
    if (is_large(bytes)) HAK_COUNT(&heap->counters, free_large, 1);
    return true;
}

void hak_guard_census(struct hak_census *census) {
    if (!__atomic_load_n(&pool.bytes, __ATOMIC_ACQUIRE)) return;
    for (uint32_t i = 0; i < rows_count(); i++) {
        size_t bytes = (size_t)pool.row[i].requested_bytes;
        if (state_of(hak_load_relaxed(&pool.place[i].word)) == HAK_GUARD_LIVE && !is_large(bytes))
            census->live[hak_class_of(bytes ? bytes : 1)]++;
    }
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) census->handed[c] += hak_load_relaxed(&handed_count[c]);
}

int hak_guard_walk(const struct hak_walk *walk) {
    int result = 0;
    if (!__atomic_load_n(&pool.bytes, __ATOMIC_ACQUIRE)) return 0;
    for (uint32_t i = 0; i < rows_count() && !result; i++) {
        uint64_t word = hak_load_acquire(&pool.place[i].word);
        uintptr_t block = pool.row[i].block;
        size_t bytes = (size_t)pool.row[i].requested_bytes;
        if (state_of(word) != HAK_GUARD_LIVE || hak_load_acquire(&pool.place[i].word) != word) continue; /* another's by now */
        result = hak_walk_show(walk, (void *)block, bytes, is_large(bytes), true);
    }
    return result;
}
