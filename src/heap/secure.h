/* secure.h - the secure level's blocks: whose they are, how they are taken and freed, and where freed ones wait.
 *
 * All of the program's small blocks lie in slabs of instances of one family (heap/family.h), the level's own, or of the program's own families: no
 * thread's hak_self has a slab. So its bins are empty, each malloc is a visit, which ends here (hak_heap_apart), and a free meets another owner and
 * leaves. The instance's own visits fill its bin, of whose blocks any may be the next.
 *
 * Quarantine: a freed block waits in a place of its thread's, drawn at random; the block that was there before is given back to its slab. To the bits
 *            it is in use; its own word says that it is free, and free, malloc_usable_size, walks and statistics ask that. A large block gives its
 *            pages back and waits untouchable, in one of a few places for all threads.
 * Owns:      the places: a page for each heap of a thread that freed.
 *            What waits when a thread ends waits on in its heap, for the next one's frees: emptied, it would end slabs that the next one cuts again.
 * Threads:   any. A heap's places are its owner's, which who takes a dead heap is, too; against handlers each is one swap.
 * Not:       blocks of the program's own families do not wait: who clears one must find them all. Samples are watch's (docs/guards.md).
 */
#ifndef HAK_HEAP_SECURE_H
#define HAK_HEAP_SECURE_H

#include "heap/family.h"
#include "slab/secure_word.h"

extern _Atomic(struct hak_family *) hak_secure_family; /* NULL: off */

/* Begins, after the region and before the first block. False: memory is short. */
bool hak_secure_begin(void);

/* A block of `total` bytes, HAK_SECURE_WORD_BYTES more than `bytes` at least, of which `bytes` are the program's. NULL: memory is short, and errno says so. */
void *hak_secure_take(struct hak_heap *instance, size_t total, size_t bytes);

/* A free block that was written to since; does not return, but may be called as the last thing a function does. */
void *hak_secure_was_written(const char *block, size_t block_bytes);
/* Any block of the instance's word of a small class, which has some: each as likely as the others. It was drawn when the one before was
 * taken, so that it is at hand by now. */
HAK_INLINE void *hak_secure_take_drawn(struct hak_heap *instance, unsigned class_index, size_t block_bytes, size_t bytes) {
    struct hak_bin *bin = &instance->bin[class_index];
    uint64_t word = bin->word;
    unsigned bit = instance->drawn[class_index] - 1u;
    if (HAK_UNLIKELY(bit >= 64) || HAK_UNLIKELY(!hak_word_has(word, bit))) bit = hak_secure_draw(word, &instance->random);
    char *base = bin->base, *block = base + bit * block_bytes;
    bin->word = word &= ~(UINT64_C(1) << bit);
    instance->drawn[class_index] = 0;
    if (word) {
        bit = hak_secure_draw(word, &instance->random);
        instance->drawn[class_index] = (uint8_t)(bit + 1);
        __builtin_prefetch(base + bit * block_bytes, 1);
        __builtin_prefetch(base + bit * block_bytes + block_bytes - HAK_SECURE_WORD_BYTES, 1);
    }
    return HAK_LIKELY(hak_secure_begin_block(block, block_bytes, bytes)) ? block : hak_secure_was_written(block, block_bytes);
}

/* Of a live block of 32 KiB at most, if it is in a slab; NULL: it is a sample, and lies elsewhere. */
const struct hak_granule *hak_secure_record(const void *block);

/* What was asked for, of a block of a slab with this record that is not free by the bits; misuse of `function` if it is by its word, or was overrun. */
size_t hak_secure_bytes(const char *function, const void *block, const struct hak_granule *record);
/* A block just taken is of another size, if it is in a slab. */
void hak_secure_arm_as(void *block, size_t bytes);
/* It is to be of another size, where it is. False: it must move. */
bool hak_secure_resize(void *block, const struct hak_granule *record, size_t bytes);

/* A thread whose own heap is `self` (or none) frees block `index` of a slab. */
void hak_secure_free(struct hak_heap *self, struct hak_granule *record, char *block, uint64_t index);
/* All that waits in the heap's places is given back; of large blocks. */
void hak_secure_empty_places(struct hak_heap *heap);
HAK_INLINE void hak_secure_empty(struct hak_heap *heap) {
    if (HAK_UNLIKELY(hak_load_relaxed(&heap->quarantine) != NULL)) hak_secure_empty_places(heap);
}
void hak_secure_large_empty(void);

/* A large block that was taken with the guard's granules: no byte behind the pages of `bytes` may be touched. Open: all may. False: the kernel refuses. */
void hak_secure_large_close(struct hak_granule *record, size_t bytes, bool is_clean); /* clean: nothing is resident there */
bool hak_secure_large_open(struct hak_granule *record);
/* It has ended (hak_large_end), and is no family's. */
void hak_secure_large_ended(struct hak_granule *record);

#endif
