/* published.h - what another process reads: the tables of the recording, where they are, and the control word.
 *
 * The symbol `hakmem_published` is in .dynsym of the library (or of the program that is linked with it). A reader
 * finds it through /proc/PID/maps and the file's ELF tables, reads struct hak_published there with process_vm_readv,
 * and then the tables that it names. Nothing is stopped. A dump (docs/recording.md) holds the same tables.
 *
 * Sizes:     a table says its row_bytes; a reader steps by it and reads as much of a row as it knows. Fields are only
 *            ever appended, within one `version`. All integers are little-endian, as the processors are.
 * Consistency: a row begins with `sequence`. Odd: it is being written. A reader takes the row, then the sequence again;
 *            where it moved or was odd, it takes the row once more, and after a few tries leaves it out. Rows with
 *            sequence 0 were never used. Sums (uint64_t that only grow, and pairs of them) are single atomic words and
 *            need no sequence; `sum` below.
 * Bounds:    each table has a fixed capacity; what found no room is counted in hak_published.lost*.
 * Times:     nanoseconds of CLOCK_MONOTONIC; start_realtime_ns - start_ns makes them dates.
 * Weights:   counts of blocks are in 1/1024 of a block (HAK_COUNT_UNIT), bytes in bytes; both are estimates: sums of the
 *            samples' weights.
 * Row 0 of stacks and threads stands for "unknown".
 */
#ifndef HAK_WATCH_PUBLISHED_H
#define HAK_WATCH_PUBLISHED_H

#include <stdint.h>

#define HAK_PUBLISHED_MAGIC UINT64_C(0x314255504d454b48) /* "HKEMPUB1" */
enum { HAK_PUBLISHED_VERSION = 1, HAK_COUNT_UNIT = 1024, HAK_STACK_FRAMES_MAX = 64, HAK_AGE_COUNT = 12, HAK_GUARD_FRAMES_MAX = 32 };

/* One table: address 0 until recording first began. `used`: rows from here on were never used (a ring: rows written). */
struct hak_table {
    uint64_t address, row_bytes, capacity, used;
};

/* A call stack, and what its samples sum up to. Immutable but for the sums. */
struct hak_stack_row {
    uint32_t sequence;
    uint32_t frame_count;
    uint64_t hash;
    uint64_t frame_first;      /* in the table of frames; outermost call into the library first, then its callers: return
                                  addresses, so look up address - 1 */
    uint64_t key;              /* the site's, heap/key.h, at its first sample */
    uint64_t explicit_site;    /* of hak_alloc_at, or 0 */
    /* sums: */
    uint64_t alloc_samples, free_samples;
    uint64_t alloc_count, alloc_bytes; /* live = alloc - free */
    uint64_t free_count, free_bytes;
    uint64_t temporary_count;          /* of free_count */
    uint64_t alloc_variance;           /* double as bits: sum of weight * (weight - 1) * bytes^2, the variance of alloc_bytes */
    uint64_t age_count[HAK_AGE_COUNT]; /* of free_count by age: under 1 us, 10 us, .. 1 s [6], 10 s [7], 100, 1,000, 10,000,
                                          100,000 s, more */
    uint64_t age_ns;                   /* weighted sum of ages, in microseconds * blocks */
    uint64_t first_ns, last_ns;        /* of its allocations */
    uint64_t large_count, large_bytes; /* of alloc_*: blocks above 32 KiB */
};

/* A live sampled block. state 1: live; 0: free row. */
struct hak_live_row {
    uint32_t sequence;
    uint32_t state;
    uint32_t stack, thread;
    uint64_t block;
    uint64_t place;            /* the ordinary block that it stands for (sample.h), or 0; on whose page it would be */
    uint64_t requested_bytes, block_bytes;
    uint64_t rate_bytes;
    uint64_t weight;           /* double as bits */
    uint64_t birth_ns, birth_bytes;
    uint64_t key;
    uint32_t class_index;      /* 0: large */
    uint32_t guarded;          /* 1: on pages of its own */
    uint32_t next;             /* a further sample of the same large block, of its growth: row + 1 */
    uint32_t serial;           /* samples that the thread had made by then */
    uint64_t from_bytes;       /* a sample of growth: the size before */
    uint32_t tid, spare;       /* of who allocated it, also where the table of threads is full */
};

