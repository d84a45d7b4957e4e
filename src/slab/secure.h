/* secure.h - the secure level (HAKMEM_SECURE): what it adds to a slab's blocks.
 *
 * Each block ends in a word that only this process can make: it says which block it is, how many bytes were asked for, and whether it is live.
 * What lies between those bytes and that word is filled, and free memory of slabs reads as zeros but for the word. So malloc and free find what
 * was written where nothing may be written. Bins are empty and blocks' owners are nobody's hak_self (heap/secure.h), so that each malloc and each free
 * comes here; the fast paths are the same, and without the level nothing below is executed.
 *
 * Owns:      the keys, drawn at the start, and the word behind each block.
 * Threads:   any. Of two threads that free a block at once one swaps its word.
 * Layout:    [what was asked for][up to 32 bytes filled][rest][the word: 48 bits of a hash of key and address; in the other 16, which
 *            come last, the bytes between, xor the hash's]. Its first byte, and those filled, are neither 0 nor ASCII: a string that is too long is found.
 * Source:    a word behind each block, zeros on free and a look at them on malloc, and a random choice of the block are hardened_malloc's.
 */
#ifndef HAK_SLAB_SECURE_H
#define HAK_SLAB_SECURE_H

#include "base/atomic.h"
#include "base/attr.h"
#include "base/word.h"
#include "os/os.h"

enum { HAK_SECURE_WORD_BYTES = 8 };
struct HAK_ALIGNED(HAK_LINE) hak_secure {
    hak_atomic_u32 is_on; /* from before the first slab is cut, for ever */
    hak_atomic_u32 is_off; /* 1: the options were read, and it stays off */
    hak_atomic_u32 word_bytes;     /* behind each block: HAK_SECURE_WORD_BYTES; off: 0 */
    hak_atomic_u32 guard_granules; /* that nobody may touch, behind each slab and each large block: 1; off: 0 */
    hak_atomic_u32 has_guards; /* hak_os_guards_there() */
    uint64_t key, odd;
    hak_atomic_i64 closed_count, closed_most; /* guards: the kernel allows a process so many mappings, of which half are left to the program */
};
extern struct hak_secure hak_secure;

HAK_INLINE bool hak_secure_is_on(void) { return hak_load_relaxed(&hak_secure.is_on) != 0; }
HAK_INLINE size_t hak_secure_word_bytes(void) { return hak_load_relaxed(&hak_secure.word_bytes); }
HAK_INLINE size_t hak_secure_guard_granules(void) { return hak_load_relaxed(&hak_secure.guard_granules); }

/* Misuse that is found here (front/misuse.c): a block was written to behind its end, at that byte, or after its free. */
extern __attribute__((noreturn)) void (*hak_secure_misuse)(const char *function, const void *block, size_t block_bytes, size_t byte, bool is_free);

/* Before the first slab is cut. */
void hak_secure_keys_make(void);

/* `bytes` of a block of `block_bytes` become the program's: block_bytes - HAK_SECURE_WORD_BYTES at most. */
void hak_secure_arm(char *block, size_t block_bytes, size_t bytes);

enum hak_secure_state { HAK_SECURE_LIVE, HAK_SECURE_FREED, HAK_SECURE_WRITTEN };
/* What was asked for, of a live one; of one that was written to behind that, where first. */
enum hak_secure_state hak_secure_look(const char *block, size_t block_bytes, size_t *bytes);
/* The same, and if it was live it is freed, and reads as zeros. */
enum hak_secure_state hak_secure_end(char *block, size_t block_bytes, size_t *bytes);

/* Of a free block, the first byte that was written to; SIZE_MAX: none. */
size_t hak_secure_written(const char *block, size_t block_bytes);

/* Of word `index` of a slab's rows, the bits in `live` whose blocks the program holds: what is freed may wait (heap/secure.h). */
uint64_t hak_secure_held(const char *start, size_t block_bytes, unsigned index, uint64_t live);

/* What was asked for, by the word alone, of a block that others may be freeing. */
size_t hak_secure_asked(const char *block, size_t block_bytes);

/* What lies behind a slab or large block: nobody may touch it, and if that was done anybody may again. False: too many are closed, or the kernel refuses.
 * Open: what so many calls have closed. */
bool hak_secure_close(char *start, size_t bytes);
bool hak_secure_open(char *start, size_t bytes, unsigned count);
/* Its pages are given back, as they were by closing it where the kernel has markers for that. False: the kernel refuses. */
bool hak_secure_returns(struct hak_range range, bool is_closed);

#endif
