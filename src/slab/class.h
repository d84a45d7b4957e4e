/* class.h - the size classes: 16 bytes apart to 256, 32 to 1 KiB, then eight to a doubling up to 32 KiB, of which a heap may use every second;
 * and one more for a page of 4 KiB and what a program keeps beside it (sqlite: 4,368 bytes).
 * From 4 KiB on they are 128 bytes larger than that, so that equal blocks do not all lie in the same sets of a cache (docs/decisions/0013), and
 * blocks of a power of two that are to be aligned to it have classes of their own.
 *
 * Class c up to 64 is 16 * c bytes, so that a class's bytes are its own bin's offset and multiplier (front/fast.h); class 0 has
 * no blocks and its bin is always empty; odd classes above 16 serve no size. A small class may be split by lifetime
 * (heap/pool.h): the slabs of its long-lived blocks have a class index of their own, a pool's, behind the classes; their
 * geometry is the same.
 * Source:    the spacing bounds the waste inside blocks to an eighth, from 4 KiB on and 128 bytes: 15 bytes up to 256, 31 up to 1 KiB (glibc's
 *            chunks waste 8 to 23). Where a coarser class or a pair serves it is more. docs/decisions/0004.
 * Measured:  16 apart to 1 KiB: peaks of small mixes 1.05 to 1.2, random mixed with 4,096 slots 0.97 of the time; 64 apart from 512 on 1.05.
 */
#ifndef HAK_SLAB_CLASS_H
#define HAK_SLAB_CLASS_H

#include "base/atomic.h"
#include "base/attr.h"

enum {
    HAK_SMALL_BYTES_MAX = 1024,
    HAK_CLASS_PAD = 128, /* so much more than an eighth of a doubling are classes from 4 KiB on */
    HAK_CLASS_PADDED_FROM = 3840, /* above */
    HAK_CLASS_PAGE_STEP = 256, /* an eighth of a doubling is halved behind 4 KiB: */
    HAK_CLASS_PAGE_BYTES = 4096 + HAK_CLASS_PAD + HAK_CLASS_PAGE_STEP,
    HAK_SLAB_BLOCK_BYTES_MAX = 32768 + HAK_CLASS_PAD, /* above: large blocks, memory/large.h */
    HAK_SMALL_CLASS_MAX = HAK_SMALL_BYTES_MAX / 16,
    HAK_NARROW_CLASS_MAX = 256 / 16, /* of 16 bytes' distance; above, to 1 KiB, 32: only even classes serve sizes */
    HAK_SIZE_CLASS_COUNT = HAK_SMALL_CLASS_MAX + 1 + 41, /* of sizes; behind them those of a power of two that only aligned blocks have: */
    HAK_POWER_SHIFT = 12, /* of the first */
    HAK_CLASS_COUNT = HAK_SIZE_CLASS_COUNT + 4,
    HAK_SHELF_COUNT = HAK_CLASS_COUNT + HAK_SMALL_CLASS_MAX, /* classes, then the pools of the small ones */
};

/* The pool of a small class, and the class of a class or pool. */
HAK_INLINE unsigned hak_pool_of(unsigned class_index) { return class_index + HAK_CLASS_COUNT - 1; }
HAK_INLINE unsigned hak_class_plain(unsigned shelf_index) {
    return shelf_index < HAK_CLASS_COUNT ? shelf_index : shelf_index - (HAK_CLASS_COUNT - 1);
}
HAK_INLINE bool hak_class_is_middle(unsigned shelf_index) {
    return shelf_index - (HAK_SMALL_CLASS_MAX + 1) < HAK_CLASS_COUNT - (HAK_SMALL_CLASS_MAX + 1);
}

struct hak_class {
    uint64_t reciprocal;  /* ceil(2^64 / block_bytes): exact for every offset in a slab, test/unit/class.c */
    uint32_t block_bytes;
    uint16_t capacity;    /* blocks in a slab */
    uint8_t granules;     /* of a slab */
    uint8_t coarse;       /* the class that serves this one while it is rare in a heap */
    uint8_t word_count;   /* of the owner's and of the strangers' row */
    uint8_t slab_shift;   /* log2 of the slab's bytes */
    uint8_t surplus;      /* 1: a block would begin, but not end, in the slab; its bit stays set, never taken */
    uint8_t lead_steps;   /* a slab's first block begins one of so many steps behind it, or none: hak_span_lead() */
    uint16_t step;        /* sizes that are the class's own: block_bytes, and so many less one below it */
};
HAK_STATIC(sizeof(struct hak_class) <= 24);

extern __attribute__((visibility("hidden"))) const struct hak_class *hak_classes; /* HAK_SHELF_COUNT of them */

/* Smaller slabs, for little address space; before the first slab is cut. */
void hak_classes_compact(void);