struct hak_thread_row {
    uint32_t sequence;
    uint32_t tid;
    char name[16];
    uint64_t first_ns, last_ns;        /* samples seen */
    uint64_t alloc_count, alloc_bytes; /* sums, of what it allocated */
    uint64_t free_count, free_bytes;   /* of what it freed */
    uint64_t alloc_samples;
};

/* Who did something to a guarded block, and from where. Frames are return addresses (look up address - 1), but for the first
 * of a fault, which is the instruction itself. */
struct hak_guard_event {
    uint64_t time_ns;
    uint32_t tid, frame_count;         /* tid 0: it did not happen */
    char name[16];
    uint64_t frame[HAK_GUARD_FRAMES_MAX];
};

/* A place for a guarded block. It lies in the middle of pages that nobody may touch. */
enum hak_guard_state { HAK_GUARD_UNUSED, HAK_GUARD_BUSY, HAK_GUARD_LIVE, HAK_GUARD_FREED };
struct hak_guard_row {
    uint32_t sequence;
    uint32_t state;                    /* enum hak_guard_state, of the block that is there or was there last */
    uint64_t low, high;                /* of the place; its block lies at one of its ends */
    uint64_t block, requested_bytes;
    uint64_t serial;                   /* guarded blocks that were made before */
    struct hak_guard_event alloc, free;
};

/* What a guarded block was misused by. */
enum hak_guard_kind { HAK_GUARD_OVERFLOW = 1, HAK_GUARD_UNDERFLOW, HAK_GUARD_AFTER_FREE, HAK_GUARD_DOUBLE_FREE, HAK_GUARD_BAD_FREE,
                      HAK_GUARD_OTHER };
enum hak_guard_access { HAK_GUARD_ACCESS, HAK_GUARD_READ, HAK_GUARD_WRITE, HAK_GUARD_JUMP, HAK_GUARD_FREE };
struct hak_guard_fault {
    uint32_t sequence;
    uint32_t kind, access;             /* enum hak_guard_kind, enum hak_guard_access */
    uint32_t row;                      /* of the table of guards */
    uint64_t address;                  /* that was touched, or passed to the library */
    struct hak_guard_event at;
    struct hak_guard_row was;          /* that row when it happened; sequence 0: of none, or not kept. The table's own may be of the
                                          place's next block by now */
};

/* Every timeline_ms, on visits. When the table is full every second row goes and timeline_ms doubles (table's sequence). */
struct hak_time_row {
    uint64_t time_ns;
    uint64_t resident_bytes;   /* of the process */
    uint64_t free_bytes;       /* resident and free, as the allocator sums it */
    uint64_t used_bytes;       /* spans and slabs in use, resident or not */
    uint64_t absent_bytes;     /* of used_bytes: pages of slabs that are not resident */
    uint64_t large_bytes, large_count; /* live, exact */
    uint64_t live_bytes;       /* estimate from the samples */
    uint64_t alloc_bytes;      /* allocated so far, estimate */
    uint64_t returned_bytes, retouched_bytes; /* so far */
    uint64_t fault_count;      /* minor faults of the process so far */
    uint64_t heap_count;
};

/* A size class, as slabs are cut now. */
struct hak_class_row {
    uint64_t reciprocal;
    uint32_t block_bytes, capacity, word_count, slab_bytes;
};

/* Where slabs and their bits are, so that a reader can count from outside what lives on each page. Chunk n's struct is at
 * meta + (n >> unit_shift) * unit_meta_bytes + (n & mask) * chunk_struct_bytes; its slabs word at + chunk_slabs_offset says
 * at which of its 64 granules a slab begins. Metadata of chunk n: meta + (n >> unit_shift) * unit_meta_bytes +
 * structs_bytes + (n & mask) * meta_bytes: 64 slab headers of slab_struct_bytes, and lines of 64 bytes. A slab's owner row
 * is at line owner_line: row_head_bytes, which begin with the first block's address, then word_count words, set = free; the
 * strangers' row at remote_line: words only, set = free as well. Live: in neither. (The blocks that wait in a thread's bin count as
 * live: at most 64 a class and thread.)
 * Parts that were never used are not mapped, and a read of them fails: go on with the next chunk. */
