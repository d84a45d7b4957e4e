/* shown.h - the state of learning as others see it: hak_learn_stats() of hakmem.h, the JSON, and the tool from outside.
 *
 * Owns:      one struct hak_learn_stats, and a number before it that is odd while it is written.
 * Threads:   writing: who holds the learn lock. Reading: any, also another process: take the number, the struct, the number
 *            again; where they differ or are odd, once more.
 */
#ifndef HAK_LEARN_SHOWN_H
#define HAK_LEARN_SHOWN_H

#include "base/atomic.h"
#include "base/text.h"
#include "hakmem/hakmem.h"
#include "learn/cycle.h"

struct hak_shown {
    hak_atomic_u64 sequence;
    hak_atomic_u64 word[(sizeof(struct hak_learn_stats) + 7) / 8];
};
extern struct hak_shown hak_learn_shown;

void hak_shown_write(const struct hak_cycle *cycle, const struct hak_measure *last, uint64_t time_ms);

/* "learn": {...},; row_end is called after each line of at most 1 KiB. */
void hak_shown_json(struct hak_text *text, void (*row_end)(void *context), void *context);

/* In a child, where a writer may have vanished. */
void hak_shown_reset(void);

#endif
