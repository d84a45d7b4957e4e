/* hakmem.h - what HAKMEM offers beyond the malloc family.
 *
 * Link the program with -lhakmem (or preload libhakmem.so); malloc, free and operator new are then HAKMEM's too,
 * and blocks may be freed by either interface. In a plugin that a program with another malloc opens by dlopen they are that
 * program's, and blocks from here go back by functions from here. Every function may be called from any thread at any
 * time, start-up (but for IFUNC resolvers) and thread destructors included; none of them is async-signal-safe. Sizes are bytes.
 * Addresses are aligned to 16 bytes unless said otherwise. Functions that allocate return NULL and set
 * errno to ENOMEM when memory is short or the size is above PTRDIFF_MAX; nothing else touches errno.
 * A pointer that HAKMEM did not hand out, or that was freed already, is reported on one line of standard
 * error and the process aborts (README.md, "Misuse").
 */
#ifndef HAKMEM_HAKMEM_H
#define HAKMEM_HAKMEM_H

#include <stddef.h>
#include <stdint.h>

#define HAKMEM_VERSION_MAJOR 0
#define HAKMEM_VERSION_MINOR 1
#define HAKMEM_VERSION_PATCH 0
#define HAKMEM_VERSION "0.1.0"

#if defined(__GNUC__)
#define HAKMEM_API __attribute__((visibility("default")))
#else
#define HAKMEM_API
#endif

/* hak_site_stats and hak_learn_stats are a struct and a function each. C++ writes `struct hak_learn_stats` for the type, and
 * its compilers would warn that the function hides it. */
