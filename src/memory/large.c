/* large.c - see large.h.
 *
 * Measured:  moving a page costs a fifth of copying it; below 1 MiB the system call costs more than it saves.
 *            Clearing 16 MiB by memset takes 0.4 ms, by giving the pages back and faulting them in again 5 ms;
 *            above 32 MiB memset leaves the caches and the page faults are no dearer. To ask which of its pages are
 *            resident takes 0.03 ms, and of an array that the program used by half the other half never is; blocks of
 *            sites known to be dense are not asked after.
 * Rejected:  plain mremap: it leaves a hole in the window that foreign mappings land in.
 */
#include "memory/large.h"

#include "base/word.h"
#include "memory/ahead.h"
#include "memory/huge.h"
#include "memory/limit.h"
#include "memory/purge.h"

#include <errno.h>
#include <string.h>

char hak_large_mark[HAK_LINE] HAK_ALIGNED(HAK_LINE);
hak_atomic_i64 hak_large_lost_granules;

#define MOVED (UINT64_C(1) << 63)
#define FRESH (UINT64_C(1) << 62) /* nothing of it was resident when it was taken */
#define SAMPLED (UINT64_C(1) << 61)
enum { SITE_SHIFT = 32 };
enum { MOVED_MAX = 2048, CLEAR_ASKED_BYTES = 512 << 10, RETURN_GRANULES_MIN = 16 };

static hak_atomic_i64 moved_count; /* spans with mappings of their own: the kernel allows 65,530 in all */

static size_t pages_bytes(size_t bytes) { return hak_round_up(bytes, (size_t)1 << hak_region.page_shift); }

static int64_t counted(size_t count) { return (int64_t)count << HAK_GRANULE_SHIFT; }

static void record_write(struct hak_rush *rush, size_t granule, size_t count, size_t lead, size_t bytes, uint64_t flags) {
    struct hak_granule *record = hak_granule_at(granule);
    hak_large_words_set(record, pages_bytes(lead + bytes) - lead);
    record->start = hak_granule_address(granule) + lead;
    __atomic_store_n(&record->reciprocal, count | flags, __ATOMIC_RELAXED);
    hak_store_release(&record->owner, HAK_LARGE);
    hak_rush_note_live(rush, 1, counted(count));
}

static size_t lead_of(const struct hak_granule *record) { return (uintptr_t)record->start % HAK_GRANULE_BYTES; }
static size_t whole_pages(const struct hak_granule *record) { return lead_of(record) + hak_large_usable(record); }
size_t hak_large_granules_as(const struct hak_granule *record, size_t bytes) { return hak_large_granules_for(lead_of(record) + bytes); }

static hak_big_name site_in(uint64_t reciprocal) { return reciprocal >> SITE_SHIFT & 0xffff; }
static hak_big_name site_of(const struct hak_granule *record) { return site_in(hak_large_facts(record)); }
HAK_STATIC(HAK_BIG_ROWS < 0xffff);

/* Of 1,024 parts of a block so many are resident. Huge halves say nothing; of the others some are looked at, the last of
 * them always: of a dense site's block that one may have been left small for it. */
static unsigned touched_share(size_t granule, size_t bytes) {
    enum { LOOKS = 8 };
    size_t end = granule + (bytes >> HAK_GRANULE_SHIFT), looked = 0, resident = 0;
    size_t half_count = (end - granule) / HAK_HALF_GRANULES + 1, stride = (half_count + LOOKS - 1) / LOOKS;
    for (size_t at = end; at > granule;) {
        size_t from = at % HAK_HALF_GRANULES ? at / HAK_HALF_GRANULES * HAK_HALF_GRANULES : at - HAK_HALF_GRANULES;
        if (from < granule) from = granule;
        if (!hak_huge_at(from)) {
            resident += hak_os_resident_pages(hak_granule_address(from), (at - from) << HAK_GRANULE_SHIFT);
            looked += (at - from) << (HAK_GRANULE_SHIFT - hak_region.page_shift);
        }
        size_t skip = (stride - 1) * HAK_HALF_GRANULES;
        at = from - granule > skip ? from - skip : granule;
    }
    return looked ? (unsigned)(resident * 1024 / looked) : 1024;
}

