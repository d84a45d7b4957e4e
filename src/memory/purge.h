/* purge.h - how much free memory stays resident, and giving the rest back.
 *
 * Owns:      the sums of free resident bytes and used granules, the bound, and `keep`.
 * Threads:   any; sums are relaxed atomics, changed on slow paths only.
 * The bound: free memory that is resident stays under max(free_max_mb, used / free_share, keep). While more than a fifth of what the
 *            bound returned is touched again within 1.9 seconds, and that costs a hundredth of a processor's time, `keep` rises to
 *            what the program drew from free memory, its fall from a peak, and a quarter, but to as many times what is held as that
 *            costs hundredths at most; and by half when three fifths are touched again within a second, for then it is classes that
 *            want their own pages back: to half of what is held, or 32 MiB. What the sweep returned says nothing of the bound. Every
 *            two seconds it falls, by half at most, to what was drawn in them. What was kept and never needed goes; what comes and
 *            goes stays.
 * The grace: above the bound free memory stays for free_grace_ms, by 64 MiB or as much again as the bound, before it goes back: who frees much
 *            often wants it in a moment. It ends when more comes from the kernel meanwhile than a quarter of that: then it is not what is
 *            wanted. At once where there is a limit that it would exceed, where the user set the bound or learning halved it, and in a crowd;
 *            by a sixteenth of what the control group may have at most. What strangers gave has it, too, though its owner may wait:
 *            he mostly wants it in a moment. Blocks and spans that a thread keeps beyond its part of the bound have none.
 * The delay: of the sweep, purge_delay_ms. It doubles, to 4 s at most, when what the sweep returned is touched again
 *            within a second, and falls back after half a minute without that.
 */
#ifndef HAK_MEMORY_PURGE_H
#define HAK_MEMORY_PURGE_H

#include "base/atomic.h"
#include "memory/chunk.h"
#include "memory/spare.h"
#include "os/os.h"

enum { HAK_GRACE_BYTES = 64 << 20, HAK_GRACE_AGAIN_MS = 2000 }; /* above the bound at most, or as much again; after one that was for nothing there is none */

struct hak_purge {
    HAK_ALIGNED(HAK_LINE) hak_atomic_i64 free_bytes; /* resident pages of free granules, and counted pages of slabs */
    hak_atomic_i64 used_granules;
    hak_atomic_i64 absent_bytes;     /* of these, pages of slabs that are not resident: returned or never used */
    HAK_ALIGNED(HAK_LINE) hak_atomic_i64 given_bytes; /* blocks that other threads freed, at which their owner has not looked yet */
    hak_atomic_i64 settled_bytes;    /* of these, what nobody need look at: it went back, or its pages hold other blocks */
    HAK_ALIGNED(HAK_LINE) hak_atomic_u64 keep_bytes;
    hak_atomic_u32 halvings;         /* of the bound, but for keep: learnt (memory/spare.h) */
    hak_atomic_u32 unseen;           /* 1: some chunk has unseen granules */
    hak_atomic_u32 crowded;          /* 1: more threads than can run free and want again, each for itself (heap/birth.c) */
    hak_atomic_i64 free_peak_bytes;  /* in this window of two seconds, of hak_free_unpurged() */
    hak_atomic_i64 drawn_bytes;      /* in it, the furthest that it fell from a peak */
    hak_atomic_u64 judged_returned_bytes, judged_retouched_bytes; /* since keep was last judged */
    hak_atomic_u64 enforced_bytes, enforced_retouched_bytes; /* of these, because the bound was broken */
    hak_atomic_u64 late_bytes;       /* of the last, a second after they went back, or later */
    hak_atomic_u64 keep_ms;          /* when the window began */
    hak_atomic_u64 over_since_ms;    /* when free memory came to be above the bound; 0: it is not, or nobody has looked */
    hak_atomic_i64 grown_bytes;      /* what came from the kernel since then */
    hak_atomic_u64 above_bytes;      /* the furthest above the bound since then */
    hak_atomic_u64 grace_from_ms;    /* no grace before: the last one was for nothing */
    hak_atomic_u64 judged_since_ms;  /* when what is summed above began; later by half when it is halved */
    hak_atomic_u64 returned_ms;      /* when memory last went back */
    hak_atomic_u64 swept_bytes, swept_retouched_bytes; /* of these, by the sweep, since the delay was last judged */
    hak_atomic_u64 delay_ms, delay_since_ms; /* learnt; 0: the option's */
    hak_atomic_u64 returned_bytes, retouched_bytes, return_calls; /* since the start */
};
extern struct hak_purge hak_purge;

