/* limit.c - see limit.h. */
#include "memory/limit.h"

#include "memory/purge.h"
#include "os/os.h"

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

HAK_COLD void hak_limit_make_room(void) { hak_purge_enforce(); }

/* --- the control group --- */

hak_atomic_u64 hak_limit_group_bytes;
hak_atomic_u64 hak_limit_group_due_ms;
static hak_atomic_u32 process; /* whose group it is; 0: nobody's yet */

/* The rest is for what is not ours: stacks, the program and its libraries, the kernel's tables of pages (a 500th) and what it holds for
 * sockets and files; our own records (a 32nd at most). In MiB; 0 is no limit, and a limit of nothing is the least that there is. */
static uint64_t share_mb(uint64_t bytes) {
    uint64_t mb = (bytes / 10 * 9) >> 20;
    return bytes == UINT64_MAX ? 0 : mb ? mb : 1;
}

/* One that shares our memory (vfork) has another number, and perhaps another group. */
static bool is_ours(void) {
    uint32_t self = hak_os_pid(), seen = 0;
    return hak_cas(&process, &seen, self) || seen == self;
}

HAK_COLD void hak_limit_group_look(uint64_t now_ms) {
    uint64_t due = hak_load_relaxed(&hak_limit_group_due_ms), bytes = UINT64_MAX;
    if (now_ms < due || hak_option_is_pinned(HAK_O_limit_soft_mb) || !is_ours()) return;
    if (!hak_cas(&hak_limit_group_due_ms, &due, now_ms + HAK_LIMIT_GROUP_MS)) return;
    /* who is not shown it once is not shown it later: a sandbox would write down each try */
    if (HAK_OPT(cgroup) && !hak_os_group_memory(&bytes)) hak_store_relaxed(&hak_limit_group_due_ms, UINT64_MAX);
    uint64_t shown = bytes == UINT64_MAX ? 0 : bytes ? bytes : 1;
    if (hak_exchange(&hak_limit_group_bytes, shown) != shown) hak_option_steer(HAK_O_limit_soft_mb, share_mb(bytes));
}

HAK_COLD void hak_limit_group_forgotten(void) {
    hak_store_relaxed(&hak_limit_group_due_ms, 0);
    hak_store_relaxed(&process, 0);
}
