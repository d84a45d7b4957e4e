/* glibc.c - the functions of glibc's <malloc.h> that look at the allocator or turn it.
 *
 * Owns:      the __malloc_hook family of variables.
 * Borrows:   statistics and collection (hakmem.h); fwrite, weakly, for malloc_info alone: a program that has a
 *            FILE has stdio, and this library needs none.
 * Threads:   any. Nothing here is async-signal-safe, as in glibc.
 *
 * All blocks, large ones too, lie in one region: "arena" is all of it and nothing is "mmapped". So uordblks alone is
 * what the program holds, and so is uordblks + hblkhd, the sum that many programs make; arena is uordblks + fordblks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/text.h"
#include "hakmem/hakmem.h"
#include "os/os.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>

/* Parameters of old and of Linux's own versions; glibc's header names them only in its sources. */
enum { M_CHECK_ACTION_ = -5, M_PERTURB_ = -6, M_ARENA_TEST_ = -7, M_ARENA_MAX_ = -8 };

/* --- mallinfo ------------------------------------------------------------------------------------ */

static uint64_t slab_count(const struct hak_stats *stats) {
    uint64_t count = 0;
    for (unsigned i = 0; i < stats->class_count && i < HAK_CLASS_COUNT_MAX; i++)
        count += stats->class_stats[i].slab_count;
    return count;
}

static struct mallinfo2 info_from(const struct hak_stats *stats) {
    struct mallinfo2 info = {0};
    info.uordblks = stats->live_bytes;
    info.fordblks = stats->free_bytes;
    info.arena = info.uordblks + info.fordblks;
    info.ordblks = slab_count(stats);  /* free blocks are bits here, not chunks: the slabs stand for them */
    info.keepcost = stats->free_bytes; /* what malloc_trim may give back */
    return info;
}

HAK_EXPORT struct mallinfo2 mallinfo2(void) {
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof(stats));
    return info_from(&stats);
}

/* The old struct counts in int: what does not fit is INT_MAX, where glibc's wraps around. */
static int int_capped(size_t number) {
    return number < INT_MAX ? (int)number : INT_MAX;
}

HAK_EXPORT struct mallinfo mallinfo(void) {
    struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){
        .arena = int_capped(wide.arena),
        .ordblks = int_capped(wide.ordblks),
        .hblks = int_capped(wide.hblks),
        .hblkhd = int_capped(wide.hblkhd),
        .uordblks = int_capped(wide.uordblks),
        .fordblks = int_capped(wide.fordblks),
        .keepcost = int_capped(wide.keepcost),
    };
}

/* --- mallopt, malloc_trim ------------------------------------------------------------------------ */

/* Programs set these for glibc's lists, top and arenas, of which there are none here; they are told that it
 * worked, and nothing changes. Our own options are set by hak_option_set(). */
HAK_EXPORT int mallopt(int parameter, int value) {
    (void)value;
    switch (parameter) {
    case M_MXFAST:
    case M_NLBLKS:
    case M_GRAIN:
    case M_KEEP:
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION_:
    case M_PERTURB_:
    case M_ARENA_TEST_:
    case M_ARENA_MAX_:
        return 1;
    default:
        return 0;
    }
}

/* `pad`, what glibc leaves at the top, has no meaning without a top. */
HAK_EXPORT int malloc_trim(size_t pad) {
    (void)pad;
    return hak_collect() > 0;
}

/* --- malloc_stats: glibc's text, at once and by write(2), so that a cancelled thread gets to its end ------ */

HAK_EXPORT void malloc_stats(void) {
    char bytes[1024];
    struct hak_stats stats;
    struct hak_text text = HAK_TEXT(bytes);
    hak_stats_get(&stats, sizeof(stats));
    struct mallinfo2 info = info_from(&stats);
    hak_text_format(&text,
                    "Arena 0:\n"
                    "system bytes     = %10zu\n"
                    "in use bytes     = %10zu\n"
                    "Total (incl. mmap):\n"
                    "system bytes     = %10zu\n"
                    "in use bytes     = %10zu\n"
                    "max mmap regions = %10zu\n"
                    "max mmap bytes   = %10zu\n",
                    info.arena, info.uordblks, info.arena + info.hblkhd, info.uordblks + info.hblkhd, info.hblks,
                    info.hblkhd);
    hak_os_write(2, bytes, hak_text_held(&text));
}

