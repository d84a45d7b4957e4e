/* sampler.h - what a heap keeps while it is sampled, and what the rooms of watch tell each other.
 *
 * Owns:      struct hak_watch, one for each heap that was ever sampled (own pages, never given back).
 * Threads:   the heap's owner.
 */
#ifndef HAK_WATCH_SAMPLER_H
#define HAK_WATCH_SAMPLER_H

#include "heap/heap.h"
#include "watch/sample.h"
#include "watch/stack.h"

struct hak_watch {
    uint64_t random;
    uint32_t epoch;        /* and thread_pointer: whom thread and bounds are of */
    uintptr_t thread_pointer;
    uint32_t thread;       /* row in the table of threads */
    uint32_t serial;       /* samples that the thread made */
    uint32_t busy;         /* 1: a sample is being taken, whatever is allocated meanwhile is not one */
    size_t rare_bytes;     /* asked of a class that is served by a coarser one, on the way there */
    struct hak_stack_bounds bounds;
    double large_left;     /* bytes of large blocks before the next sample */
    uint32_t large_drawn;  /* generation under which it was drawn */
    uint32_t drawn[HAK_SHELF_COUNT]; /* by class or pool: generation of the rate under which due was drawn */
    uint64_t due[HAK_SHELF_COUNT];   /* allocations of it in this heap before the next sample */
};

/* --- sampler.c --- */

/* The heap's, made if need be; NULL: memory is short, or the heap is none. */
struct hak_watch *hak_watch_of(struct hak_heap *heap);

/* Were there too many samples, or few? */
void hak_sample_tick(uint64_t now_ms);

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

/* Bytes that live samples stand for now. */
uint64_t hak_record_live_bytes(void);
/* Sums, times and timeline begin anew; live samples stay. */
void hak_record_clear(void);

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

/* --- dump.c --- */

/* 0 or -errno. `path`: a file; or a folder, or a name that ends in '/': then the file's name is made of the program's name,
 * pid and reason. */
int hak_dump_write(const char *path, const char *reason);

#endif
