/* huge_room.h - what the tests of huge pages ask: what is resident, what is free memory, and a kernel that refuses. After cmocka.h. */
#ifndef HAK_TEST_HUGE_ROOM_H
#define HAK_TEST_HUGE_ROOM_H

#include "unit/room.h"

#include "memory/chunk.h"
#include "memory/purge.h"
#include "os/os.h"

#include <sys/mman.h>

static inline bool refuse_advice(enum hak_os_call call) { return call == HAK_OS_ADVISE; }
static inline int64_t free_now(void) { return hak_load_relaxed(&hak_purge.free_bytes); }
static inline struct hak_chunk *chunk_of(size_t granule) { return hak_chunk_at(granule / HAK_CHUNK_GRANULES); }

static inline size_t resident_pages(size_t granule, size_t count) {
    static unsigned char page[64 * 16];
    size_t pages = 0;
    REQUIRE(count <= 64 && mincore(hak_granule_address(granule), count * HAK_GRANULE_BYTES, page) == 0);
    for (size_t i = 0; i < count * 16; i++) pages += page[i] & 1;
    return pages;
}

#endif