/* How many blocks of a class a heap takes at a time; see hak_window_set(). */
struct hak_share {
    _Atomic(uint16_t) blocks; /* 1 to 64 */
    _Atomic(uint16_t) few;    /* of these, no more than lie in HAK_FEW_BYTES: what a class that is little used is opened and
                               * watched by. The more, the more stays resident in the slabs in use of threads that wait. */
};
extern struct hak_share hak_shares[HAK_SHELF_COUNT];

/* What the table is made for: the option's default. */
enum { HAK_WORD_BYTES = 65536, HAK_FEW_BYTES = 24576 };

/* Option word_bytes: at least 4 blocks up to 8 KiB blocks, 2 up to 16 KiB, else 1; at most 64. */
void hak_window_set(size_t word_bytes);

/* The class of a size up to 1 KiB; of 0 bytes, 0. */
HAK_INLINE unsigned hak_class_small(size_t bytes) {
    unsigned class_index = (unsigned)((bytes + 15) >> 4);
    return class_index + (class_index & (class_index > HAK_NARROW_CLASS_MAX));
}

/* The class of blocks of a power of two, 4 to 32 KiB, that are aligned to their size: front/aligned.c. */
HAK_INLINE unsigned hak_class_power(size_t bytes) { return HAK_SIZE_CLASS_COUNT + (unsigned)__builtin_ctzll(bytes) - HAK_POWER_SHIFT; }
HAK_INLINE bool hak_class_is_power(unsigned shelf_index) { return shelf_index - HAK_SIZE_CLASS_COUNT < HAK_CLASS_COUNT - HAK_SIZE_CLASS_COUNT; }

/* The i-th class by its blocks' size, from 1 on: each of those lies in front of the eighth class of its doubling. */
HAK_INLINE unsigned hak_class_by_size(unsigned i) {
    enum { FIRST = HAK_SMALL_CLASS_MAX + 16, EACH = 9 };
    if (i < FIRST) return i;
    unsigned further = i - FIRST;
    if (further > 1) further--; /* that of HAK_CLASS_PAGE_BYTES */
    return further % EACH == 0 ? (unsigned)HAK_SIZE_CLASS_COUNT + further / EACH : i - 1 - further / EACH;
}
/* There is one for blocks of so many bytes. */
HAK_INLINE bool hak_class_has_power(size_t bytes) { return bytes >> HAK_POWER_SHIFT != 0 && bytes <= HAK_SLAB_BLOCK_BYTES_MAX && (bytes & (bytes - 1)) == 0; }

/* Of all its blocks: what divides their size and where the first begins. */
HAK_INLINE uint32_t hak_class_align(const struct hak_class *class) {
    return class->lead_steps ? (uint32_t)HAK_LEAD_STEP : class->block_bytes & -class->block_bytes;
}
/* What a caller who asked for so many bytes, and is served by the class, may count on, for aligned blocks are asked for by the size. */
HAK_INLINE uint32_t hak_size_align(size_t bytes, const struct hak_class *class) {
    uint32_t align = (uint32_t)(bytes & -bytes), most = hak_class_align(class);
    return align < most ? align : most;
}

/* The class of a size from 1 to HAK_SLAB_BLOCK_BYTES_MAX; none of an alignment's. */
HAK_INLINE unsigned hak_class_of(size_t bytes) {
    if (bytes <= HAK_SMALL_BYTES_MAX) return hak_class_small(bytes);
    size_t less = bytes - 1 - HAK_CLASS_PAD, last = bytes - 1;
    if (last >= HAK_CLASS_PADDED_FROM) last = less > HAK_CLASS_PADDED_FROM ? less : HAK_CLASS_PADDED_FROM;
    unsigned exponent = (unsigned)__builtin_clzll(last) ^ 63; /* 10 to 14; gcc knows no 63 - bsr ^ 63 */
    return HAK_SMALL_CLASS_MAX + 1 + 8 * (exponent - 11) + (unsigned)(last >> (exponent - 3)) + (bytes > HAK_CLASS_PAGE_BYTES);
}

/* The class that serves a class above 1 KiB: its own, or the next of those of `lent`, bits from the first class above 1 KiB on. No branch:
 * sizes come in any order. In a heap that holds little, every second class above 4 KiB is lent: four to a doubling. */
#define HAK_CLASSES_LENT (UINT64_C(0x555555) << 17)
HAK_INLINE size_t hak_class_serving(unsigned middle_class, uint64_t lent) {
    enum { FIRST = HAK_SMALL_CLASS_MAX + 1 };
    size_t middle = middle_class - FIRST;
    return middle + (lent >> middle & 1) + FIRST;
}
HAK_INLINE unsigned hak_class_pair(unsigned class_index) {
    return class_index > HAK_SMALL_CLASS_MAX ? (unsigned)hak_class_serving(class_index, HAK_CLASSES_LENT) : class_index;
}
HAK_INLINE bool hak_class_is_pair(unsigned shelf_index) { /* of another one */
    return hak_class_is_middle(shelf_index) && hak_class_pair(shelf_index - 1) == shelf_index;
}

#endif
