/* secure.c - see secure.h. */
#include "heap/secure.h"

#include "base/multiply.h"
#include "heap/hooks.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "os/os.h"
#include "slab/secure_word.h"

#include <string.h>

_Atomic(struct hak_family *) hak_secure_family;

/* Of small blocks at most 256 KiB wait for a thread, above that 1 MiB; of large ones addresses, not memory. */
enum { SMALL_PLACES = 256, MIDDLE_PLACES = 32, LARGE_PLACES = 32, LARGE_GRANULES_MAX = 16 << 10 };
struct hak_quarantine {
    _Atomic(char *) small[SMALL_PLACES], middle[MIDDLE_PLACES];
};
static _Atomic(struct hak_granule *) large_waits[LARGE_PLACES];

HAK_COLD bool hak_secure_begin(void) {
    if (hak_load_acquire(&hak_secure_family)) return true;
    if (!hak_secure_is_on()) hak_secure_keys_make(); /* before the first slab */
    struct hak_family *family = hak_family_new(0), *none = NULL;
    if (!family) return false;
    if (!hak_cas(&hak_secure_family, &none, family)) hak_family_free(family);
    return true;
}

/* --- taking --- */

const struct hak_granule *hak_secure_record(const void *block) {
    if (!hak_region_holds(block)) return NULL;
    const struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    return hak_load_acquire(&((struct hak_granule *)(uintptr_t)record)->owner) != HAK_WATCHED ? record : NULL;
}

/* What a visit found goes to the others of its word, if it is one of them: it may be a sample, or a coarser class's. */
static bool joins(struct hak_bin *bin, const struct hak_row *current, const char *block, size_t block_bytes) {
    const struct hak_granule *record = hak_secure_record(block);
    size_t offset = (size_t)(block - bin->base);
    if (bin->word == 0 || !record || hak_row_of(record->words) != current) return false;
    if (offset >= 64 * block_bytes || offset % block_bytes != 0) return false;
    bin->word |= UINT64_C(1) << offset / block_bytes;
    return true;
}

HAK_COLD void *hak_secure_was_written(const char *block, size_t block_bytes) {
    hak_secure_misuse("malloc", block, block_bytes, hak_secure_written(block, block_bytes), true);
}

/* What a visit found, if it is none of the instance's word. */
static HAK_NOINLINE void *take_alone(char *block, size_t bytes) {
    const struct hak_granule *record = hak_secure_record(block);
    if (HAK_UNLIKELY(!record)) return block;
    size_t block_bytes = hak_row_of(record->words)->block_bytes;
    return HAK_LIKELY(hak_secure_begin_block(block, block_bytes, bytes)) ? block : hak_secure_was_written(block, block_bytes);
}

void *hak_secure_take(struct hak_heap *instance, size_t total, size_t bytes) {
    size_t class_index = total <= HAK_SMALL_BYTES_MAX ? hak_class_small(total) : hak_heap_middle_class(instance, total);
    if (HAK_UNLIKELY(hak_class_has_power(total))) class_index = hak_class_power(total); /* an aligned block's: all is of one size there */
    size_t block_bytes = hak_classes[class_index].block_bytes;
    struct hak_bin *bin = hak_bin_at(instance, class_index);
    if (bin->word == 0) {
        char *block = hak_visit_any(total, instance, (unsigned)class_index);
        if (HAK_UNLIKELY(!block)) return NULL;
        if (!joins(bin, hak_shelf_of(instance, (unsigned)class_index)->current, block, block_bytes)) return take_alone(block, bytes);
        if (class_index <= HAK_SMALL_CLASS_MAX) instance->drawn[class_index] = 0; /* of a word that went back: it may have been the last there */
    }
    if (class_index <= HAK_SMALL_CLASS_MAX) return hak_secure_take_drawn(instance, (unsigned)class_index, block_bytes, bytes);
    unsigned bit = hak_secure_draw(bin->word, &instance->random);
    bin->word &= ~(UINT64_C(1) << bit);
    char *block = bin->base + bit * block_bytes;
    return HAK_LIKELY(hak_secure_begin_block(block, block_bytes, bytes)) ? block : hak_secure_was_written(block, block_bytes);
}

/* --- a live block --- */

static __attribute__((noreturn)) HAK_COLD void misuse(const char *function, const void *block, size_t block_bytes, enum hak_secure_state state, size_t byte) {
    if (state == HAK_SECURE_FREED) hak_slab_misuse(function, block);
    hak_secure_misuse(function, block, block_bytes, byte, false);
}

size_t hak_secure_bytes(const char *function, const void *block, const struct hak_granule *record) {
    size_t block_bytes = hak_row_of(record->words)->block_bytes, bytes;
    enum hak_secure_state state = hak_secure_look(block, block_bytes, &bytes);
    if (HAK_UNLIKELY(state != HAK_SECURE_LIVE)) misuse(function, block, block_bytes, state, bytes);
    return bytes;
}

void hak_secure_arm_as(void *block, size_t bytes) {
    const struct hak_granule *record = hak_secure_record(block);
    if (record) hak_secure_arm(block, hak_row_of(record->words)->block_bytes, bytes);
}

