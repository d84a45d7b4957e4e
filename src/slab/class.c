/* class.c - the table of size classes, made by the preprocessor so that start-up has nothing to compute. */
#include "slab/class.h"

/* 64 KiB for blocks up to 256 bytes, 256 KiB to 4 KiB, 1 MiB above: 32 to 4,096 blocks. Slabs of few blocks spend
 * more on their births, events and ends than on their blocks (docs/experiments.md). Where address space is short,
 * 64 KiB up to 2 KiB and 256 KiB above: with 64 MiB in all, the large ones leave no room for thread stacks. */
#define SHIFT_WIDE(bytes)    ((bytes) <= 256 ? 16 : (bytes) <= 4096 + HAK_CLASS_PAD ? 18 : 20)
#define SHIFT_COMPACT(bytes) ((bytes) <= 2048 ? 16 : 18)
#define CAPACITY(bytes)   ((1 << SHIFT(bytes)) / (bytes))
#define SURPLUS(bytes)    ((1 << SHIFT(bytes)) % (bytes) != 0)
#define WORDS(bytes)      ((CAPACITY(bytes) + SURPLUS(bytes) + 63) / 64)
/* multiples of 128 to 256, of 256 to 1024, then two to a doubling. 200 threads with a block in each of 30
 * classes: 13.2 MB with multiples of 64, 128 and 256, 10.7 with these (docs/experiments.md) */
#define STEP(bytes)   ((bytes) <= 256 ? 128 : 256)
#define COARSE(bytes) (((bytes) + STEP(bytes) - 1) / STEP(bytes) * STEP(bytes) / 16)

/* Of what the blocks leave, so much that they may begin anywhere in a page. Those of a power of two leave nothing. */
#define LEFT(bytes)   (((1 << SHIFT(bytes)) - CAPACITY(bytes) * (bytes)) / HAK_LEAD_STEP)
#define LEAD(bytes)   ((bytes) <= HAK_SMALL_BYTES_MAX ? 0 : LEFT(bytes) < HAK_LEAD_STEPS_MAX ? LEFT(bytes) : HAK_LEAD_STEPS_MAX)

#define ROW(bytes, coarse_, step_)                                                                               \
    { ~UINT64_C(0) / (bytes) + 1, bytes, CAPACITY(bytes), (1 << SHIFT(bytes)) >> 16, coarse_, WORDS(bytes),  \
      SHIFT(bytes), SURPLUS(bytes), LEAD(bytes), step_ }
#define APART(c)   ((c) <= HAK_NARROW_CLASS_MAX ? 16 : 32)
#define SMALL(c)   [c] = ROW((c) * 16, COARSE((c) * 16), APART(c)), \
                   [HAK_CLASS_COUNT - 1 + (c)] = ROW((c) * 16, HAK_CLASS_COUNT - 1 + COARSE((c) * 16), APART(c)) /* its pool */
#define SMALL4(c)  SMALL(c), SMALL((c) + 1), SMALL((c) + 2), SMALL((c) + 3)
#define SMALL16(c) SMALL4(c), SMALL4((c) + 4), SMALL4((c) + 8), SMALL4((c) + 12)
#define FIRST(d)   (HAK_SMALL_CLASS_MAX + 1 + 8 * (d) + ((d) >= 2)) /* behind that of HAK_CLASS_PAGE_BYTES */
#define PAD(d, k)   ((128 << (d)) * (9 + (k)) > HAK_CLASS_PADDED_FROM ? HAK_CLASS_PAD : 0)
#define BYTES(d, k) ((128 << (d)) * (9 + (k)) + PAD(d, k))
#define HALF(d, k)  ((d) == 2 && (k) == 0 ? HAK_CLASS_PAGE_STEP : 0) /* of what was its own the class below it has so much */
#define MID(d, k)   [FIRST(d) + (k)] = ROW(BYTES(d, k), FIRST(d) + ((k) | 3), (128 << (d)) + PAD(d, k) - PAD(d, (k) - 1) - HALF(d, k))
#define PAGE       [FIRST(2) - 1] = ROW(HAK_CLASS_PAGE_BYTES, FIRST(2) + 3, HAK_CLASS_PAGE_STEP)
#define MID8(d)    MID(d, 0), MID(d, 1), MID(d, 2), MID(d, 3), MID(d, 4), MID(d, 5), MID(d, 6), MID(d, 7)

#define POWER(n) [HAK_SIZE_CLASS_COUNT + (n)] = ROW(1 << (HAK_POWER_SHIFT + (n)), HAK_SIZE_CLASS_COUNT + (n), 1 << (HAK_POWER_SHIFT + (n)))

#define ALL    SMALL16(1), SMALL16(17), SMALL16(33), SMALL16(49), MID8(0), MID8(1), PAGE, MID8(2), MID8(3), MID8(4), POWER(0), POWER(1), POWER(2), POWER(3)

#define SHIFT SHIFT_WIDE
static const struct hak_class wide[HAK_SHELF_COUNT] = { ALL };
#undef SHIFT
#define SHIFT SHIFT_COMPACT
static const struct hak_class compact[HAK_SHELF_COUNT] = { ALL };

const struct hak_class *hak_classes = wide;

void hak_classes_compact(void) { hak_classes = compact; }

#define LEAST(bytes)  ((bytes) <= 8192 ? 4 : (bytes) <= 16384 ? 2 : 1)
#define FIT(w, bytes) ((w) / (bytes) > 64 ? 64 : (w) / (bytes) < LEAST(bytes) ? LEAST(bytes) : (w) / (bytes))
#undef SMALL
#undef MID
#undef PAGE
#undef POWER
#define SHARE(bytes) { FIT(HAK_WORD_BYTES, bytes), FIT(HAK_FEW_BYTES, bytes) }
#define SMALL(c)     [c] = SHARE((c) * 16), [HAK_CLASS_COUNT - 1 + (c)] = SHARE((c) * 16)
#define MID(d, k)    [FIRST(d) + (k)] = SHARE(BYTES(d, k))
#define PAGE         [FIRST(2) - 1] = SHARE(HAK_CLASS_PAGE_BYTES)
#define POWER(n)     [HAK_SIZE_CLASS_COUNT + (n)] = SHARE(1 << (HAK_POWER_SHIFT + (n)))

struct hak_share hak_shares[HAK_SHELF_COUNT] = { ALL };

void hak_window_set(size_t word_bytes) {
    size_t few_bytes = word_bytes < HAK_FEW_BYTES ? word_bytes : HAK_FEW_BYTES;
    for (unsigned c = 1; c < HAK_SHELF_COUNT; c++) {
        size_t bytes = hak_classes[c].block_bytes;
        hak_store_relaxed(&hak_shares[c].blocks, (uint16_t)FIT(word_bytes, bytes));
        hak_store_relaxed(&hak_shares[c].few, (uint16_t)FIT(few_bytes, bytes));
    }
}