/* --- malloc_info ----------------------------------------------------------------------------------- */

extern __typeof__(fwrite) fwrite __attribute__((weak));

static bool text_put(struct hak_text *text, FILE *file) {
    size_t count = hak_text_held(text);
    text->used = 0;
    return fwrite(text->at, 1, count, file) == count;
}

/* glibc's elements, in one heap; <sizes>, which lists free chunks, is empty, and what we know of each class
 * stands in <classes>, which is ours and which readers of glibc's elements pass over. */
HAK_EXPORT int malloc_info(int options, FILE *file) {
    char bytes[1024];
    struct hak_stats stats;
    struct hak_text text = HAK_TEXT(bytes);
    if (options != 0)
        return EINVAL; /* as glibc: returned, not set */
    if (!fwrite)
        return ENOSYS;

    hak_stats_get(&stats, sizeof(stats)); /* first: the file may allocate its buffer */
    struct mallinfo2 info = info_from(&stats);
    hak_text_format(&text,
                    "<malloc version=\"1\">\n"
                    "<heap nr=\"0\">\n<sizes>\n</sizes>\n"
                    "<total type=\"fast\" count=\"0\" size=\"0\"/>\n"
                    "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
                    "<system type=\"current\" size=\"%zu\"/>\n"
                    "<system type=\"max\" size=\"%lu\"/>\n"
                    "<aspace type=\"total\" size=\"%lu\"/>\n"
                    "<aspace type=\"mprotect\" size=\"%lu\"/>\n"
                    "<classes>\n",
                    info.ordblks, info.fordblks, info.arena, stats.committed_bytes, stats.committed_bytes,
                    stats.committed_bytes);
    bool written = text_put(&text, file);

    for (unsigned i = 0; i < stats.class_count && i < HAK_CLASS_COUNT_MAX; i++) {
        const struct hak_class_stats *row = &stats.class_stats[i];
        if (!row->slab_count && !row->alloc_count)
            continue;
        hak_text_format(&text,
                        "  <class size=\"%u\" slabs=\"%u\" allocations=\"%lu\" frees=\"%lu\" live=\"%lu\"/>\n",
                        row->block_bytes, row->slab_count, row->alloc_count, row->free_count, row->live_count);
        written &= text_put(&text, file);
    }

    hak_text_format(&text,
                    "</classes>\n</heap>\n"
                    "<total type=\"fast\" count=\"0\" size=\"0\"/>\n"
                    "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
                    "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
                    "<system type=\"current\" size=\"%zu\"/>\n"
                    "<system type=\"max\" size=\"%lu\"/>\n"
                    "<aspace type=\"total\" size=\"%lu\"/>\n"
                    "<aspace type=\"mprotect\" size=\"%lu\"/>\n"
                    "</malloc>\n",
                    info.ordblks, info.fordblks, info.hblks, info.hblkhd, info.arena, stats.committed_bytes,
                    stats.committed_bytes, stats.committed_bytes);
    written &= text_put(&text, file);
    return written ? 0 : -1; /* errno is what fwrite left */
}

/* --- the hooks of glibc before 2.34 ------------------------------------------------------------------
 *
 * A program linked against an old glibc refers to these variables, to save and call what is in them. They are
 * here so that such a program gets our functions and never libc's; as in jemalloc, setting them to functions
 * of the program's own has no effect. */

static void *hook_malloc(size_t size, const void *caller) {
    (void)caller;
    return malloc(size);
}

static void hook_free(void *ptr, const void *caller) {
    (void)caller;
    free(ptr);
}

static void *hook_realloc(void *ptr, size_t size, const void *caller) {
    (void)caller;
    return realloc(ptr, size);
}

static void *hook_memalign(size_t alignment, size_t size, const void *caller) {
    (void)caller;
    return memalign(alignment, size);
}

HAK_EXPORT void (*__malloc_initialize_hook)(void) = NULL;
HAK_EXPORT void (*__after_morecore_hook)(void) = NULL;
HAK_EXPORT void *(*__malloc_hook)(size_t, const void *) = hook_malloc;
HAK_EXPORT void (*__free_hook)(void *, const void *) = hook_free;
HAK_EXPORT void *(*__realloc_hook)(void *, size_t, const void *) = hook_realloc;
HAK_EXPORT void *(*__memalign_hook)(size_t, size_t, const void *) = hook_memalign;
