/* misuse.c - the caller lied: one line saying what, where and which pointer, then abort.
 *
 * The texts are part of what users rely on; test/misuse has a program for each.
 */
#include "front/front.h"

#include "base/text.h"
#include "front/describe.h"
#include "memory/outside.h"
#include "os/os.h"
#include "slab/secure.h"

#include <string.h>

enum hak_place_kind { OUTSIDE, OUTSIDE_LIVE, NEVER, SLAB_INSIDE, SLAB_FREE, SLAB_LIVE, LARGE_START, LARGE_INSIDE, IN_FRONT };

struct place {
    enum hak_place_kind kind;
    const char *start;
    size_t bytes;
    struct hak_granule *record;
    bool is_free; /* of a slab's block */
};

/* The large block that covers a granule whose own record is empty. */
static bool large_before(size_t granule, struct place *place) {
    for (size_t back = granule; back-- > 0;) {
        if (!hak_unit_ready(back / HAK_CHUNK_GRANULES)) return false; /* no records there, and no block reaches across */
        struct hak_granule *record = hak_granule_at(back);
        struct hak_heap *owner = hak_load_acquire(&record->owner);
        if (!owner) continue;
        if (owner != HAK_LARGE || back + hak_large_granules(record) <= granule) return false;
        place->record = record;
        place->start = record->start;
        place->bytes = hak_large_usable(record);
        return true;
    }
    return false;
}

/* Of who hangs on heap/hooks.h. */
static bool watched_place(const void *address, struct place *place) {
    bool (*known)(const void *, const char **, size_t *, bool *) = HAK_HOOK(watched_place);
    if (!known || !known(address, &place->start, &place->bytes, &place->is_free)) return false;
    place->kind = address != place->start ? SLAB_INSIDE : place->is_free ? SLAB_FREE : SLAB_LIVE;
    return true;
}

/* A record without an owner keeps what it said last: was a block here once? */
static void block_before(struct hak_granule *record, const void *address, struct place *place) {
    if (!record->words || watched_place(address, place)) return;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        if (hak_classes[c].reciprocal != record->reciprocal) continue;
        size_t offset = (size_t)((const char *)address - record->start);
        if (offset % hak_classes[c].block_bytes || offset / hak_classes[c].block_bytes >= hak_classes[c].capacity) return;
        place->kind = SLAB_FREE;
        place->bytes = hak_classes[c].block_bytes;
        place->start = address;
        place->record = NULL;
        return;
    }
    if (record->start != address) return;
    place->kind = LARGE_START;
    place->bytes = hak_large_usable(record);
    place->start = address;
}

/* In front of what lies there now a large block may have begun. */
static enum hak_place_kind front_kind(const void *address) { return (uintptr_t)address % HAK_LEAD_STEP == 0 ? IN_FRONT : NEVER; }

static struct place place_of(const void *address) {
    struct place place = { OUTSIDE, NULL, 0, NULL, false };
    if (!hak_region_holds(address)) {
        place.bytes = hak_outside_bytes(address);
        place.start = address;
        if (place.bytes) place.kind = OUTSIDE_LIVE;
        else watched_place(address, &place);
        return place;
    }
    size_t granule = hak_granule_of(address);
    place.kind = NEVER;
    if (!hak_unit_ready(granule / HAK_CHUNK_GRANULES)) return place;
    struct hak_granule *record = hak_granule_at(granule);
    struct hak_heap *owner = hak_load_acquire(&record->owner);
    place.record = record;
    if (!owner) {
        if (large_before(granule, &place)) place.kind = LARGE_INSIDE;
        else block_before(record, address, &place);
    } else if (owner == HAK_WATCHED) {
        watched_place(address, &place);
    } else if (owner == HAK_LARGE) {
        place.start = record->start;
        place.bytes = hak_large_usable(record);
        place.kind = address == record->start ? LARGE_START : LARGE_INSIDE;
        if ((const char *)address < record->start) place.kind = front_kind(address);
    } else {
        unsigned __int128 product = (unsigned __int128)(uint64_t)((const char *)address - record->start) * record->reciprocal;
        unsigned block = (unsigned)(product >> 64);
        struct hak_slab *slab = hak_slab_of(record);
        place.bytes = hak_slab_class(slab)->block_bytes;
        if ((const char *)address < record->start) {
            place.start = record->start;
            place.kind = front_kind(address);
            return place;
        }
        if (block >= hak_slab_class(slab)->capacity) return place;
        place.start = record->start + block * place.bytes;
        uint64_t set = hak_load_acquire(&record->words[block / 64]) | hak_load_acquire(&hak_slab_remote(slab)[block / 64]);
        if (owner == hak_slab_owner_mark(hak_self, slab->class_index)) { /* handed to the bin, not yet to the program */
            struct hak_bin *bin = hak_bin_of(hak_self, slab->class_index);
            uint64_t ahead = (uint64_t)(place.start - bin->base) / place.bytes;
            if (bin->word && place.start >= bin->base && ahead < 64) set |= (bin->word >> ahead & 1) << block % 64;
            if (hak_front_kept(record, place.start)) set |= UINT64_C(1) << block % 64;
        }
        if (HAK_UNLIKELY(hak_secure_is_on()) && !hak_secure_held(record->start, place.bytes, block / 64, UINT64_C(1) << block % 64))
            set |= UINT64_C(1) << block % 64;
        place.is_free = set >> block % 64 & 1;
        place.kind = address != place.start ? SLAB_INSIDE : place.is_free ? SLAB_FREE : SLAB_LIVE;
    }
    return place;
}