#ifdef __cplusplus
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif
extern "C" {
#endif

/* The version of the library in the process, "MAJOR.MINOR.PATCH"; compare with HAKMEM_VERSION. */
HAKMEM_API const char *hak_version(void);

/* --- allocation that knows more ------------------------------------------------------------- */

/* A call site: any number but 0 that names a place of the program. HAK_SITE is one per expansion; it stands inside a
 * function. */
typedef uintptr_t hak_site_t;
#ifdef __cplusplus
#define HAK_SITE_OF(address) reinterpret_cast<hak_site_t>(address)
#else
#define HAK_SITE_OF(address) ((hak_site_t)(address))
#endif
#define HAK_SITE (__extension__({ static const char hak_site_here = 0; HAK_SITE_OF(&hak_site_here); }))

/* As malloc(size), counted for `site` (0: not counted). At most 4,096 sites are counted; what further
 * sites allocate is served all the same and counted together as site 0. */
HAKMEM_API void *hak_alloc_at(size_t size, hak_site_t site);

/* As free(ptr), counted for `site`, the one that allocated it. */
HAKMEM_API void hak_free_at(void *ptr, hak_site_t site);

/* One row per site that hak_alloc_at has seen, as it stands; fills at most `count_max` rows and returns
 * how many sites there are. */
struct hak_site_stats {
    hak_site_t site;
    uint64_t alloc_count, alloc_bytes; /* usable bytes of the blocks handed out */
    uint64_t free_count, free_bytes;
};
HAKMEM_API size_t hak_site_stats(struct hak_site_stats *rows, size_t count_max);

/* As malloc(size), and says how many bytes the block really has: all of them may be used. On failure
 * { NULL, 0 }. After the operator new of P0901. */
struct hak_block {
    void *ptr;
    size_t bytes;
};
HAKMEM_API struct hak_block hak_alloc_at_least(size_t size);

/* Grows the block in place to at least `size` bytes; its address and contents stay. Returns the usable
 * size after it, or 0 when there is no room in place (the block is unchanged then). A block of 32 KiB or
 * less never grows beyond its usable size. */
HAKMEM_API size_t hak_expand(void *ptr, size_t size);

/* What may be used of a block (malloc_usable_size; 0 for NULL), and the size to ask for in the place of `size`: a block of hak_good_size(size)
 * bytes takes no more memory than one of `size`, and all of them are its. It may have more: one of a size that is rare in its thread, or for
 * which a page more would be needed just now, or that is watched. A block of `size` itself has as many up to 32 KiB; a larger one begins at
 * some multiple of 128 bytes in its first page, and has what is left. */
HAKMEM_API size_t hak_usable_size(const void *ptr);
HAKMEM_API size_t hak_good_size(size_t size);

/* Gives every page that holds no live block back to the kernel: of the calling thread's heap, of heaps
 * whose threads have ended, and (pages only) of all other threads' heaps. Returns the bytes given back. */
HAKMEM_API size_t hak_collect(void);

/* Memory is short: malloc is about to return NULL, because of HAKMEM_LIMIT_HARD_MB, RLIMIT_AS or the kernel, not of a size above
 * PTRDIFF_MAX. The callback is called by the thread that asked, which holds no lock of the library, with its context and the bytes that are
 * wanted, rounded up to what is needed for them. It may free and allocate, and returns whether it is worth to try again: then that is done,
 * and it is called again if that fails, 64 times for one malloc at most. An allocation of its own that fails does not call it again. It must
 * return: no exception, no longjmp. operator new calls the new-handler after it. NULL: nobody is called. Of two calls the last one counts;
 * a callback that was replaced may still be running in other threads, with its own context. */
typedef int (*hak_shortage_callback)(void *context, size_t bytes);
HAKMEM_API void hak_on_shortage(hak_shortage_callback callback, void *context);

/* --- what the program holds, block by block ---------------------------------------------------- */

/* A block that the program holds. Later versions may append to it. */
struct hak_held {
    void *ptr;
    size_t bytes;     /* usable; of a guarded block those that were asked for */
    uint32_t large;   /* 1: above 32 KiB */
    uint32_t guarded; /* 1: alone between pages that nothing may touch (docs/guards.md) */
};

/* Calls each(held, context) for each block that the program holds, whoever allocated it by whichever function, in no order, until `each`
 * returns another number than 0, which is then returned; else 0. *held is gone when `each` returns. What was freed and waits for the next
 * allocation is not shown, nor what HAKMEM needs for itself. The sum of `bytes` is hak_stats.live_bytes; but of guarded blocks, small ones
 * count there by their class and large ones do not, as blocks do not that found no room in the window (HAKMEM_REGION_GB).
 * Exact while no other thread allocates or frees. Otherwise it does no harm, but what is handed out or freed meanwhile may be shown or not,
 * and what is shown may be free when `each` sees it: it may look at a block's contents only where it knows that nobody frees it.
 * `each` may allocate, free, walk, and leave by longjmp: nothing is held while it runs. What it allocates may be shown to it, and what it
 * frees ahead of the walk may be shown all the same. Never allocates. Some nanoseconds a block, and 0.1 us a slab. */
HAKMEM_API int hak_walk(int (*each)(const struct hak_held *held, void *context), void *context);

/* --- heaps ------------------------------------------------------------------------------------ */

/* A heap of the program's own: what is allocated from it can be ended together, has a limit of its own, and lies in slabs apart from all
 * else. Any thread may allocate from it at any time, beside others: each has a part of it, which it takes at its first block and which another
 * thread takes over when it ends. The blocks are ordinary ones: free(), realloc(), malloc_usable_size() and all checks of hakmem.h's first lines
 * hold for them, in any thread. realloc() and its relations leave a block in its heap. Blocks of heaps are not sampled and not
 * guarded (HAKMEM_RECORD, HAKMEM_GUARD), but for what realloc adds to large ones; hak_walk and hak_stats count them.
 * A call with a heap that was never made, or ended already, is reported like other misuse, unless another heap has its place by then. */
typedef struct hak_family hak_heap_t;

/* A new heap, which may take `limit_bytes` (0: as much as there is). NULL and ENOMEM when memory is short. Costs 2 KiB, and for each thread that
 * uses it 15 KiB more, and 64 KiB to 1 MiB of addresses for each kind of size, of which what is used is resident. There may be 36,864 such pairs of
 * a heap and a thread at a time (three quarters of what there is for heaps and threads together); an allocation that would make one more returns
 * NULL with ENOMEM. Under HAKMEM_SECURE=1 each thread has one for malloc besides. When it ends some 8 KiB of it stay for the next one, of the first
 * 16 all. What counts against the limit is whole: slabs of 64 KiB for blocks to 256 bytes, of 256 KiB to 4 KiB, of 1 MiB to 32 KiB, a few sizes to
 * each, for each thread, and slabs of their own for aligned blocks of 4, 8, 16 and 32 KiB; and large blocks in steps of 64 KiB. The limit is a
 * multiple of 64 KiB, rounded down, one at least; below a few MiB it serves few sizes. An allocation beyond it returns NULL with ENOMEM; it asks no
 * hak_on_shortage callback, gives nobody else's memory back and concerns no other heap. It is never exceeded. What is freed is room again at once
 * for the thread that allocated it, whoever freed it (so another thread's free of a block to 2,730 bytes is not gathered with others, and dearer by
 * an atomic operation); for the others as slabs become empty, and when that thread ends. hak_collect gives back pages of what threads have of a
 * heap, and makes no room there. */
HAKMEM_API hak_heap_t *hak_heap_new(size_t limit_bytes);

/* As malloc, calloc, aligned_alloc, from the heap. 20 instructions more than malloc to 1 KiB, some 120 above; a free by the thread that
 * allocated it takes 75 more than of an ordinary block, by another thread what it takes of any other's. realloc: the result is of `heap`,
 * whatever block `ptr` is (NULL: a new one); a block of another heap, or of none, is copied. Where growing would exceed the limit the result is
 * NULL, and the block is as it was. */
HAKMEM_API void *hak_heap_malloc(hak_heap_t *heap, size_t size);
HAKMEM_API void *hak_heap_calloc(hak_heap_t *heap, size_t count, size_t size);
HAKMEM_API void *hak_heap_realloc(hak_heap_t *heap, void *ptr, size_t size);
HAKMEM_API void *hak_heap_aligned_alloc(hak_heap_t *heap, size_t alignment, size_t size);

/* The heap of a live block; NULL: it is of none, or NULL. */
HAKMEM_API hak_heap_t *hak_heap_of(const void *ptr);

/* The three ends. The caller sees to it that no other thread uses the heap meanwhile, or frees a block of it; frees that came before are
 * no matter, wherever they lie. They may be called by any thread. Each looks at all slabs of the process, 2 ns each, until it has found all of
 * the heap's, and at 4 bytes for each heap and thread, and costs by the word of 64 blocks, not by the block. Not from a hak_on_shortage
 * callback for the heap whose allocation it was called for.
 * clear: all its blocks are free, the heap goes on. destroy: and there is no such heap any more. delete: there is no such heap any more, and
 * its blocks live on as ordinary ones. destroy and delete of NULL do nothing. */
HAKMEM_API void hak_heap_clear(hak_heap_t *heap);
HAKMEM_API void hak_heap_destroy(hak_heap_t *heap);
HAKMEM_API void hak_heap_delete(hak_heap_t *heap);

/* Of one heap. Exact while no other thread uses it, and none that did just ends. Later versions may append. */
struct hak_heap_stats {
    uint64_t live_count, live_bytes; /* its blocks, by a walk; usable bytes */
    uint64_t taken_bytes;            /* what counts against its limit */
    uint64_t limit_bytes;            /* as it is kept; 0: none */
};

/* Fills the first `bytes` bytes of *stats (pass sizeof *stats); what it does not know is 0. Costs what a walk costs. */
HAKMEM_API void hak_heap_stats_get(hak_heap_t *heap, struct hak_heap_stats *stats, size_t bytes);

/* As hak_walk, of the heap's blocks alone. */
HAKMEM_API int hak_heap_walk(hak_heap_t *heap, int (*each)(const struct hak_held *held, void *context), void *context);

/* --- statistics ------------------------------------------------------------------------------ */

enum { HAK_CLASS_COUNT_MAX = 128 };

struct hak_class_stats {
    uint32_t block_bytes; /* the class's block size */
    uint32_t slab_count;
    uint64_t alloc_count; /* blocks handed to the program since the start */
    uint64_t free_count;  /* blocks it gave back */
    uint64_t live_count;  /* alloc_count - free_count */
};

/* Exact while no other thread allocates; otherwise each number is one that was true a moment ago.
 * `counter[]` are the rows of docs/counters.md, in their order. */
struct hak_stats {
    uint64_t live_bytes;      /* blocks the program holds, rounded to their usable sizes */
    uint64_t resident_bytes;  /* of the whole process, from the kernel */
    uint64_t reserved_bytes;  /* address space set aside */
    uint64_t committed_bytes; /* of it, usable without a further system call */
    uint64_t free_bytes;      /* resident, and free for the next allocation (an upper estimate; not what other
                               * threads freed and its owner has not looked at yet) */
    uint64_t returned_bytes;  /* given back to the kernel since the start */
    uint64_t retouched_bytes; /* of these, used again since (an estimate by pages) */
    uint64_t large_count, large_bytes; /* live blocks above 32 KiB */
    uint64_t heap_count;               /* heaps there are: one per live thread that allocated or frees much, and spares */
    uint64_t dead_heap_count;          /* of these, without a thread */
    uint32_t class_count;
    uint32_t counter_count;
    struct hak_class_stats class_stats[HAK_CLASS_COUNT_MAX];
    uint64_t counter[64];
    uint64_t taken_bytes; /* what counts against HAKMEM_LIMIT_HARD_MB: spans in use, free blocks in them and what threads keep included,
                           * and blocks outside the window */
};

/* Fills the first `bytes` bytes of *stats (pass sizeof *stats, so that later versions may append); what it does not know is 0. */
HAKMEM_API void hak_stats_get(struct hak_stats *stats, size_t bytes);

/* The same as a JSON object with a final newline and NUL; like snprintf it writes at most `bytes` and
 * returns the length that the whole text has without the NUL. Never allocates. */
HAKMEM_API size_t hak_stats_json(char *text, size_t bytes);

/* The same in Prometheus's text format (version 0.0.4), for an exporter in the program: the metrics that `hakmem metrics` gives of a running
 * process, docs/profiles.md. Written and returned as by hak_stats_json. It asks the kernel for each slab which of its pages are resident,
 * one to four microseconds each, 24 ms with 512 MB of 64 bytes: for every few seconds, not for every request. Never allocates. */
HAKMEM_API size_t hak_stats_prometheus(char *text, size_t bytes);

/* --- what is learnt (docs/learning.md) --------------------------------------------------------- */

enum hak_learn_stage { HAK_LEARN_OFF, HAK_LEARN_LEARN, HAK_LEARN_CANARY, HAK_LEARN_FROZEN };
enum hak_rating_state { HAK_RATING_IN, HAK_RATING_ASIDE, HAK_RATING_SPENT, HAK_RATING_OUT, HAK_RATING_BARRED };
enum { HAK_RATING_COUNT_MAX = 16, HAK_STAGE_CHANGE_COUNT_MAX = 32 };

/* A strategy among the others; gains are over the default, in millionths of its cost. */
struct hak_rating {
    char strategy[16];
    int64_t gain_millionths, error_millionths;
    int32_t elo, elo_error;
    uint32_t duels;
    uint32_t state; /* enum hak_rating_state */
};
struct hak_stage_change_stats {
    uint64_t ms; /* since the process began */
    uint32_t from, to; /* enum hak_learn_stage */
    char reason[24];   /* docs/learning.md */
    char strategy[16]; /* in force after it */
    int64_t number[2]; /* what they are depends on the reason */
};
struct hak_learn_stats {
    uint32_t version; /* 1 */
    uint32_t pid;     /* the process that wrote this; a child's differs until its first look at the clock */
    uint32_t stage, policy;
    char strategy[16];        /* in force now: in LEARN and CANARY it changes with every window */
    char frozen_strategy[16]; /* the one that was chosen last */
    uint64_t time_ms;         /* of this state, since the process began */
    uint64_t windows, duels, void_duels;
    int64_t noise_millionths; /* standard deviation of a duel */
    int64_t gain_millionths, gain_error_millionths; /* of the chosen one, proved by duels of the final */
    uint64_t gain_duels;
    uint64_t change_count;    /* stage changes so far; the last ones are in change[], oldest first */
    uint32_t rating_count, change_rows;
    struct hak_rating rating[HAK_RATING_COUNT_MAX];
    struct hak_stage_change_stats change[HAK_STAGE_CHANGE_COUNT_MAX];
    /* the last window: its cost in nanoseconds by part, visits, and the resident bytes of the allocator */
    uint64_t window_ms, window_work_ns, window_fault_ns, window_memory_ns, window_visits, window_resident_bytes;
};

/* Fills the first `bytes` bytes of *stats. A state that is being written this moment is waited for no longer than a few tries;
 * then everything is 0 but version. */
HAKMEM_API void hak_learn_stats(struct hak_learn_stats *stats, size_t bytes);

/* Writes what has been learnt so far to a policy file (docs/policy.md); NULL: the one of HAKMEM_POLICY. 0 or an errno: ENOENT
 * (no path), ENOTSUP (learning is off), EBUSY, EINVAL (something else than a regular file stands there), or the kernel's. */
HAKMEM_API int hak_policy_save(const char *path);

/* --- options at run time ---------------------------------------------------------------------- */

/* Names as in docs/options.md, with or without HAKMEM_, in either case. Set returns 0, ENOENT (no such
 * option), EINVAL (not a number), ERANGE, or EPERM (it can only be set at start). Get writes the value as
 * text like snprintf and returns its length, or 0 when there is no such option. */
HAKMEM_API int hak_option_set(const char *name, const char *value);
HAKMEM_API size_t hak_option_get(const char *name, char *text, size_t bytes);

#ifdef __cplusplus
}
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
#endif
#endif
