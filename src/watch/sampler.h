/* sampler.h - what a heap keeps while it is sampled, and what the rooms of watch tell each other.
 *
 * Owns:      struct hak_watch, one for each heap that was ever sampled (own pages, never given back).
 * Threads:   the heap's owner.
 */
#ifndef HAK_WATCH_SAMPLER_H
#define HAK_WATCH_SAMPLER_H

#include "base/text.h"
#include "heap/heap.h"
#include "watch/sample.h"
#include "watch/stack.h"

struct hak_watch {
    uint64_t random;
    uint32_t epoch;        /* and thread_pointer: whom thread and bounds are of */
    uint32_t given;        /* and hak_watch_given(): whose number tid is */
    uintptr_t thread_pointer;
    uint32_t thread;       /* row in the table of threads */
    uint32_t tid;          /* the thread's number; 0: not asked yet. Who has an older one's stack, heap and name shares its row */
    uint32_t serial;       /* samples that the thread made */
    uint32_t busy;         /* the fork epoch: a sample is being taken, whatever is allocated meanwhile is not one; else 0 */
    uint64_t busy_ns;      /* since then, by hak_os_clock_ns() */
    struct hak_stack_bounds bounds;
    bool large_is_sample;  /* the large block that is being made */
    /* generation of the rate under which the next sample's number was drawn: by class or pool, of kept blocks, of large ones */
    uint32_t drawn[HAK_SHELF_COUNT], kept_drawn[HAK_MIDDLE_CLASSES], large_drawn;
};

/* --- sampler.c --- */

/* The heap's, made if need be; NULL: memory is short, or the heap is none. */
struct hak_watch *hak_watch_of(struct hak_heap *heap);

/* How often a heap was given to a thread: the next one may have the stack, and so the thread pointer, of the one before. */
HAK_INLINE uint32_t hak_watch_given(const struct hak_heap *heap) {
    struct hak_heap *home = hak_load_relaxed(&heap->home); /* under the secure level: its thread's */
    return (uint32_t)(hak_load_relaxed(&(home ? home : heap)->thread) >> 32);
}

/* Were there too many samples, or few? */
void hak_sample_tick(uint64_t now_ms);
/* Is any thread in the middle of a sample? */
bool hak_sample_is_busy(void);
/* hak_thin_rate() has risen. */
void hak_sample_rate_again(void);

/* Where the number of a sampled block stands, whatever it is now; NULL: no sampled block ever was there. */
hak_atomic_u32 *hak_sample_number(void *block);
/* Set in a number while thin.c has its row: who takes the number from the block then leaves the row to it. */
#define HAK_NUMBER_MARK (UINT32_C(1) << 31)
/* The block of a row was freed, and nobody has said so. */
void hak_sample_end(uint32_t number);

/* --- published rows --- */

/* A reader that finds `sequence` even and the same before and after has a whole row. */
HAK_INLINE void hak_row_write_begin(uint32_t *sequence) {
    __atomic_store_n(sequence, *sequence + 1, __ATOMIC_RELAXED);
#ifndef __SANITIZE_THREAD__ /* which knows no fences; the readers are other processes */
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}
HAK_INLINE void hak_row_write_end(uint32_t *sequence) { __atomic_store_n(sequence, *sequence + 1, __ATOMIC_RELEASE); }

/* --- record.c: samples as rows --- */

/* Maps the tables, once; false: memory is short. */
bool hak_record_start(void);
bool hak_record_ready(void);

/* Row + 1, or 0 when the table is full. The sample's block, sizes, class, rate, weight and place are set; time, stack,
 * thread and key are found here. `from_bytes`: what the block had before it grew. */
uint32_t hak_record_alloc(struct hak_heap *heap, struct hak_watch *watch, struct hak_sample *sample, size_t from_bytes,
                          struct hak_stack_here here, bool with_stack);
/* The row was the caller's alone: taken out of the block's place by an exchange. The next row of the same block, or 0.
 * `known`: it was freed; false: it is only given up. */
uint32_t hak_record_free(struct hak_heap *heap, uint32_t number, bool known);
uint32_t hak_record_next(uint32_t number);
void hak_record_chain(uint32_t number, uint32_t next);
/* The block of the row is elsewhere now, or has fewer bytes. */
void hak_record_move(uint32_t number, void *block, size_t bytes);
/* What is known of a row's block, for reports: false, it is free. */
struct hak_live_row *hak_record_row(uint32_t number);

/* Rows in use; what one's blocks are, and are from now on; it is given up, uncounted. */
uint32_t hak_record_live_count(void);
double hak_record_weight(uint32_t number);
void hak_record_reweigh(uint32_t number, double weight, uint64_t rate_bytes);
void hak_record_drop(uint32_t number);

/* Bytes that live samples stand for now. */
uint64_t hak_record_live_bytes(void);
/* Sums, times and timeline begin anew; live samples stay. */
void hak_record_clear(void);
/* Before that, where recording is off: room in the tables of stacks and threads, of which only what lives stays, if they are more than half
 * full. */
void hak_record_renew(void);

/* --- thin.c: room for further rows --- */

/* Draws a few rows, if there is need. */
void hak_thin_step(uint64_t *random);
/* The lowest rate that rows may have; 0: any. */
uint64_t hak_thin_rate(void);
void hak_thin_clear(void);
void hak_thin_in_child(void); /* who began a round is not here */

/* --- timeline.c --- */

bool hak_timeline_start(bool small);
/* A row, if its time has come. */
void hak_timeline_tick(uint64_t now_ms);
void hak_timeline_clear(void);

/* --- publish.c --- */

/* Where slabs, classes and counters are: the region is there. */
void hak_publish_start(void);
/* Every so often the counters' sums. */
void hak_publish_tick(uint64_t now_ms);
/* A thread of the program was at recording's own work since `begin_ns`: for how long, which is the result. */
uint64_t hak_publish_held(uint64_t begin_ns);

/* --- watch.c --- */

/* A guarded block was misused: writes the dump that is wanted then. 0, -errno, or 1: none is wanted. Its path, or where it would go. */
int hak_watch_dump_guard(char *path, size_t bytes);

/* --- dump.c --- */

/* 0 or -errno. `path`: a file; or a folder, or a name that ends in '/': then the file's name is made of the program's name,
 * pid and reason. */
int hak_dump_write(const char *path, const char *reason);
/* The file's name. */
void hak_dump_name(struct hak_text *text, const char *path, const char *reason);

#endif