/* The kernel has taken it away and gives nothing for it: nobody gets it, and no further block is moved. */
static HAK_COLD void lose(size_t count) {
    hak_add(&hak_large_lost_granules, (int64_t)count);
    hak_add(&moved_count, MOVED_MAX);
}

/* Did the site touch the last block it got? Types are stable: at worst the answer is about another block. */
HAK_INLINE void look_back(hak_big_name site, size_t fresh_granule) {
    size_t granule = hak_big_last(site, fresh_granule);
    if (granule == 0) return;
    struct hak_granule *record = hak_granule_at(granule);
    if (hak_load_acquire(&record->owner) != HAK_LARGE) return;
    uint64_t seen = __atomic_load_n(&record->reciprocal, __ATOMIC_ACQUIRE); /* its thread may be at it */
    if (site_in(seen) != site || !(seen & FRESH) || hak_load_relaxed(&record->owner) != HAK_LARGE) return;
    size_t count = (size_t)(seen & UINT32_MAX);
    hak_big_looked(site, touched_share(granule, (count > 1 ? count - 1 : count) << HAK_GRANULE_SHIFT)); /* the last may be a part */
}

static HAK_COLD size_t take_ahead(size_t count, hak_big_name site, size_t *dirty) {
    bool is_looked_at = false;
    if (count > HAK_AHEAD_LARGE_MAX || !hak_big_is_dense(site, &is_looked_at) || is_looked_at || hak_limit_refuses(count)) return HAK_NO_GRANULE;
    if (!hak_span_next_is_clean(count)) return HAK_NO_GRANULE;
    *dirty = count;
    return hak_ahead_take_large(count);
}

HAK_COLD size_t hak_large_dense(size_t number) {
    size_t sum = 0;
    for (uint64_t used = hak_load_relaxed(&hak_chunk_at(number)->used); used; used &= used - 1) {
        struct hak_granule *record = hak_granule_at(number * HAK_CHUNK_GRANULES + hak_word_first(used));
        if (hak_load_acquire(&record->owner) != HAK_LARGE) continue;
        size_t count = hak_large_granules(record);
        bool is_looked_at;
        if (count <= HAK_AHEAD_LARGE_MAX && hak_big_is_dense(site_of(record), &is_looked_at)) sum += count;
    }
    return sum;
}

void *hak_large_take(struct hak_rush *rush, size_t bytes, size_t align, hak_big_name site, bool *zeroed) {
    size_t count = hak_large_granules_for(bytes), dirty;
    if (count > UINT32_MAX || align >> HAK_GRANULE_SHIFT > UINT32_MAX) return NULL;
    size_t granule = HAK_UNLIKELY(hak_load_relaxed(&hak_ahead_large) > 0) && align <= HAK_GRANULE_BYTES ? take_ahead(count, site, &dirty) : HAK_NO_GRANULE;
    if (granule == HAK_NO_GRANULE) granule = hak_span_take_in(rush, count, align > HAK_GRANULE_BYTES ? align >> HAK_GRANULE_SHIFT : 1, &dirty);
    if (granule == HAK_NO_GRANULE) return NULL;
    if (count <= HAK_HALF_GRANULES) hak_purge_note_grown(counted(count - dirty)); /* larger ones' sites are known (memory/bigcache.h) */
    *zeroed = dirty == 0 || hak_span_is_blank(granule, count);
    uint64_t flags = (uint64_t)site << SITE_SHIFT;
    if (site && dirty < count) {
        if (dirty == 0) look_back(site, granule);
        bool is_looked_at = false;
        if (!hak_big_is_dense(site, &is_looked_at)) {
            is_looked_at = true;
        } else if (HAK_UNLIKELY(!hak_huge_block(granule, pages_bytes(bytes), is_looked_at))) {
            lose(count);
            return NULL;
        }
        if (is_looked_at && dirty == 0) flags |= FRESH;
    }
    size_t lead = hak_span_lead_within(granule, pages_bytes(bytes) - bytes);
    record_write(rush, granule, count, lead, bytes, flags);
    return hak_granule_address(granule) + lead;
}

/* What is not resident stays so. The kernel is asked to forget it all the same, for it may be swapped out; that costs next
 * to nothing where there is nothing. False: nothing was done. */