/* Free memory as it would be had nothing been returned lately: what the program's use makes of it, not we. */
HAK_INLINE int64_t hak_free_unpurged(int64_t free_bytes) {
    int64_t away = (int64_t)hak_load_relaxed(&hak_purge.judged_returned_bytes) -
                   (int64_t)hak_load_relaxed(&hak_purge.judged_retouched_bytes);
    return away > 0 ? free_bytes + away : free_bytes;
}

/* Plain maxima: who is lost between load and store comes again. */
HAK_INLINE void hak_free_watch(int64_t free_bytes) {
    int64_t now = hak_free_unpurged(free_bytes), drawn = hak_load_relaxed(&hak_purge.free_peak_bytes) - now;
    if (drawn < 0) hak_store_relaxed(&hak_purge.free_peak_bytes, now);
    if (drawn > hak_load_relaxed(&hak_purge.drawn_bytes)) hak_store_relaxed(&hak_purge.drawn_bytes, drawn);
}

HAK_INLINE void hak_free_note_plain(int64_t bytes, int64_t used_granules) {
    if (bytes) hak_free_watch(hak_add(&hak_purge.free_bytes, bytes) + bytes);
    if (used_granules) hak_add(&hak_purge.used_granules, used_granules);
}

/* `bytes` of memory that nobody has used yet: a smaller bound would not have given it back. */
HAK_INLINE void hak_free_note_unplayed(int64_t bytes) {
    hak_spare_pass_by((uint64_t)bytes);
    hak_free_note_plain(bytes, 0);
}
HAK_INLINE void hak_free_note(int64_t bytes, int64_t used_granules) {
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_spare_on)) && bytes) hak_spare_note(bytes);
    hak_free_note_plain(bytes, used_granules);
}

/* What one heap changes is summed in the heap first, so that the sum that all threads share is touched once per 64 KiB:
 * in a storm of small batches a seventh of the time went into moving its cache line (docs/experiments.md). */
enum { HAK_FREE_SUM_MAX = 64 << 10 };
void hak_free_flush(int64_t *sum);
/* `sum` is the caller's heap's, or NULL for who has none. */
HAK_INLINE void hak_free_note_in(int64_t *sum, int64_t bytes) {
    if (!sum) {
        hak_free_note(bytes, 0);
        return;
    }
    *sum += bytes;
    if (HAK_UNLIKELY(*sum > HAK_FREE_SUM_MAX || *sum < -HAK_FREE_SUM_MAX)) hak_free_flush(sum);
}

/* Blocks that strangers freed (below 0: that their owner took in). They are no free pages yet and fall under the bound all the same, for
 * the owner may wait for ever: heap/sweep.c looks at their slabs then. */
void hak_given_note(int64_t bytes);
void hak_given_flush(int64_t *sum);
bool hak_given_over(void);
void hak_given_settle(int64_t bytes); /* a slab that has so many was looked at; below 0: its owner took in what was */
/* Of blocks of which HAK_BATCH_BYTES have `room`: near enough, and the same for who gives, who looks and who takes in. A stranger would
 * have to fetch the owner's lines to know it exactly. */