/* As realloc leaves any block in place: down to half of it. What it had more is behind its end from now on. */
bool hak_secure_resize(void *block, const struct hak_granule *record, size_t bytes) {
    size_t block_bytes = hak_row_of(record->words)->block_bytes, total = bytes + HAK_SECURE_WORD_BYTES;
    if (total > block_bytes || total <= block_bytes / 2) return false;
    hak_secure_arm(block, block_bytes, bytes);
    return true;
}

/* --- freeing --- */

/* To its slab: by its owner, or as a stranger. */
static void give(struct hak_heap *self, char *block) {
    struct hak_granule *record = hak_granule_at(hak_granule_of(block));
    struct hak_heap *owner = hak_load_acquire(&record->owner), *heap = hak_slab_owner_heap(owner);
    uint64_t rest, index = hak_multiply((uint64_t)(block - record->start), &record->reciprocal, &rest);
    if (hak_heap_is_none(self) || hak_load_relaxed(&heap->home) != self) {
        hak_stranger_free(self, owner, record, block, (unsigned)index);
        return;
    }
    struct hak_row *row = hak_row_of(record->words);
    uint64_t own = hak_load_relaxed(&row->word[index / 64]), bit = UINT64_C(1) << index % 64;
    if (HAK_UNLIKELY(own & bit)) hak_slab_misuse("free", block);
    hak_store_release(&row->word[index / 64], own | bit);
    if (HAK_UNLIKELY(--row->countdown == 0)) hak_event(heap, row->slab);
}

static struct hak_quarantine *places_of(struct hak_heap *self) {
    struct hak_quarantine *places = hak_load_acquire(&self->quarantine), *none = NULL;
    if (HAK_LIKELY(places != NULL)) return places;
    size_t bytes = hak_round_up(sizeof *places, hak_os_page_bytes());
    places = hak_os_map(bytes);
    if (!places || hak_cas(&self->quarantine, &none, places)) return places;
    hak_os_unmap(places, bytes); /* a handler was first */
    return none;
}

/* The place in which the next one is to wait; who was there is about to be wanted. */
HAK_INLINE _Atomic(char *) *place_next(struct hak_heap *self, struct hak_quarantine *places, size_t block_bytes) {
    uint64_t random = hak_secure_random(&self->random);
    _Atomic(char *) *place = block_bytes <= HAK_SMALL_BYTES_MAX ? &places->small[random % SMALL_PLACES] : &places->middle[random % MIDDLE_PLACES];
    const char *block = hak_load_relaxed(place);
    if (HAK_LIKELY(block != NULL)) __builtin_prefetch(hak_granule_at(hak_granule_of(block)));
    return place;
}

/* What it is instead of live and whole; of two threads that free it at once, the one that comes second. A block past the last is free
 * for ever, and has no word. */
static HAK_NOINLINE void end_failed(struct hak_granule *record, char *block, uint64_t index) {
    struct hak_row *row = hak_row_of(record->words);
    const hak_atomic_u64 *remote = hak_slab_remote(row->slab);
    uint64_t set = hak_load_acquire(&remote[index / 64]) | hak_load_acquire(&row->word[index / 64]);
    if (set >> index % 64 & 1) hak_slab_misuse("free", block);
    size_t bytes;
    enum hak_secure_state state = hak_secure_end(block, row->block_bytes, &bytes);
    misuse("free", block, row->block_bytes, state == HAK_SECURE_LIVE ? HAK_SECURE_FREED : state, bytes);
}

/* A thread without a heap, or the first one that a thread frees; a block of a family of the program's own. */
static HAK_NOINLINE void free_at_once(struct hak_heap *self, struct hak_granule *record, char *block, uint64_t index) {
    if (HAK_UNLIKELY(!hak_secure_end_block(block, hak_row_of(record->words)->block_bytes))) end_failed(record, block, index);
    else give(self, block);
}

void hak_secure_free(struct hak_heap *self, struct hak_granule *record, char *block, uint64_t index) {
    struct hak_row *row = hak_row_of(record->words);
    size_t block_bytes = row->block_bytes;
    if (HAK_UNLIKELY(hak_load_relaxed(&row->word[index / 64]) >> index % 64 & 1)) return end_failed(record, block, index);
    struct hak_heap *heap = hak_slab_owner_heap(hak_load_acquire(&record->owner));
    bool may_wait = hak_load_relaxed(&heap->family) == hak_load_relaxed(&hak_secure_family);
    struct hak_quarantine *places = hak_load_relaxed(&self->quarantine);
    if (HAK_UNLIKELY(!may_wait) || HAK_UNLIKELY(!places && (hak_heap_is_none(self) || !(places = places_of(self)))))
        return free_at_once(self, record, block, index);
    _Atomic(char *) *place = place_next(self, places, block_bytes);
    if (HAK_UNLIKELY(!hak_secure_end_block(block, block_bytes))) return end_failed(record, block, index);
    block = hak_owner_swap(place, block);
    if (HAK_LIKELY(block != NULL)) give(self, block);
}

