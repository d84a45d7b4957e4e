/* secure.c - see secure.h. */
#include "slab/secure.h"

#include "memory/purge.h"

#include <string.h>

HAK_ALIGNED(HAK_LINE) struct hak_secure hak_secure;
__attribute__((noreturn)) void (*hak_secure_misuse)(const char *function, const void *block, size_t block_bytes, size_t byte, bool is_free);

enum { FILLED_MAX = 32, BETWEEN_SHIFT = 48 };
typedef uint64_t __attribute__((may_alias, vector_size(16))) two; /* of the program's memory: a block begins at a multiple of 16 */

static uint64_t mixed(uint64_t x) { /* after Stafford's thirteenth variant of MurmurHash3's finalizer */
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

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

/* A handler that comes between load and store draws the same number. */
uint64_t hak_secure_random(uint64_t *state) {
    *state += hak_secure.odd;
    return mixed(*state ^ hak_secure.key ^ (uintptr_t)state);
}

/* A bit drawn blindly, if it is set, was as likely as the others; in words that are nearly full the first one is. */
uint64_t hak_secure_bit(uint64_t word, uint64_t *state) {
    uint64_t random = hak_secure_random(state);
    uint64_t rank = (random & UINT32_MAX) * hak_word_count(word) >> 32;
    return UINT64_C(1) << hak_word_last(hak_word_lowest(word, (unsigned)rank + 1).bits);
}

/* --- the word behind a block --- */

static uint64_t word_of(const char *block) {
    uint64_t word = mixed(((uintptr_t)block ^ hak_secure.key) * hak_secure.odd);
    return word | 0x80; /* neither the end of a string nor a letter of it */
}
static uint64_t *place_of(const char *block, size_t block_bytes) {
    return (uint64_t *)(uintptr_t)(block + block_bytes - HAK_SECURE_WORD_BYTES);
}
/* Eight bytes, likewise. */
static uint64_t filling(uint64_t word) { return ((word >> 40 & 0xff) | 0x80) * UINT64_C(0x0101010101010101); }
static size_t filled(size_t between) { return between < FILLED_MAX ? between : FILLED_MAX; }
static uint64_t read(const char *at) {
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}
/* Of the eight bytes in front of the word, those that lie between, where they are fewer. A block has 16 at least. */
static uint64_t few_mask(size_t between) { return between ? ~UINT64_C(0) << (64 - 8 * between) : 0; }

static void fill(char *block, size_t block_bytes, size_t between, uint64_t pattern) {
    HAK_STATIC(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && FILLED_MAX % 8 == 0);
    char *end = block + block_bytes - HAK_SECURE_WORD_BYTES, *from = end - between;
    if (between < 8) {
        uint64_t mask = few_mask(between), merged = (read(end - 8) & ~mask) | (pattern & mask);
        memcpy(end - 8, &merged, sizeof merged);
        return;
    }
    size_t count = filled(between);
    for (size_t i = 0; i + 8 < count; i += 8) memcpy(from + i, &pattern, sizeof pattern);
    memcpy(from + count - 8, &pattern, sizeof pattern);
}

static bool is_filled(const char *block, size_t block_bytes, size_t between, uint64_t pattern) {
    const char *end = block + block_bytes - HAK_SECURE_WORD_BYTES, *from = end - between;
    if (between < 8) return ((read(end - 8) ^ pattern) & few_mask(between)) == 0;
    size_t count = filled(between);
    uint64_t wrong = read(from + count - 8) ^ pattern;
    for (size_t i = 0; i + 8 < count; i += 8) wrong |= read(from + i) ^ pattern;
    return wrong == 0;
}

void hak_secure_arm(char *block, size_t block_bytes, size_t bytes) {
    uint64_t word = word_of(block);
    size_t between = block_bytes - HAK_SECURE_WORD_BYTES - bytes;
    fill(block, block_bytes, between, filling(word));
    __atomic_store_n(place_of(block, block_bytes), word ^ (uint64_t)between << BETWEEN_SHIFT, __ATOMIC_RELEASE);
}

HAK_INLINE enum hak_secure_state look(const char *block, size_t block_bytes, uint64_t word, uint64_t seen, size_t *bytes) {
    uint64_t between = (seen ^ word) >> BETWEEN_SHIFT;
    *bytes = block_bytes - HAK_SECURE_WORD_BYTES;
    if (seen == ~word) return HAK_SECURE_FREED;
    if ((seen ^ word) << (64 - BETWEEN_SHIFT) != 0 || between > *bytes) return HAK_SECURE_WRITTEN;
    *bytes -= between;
    if (HAK_LIKELY(is_filled(block, block_bytes, between, filling(word)))) return HAK_SECURE_LIVE;
    while (*bytes < block_bytes - 1 && (unsigned char)block[*bytes] == (unsigned char)filling(word)) ++*bytes;
    return HAK_SECURE_WRITTEN;
}

enum hak_secure_state hak_secure_look(const char *block, size_t block_bytes, size_t *bytes) {
    return look(block, block_bytes, word_of(block), __atomic_load_n(place_of(block, block_bytes), __ATOMIC_ACQUIRE), bytes);
}

size_t hak_secure_asked(const char *block, size_t block_bytes) {
    uint64_t word = word_of(block) ^ __atomic_load_n(place_of(block, block_bytes), __ATOMIC_RELAXED);
    size_t most = block_bytes - HAK_SECURE_WORD_BYTES, between = word >> BETWEEN_SHIFT;
    return word << (64 - BETWEEN_SHIFT) == 0 && between <= most ? most - between : most;
}

enum hak_secure_state hak_secure_end(char *block, size_t block_bytes, size_t *bytes) {
    uint64_t word = word_of(block), *place = place_of(block, block_bytes), seen = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    enum hak_secure_state state = look(block, block_bytes, word, seen, bytes);
    if (HAK_UNLIKELY(state != HAK_SECURE_LIVE)) return seen == 0 && hak_secure_written(block, block_bytes) == SIZE_MAX ? HAK_SECURE_FREED : state;
    if (HAK_UNLIKELY(!__atomic_compare_exchange_n(place, &seen, ~word, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))) return HAK_SECURE_FREED;
    memset(block, 0, block_bytes - HAK_SECURE_WORD_BYTES);
    return HAK_SECURE_LIVE;
}

/* A page of it may have gone back since it was freed: then the word is 0. */
size_t hak_secure_written(const char *block, size_t block_bytes) {
    const two *at = (const two *)(const void *)block;
    size_t count = block_bytes / sizeof *at - 1, i = 0;
    uint64_t last = __atomic_load_n(place_of(block, block_bytes), __ATOMIC_RELAXED);
    two set = { read(block + block_bytes - sizeof *at), 0 };
    for (; i + 4 <= count; i += 4) set |= at[i] | at[i + 1] | at[i + 2] | at[i + 3];
    for (; i < count; i++) set |= at[i];
    if (HAK_LIKELY((set[0] | set[1]) == 0)) return HAK_LIKELY(last == 0) || last == ~word_of(block) ? SIZE_MAX : block_bytes - HAK_SECURE_WORD_BYTES;
    size_t byte = 0;
    while (block[byte] == 0) byte++;
    return byte;
}

uint64_t hak_secure_held(const char *start, size_t block_bytes, unsigned index, uint64_t live) {
    for (uint64_t left = live; left; left &= left - 1) {
        const char *block = start + (index * 64 + hak_word_first(left)) * block_bytes;
        uint64_t word = __atomic_load_n(place_of(block, block_bytes), __ATOMIC_RELAXED);
        if (word == 0 || word == ~word_of(block)) live &= ~(left & -left);
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
