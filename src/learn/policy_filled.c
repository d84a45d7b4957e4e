/* policy_filled.c - see policy_filled.h. */
#include "learn/policy_filled.h"

#include "learn/policy_text.h"

#include <string.h>

enum { SAME_SHARE = 8, RISE_SHARE = 4, NEWS_LEAST = 2 };

static unsigned class_of(uint32_t block_bytes) {
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++)
        if (hak_classes[c].block_bytes == block_bytes) return c;
    return HAK_CLASS_COUNT;
}

void hak_policy_known_of(const struct hak_policy *policy, struct hak_policy_known *known) {
    memset(known, 0, sizeof *known);
    for (unsigned i = 0; i < policy->filled_count; i++) {
        unsigned c = class_of(policy->filled[i].block_bytes);
        if (c == HAK_CLASS_COUNT) continue;
        known->known[c] = policy->filled[i].slabs;
        known->last[c] = policy->filled[i].last;
    }
}

static void rows_fill(struct hak_policy *policy, const struct hak_policy_known *known) {
    policy->filled_count = 0;
    for (unsigned c = 0; c < HAK_CLASS_COUNT && policy->filled_count < HAK_POLICY_FILLED_MAX; c++)
        if (known->known[c] || known->last[c])
            policy->filled[policy->filled_count++] = (struct hak_policy_filled){ hak_classes[c].block_bytes, known->known[c], known->last[c] };
}

static uint64_t granules(const uint32_t slabs[HAK_CLASS_COUNT]) {
    uint64_t sum = slabs[0];
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) sum += (uint64_t)slabs[c] * hak_classes[c].granules;
    return sum;
}

static bool is_same(uint32_t one, uint32_t other) {
    uint32_t off = one > other ? one - other : other - one;
    return off <= other / SAME_SHARE;
}

/* One in 1, 2, 4 .. */
static bool is_drawn(uint64_t draw, uint32_t doublings) { return (draw & ((UINT64_C(1) << doublings) - 1)) == 0; }

bool hak_policy_tries(const struct hak_policy *policy, bool is_frozen, uint64_t draw) {
    return policy->dear == 0 || (!is_frozen && is_drawn(draw, policy->dear));
}

bool hak_policy_tried(struct hak_policy *policy, bool were_dear) {
    enum { STEP = 2 };
    uint32_t before = policy->dear;
    if (were_dear) policy->dear = before + STEP < HAK_POLICY_DEAR_MAX ? before + STEP : HAK_POLICY_DEAR_MAX;
    else if (before > 0) policy->dear--;
    return policy->dear != before;
}

bool hak_policy_filled(struct hak_policy *policy, const uint32_t seen[HAK_CLASS_COUNT], uint64_t draw) {
    struct hak_policy_known now;
    bool news = false;
    hak_policy_known_of(policy, &now);
    bool falls = granules(seen) * 4 < granules(now.known) * 3;
    bool rises = !falls && is_drawn(draw, policy->fell);
    for (unsigned c = 0; c < HAK_CLASS_COUNT; c++) {
        uint32_t known = now.known[c], both = now.last[c] < seen[c] ? now.last[c] : seen[c], next = known;
        if (seen[c] < known && !is_same(seen[c], known)) next = seen[c];
        else if (rises && both > known && !is_same(both, known)) next = policy->fell ? known + (both - known + RISE_SHARE - 1) / RISE_SHARE : both;
        news |= next != known || seen[c] >= now.last[c] + NEWS_LEAST + now.last[c] / SAME_SHARE;
        now.known[c] = next;
        now.last[c] = seen[c];
    }
    if (falls && policy->fell < HAK_POLICY_FELL_MAX) policy->fell++;
    news |= falls;
    if (news) rows_fill(policy, &now);
    return news;
}