static bool clear_resident(char *start, size_t bytes) {
    enum { RANGES = 32 };
    unsigned char page[HAK_OS_RESIDENT_PAGES_MAX];
    struct hak_range absent[RANGES];
    unsigned shift = hak_region.page_shift;
    size_t pages = (bytes + ((size_t)1 << shift) - 1) >> shift, absent_count = 0;
    if (!hak_os_resident(start, bytes, page)) return false;
    for (size_t i = 0, run; i < pages; i += run) {
        for (run = 1; i + run < pages && !((page[i + run] ^ page[i]) & 1); run++) {
        }
        char *from = start + (i << shift);
        if (!(page[i] & 1) && absent_count < RANGES) absent[absent_count++] = (struct hak_range){ from, run << shift };
        else memset(from, 0, i + run == pages ? bytes - (i << shift) : run << shift);
    }
    uint64_t calls = 0; /* not counted as returned: it is on its way to be used */
    size_t done = absent_count ? hak_os_return(absent, absent_count, &calls) : 0;
    for (; done < absent_count; done++) {
        size_t left = (size_t)(start + bytes - (char *)absent[done].start);
        memset(absent[done].start, 0, left < absent[done].bytes ? left : absent[done].bytes);
    }
    return true;
}

/* What may be resident, or is. */
static void clear(char *start, size_t bytes, bool is_dense) {
    size_t most = (size_t)HAK_OS_RESIDENT_PAGES_MAX << hak_region.page_shift;
    for (size_t part; bytes > 0; start += part, bytes -= part) {
        part = bytes < most ? bytes : most;
        if (is_dense || part < CLEAR_ASKED_BYTES || !clear_resident(start, part)) memset(start, 0, part);
    }
}

void hak_large_clear(struct hak_granule *record, size_t bytes) {
    size_t granule = hak_granule_of(record->start), count = hak_large_granules(record);
    char *start = hak_granule_address(granule);
    bool is_looked_at, is_dense = hak_big_is_dense(site_of(record), &is_looked_at);
    bytes += lead_of(record); /* from the page's start on */
    for (size_t i = 0; i < count && i << HAK_GRANULE_SHIFT < bytes;) {
        uint64_t dirty = hak_chunk_stale(hak_chunk_at((granule + i) / HAK_CHUNK_GRANULES));
        unsigned first = (unsigned)((granule + i) % HAK_CHUNK_GRANULES);
        bool is_dirty = dirty >> first & 1;
        uint64_t other = (is_dirty ? ~dirty : dirty) >> first;
        size_t run = other ? hak_word_first(other) : HAK_CHUNK_GRANULES - first;
        if (run > count - i) run = count - i;
        if (is_dirty) {
            size_t left = bytes - (i << HAK_GRANULE_SHIFT), span = run << HAK_GRANULE_SHIFT;
            clear(start + (i << HAK_GRANULE_SHIFT), left < span ? left : span, is_dense);
        }
        i += run;
    }
}

static void span_end(struct hak_rush *rush, size_t granule, size_t count, bool moved, hak_big_name site) {
    enum hak_span_state state = HAK_SPAN_DIRTY;
    bool is_unseen = !moved && hak_big_is_sparse(site);
    if (is_unseen) hak_span_leave_unseen(granule, count);
    if (moved) { /* a fresh mapping merges with its neighbours again */
        size_t bytes = count << HAK_GRANULE_SHIFT;
        int result = hak_os_fresh(hak_granule_address(granule), bytes);
        if (HAK_UNLIKELY(result == -EFAULT)) {
            lose(count);
            return;
        }
        if (result == 0) {
            hak_huge_forget(granule, count);
            state = HAK_SPAN_CLEAN;
        }
    }
    hak_span_give_in(rush, granule, count, state);
    if (is_unseen) hak_store_release(&hak_purge.unseen, 1); /* after it is free: who looks takes what is free only */
}

bool hak_large_end(struct hak_granule *record) {
    struct hak_heap *seen = HAK_LARGE;
    return hak_cas(&record->owner, &seen, NULL);
}