static HAK_COLD __attribute__((noreturn)) void say_and_abort(struct hak_text *text, const void *block, bool frees) {
    hak_text_char(text, '\n');
    hak_text_end_line(text);
    hak_os_note(2, text->at, hak_text_held(text));
    hak_front_watched_misused(block, frees);
    hak_os_abort();
}

/* Some only ask for a block's size, or for more in place. */
static bool does_free(const char *function) {
    static const char asking[][20] = { "malloc_usable_size", "hak_usable_size", "hak_expand", "sallocx", "xallocx", "hak_heap_of" };
    for (unsigned i = 0; i < sizeof asking / sizeof *asking; i++)
        if (strcmp(function, asking[i]) == 0) return false;
    return true;
}

void hak_misuse(const char *function, const void *block) {
    char line[256];
    struct hak_text text = HAK_TEXT(line);
    struct place place = place_of(block);
    bool frees = does_free(function);
    hak_text_format(&text, "hakmem: %s: ", function);
    switch (place.kind) {
    case OUTSIDE:
    case OUTSIDE_LIVE: hak_text_format(&text, "%p does not belong to malloc", block); break;
    case NEVER: hak_text_format(&text, "%p was never handed out by malloc", block); break;
    case SLAB_INSIDE:
    case LARGE_INSIDE:
        hak_text_format(&text, "%p is inside a block of %zu bytes that starts at %p", block, place.bytes,
                        (const void *)place.start);
        break;
    case IN_FRONT:
        hak_text_format(&text, "%p is free already, or was never handed out by malloc: in its place a block of %zu bytes starts at %p", block,
                        place.bytes, (const void *)place.start);
        break;
    case SLAB_FREE:
    case SLAB_LIVE:
    case LARGE_START:
        hak_text_format(&text, frees ? "double free of %p: this block of %zu bytes is free already" :
                        "%p is a block of %zu bytes that is free already", block, place.bytes);
        break;
    }
    say_and_abort(&text, block, frees);
}

void hak_misuse_size(const char *function, const void *block, size_t bytes, size_t stated) {
    char line[256];
    struct hak_text text = HAK_TEXT(line);
    hak_text_format(&text, "hakmem: %s: %p is a block of %zu bytes, but the caller says %zu", function, block, bytes, stated);
    say_and_abort(&text, block, true);
}

void hak_misuse_align(const char *function, const void *block, size_t align) {
    char line[256];
    struct hak_text text = HAK_TEXT(line);
    hak_text_format(&text, "hakmem: %s: %p is not aligned to %zu, as the caller says", function, block, align);
    say_and_abort(&text, block, true);
}

void hak_misuse_written(const char *function, const void *block, size_t block_bytes, size_t byte, bool is_free) {
    char line[256];
    struct hak_text text = HAK_TEXT(line);
    hak_text_format(&text, is_free ? "hakmem: %s: %p is a freed block of %zu bytes that was written to after its free, at byte %zu"
                                   : "hakmem: %s: %p is a block of %zu bytes that was written to behind its end, at byte %zu",
                    function, block, block_bytes, byte);
    say_and_abort(&text, block, does_free(function));
}

void hak_misuse_heap(const char *function, const void *heap) {
    char line[256];
    struct hak_text text = HAK_TEXT(line);
    hak_text_format(&text, "hakmem: %s: %p is no heap: never made, or destroyed already", function, heap);
    say_and_abort(&text, heap, false);
}

/* --- what is known of any address: front/describe.h --- */

bool hak_describe_address(uintptr_t address, struct hak_text *text) {
    struct place place = place_of((const void *)address);
    size_t offset = address - (uintptr_t)place.start;
    switch (place.kind) {
    case OUTSIDE: hak_text_str(text, "not memory of malloc"); return false;
    case OUTSIDE_LIVE: hak_text_format(text, "a live block of %zu bytes with a mapping of its own", place.bytes); break;
    case NEVER:
    case IN_FRONT: hak_text_str(text, "memory of malloc in which no block is: never used, or given back"); break;
    case LARGE_START:
    case LARGE_INSIDE:
        hak_text_format(text, "byte %zu of a %s large block of %zu bytes at %p", offset,
                        hak_load_acquire(&place.record->owner) ? "live" : "freed", place.bytes, (const void *)place.start);
        if (offset >= place.bytes) hak_text_str(text, ", behind its end");
        break;
    case SLAB_FREE:
    case SLAB_LIVE:
    case SLAB_INSIDE: {
        if (!place.record && place.kind == SLAB_FREE && !place.is_free) {
            hak_text_format(text, "a freed block of %zu bytes, whose slab has ended", place.bytes);
            break;
        }
        if (!place.record || hak_load_relaxed(&place.record->owner) == HAK_WATCHED) {
            hak_text_format(text, "byte %zu of a %s block of %zu bytes at %p, a sampled one", offset,
                            place.is_free ? "freed" : "live", place.bytes, (const void *)place.start);
            break;
        }
        unsigned block = (unsigned)((size_t)(place.start - place.record->start) / place.bytes);
        hak_text_format(text, "byte %zu of a %s block of %zu bytes at %p, number %u of its slab at %p", offset,
                        place.is_free ? "freed" : "live", place.bytes, (const void *)place.start, block,
                        (const void *)hak_granule_address(hak_granule_of(place.record->start)));
        break;
    }
    }
    return true;
}
