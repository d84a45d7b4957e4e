/* free_memory.h - for the tests of the bound on free memory: what is free, and `keep` with all that it is judged by. */
#ifndef UNIT_FREE_MEMORY_H
#define UNIT_FREE_MEMORY_H

#include "unit/room.h"

#include "memory/purge.h"

#define MIB (1 << 20)

static int start(void **state) {
    (void)state;
    room_region_start();
    return 0;
}

static int64_t free_now(void) { return hak_load_relaxed(&hak_purge.free_bytes); }

static void keep_set(uint64_t bytes) {
    hak_store_relaxed(&hak_purge.keep_bytes, bytes);
    hak_store_relaxed(&hak_purge.keep_ms, hak_os_clock_ms());
    hak_store_relaxed(&hak_purge.judged_since_ms, hak_os_clock_ms());
    hak_store_relaxed(&hak_purge.free_peak_bytes, free_now());
    hak_store_relaxed(&hak_purge.drawn_bytes, 0);
    hak_store_relaxed(&hak_purge.judged_returned_bytes, 0);
    hak_store_relaxed(&hak_purge.judged_retouched_bytes, 0);
    hak_store_relaxed(&hak_purge.enforced_bytes, 0);
    hak_store_relaxed(&hak_purge.enforced_retouched_bytes, 0);
    hak_store_relaxed(&hak_purge.late_bytes, 0);
}

#endif