/* It has waited. Was it written to? That is looked at here, where many end their wait, and else when the block is handed out again: for each
 * block that leaves its place it was a fifth more time. */
static void waited(const char *block, size_t block_bytes) {
    size_t byte = hak_secure_written(block, block_bytes);
    if (HAK_UNLIKELY(byte != SIZE_MAX)) hak_secure_misuse("free", block, block_bytes, byte, true);
}

static void places_empty(_Atomic(char *) *place, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        char *block = hak_load_relaxed(&place[i]) ? hak_owner_swap(&place[i], NULL) : NULL;
        if (!block) continue;
        waited(block, hak_row_of(hak_granule_at(hak_granule_of(block))->words)->block_bytes);
        give(hak_self, block);
    }
}

HAK_COLD void hak_secure_empty_places(struct hak_heap *heap) {
    struct hak_quarantine *places = hak_load_acquire(&heap->quarantine);
    places_empty(places->small, SMALL_PLACES);
    places_empty(places->middle, MIDDLE_PLACES);
}

/* --- large blocks --- */

static bool is_guarded(const struct hak_granule *record) { return (hak_large_facts(record) & HAK_LARGE_GUARDED) != 0; }
static void guarded_set(struct hak_granule *record, bool is_guarded) {
    uint64_t facts = hak_large_facts(record) & ~HAK_LARGE_GUARDED;
    __atomic_store_n(&record->reciprocal, is_guarded ? facts | HAK_LARGE_GUARDED : facts, __ATOMIC_RELAXED);
}
static size_t whole_bytes(const struct hak_granule *record) { return hak_large_granules(record) << HAK_GRANULE_SHIFT; }
static void usable_set(struct hak_granule *record, size_t bytes) {
    hak_large_words_set(record, bytes | (uint64_t)hak_large_name(record) << HAK_LARGE_NAME_SHIFT);
}

HAK_COLD void hak_secure_large_close(struct hak_granule *record, size_t bytes, bool is_clean) {
    size_t usable = hak_round_up(bytes, (size_t)1 << hak_region.page_shift), guards = hak_secure_guard_granules();
    struct hak_range range = { record->start + usable, whole_bytes(record) - usable };
    usable_set(record, usable);
    if (guards == 0) return; /* address space is limited, and with it what may be opened again */
    guarded_set(record, hak_secure_close(range.start, range.bytes));
    if (!is_clean) hak_secure_returns(range, is_guarded(record)); /* what others left there would stay resident */
    hak_free_note_plain(0, -(int64_t)guards); /* as behind a slab */
}

/* False: the kernel refuses. */
static bool tail_open(struct hak_granule *record, size_t usable) {
    if (is_guarded(record) && !hak_secure_open(record->start + usable, whole_bytes(record) - usable, 1)) return false;
    guarded_set(record, false);
    hak_free_note_plain(0, (int64_t)hak_secure_guard_granules());
    return true;
}

HAK_COLD bool hak_secure_large_open(struct hak_granule *record) {
    if (!tail_open(record, hak_large_usable(record))) return false;
    usable_set(record, whole_bytes(record));
    return true;
}

static uint64_t large_random(void) {
    uint64_t state = hak_os_ticks();
    return hak_secure_random(&state);
}

/* It has waited, all of it untouchable, and reads as zeros. What the kernel would not open is nobody's any more. */
static void large_waited(struct hak_granule *record) {
    if (!record) return;
    hak_absent_note(-(int64_t)whole_bytes(record));
    hak_free_note_plain(0, (int64_t)hak_secure_guard_granules());
    if (!hak_secure_open(record->start, whole_bytes(record), 1u + is_guarded(record))) return;
    guarded_set(record, false);
    hak_large_finish_returned(record);
}

HAK_COLD void hak_secure_large_ended(struct hak_granule *record) {
    struct hak_range whole = { record->start, whole_bytes(record) }; /* what is closed may hold what others left there */
    size_t usable = hak_large_usable(record);
    bool may_wait = !hak_region.is_limited && hak_large_granules(record) <= LARGE_GRANULES_MAX, has_guards = hak_load_relaxed(&hak_secure.has_guards) != 0;
    hak_large_sample_ended(record);
    bool waits = may_wait && has_guards && hak_secure_close(whole.start, whole.bytes), is_returned = hak_secure_returns(whole, waits);
    if (!is_returned) memset(record->start, 0, usable); /* locked memory */
    if (waits || (may_wait && is_returned && !has_guards && hak_secure_close(record->start, usable))) {
        hak_absent_note((int64_t)whole_bytes(record));
        large_waited(hak_exchange(&large_waits[large_random() % LARGE_PLACES], record));
    } else if (tail_open(record, usable)) { /* else nobody's any more */
        if (is_returned) hak_large_finish_returned(record);
        else hak_large_finish(NULL, record);
    }
}

HAK_COLD void hak_secure_large_empty(void) {
    for (unsigned i = 0; i < LARGE_PLACES; i++)
        if (hak_load_relaxed(&large_waits[i])) large_waited(hak_exchange(&large_waits[i], NULL));
}
