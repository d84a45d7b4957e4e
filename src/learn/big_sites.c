/* big_sites.c - see big_sites.h.
 *
 * Owns:      a sum over what the file said, to tell whether this run knows anything else.
 * Borrows:   the rows (memory/bigcache.h), which are relaxed: what is read or written a moment late only steers.
 */
#include "learn/big_sites.h"

#include "memory/bigcache.h"
#include "rules/options.h"

enum { TOUCHED_MAX = 1024, DENSE = 960 };

static uint64_t sum_read;

struct giving {
    bool (*put)(struct hak_policy_site *site, void *context);
    void *context;
    uint64_t sum;
};

/* Of a row only what it makes a difference in; sums of any order are the same. */
static uint64_t row_sum(uint64_t address, uint32_t height, unsigned octave, bool comes_back, bool is_dense) {
    uint64_t x = address * UINT64_C(0x9e3779b97f4a7c15) ^ ((uint64_t)height << 16 | octave << 2 | comes_back << 1 | is_dense);
    x = (x ^ x >> 31) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static void take(const struct hak_policy_site *site) {
    struct hak_big_known known = { (const void *)(uintptr_t)site->address, site->height / 8, site->class_index,
                                   (unsigned)site->number[0], (unsigned)site->number[2] };
    if (site->class_index == 0 || site->class_index > 63 || known.touched > TOUCHED_MAX) return;
    sum_read += row_sum(site->address, known.height, known.octave, known.back >= 2, known.touched >= DENSE);
    hak_big_learnt(&known);
}

static void give_one(const struct hak_big_known *known, void *context) {
    struct giving *giving = context;
    struct hak_policy_site site = { .address = (uintptr_t)known->address,
                                    .height = known->height * 8,
                                    .class_index = (uint16_t)known->octave,
                                    .number = { known->back, HAK_OPT(large_linger_ms), known->touched } };
    uint64_t sum = row_sum((uintptr_t)known->address, known->height, known->octave, known->back >= 2, known->touched >= DENSE);
    if (giving->put(&site, giving->context)) giving->sum += sum;
}

static uint64_t sum_put(bool (*put)(struct hak_policy_site *site, void *context), void *context) {
    struct giving giving = { put, context, 0 };
    hak_big_each(give_one, &giving);
    return giving.sum;
}

static bool give(bool (*put)(struct hak_policy_site *site, void *context), void *context) { return sum_put(put, context) != sum_read; }

static void note(bool (*put)(struct hak_policy_site *site, void *context)) { sum_read = sum_put(put, NULL); }

const struct hak_policy_room hak_big_sites = { take, give, note };
