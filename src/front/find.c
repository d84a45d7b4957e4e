/* find.c - the live block at an address, for who asks its size or changes it: realloc, sized and aligned frees, own API.
 *
 * Apart from misuse.c, for programs that realloc need not have what is said of misuse in memory (packaging/hakmem.lds).
 */
#include "front/front.h"

#include "heap/secure.h"
#include "memory/outside.h"

static HAK_COLD void secure_found(struct hak_found *found, const char *function, const void *block) {
    found->exact = true;
    found->bytes = hak_secure_bytes(function, block, found->record);
}

struct hak_found hak_find(const char *function, const void *block) {
    struct hak_found found = { NULL, 0, false, false, false };
    if (HAK_LIKELY(hak_region_holds(block))) {
        struct hak_granule *record = hak_granule_at(hak_granule_of(block));
        struct hak_heap *owner = hak_load_acquire(&record->owner);
        found.record = record;
        if (owner == HAK_LARGE && record->start == block) {
            found.large = true;
            found.bytes = hak_large_usable(record);
            return found;
        }
        if (owner && owner != HAK_LARGE) {
            unsigned __int128 product =
                (unsigned __int128)(uint64_t)((const char *)block - record->start) * record->reciprocal;
            unsigned index = (unsigned)(product >> 64);
            if (HAK_LIKELY((uint64_t)product < record->reciprocal &&
                           !(hak_load_acquire(&record->words[index / 64]) >> index % 64 & 1) &&
                           !hak_front_kept(record, block))) {
                found.bytes = hak_row_of(record->words)->block_bytes;
                if (HAK_UNLIKELY(hak_secure_is_on())) secure_found(&found, function, block);
                return found;
            }
        }
        if (owner == HAK_WATCHED && (found.bytes = hak_front_watched_bytes(block)) != 0) return found;
    } else {
        found.bytes = hak_outside_bytes(block);
        if (found.bytes) return found;
        found.bytes = hak_front_watched_bytes(block);
        found.apart = true;
        if (found.bytes) return found;
    }
    hak_misuse(function, block);
}
