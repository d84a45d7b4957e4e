/* secure.c - see secure.h. */
#include "slab/secure_word.h"

#include "memory/purge.h"

#include <string.h>

HAK_ALIGNED(HAK_LINE) struct hak_secure hak_secure;
__attribute__((noreturn)) void (*hak_secure_misuse)(const char *function, const void *block, size_t block_bytes, size_t byte, bool is_free);

/* A mapping that is closed makes two more, and slabs and large blocks should not have more than half of what there may be. */
static int64_t closed_most(void) {
    enum { USUAL = 65530, EACH = 2, SHARE = 2 };
    char text[32];
    int64_t most = 0;
    if (!hak_os_file_read("/proc/sys/vm/max_map_count", text, sizeof text)) return USUAL / EACH / SHARE;
    for (const char *at = text; *at >= '0' && *at <= '9' && most < INT32_MAX; at++) most = most * 10 + *at - '0';
    return most / EACH / SHARE;
}

/* Two first calls at once, after a dlopen: one makes them, the other waits for that. */
void hak_secure_keys_make(void) {
    static hak_atomic_u32 begun;
    uint32_t nobody = 0;
    if (!hak_cas(&begun, &nobody, 1)) {
        for (unsigned turn = 0; !hak_load_acquire(&hak_secure.is_on) && turn < 10000; turn++) hak_os_yield(turn);
        return;
    }
    uint64_t random[2];
    hak_os_random(random, sizeof random);
    hak_secure.key = random[0];
    hak_secure.odd = random[1] | 1;
    hak_store_relaxed(&hak_secure.has_guards, hak_os_guards_there());
    hak_store_relaxed(&hak_secure.closed_most, closed_most());
    hak_store_relaxed(&hak_secure.word_bytes, HAK_SECURE_WORD_BYTES);
    hak_store_relaxed(&hak_secure.guard_granules, hak_region.is_limited ? 0 : 1); /* they would take half of what addresses there are */
    hak_store_release(&hak_secure.is_on, 1);
}

/* --- the word behind a block --- */

const char hak_secure_masks[32] = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";

void hak_secure_arm(char *block, size_t block_bytes, size_t bytes) { hak_secure_arm_word(block, block_bytes, bytes, hak_secure_word_of(block)); }

enum hak_secure_state hak_secure_look(const char *block, size_t block_bytes, size_t *bytes) {
    uint64_t word = hak_secure_word_of(block), seen;
    bool is_whole = hak_secure_is_whole(block, block_bytes, word, &seen);
    uint64_t between = (seen ^ word) >> HAK_SECURE_BETWEEN_SHIFT;
    *bytes = block_bytes - HAK_SECURE_WORD_BYTES;
    if (seen == ~word) return HAK_SECURE_FREED;
    if ((seen ^ word) << (64 - HAK_SECURE_BETWEEN_SHIFT) != 0 || between > *bytes) return HAK_SECURE_WRITTEN;
    *bytes -= between;
    if (is_whole) return HAK_SECURE_LIVE;
    while (*bytes < block_bytes - 1 && (unsigned char)block[*bytes] == (unsigned char)hak_secure_filling(word)) ++*bytes;
    return HAK_SECURE_WRITTEN;
}

size_t hak_secure_asked(const char *block, size_t block_bytes) {
    uint64_t word = hak_secure_word_of(block) ^ __atomic_load_n(hak_secure_place_of(block, block_bytes), __ATOMIC_RELAXED);
    size_t most = block_bytes - HAK_SECURE_WORD_BYTES, between = word >> HAK_SECURE_BETWEEN_SHIFT;
    return word << (64 - HAK_SECURE_BETWEEN_SHIFT) == 0 && between <= most ? most - between : most;
}

enum hak_secure_state hak_secure_end(char *block, size_t block_bytes, size_t *bytes) {
    enum hak_secure_state state = hak_secure_look(block, block_bytes, bytes);
    if (HAK_LIKELY(state == HAK_SECURE_LIVE)) return hak_secure_end_block(block, block_bytes) ? HAK_SECURE_LIVE : HAK_SECURE_FREED;
    uint64_t seen = __atomic_load_n(hak_secure_place_of(block, block_bytes), __ATOMIC_ACQUIRE);
    return seen == 0 && hak_secure_written(block, block_bytes) == SIZE_MAX ? HAK_SECURE_FREED : state;
}

/* A page of it may have gone back since it was freed: then the word is 0. */
size_t hak_secure_written(const char *block, size_t block_bytes) {
    uint64_t last = __atomic_load_n(hak_secure_place_of(block, block_bytes), __ATOMIC_RELAXED);
    if (HAK_LIKELY(hak_secure_is_clear(block, block_bytes)))
        return HAK_LIKELY(last == 0) || last == ~hak_secure_word_of(block) ? SIZE_MAX : block_bytes - HAK_SECURE_WORD_BYTES;
    size_t byte = 0;
    while (block[byte] == 0) byte++;
    return byte;
}

uint64_t hak_secure_held(const char *start, size_t block_bytes, unsigned index, uint64_t live) {
    for (uint64_t left = live; left; left &= left - 1) {
        const char *block = start + (index * 64 + hak_word_first(left)) * block_bytes;
        uint64_t word = __atomic_load_n(hak_secure_place_of(block, block_bytes), __ATOMIC_RELAXED);
        if (word == 0 || word == ~hak_secure_word_of(block)) live &= ~(left & -left);
    }
    return live;
}

/* --- what lies behind a slab --- */

/* Of a range of several mappings, a part of which the program has locked, those before the one that is refused are closed already. */
bool hak_secure_close(char *start, size_t bytes) {
    bool has_guards = hak_load_relaxed(&hak_secure.has_guards) != 0;
    if (bytes == 0) return false;
    if (!has_guards && hak_load_relaxed(&hak_secure.closed_count) >= hak_load_relaxed(&hak_secure.closed_most)) return false;
    int (*set)(void *, size_t, bool) = has_guards ? hak_os_guard : hak_os_protect;
    if (set(start, bytes, false) != 0) {
        set(start, bytes, true);
        return false;
    }
    hak_add(&hak_secure.closed_count, 1);
    return true;
}
bool hak_secure_open(char *start, size_t bytes, unsigned count) {
    if ((hak_load_relaxed(&hak_secure.has_guards) ? hak_os_guard : hak_os_protect)(start, bytes, true) != 0) return false;
    hak_add(&hak_secure.closed_count, -(int64_t)count);
    return true;
}

bool hak_secure_returns(struct hak_range range, bool is_closed) {
    uint64_t calls = 0;
    if (is_closed && hak_load_relaxed(&hak_secure.has_guards)) return true;
    bool is_returned = hak_os_return(&range, 1, &calls) == 1;
    hak_add(&hak_purge.return_calls, calls);
    return is_returned;
}