enum { HAK_BATCH_BYTES = 8 << 10 };
HAK_INLINE int64_t hak_given_bytes(unsigned count, unsigned room) {
    return (int64_t)count * (room ? HAK_BATCH_BYTES / room : 2 * HAK_BATCH_BYTES);
}
HAK_INLINE bool hak_given_sum(int64_t *sum, int64_t bytes) { /* as hak_free_note_in; true when the sum of all was changed */
    *sum += bytes;
    if (HAK_LIKELY(*sum <= HAK_FREE_SUM_MAX && *sum >= -HAK_FREE_SUM_MAX)) return false;
    hak_given_flush(sum);
    return true;
}

/* So much of what is used now comes from the kernel. Free memory above the bound is not what the program wants, then. */
HAK_INLINE void hak_purge_note_grown(int64_t bytes) {
    if (HAK_UNLIKELY(hak_load_relaxed(&hak_purge.over_since_ms) != 0)) hak_add(&hak_purge.grown_bytes, bytes);
}

HAK_INLINE void hak_absent_note(int64_t bytes) { hak_add(&hak_purge.absent_bytes, bytes); }

uint64_t hak_purge_bound(void);
uint64_t hak_purge_bound_halved(unsigned halvings); /* what it would be */

/* Would `more_bytes` of free memory on top of what there is break the bound? */
bool hak_purge_over(int64_t more_bytes);

/* It is broken: and is it time that it is enforced? Whoever gives back what anybody could use looks at this. */
bool hak_purge_over_long(void);

/* Is it to be enforced now? Of what seems to be free memory some may be unseen, and hardly touched: that is looked at first. */
bool hak_purge_look(void);
HAK_INLINE bool hak_purge_is_over(void) {
    return HAK_UNLIKELY(hak_purge_over_long()) && (HAK_LIKELY(!hak_load_relaxed(&hak_purge.unseen)) || hak_purge_look());
}

/* Down to where the bound is enforced: its half, so that it is rare; where `keep` is the bound, not far below it. */
uint64_t hak_purge_goal(void);
uint64_t hak_purge_goal_of(uint64_t bound);

/* Now, and in the lowest bit whether the sweep returns: for hak_chunk.returned_ms. */
uint32_t hak_purge_stamp(bool by_sweep);
/* Pages that had been returned at `stamp` are used again. */
void hak_purge_note_retouch(uint64_t bytes, uint32_t stamp);

/* `keep` falls, and what it is judged by begins anew or ages, where it is time: before each purge, and when the sweep comes round. */
void hak_purge_judge(void);

/* Gives the ranges back and counts them, but for what is absent in them; true when all went. */
bool hak_purge_return(const struct hak_range *ranges, size_t count, uint64_t absent_bytes, bool by_sweep);

/* How long the sweep lets free pages be. */
uint64_t hak_purge_delay_ms(void);

/* The slab layer's: all granules of the chunk are the caller's, and no slab is in it. */
extern void (*hak_purge_on_empty_chunk)(size_t number);

/* Returns free dirty granules, the highest addresses first, until at most `goal_bytes` of free memory are
 * resident or none are left. The result is in bytes. */
size_t hak_purge_spans(uint64_t goal_bytes);

/* The bound is broken, but it is known that what was freed last is wanted again: keep rises over what is free. False: that
 * would be more than large_keep_mb. */
bool hak_purge_keep(void);

/* What is free of these granules goes back. */
void hak_purge_span(size_t granule, size_t count);

/* No slab is in the chunk, and none of its free granules may be resident: all that hak_purge_chunk() may find is metadata. */
HAK_INLINE bool hak_purge_chunk_is_idle(size_t number) {
    if (!hak_unit_ready(number)) return true;
    struct hak_chunk *chunk = hak_chunk_at(number);
    return (hak_load_relaxed(&chunk->slabs) | (hak_load_relaxed(&chunk->dirty) & ~hak_load_relaxed(&chunk->used))) == 0;
}

/* One chunk's free dirty granules: all of them, or those that already were at the last call. */
size_t hak_purge_chunk(size_t number, bool all);

/* After a free that made free memory: enforces the bound, down to its half so that it is rarely enforced. */
void hak_purge_excess(void);
HAK_INLINE void hak_purge_enforce(void) {
    if (hak_purge_is_over()) hak_purge_excess();
}

#endif
