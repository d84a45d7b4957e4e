/* spare.c - see spare.h. */
#include "memory/spare.h"

#include "memory/purge.h"
#include "rules/options.h"

hak_atomic_u32 hak_spare_on;
static struct {
    hak_atomic_u64 held, missed, cut; /* cut: how often the bound was broken */
} rows[HAK_SPARE_ROWS];

static struct {
    hak_atomic_u64 ms, pages, calls;
} begin; /* what stood there when this process began to count */

static uint64_t retouched_pages(void) { return hak_load_relaxed(&hak_purge.retouched_bytes) / 4096; }

static void begin_here(void) {
    hak_store_relaxed(&begin.ms, hak_os_clock_ms());
    hak_store_relaxed(&begin.pages, retouched_pages());
    hak_store_relaxed(&begin.calls, hak_load_relaxed(&hak_purge.return_calls));
}

void hak_spare_start(void) {
    begin_here();
    hak_store_relaxed(&hak_spare_on, 1);
}

static hak_atomic_u64 passed_by; /* noted as used again sooner or later, by heaps that sum up first */

void hak_spare_pass_by(uint64_t bytes) {
    if (hak_load_relaxed(&hak_spare_on)) hak_add(&passed_by, bytes);
}

static int64_t without_passed_by(int64_t bytes) {
    uint64_t returned = hak_load_relaxed(&passed_by), size = (uint64_t)-bytes;
    uint64_t part = returned < size ? returned : size;
    if (part && !hak_cas(&passed_by, &returned, returned - part)) return bytes; /* another thread's turn */
    return bytes + (int64_t)part;
}

static struct {
    hak_atomic_u64 since_ms, from_ms;
} grace; /* of the first row: as over_since_ms and grace_from_ms in hak_purge */

/* What the row holds goes back now. */
static bool goes_back(unsigned row, uint64_t held, uint64_t bound) {
    if (row > 0) return held > bound;
    uint64_t since = hak_load_relaxed(&grace.since_ms), now, most = bound > HAK_GRACE_BYTES ? bound : HAK_GRACE_BYTES;
    if (held <= bound) {
        if (since) hak_store_relaxed(&grace.since_ms, 0);
        return false;
    }
    now = hak_os_clock_ms();
    if (!since) hak_store_relaxed(&grace.since_ms, since = now);
    bool may_stay = (int64_t)(now - hak_load_relaxed(&grace.from_ms)) >= 0 && held - bound <= most;
    if (may_stay && (int64_t)(now - since) < (int64_t)HAK_OPT(free_grace_ms)) return false;
    hak_store_relaxed(&grace.since_ms, 0);
    hak_store_relaxed(&grace.from_ms, now + HAK_GRACE_AGAIN_MS);
    return true;
}

void hak_spare_note(int64_t bytes) {
    if (bytes < 0) bytes = without_passed_by(bytes);
    for (unsigned i = 0; i < HAK_SPARE_ROWS; i++) {
        uint64_t held = hak_load_relaxed(&rows[i].held), size = (uint64_t)(bytes < 0 ? -bytes : bytes);
        uint64_t bound = hak_purge_bound_halved(i);
        if (bytes > 0) held += size;
        if ((bytes > 0 || i == 0) && goes_back(i, held, bound)) {
            held = hak_purge_goal_of(bound);
            hak_store_relaxed(&rows[i].cut, hak_load_relaxed(&rows[i].cut) + 1);
        }
        if (bytes < 0) {
            if (size > held) hak_add(&rows[i].missed, size - held);
            held = size > held ? 0 : held - size;
        }
        hak_store_relaxed(&rows[i].held, held);
    }
}

void hak_spare_forget(void) {
    for (unsigned i = 0; i < HAK_SPARE_ROWS; i++) {
        hak_store_relaxed(&rows[i].missed, 0);
        hak_store_relaxed(&rows[i].cut, 0);
    }
    begin_here();
}

uint64_t hak_spare_missed(unsigned halvings) { return hak_load_relaxed(&rows[halvings].missed); }

unsigned hak_spare_choose(unsigned now, uint64_t cpu_ns, uint64_t page_ns, uint64_t share) {
    unsigned most = now < HAK_HALVINGS_MAX ? now + 1 : HAK_HALVINGS_MAX;
    if (most > now && hak_load_relaxed(&rows[most].cut) == 0) most = now; /* it would have made no difference: not known */
    uint64_t whole = hak_spare_missed(0);
    while (most > 0) {
        uint64_t missed = hak_spare_missed(most), more = missed > whole ? missed - whole : 0;
        if (more / 4096 * page_ns <= cpu_ns / share) break;
        most--;
    }
    return most;
}

struct hak_spare_paid hak_spare_paid(uint64_t cpu_ns) {
    uint64_t wall_ns = (hak_os_clock_ms() - hak_load_relaxed(&begin.ms)) * 1000000;
    return (struct hak_spare_paid){ retouched_pages() - hak_load_relaxed(&begin.pages),
                                    hak_load_relaxed(&hak_purge.return_calls) - hak_load_relaxed(&begin.calls), cpu_ns > wall_ns + wall_ns / 4 };
}

unsigned hak_spare_check(unsigned now, unsigned chosen, const struct hak_spare_paid *paid, uint64_t cpu_ns, uint64_t page_ns, uint64_t share) {
    enum { CALL_NS = 1400, CALL_PARALLEL_NS = 10000, MORE = 2 };
    uint64_t cost_ns = paid->pages * page_ns + paid->calls * (paid->is_parallel ? CALL_PARALLEL_NS : CALL_NS), most_ns = cpu_ns / share;
    if (now == 0) return chosen;
    if (cost_ns > most_ns) return chosen < now ? chosen : now - 1;
    return chosen > now && cost_ns * MORE > most_ns ? now : chosen;
}
