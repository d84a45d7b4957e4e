/* unseen.c - free granules of blocks that were hardly touched: what of them is resident is asked when it matters. See chunk.h.
 *
 * Threads:   who asks has taken the granules.
 */
#include "memory/chunk.h"
#include "os/os.h"

HAK_COLD void hak_span_leave_unseen(size_t granule, size_t count) {
    while (count > 0) {
        unsigned first = (unsigned)(granule % HAK_CHUNK_GRANULES);
        unsigned part = count < HAK_CHUNK_GRANULES - first ? (unsigned)count : HAK_CHUNK_GRANULES - first;
        hak_or(&hak_chunk_at(granule / HAK_CHUNK_GRANULES)->unseen, hak_word_mask(first, part));
        granule += part;
        count -= part;
    }
}

HAK_COLD int64_t hak_chunk_look(size_t number, uint64_t mask) {
    enum { PAGES_MAX = HAK_GRANULE_BYTES >> 12, RANGES = 64 }; /* pages of a granule; the system's may be larger */
    unsigned char page[HAK_CHUNK_GRANULES * PAGES_MAX];
    struct hak_range absent[RANGES];
    struct hak_chunk *chunk = hak_chunk_at(number);
    unsigned shift = hak_region.page_shift, pages = HAK_GRANULE_BYTES >> shift, count = 0;
    char *start = hak_granule_address(number * HAK_CHUNK_GRANULES);
    uint64_t unseen = hak_load_relaxed(&chunk->unseen) & mask, calls = 0;
    if (!unseen) return 0;
    for (uint64_t left = unseen; left;) {
        unsigned first = hak_word_first(left);
        uint64_t gap = ~(left >> first);
        unsigned run = gap ? hak_word_first(gap) : HAK_CHUNK_GRANULES, end;
        if (run > HAK_CHUNK_GRANULES - first) run = HAK_CHUNK_GRANULES - first;
        left &= ~hak_word_mask(first, run);
        if (!hak_os_resident(start + ((size_t)first << HAK_GRANULE_SHIFT), (size_t)run << HAK_GRANULE_SHIFT, page)) continue;
        for (unsigned i = 0; i < run * pages && count < RANGES; i = end + 1) {
            for (; i < run * pages && page[i] & 1; i++) {
            }
            for (end = i; end < run * pages && !(page[end] & 1); end++) {
            }
            char *from = start + ((size_t)first << HAK_GRANULE_SHIFT) + ((size_t)i << shift);
            if (end > i) absent[count++] = (struct hak_range){ from, (size_t)(end - i) << shift };
        }
    }
    size_t done = count ? hak_os_return(absent, count, &calls) : 0; /* not counted as returned: nothing of it was there */
    for (size_t i = 0; i < done; i++) {
        size_t at = (size_t)((char *)absent[i].start - start) >> shift, end = at + (absent[i].bytes >> shift);
        for (; at < end; at++) {
            unsigned granule = (unsigned)at / pages;
            unsigned before = hak_load_relaxed(&chunk->partial) >> granule & 1 ? hak_load_relaxed(&chunk->absent[granule]) : 0;
            hak_granule_leave_absent(number * HAK_CHUNK_GRANULES + granule, before | 1u << at % pages);
        }
    }
    hak_and(&chunk->unseen, ~unseen);
    return hak_chunk_absent_bytes(chunk, unseen);
}