bool hak_large_give(struct hak_granule *record) {
    if (!hak_large_end(record)) return false;
    hak_large_finish(NULL, record);
    return true;
}

bool hak_large_keepable(struct hak_granule *record) {
    uint64_t facts = hak_large_facts(record);
    if (facts & HAK_LARGE_NOTED) return true;
    size_t granule = hak_granule_of(record->start), count = hak_large_granules(record);
    unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
    if (facts & (MOVED | SAMPLED) || first + count > HAK_CHUNK_GRANULES) return false;
    hak_big_name site = site_of(record);
    if (facts & FRESH && hak_big_given(site)) hak_big_looked(site, touched_share(granule, whole_pages(record)));
    struct hak_chunk *chunk = hak_chunk_at(granule / HAK_CHUNK_GRANULES);
    uint64_t mask = hak_word_mask(first, (unsigned)count);
    if (HAK_UNLIKELY((hak_chunk_stale(chunk) & mask) != mask)) { /* for calloc, and for who drops it */
        hak_chunk_forget_blank(chunk, mask);
        hak_or(&chunk->dirty, mask);
    }
    __atomic_store_n(&record->reciprocal, (facts & ~FRESH) | HAK_LARGE_NOTED, __ATOMIC_RELAXED);
    return true;
}

void hak_large_drop(struct hak_granule *record) {
    size_t count = hak_large_granules(record);
    hak_large_words_set(record, hak_large_usable(record));
    hak_add(&hak_large_live_count, -1);
    hak_add(&hak_large_live_bytes, -counted(count));
    span_end(NULL, hak_granule_of(record->start), count, false, site_of(record));
}

void (*hak_large_on_end)(void *block);

/* What is noted would be kept without a look. */
void hak_large_sampled(struct hak_granule *record) {
    __atomic_store_n(&record->reciprocal, (hak_large_facts(record) & ~HAK_LARGE_NOTED) | SAMPLED, __ATOMIC_RELAXED);
}

HAK_COLD void hak_large_sample_ended(struct hak_granule *record) {
    uint64_t facts = hak_large_facts(record);
    if (HAK_LIKELY(!(facts & SAMPLED))) return;
    hak_large_on_end(record->start);
    __atomic_store_n(&record->reciprocal, facts & ~SAMPLED, __ATOMIC_RELAXED);
}

void hak_large_finish(struct hak_rush *rush, struct hak_granule *record) {
    if (HAK_UNLIKELY(hak_large_facts(record) & SAMPLED)) hak_large_on_end(record->start);
    size_t granule = hak_granule_of(record->start), count = hak_large_granules(record);
    bool moved = hak_large_facts(record) & MOVED, fresh = hak_large_facts(record) & FRESH;
    hak_big_name site = site_of(record);
    hak_rush_note_live(rush, -1, -counted(count));
    if (site && hak_rush_takes_part(rush, true) && hak_big_given(site) && fresh) hak_big_looked(site, touched_share(granule, whole_pages(record)));
    span_end(rush, granule, count, moved, site);
    if (moved) hak_add(&moved_count, -1);
    bool is_over_long = hak_purge_over_long();
    if (HAK_LIKELY(!is_over_long) && hak_load_relaxed(&hak_purge.over_since_ms) == 0) return;
    if (hak_big_comes_back(site) && hak_purge_keep()) return; /* in the grace, too: what a thread keeps for itself has none */
    if (!is_over_long) return;
    if (count >= RETURN_GRANULES_MIN && hak_big_never_comes_back(site)) hak_purge_span(granule, count);
    hak_purge_enforce();
}

HAK_COLD void hak_large_finish_returned(struct hak_granule *record) {
    size_t granule = hak_granule_of(record->start), count = hak_large_granules(record);
    hak_rush_note_live(NULL, -1, -counted(count));
    if (hak_large_facts(record) & MOVED) {
        span_end(NULL, granule, count, true, 0);
        hak_add(&moved_count, -1);
    } else {
        hak_span_give(granule, count, HAK_SPAN_CLEAN);
    }
}

static void settle(struct hak_granule *record, size_t used) {
    size_t whole = whole_pages(record);
    char *start = record->start, *base = start - lead_of(record);
    record->start = base;
    hak_large_words_set(record, whole | (uint64_t)hak_large_name(record) << HAK_LARGE_NAME_SHIFT);
    memmove(base, start, used);
}

