/* find.c - the live block at an address, for who asks its size or changes it: realloc, sized and aligned frees, own API.
 *
 * Apart from misuse.c, for programs that realloc need not have what is said of misuse in memory (packaging/hakmem.lds).
 */
#include "front/front.h"

#include "heap/secure.h"
#include "memory/outside.h"

static HAK_COLD struct hak_found find_secure(const char *function, const void *block, struct hak_granule *record) {
    return (struct hak_found){ record, hak_secure_bytes(function, block, record), false, true, false };
}

/* A large block, or what only some programs have. */
static HAK_NOINLINE struct hak_found find_further(const char *function, const void *block) {
    if (HAK_LIKELY(hak_region_holds(block))) {
        struct hak_granule *record = hak_granule_at(hak_granule_of(block));
        struct hak_heap *owner = hak_load_acquire(&record->owner);
        if (HAK_LIKELY(owner == HAK_LARGE) && HAK_LIKELY(record->start == block))
            return (struct hak_found){ record, hak_large_usable(record), true, false, false };
        size_t watched = owner == HAK_WATCHED ? hak_front_watched_bytes(block) : 0;
        if (watched) return (struct hak_found){ record, watched, false, false, false };
    } else {
        size_t bytes = hak_outside_bytes(block);
        if (bytes) return (struct hak_found){ NULL, bytes, false, false, false };
        bytes = hak_front_watched_bytes(block);
        if (bytes) return (struct hak_found){ NULL, bytes, false, false, true };
    }
    hak_misuse(function, block);
}

/* Each way out writes the result once, whole: built up in memory by bytes and copied by sixteen of them, it had every realloc and
 * malloc_usable_size wait for its own stores. */
struct hak_found hak_find(const char *function, const void *block) {
    if (HAK_LIKELY(hak_region_holds(block))) {
        struct hak_granule *record = hak_granule_at(hak_granule_of(block));
        struct hak_heap *owner = hak_load_acquire(&record->owner);
        if (HAK_LIKELY(owner != NULL) && owner != HAK_LARGE) {
            unsigned __int128 product = (unsigned __int128)(uint64_t)((const char *)block - record->start) * record->reciprocal;
            unsigned index = (unsigned)(product >> 64);
            if (HAK_LIKELY((uint64_t)product < record->reciprocal && !(hak_load_acquire(&record->words[index / 64]) >> index % 64 & 1) &&
                           !hak_front_kept(record, block))) {
                if (HAK_UNLIKELY(hak_secure_is_on())) return find_secure(function, block, record);
                return (struct hak_found){ record, hak_row_of(record->words)->block_bytes, false, false, false };
            }
        }
    }
    return find_further(function, block);
}

HAK_NOINLINE size_t hak_usable_further(const char *function, const void *block) {
    struct hak_granule *large;
    size_t bytes = hak_front_usual_bytes(block, &large);
    return HAK_LIKELY(bytes != 0) ? bytes : hak_find(function, block).bytes;
}