struct hak_geometry {
    uint64_t window_base, meta, chunk_top_address; /* of a uint64_t: chunks below it may be in use */
    uint64_t unit_meta_bytes, structs_bytes, meta_bytes;
    uint32_t page_shift, unit_shift, granule_shift, is_limited;
    uint32_t chunk_struct_bytes, chunk_used_offset, chunk_dirty_offset, chunk_slabs_offset;
    uint32_t slab_struct_bytes, slab_owner_offset, slab_returned_offset, slab_place_offset, slab_class_offset,
        slab_owner_line_offset, slab_remote_line_offset, slab_page_shift_offset;
    uint32_t row_head_bytes;
    uint32_t class_count;
};

/* Written from outside. The writer sets the fields, then `request` to a number that is not `seen`; a visit takes the request,
 * and sets `seen` to it and `result`. Requests that find request != seen wait for that one first. A forked child takes none that waits in
 * its parent (ECANCELED), and does not go on with a recording that was started here: only with HAKMEM_RECORD's. */
enum hak_control_command {
    HAK_CONTROL_NONE,
    HAK_CONTROL_START,   /* rate_bytes (0: the option's) */
    HAK_CONTROL_STOP,    /* keeps the tables */
    HAK_CONTROL_RATE,    /* rate_bytes */
    HAK_CONTROL_DUMP,    /* to path; a directory or a name as of HAKMEM_RECORD */
    HAK_CONTROL_CLEAR,   /* sums, times and timeline begin anew; live samples stay, and are not counted when they are freed: what
                            lives is in the table of live samples. START of a recording that was off clears as well, and of tables of
                            stacks, frames or threads that are more than half full it keeps what lives: the stacks' rows get other numbers */
};
struct hak_control {
    uint32_t request, seen;
    uint32_t command;
    int32_t result;      /* 0 or -errno */
    uint64_t rate_bytes;
    char path[256];
};

struct hak_published {
    uint64_t magic;
    uint32_t version, bytes;     /* of this struct */
    uint32_t pid;                /* who wrote it last; a child's differs until its first visit */
    uint32_t is_on;              /* 1: recording */
    uint64_t rate_bytes;         /* in force, 0: off */
    uint64_t start_ns, start_realtime_ns;
    uint64_t timeline_ms;
    uint32_t timeline_sequence;  /* odd while the timeline is being thinned */
    uint32_t geometry_ready;     /* 1: geometry, classes and counters are there: since the first allocation */
    char library_version[16];
    struct hak_table stacks, frames, live, threads, timeline, classes, counter_names, counters;
    struct hak_geometry geometry;
    struct hak_control control;
    /* sums */
    uint64_t samples, samples_freed;
    uint64_t alloc_count, alloc_bytes, free_count, free_bytes; /* of all samples, weighted */
    uint64_t lost_live, lost_stacks, lost_threads;  /* samples that found a table full (live: not recorded at all; else row 0) */
    uint64_t lost_bytes;                            /* weighted, of lost_live */
    uint64_t lost_block;                            /* samples for which no watched block could be had */
    uint64_t thinned;                               /* rounds in which the rate doubled because the live table filled up */
    uint64_t dumps;                                 /* written */
    uint64_t guarded_live, guarded_freed;           /* guarded blocks that live; places whose block was freed and stays untouchable */
    uint64_t stack_walks, stack_unwinds, stack_repeats; /* how the stacks were had */
    struct hak_table learn; /* one row, from the first look at learning on: a uint64_t that is odd while the rest is written,
                               then struct hak_learn_stats of hakmem.h */
    struct hak_table guards, guard_faults;          /* rows of guarded blocks; what was found wrong with them, the first 16 */
    uint64_t guarded, guard_short, guard_found;     /* blocks guarded so far; those that could not be; misuses found */
    uint64_t held_count, held_ns, held_max_ns;      /* how often a thread of the program did recording's work instead of its own, how
                                                       long in all and at most, by the clock: with what the system let it wait. Not
                                                       in it: frees of sampled blocks, some 0.1 us each */
    uint64_t large_bytes_address, large_count_address; /* of an int64_t each: blocks above 32 KiB that live, at any time,
                                                          with the freed ones that a thread keeps; below 0 for a moment */
    uint64_t recorded_rate_bytes;                   /* rate_bytes when the recording was last on: of what the tables hold */
    uint64_t renewed;                               /* odd while rows of stacks, frames and threads move; a reader takes all tables again where
                                                       it was odd, or is another afterwards */
};

extern struct hak_published hakmem_published;

#endif
