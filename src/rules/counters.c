/* counters.c - names, units and texts of the counters, and their sums.
 *
 * Owns:      the table of texts; the numbers are the heaps' (heap/).
 * Threads:   any; see counters.h for who writes.
 */
#include "rules/counters.h"

#define HAK_COUNTER(id, of, text)                                  \
    HAK_STATIC(sizeof(#id) <= sizeof(hak_counter_rows[0].name));   \
    HAK_STATIC(sizeof(#of) <= sizeof(hak_counter_rows[0].unit));   \
    HAK_STATIC(sizeof(text) <= sizeof(hak_counter_rows[0].what));
#include "rules/counters.def"
#undef HAK_COUNTER

const struct hak_counter_row hak_counter_rows[HAK_COUNTER_COUNT] = {
#define HAK_COUNTER(id, of, text) { #id, #of, text },
#include "rules/counters.def"
#undef HAK_COUNTER
};

void hak_counters_add(struct hak_counters *sum, const struct hak_counters *from) {
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++)
        sum->n[i] += __atomic_load_n(&from->n[i], __ATOMIC_RELAXED); /* relaxed: each number stands alone */
}
