/* counters.h - the counters of counters.def: an index each, their sums, and their texts.
 *
 * Each heap has one struct hak_counters. Only the heap's owner writes it, by a plain load and a relaxed
 * store: no locked instruction, and a reader of another thread sees a number that was true a moment ago.
 */
#ifndef HAK_RULES_COUNTERS_H
#define HAK_RULES_COUNTERS_H

#include "base/atomic.h"

#ifdef __cplusplus
extern "C" {
#endif

enum hak_counter {
#define HAK_COUNTER(name, unit, what) HAK_C_##name,
#include "rules/counters.def"
#undef HAK_COUNTER
    HAK_COUNTER_COUNT
};

HAK_STATIC(HAK_COUNTER_COUNT <= 64); /* struct hak_stats has room for these */

struct hak_counters {
    uint64_t n[HAK_COUNTER_COUNT];
};

/* Owner only. HAK_COUNT(&heap->counters, visit_dead, 1); */
#define HAK_COUNT(counters, name, amount) hak_counter_add((counters), HAK_C_##name, (uint64_t)(amount))

HAK_INLINE void hak_counter_add(struct hak_counters *counters, enum hak_counter index, uint64_t amount) {
    hak_owner_add(&counters->n[index], amount);
}

/* Adds each counter of `from`, which its owner may be counting in, to the caller's own `sum`. */
void hak_counters_add(struct hak_counters *sum, const struct hak_counters *from);

/* The row's texts; inline arrays, so that the table needs no relocations at start. */
struct hak_counter_row {
    char name[24], unit[8], what[104];
};
extern const struct hak_counter_row hak_counter_rows[HAK_COUNTER_COUNT];

#ifdef __cplusplus
}
#endif
#endif
