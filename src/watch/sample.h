/* sample.h - sampled blocks: what is known of one, who wants them, who is told.
 *
 * Every allocation is sampled with p = 1 - exp(-block bytes / rate): Poisson samples by bytes, drawn per class and
 * heap as the distance to the next one (docs/protocols.md, 6). A sample stands for `weight` = 1/p blocks, and for
 * weight * requested_bytes bytes.
 *
 * Sampling is off until somebody wants it. While it is off nothing of this folder runs.
 * Threads:   observers are called by the thread that allocates or frees, inside its malloc or free, without a lock:
 *            they may not allocate and may not wait. Their `sample` is valid during the call.
 */
#ifndef HAK_WATCH_SAMPLE_H
#define HAK_WATCH_SAMPLE_H

#include "base/attr.h"

struct hak_heap;

struct hak_sample {
    void *block;
    const void *place;        /* the ordinary block that it stands for, or NULL: sampled blocks lie apart from the others of
                                 their class, and this one would have been handed out instead (large: the block) */
    size_t requested_bytes;   /* of a large block that grew in place, a sample of the growth: the growth */
    size_t block_bytes;       /* usable */
    uint64_t rate_bytes;      /* it was drawn under */
    double weight;            /* blocks that it stands for */
    uint64_t key;             /* of its site, heap/key.h: return address, height, class */
    uintptr_t call;           /* the return address of the outermost call into the library */
    uint64_t birth_ns;        /* CLOCK_MONOTONIC */
    uint64_t birth_bytes;     /* what the process had allocated by then, as estimated from the samples */
    uint64_t age_ns, age_bytes; /* on free: since its birth; on alloc 0 */
    uint32_t class_index;     /* 0: a large block */
    uint32_t stack;           /* row of the table of stacks, published.h; 0: not known */
    uint32_t thread;          /* row of the table of threads, of who allocated it */
    uint32_t thread_freed;    /* on free: of who freed it */
    bool is_temporary;        /* on free: by the thread that allocated it, nothing allocated between that was sampled, or
                                 within HAK_TEMPORARY_NS */
    bool is_guarded;          /* on pages of its own */
};

enum { HAK_TEMPORARY_NS = 1000 * 1000 };

/* Who wants samples. The lowest rate of those wanted is the one in force; stacks are taken if any of them wants them. */
enum hak_sample_who { HAK_SAMPLE_RECORD, HAK_SAMPLE_LEARN, HAK_SAMPLE_LIFETIMES, HAK_SAMPLE_LARGE, HAK_SAMPLE_GUARD,
                      HAK_SAMPLE_WHO_COUNT };

/* Mean bytes between samples; 0: wants none any more. Of HAK_SAMPLE_GUARD they are guarded (guard.h), and of the others' only as
 * many as keep to its rate. Any thread, any time. Other heaps follow at their next visit that
 * looks at the clock, every sixteenth at the latest. */
void hak_sample_want(enum hak_sample_who who, uint64_t rate_bytes, bool stacks);

/* The rate in force; 0: sampling is off. */
uint64_t hak_sample_rate(void);

/* Told of each sample's alloc and free (either may be NULL). Before the first want, or at any time after; there is no way
 * back. False: HAK_OBSERVER_MAX are there already. */
enum { HAK_OBSERVER_MAX = 4 };
typedef void hak_sample_function(struct hak_heap *heap, const struct hak_sample *sample);
bool hak_sample_observe(hak_sample_function *on_alloc, hak_sample_function *on_free);

#endif
