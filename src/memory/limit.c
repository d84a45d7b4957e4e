/* limit.c - see limit.h. */
#include "memory/limit.h"

#include "memory/purge.h"

hak_atomic_i64 hak_limit_outside_granules, hak_limit_moving_granules;

enum { MB_GRANULES = (1 << 20) / HAK_GRANULE_BYTES };

HAK_COLD int64_t hak_limit_taken(void) {
    return hak_load_relaxed(&hak_purge.used_granules) + hak_load_relaxed(&hak_limit_outside_granules) -
           hak_load_relaxed(&hak_limit_moving_granules);
}

HAK_COLD bool hak_limit_is_reached(size_t granules) {
    int64_t most = (int64_t)(HAK_OPT(limit_hard_mb) * MB_GRANULES), taken = hak_limit_taken();
    return most != 0 && (taken >= most || granules > (uint64_t)(most - (taken > 0 ? taken : 0))); /* 0: lifted just now */
}

HAK_COLD uint64_t hak_limit_rest(uint64_t bytes, uint64_t used_bytes) {
    uint64_t most = HAK_OPT(limit_soft_mb) << 20;
    used_bytes += (uint64_t)hak_load_relaxed(&hak_limit_outside_granules) << HAK_GRANULE_SHIFT;
    if (most == 0) return bytes;
    uint64_t rest = used_bytes < most ? most - used_bytes : 0;
    return rest < bytes ? rest : bytes;
}
