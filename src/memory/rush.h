/* rush.h - what a thread keeps apart while it takes and gives spans and others do the same.
 *
 * All that spans share, the lowest chunk with room, the bits that lead there, and the sums, lies in a few lines, and 16 processors wait for
 * these by turns. A thread whose takes meet lost races for granules is in a rush: it adds up what it changes of the sums, takes part in what
 * is noted of call sites now and then, and its heap may keep more spans (heap/kept.h), so that it seldom comes here at all.
 *
 * Owns:      sums that are not added yet, within 1 MiB either way, 64 KiB where heaps are many, and for a second or the thread's next visit
 *            after it; the live large blocks' count and bytes.
 * Threads:   its heap's owner, plain; the flush also who takes over a dead heap.
 * Measured:  16 processors, 32 to 512 KiB in 32 slots a thread, million rounds a second, peak MiB (docs/experiments.md): without it 10.8, 209; spans
 *            of 12 MiB kept 73.2, 204; of 8 MiB 61.2, 240; of 16 MiB 46.7, 203; two threads 6.0, 9.5, 9.4, 9.6.
 * Rejected:  chunks of a thread's own, left on a lost race: 15.9 to 26.7 and 250, and two threads on two processors lost by it, for what
 *            they touched was spread wider.
 */
#ifndef HAK_MEMORY_RUSH_H
#define HAK_MEMORY_RUSH_H

#include "base/atomic.h"
#include "base/attr.h"

struct hak_rush {
    uint32_t heat; /* above 0: in a rush, for so many takes without a race */
    uint32_t turn[2]; /* of takes and of gives */
    int64_t free_bytes, used_granules; /* of hak_purge */
    int64_t live_count, live_bytes;    /* of hak_large_live_count and _bytes */
};

/* Kept ones among them, and whole granules. */
extern hak_atomic_i64 hak_large_live_count, hak_large_live_bytes;

/* NULL: of nobody, and never in a rush. */
HAK_INLINE bool hak_rush_is_on(const struct hak_rush *rush) { return HAK_UNLIKELY(rush && rush->heat); }

/* Of what many threads note together of takes, and of gives, every eighth will do. */
HAK_INLINE bool hak_rush_takes_part(struct hak_rush *rush, bool is_give) { return !hak_rush_is_on(rush) || ++rush->turn[is_give] % 8 == 0; }

/* A second has passed: what waits is added, and the rush is half as long. */
void hak_rush_tick(struct hak_rush *rush);

void hak_rush_note_free(struct hak_rush *rush, int64_t free_bytes, int64_t used_granules);
void hak_rush_note_live(struct hak_rush *rush, int64_t count, int64_t bytes);
void hak_rush_flush(struct hak_rush *rush);

/* A span was taken; meanwhile somebody lost a race, the caller or another. */
HAK_INLINE void hak_rush_turn(struct hak_rush *rush, bool was_race) {
    enum { RACE = 4, HEAT_MAX = 1024 }; /* on while one take of four meets a race */
    if (HAK_UNLIKELY(was_race)) rush->heat += rush->heat < HEAT_MAX ? RACE : 0;
    else if (HAK_UNLIKELY(rush->heat) && --rush->heat == 0) hak_rush_flush(rush);
}

#endif