/* `used`: so many bytes are moved to the span's start, from where on `bytes` are reckoned; 0: it begins where it does. */
HAK_INLINE bool resize(struct hak_granule *record, size_t bytes, size_t used) {
    size_t granule = hak_granule_of(record->start), lead = used ? 0 : lead_of(record);
    size_t old = hak_large_granules(record), new = hak_large_granules_for(lead + bytes);
    if (new > UINT32_MAX || (new > old && !hak_span_extend(granule, old, new - old))) return false;
    if (used) settle(record, used);
    hak_add(&hak_large_live_bytes, counted(new) - counted(old));
    uint64_t words = (pages_bytes(lead + bytes) - lead) | (uint64_t)hak_large_name(record) << HAK_LARGE_NAME_SHIFT;
    if (new < old) hak_large_words_set(record, words); /* never more bytes than granules: hak_large_held() */
    __atomic_store_n(&record->reciprocal, new | (hak_large_facts(record) & ~(FRESH | HAK_LARGE_NOTED | UINT32_MAX)), __ATOMIC_RELEASE);
    if (new >= old) hak_large_words_set(record, words);
    if (new < old) {
        span_end(NULL, granule + new, old - new, hak_large_facts(record) & MOVED, site_of(record));
        hak_purge_enforce();
    }
    return true;
}

bool hak_large_resize(struct hak_granule *record, size_t bytes) { return resize(record, bytes, 0); }
HAK_COLD bool hak_large_resize_settled(struct hak_granule *record, size_t bytes, size_t used) { return resize(record, bytes, used); }

/* The kernel unmaps the destination before some of its checks. What may be a hole is mapped anew; if that fails, too, it is lost. */
static void move_failed(size_t to, size_t count, int failed) {
    if (failed == HAK_OS_MOVE_NOT_BEGUN) {
        hak_span_give(to, count, HAK_SPAN_AS_IT_WAS); /* for the copy, perhaps */
    } else if (failed == HAK_OS_MOVE_MENDED || hak_os_fresh(hak_granule_address(to), count << HAK_GRANULE_SHIFT) == 0) {
        hak_huge_forget(to, count);
        hak_span_give(to, count, failed == HAK_OS_MOVE_MENDED ? HAK_SPAN_DIRTY : HAK_SPAN_CLEAN);
    } else {
        lose(count);
    }
}

static void *move(struct hak_granule *record, size_t old, size_t count, size_t bytes) {
    size_t from = hak_granule_of(record->start), dirty;
    size_t to = hak_span_take(count, 1, &dirty);
    if (to == HAK_NO_GRANULE) return NULL;
    size_t moved_bytes = whole_pages(record), lead = lead_of(record); /* where it lies in its first page stays */
    int failed = hak_os_move(hak_granule_address(from), hak_granule_address(to), moved_bytes);
    if (HAK_UNLIKELY(failed)) {
        move_failed(to, count, failed);
        return NULL;
    }
    bool was_moved = hak_large_facts(record) & MOVED;
    hak_big_name site = site_of(record);
    hak_add(&hak_large_live_count, -1);
    hak_add(&hak_large_live_bytes, -counted(old));
    hak_store_release(&record->owner, NULL);
    span_end(NULL, from, old, true, site);
    if (!was_moved) hak_add(&moved_count, 1);
    record_write(NULL, to, count, lead, bytes, MOVED | (uint64_t)site << SITE_SHIFT);
    return hak_granule_address(to) + lead;
}

HAK_COLD void *hak_large_move(struct hak_granule *record, size_t bytes) {
    if (hak_load_relaxed(&moved_count) >= MOVED_MAX) return NULL;
    size_t old = hak_large_granules(record), count = hak_large_granules_as(record, bytes);
    if (hak_limit_refuses(count > old ? count - old : 0)) return NULL;
    hak_add(&hak_limit_moving_granules, (int64_t)old); /* or others would be refused for what is twice there */
    void *block = move(record, old, count, bytes);
    hak_add(&hak_limit_moving_granules, -(int64_t)old);
    return block;
}
