/* stack.c - the tables of stacks, and how a stack is had for some ten nanoseconds when it was seen before.
 *
 * A path is (return address, stack pointer's distance from the stack's end) at the hook, and where on the stack each
 * return address was found. When a sample comes by the same path, the words at those places are compared with what was
 * there: if all are equal, the stack is the same, and nothing is walked. Else frame pointers, where this caller has
 * proved that they lead to what the unwinder finds; else the unwinder, for a microsecond or more.
 *
 * Owns:      the published tables of stacks and frames, and beside them the offsets of return addresses, the paths, what
 *            callers proved of their frame pointers. Own mappings.
 * Threads:   any. Rows are taken by adding, and shown by a CAS into the index; a row that came second is lost. Paths are
 *            hints: whatever is read there is compared with the stack itself.
 * Invariant: a row's frames do not change after its `sequence` is 2, but by hak_stack_renew(), while nothing is sampled.
 * Measured:  docs/recording.md.
 */
#include "watch/stack.h"

#include "base/atomic.h"
#include "os/os.h"
#include "os/stack.h"
#include "watch/cfi.h"

#include <string.h>
#include <sys/auxv.h>

enum {
    STACKS = 16384, FRAMES = 1 << 19, SMALL = 16, /* a sixteenth of it where address space is short */
    PATHS = 8192, PATH_STACKS = 3, TRUSTS = 4096, TRUST_ENOUGH = 3, TRUST_NEVER = 255, TAILS = 64, TAIL_FRAMES = 3,
    UNWOUND_MAX = HAK_STACK_FRAMES_MAX + 16,
};

struct path {
    hak_atomic_u64 key;
    hak_atomic_u32 stack[PATH_STACKS], next;
};

/* What the unwinder found behind the last frame that frame pointers lead to: libc's start of the thread. */
struct tail {
    hak_atomic_u64 pc, further[TAIL_FRAMES];
};

static struct hak_published *tables;
static struct hak_stack_row *rows;
static uint64_t *frames;   /* return addresses */
static uint32_t *offsets;  /* of the same frames: bytes from the hook's return address to theirs; UINT32_MAX: unknown */
static hak_atomic_u32 *index_slots;
static size_t stack_capacity, frame_capacity;
static struct path *paths;
static struct tail *tails;
static _Atomic(uint8_t) *trusts;

/* --- which addresses are ours: the frames in front of the program's --- */

extern const char __ehdr_start[] __attribute__((visibility("hidden"), weak));
extern const char etext[] __attribute__((visibility("hidden"), weak));
extern const char hak_code_end[] __attribute__((visibility("hidden"), weak)); /* packaging/hakmem.lds: code behind etext */

/* of the static library's object, see cmake/library.cmake; absent from the shared one */
extern const char __start_hakmem_text[] __attribute__((visibility("hidden"), weak));
extern const char __stop_hakmem_text[] __attribute__((visibility("hidden"), weak));

static uintptr_t ours_start, ours_bytes;

/* In a test that is linked with single rooms nothing is known: what is deeper than the hook is left out all the same. */
void hak_stack_ours_find(void) {
    uintptr_t end = (uintptr_t)(hak_code_end ? hak_code_end : etext), bytes = end - (uintptr_t)__ehdr_start, program = getauxval(AT_PHDR);
    bool is_program = program - (uintptr_t)__ehdr_start < bytes;
    ours_start = is_program ? (uintptr_t)__start_hakmem_text : (uintptr_t)__ehdr_start;
    ours_bytes = is_program ? (uintptr_t)__stop_hakmem_text - ours_start : bytes;
}

static bool is_ours(uintptr_t pc) { return pc - ours_start < ours_bytes; }

/* --- start --- */

static size_t pages(size_t bytes) {
    size_t page = hak_os_page_bytes();
    return (bytes + page - 1) / page * page;
}

bool hak_stack_start(struct hak_published *published, bool small) {
    stack_capacity = STACKS / (small ? SMALL : 1);
    frame_capacity = FRAMES / (small ? SMALL : 1);
    size_t sizes[] = { stack_capacity * sizeof *rows, frame_capacity * sizeof *frames, frame_capacity * sizeof *offsets,
                       2 * stack_capacity * sizeof *index_slots, PATHS * sizeof *paths, TAILS * sizeof *tails, TRUSTS };
    size_t all = 0;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) all += sizes[i] = pages(sizes[i]);
    char *at = hak_os_map(all);
    if (!at) return false;
    hak_os_not_huge(at, all); /* as in tables_map() */
    rows = (void *)at;
    frames = (void *)(at += sizes[0]);
    offsets = (void *)(at += sizes[1]);
    index_slots = (void *)(at += sizes[2]);
    paths = (void *)(at += sizes[3]);
    tails = (void *)(at += sizes[4]);
    trusts = (void *)(at += sizes[5]);
    rows[0].sequence = 2; /* unknown */
    hak_stack_ours_find();
    published->frames = (struct hak_table){ (uintptr_t)frames, sizeof *frames, frame_capacity, 0 };
    published->stacks = (struct hak_table){ (uintptr_t)rows, sizeof *rows, stack_capacity, 1 };
    tables = published;
    return true;
}

struct hak_stack_row *hak_stack_row_at(uint32_t row) { return &rows[row]; }

/* --- rows --- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static bool row_equals(uint32_t row, uint64_t hash, const uintptr_t *pc, unsigned count) {
    if (rows[row].hash != hash || rows[row].frame_count != count) return false;
    for (unsigned i = 0; i < count; i++)
        if (frames[rows[row].frame_first + i] != pc[i]) return false;
    return true;
}

/* Rows and frames are taken by adding; past the capacity they are not taken, and the sums stay near it. */
static uint64_t take(uint64_t *used, uint64_t count, uint64_t capacity) {
    uint64_t at = __atomic_load_n(used, __ATOMIC_RELAXED);
    do
        if (at + count > capacity) return UINT64_MAX;
    while (!__atomic_compare_exchange_n(used, &at, at + count, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return at;
}

static uint32_t row_make(uint64_t hash, const uintptr_t *pc, const uint32_t *offset, unsigned count) {
    uint64_t row = take(&tables->stacks.used, 1, stack_capacity);
    uint64_t first = row == UINT64_MAX ? row : take(&tables->frames.used, count, frame_capacity);
    if (first == UINT64_MAX) return 0;
    for (unsigned i = 0; i < count; i++) {
        frames[first + i] = pc[i];
        offsets[first + i] = offset[i];
    }
    rows[row].hash = hash;
    rows[row].frame_count = count;
    rows[row].frame_first = first;
    __atomic_store_n(&rows[row].sequence, 2, __ATOMIC_RELEASE); /* pairs with a reader's acquire */
    return (uint32_t)row;
}

static uint32_t row_find_or_make(const uintptr_t *pc, const uint32_t *offset, unsigned count) {
    uint64_t hash = count;
    for (unsigned i = 0; i < count; i++) hash = mix(hash, pc[i]);
    size_t mask = 2 * stack_capacity - 1, slot = hash >> 20 & mask;
    uint32_t made = 0;
    for (size_t tried = 0; tried < 64; tried++, slot = (slot + 1) & mask) {
        uint32_t there = hak_load_acquire(&index_slots[slot]);
        if (there == 0) {
            if (!made) made = row_make(hash, pc, offset, count);
            if (!made || hak_cas(&index_slots[slot], &there, made)) break;
        }
        if (row_equals(there, hash, pc, count)) return there;
    }
    if (!made) __atomic_fetch_add(&tables->lost_stacks, 1, __ATOMIC_RELAXED);
    return made;
}

/* --- room for others --- */

static uint32_t row_mark(uint32_t row) {
    if (row < stack_capacity) hak_store_relaxed(&index_slots[row], 1);
    return row;
}
static uint32_t row_moved(uint32_t row) { return row < stack_capacity ? hak_load_relaxed(&index_slots[row]) : 0; }

static void row_index(uint32_t row) {
    size_t mask = 2 * stack_capacity - 1, slot = rows[row].hash >> 20 & mask;
    while (hak_load_relaxed(&index_slots[slot])) slot = (slot + 1) & mask;
    hak_store_relaxed(&index_slots[slot], row);
}

/* The index serves as the list of marks, then of new numbers. Rows and frames move down, in order; a row whose frames lie before those of an
 * earlier one, for two threads made them at once, is lost where these were moved over it. */
void hak_stack_renew(void (*each)(hak_stack_number *number)) {
    uint32_t used = (uint32_t)tables->stacks.used, kept = 1;
    uint64_t first = 0;
    memset(index_slots, 0, 2 * stack_capacity * sizeof *index_slots);
    each(row_mark);
    for (uint32_t row = 1; row < used; row++) {
        if (!hak_load_relaxed(&index_slots[row])) continue;
        hak_store_relaxed(&index_slots[row], 0);
        struct hak_stack_row moved = rows[row];
        if (moved.sequence != 2 || moved.frame_first < first) continue;
        memmove(&frames[first], &frames[moved.frame_first], moved.frame_count * sizeof *frames);
        memmove(&offsets[first], &offsets[moved.frame_first], moved.frame_count * sizeof *offsets);
        moved.frame_first = first;
        first += moved.frame_count;
        rows[kept] = moved;
        hak_store_relaxed(&index_slots[row], kept++);
    }
    memset(&rows[kept], 0, (used - kept) * sizeof *rows);
    __atomic_store_n(&tables->stacks.used, kept, __ATOMIC_RELAXED);
    __atomic_store_n(&tables->frames.used, first, __ATOMIC_RELAXED);
    each(row_moved);
    memset(index_slots, 0, 2 * stack_capacity * sizeof *index_slots);
    for (uint32_t row = 1; row < kept; row++) row_index(row);
    memset(paths, 0, PATHS * sizeof *paths);
}

/* --- paths: a stack that was seen before --- */

static struct path *path_at(uint64_t key) { return &paths[key >> 40 & (PATHS - 1)]; }

/* Is this what stands there? Of a stack that is not the thread's own each page is asked for: a coroutine's lies in a mapping with others',
 * which may go at any time. */
static bool word_is(struct hak_cfi_stack *stack, uintptr_t address, uintptr_t wanted) {
    uintptr_t word;
    if (HAK_LIKELY(!stack->checked)) return *(const uintptr_t *)address == wanted;
    return hak_cfi_word(stack, address, &word) && word == wanted;
}

static struct hak_cfi_stack words_from(uintptr_t low, const struct hak_stack_bounds *bounds) {
    return (struct hak_cfi_stack){ low, bounds->high, bounds->high == hak_os_stack_top() ? 0 : hak_cfi_page(low) };
}

static bool path_repeats(uint32_t row, const struct hak_stack_here *here, const struct hak_stack_bounds *bounds) {
    if (row == 0 || row >= __atomic_load_n(&tables->stacks.used, __ATOMIC_RELAXED) ||
        __atomic_load_n(&rows[row].sequence, __ATOMIC_ACQUIRE) != 2)
        return false;
    uint64_t first = rows[row].frame_first;
    struct hak_cfi_stack stack = words_from(here->stack - sizeof(uintptr_t), bounds);
    for (unsigned i = 0; i < rows[row].frame_count; i++) {
        uint32_t offset = offsets[first + i];
        uintptr_t at = here->stack - sizeof(uintptr_t) + offset;
        if (at < here->stack - sizeof(uintptr_t) || at + sizeof(uintptr_t) > bounds->high) return false;
        if (!word_is(&stack, at, (uintptr_t)frames[first + i])) return false;
    }
    return true;
}

static void path_note(uint64_t key, uint32_t row) {
    struct path *path = path_at(key);
    if (hak_load_relaxed(&path->key) != key) {
        hak_store_relaxed(&path->key, key);
        for (unsigned i = 0; i < PATH_STACKS; i++) hak_store_relaxed(&path->stack[i], 0);
    }
    hak_store_relaxed(&path->stack[hak_add(&path->next, 1) % PATH_STACKS], row);
}

/* --- a stack that was not --- */

struct gathered {
    uintptr_t pc[UNWOUND_MAX], slot[UNWOUND_MAX];
    unsigned count;
};

/* Drops our own frames. What is below `from` on the stack is the hook's and deeper, by whatever name. */
static void ours_drop(struct gathered *gathered, uintptr_t from) {
    unsigned ours = 0;
    while (ours < gathered->count && (gathered->slot[ours] + sizeof(uintptr_t) < from || is_ours(gathered->pc[ours]))) ours++;
    gathered->count -= ours;
    if (gathered->count > HAK_STACK_FRAMES_MAX) gathered->count = HAK_STACK_FRAMES_MAX;
    memmove(gathered->pc, gathered->pc + ours, gathered->count * sizeof *gathered->pc);
    memmove(gathered->slot, gathered->slot + ours, gathered->count * sizeof *gathered->slot);
}

static struct tail *tail_at(uintptr_t pc) { return &tails[mix(1, pc) >> 50 & (TAILS - 1)]; }

/* Do frame pointers find what the unwinder found, but for the thread's start? */
static bool walk_proves(const struct gathered *walked, const struct gathered *unwound) {
    if (walked->count > unwound->count || unwound->count - walked->count > TAIL_FRAMES) return false;
    if (memcmp(walked->pc, unwound->pc, walked->count * sizeof *walked->pc) != 0) return false;
    struct tail *tail = tail_at(walked->pc[walked->count - 1]);
    for (unsigned i = 0; i < TAIL_FRAMES; i++)
        hak_store_relaxed(&tail->further[i], walked->count + i < unwound->count ? unwound->pc[walked->count + i] : 0);
    hak_store_release(&tail->pc, walked->pc[walked->count - 1]);
    return true;
}

static bool walk_finish(struct gathered *walked) {
    if (walked->count < HAK_STACK_FRAMES_MAX) {
        struct tail *tail = tail_at(walked->pc[walked->count - 1]);
        if (hak_load_acquire(&tail->pc) != walked->pc[walked->count - 1]) return false;
        for (unsigned i = 0; i < TAIL_FRAMES && walked->count < HAK_STACK_FRAMES_MAX; i++) {
            uintptr_t pc = (uintptr_t)hak_load_relaxed(&tail->further[i]);
            if (!pc) break;
            walked->slot[walked->count] = 0;
            walked->pc[walked->count++] = pc;
        }
    }
    return true;
}

static void gather(struct hak_stack_here here, struct hak_stack_bounds *bounds, bool bounded, struct gathered *result) {
    _Atomic(uint8_t) *trust = &trusts[mix(2, here.address) >> 40 & (TRUSTS - 1)];
    uint8_t trusted = hak_load_relaxed(trust);
    struct gathered walked = { .count = 0 };
    if (bounded && here.frame && trusted != TRUST_NEVER) {
        walked.count = hak_stack_walk(here, bounds, walked.pc, walked.slot);
        ours_drop(&walked, 0);
        if (walked.count == 0) hak_store_relaxed(trust, TRUST_NEVER);
    }
    if (walked.count && trusted >= TRUST_ENOUGH && walk_finish(&walked)) {
        __atomic_fetch_add(&tables->stack_walks, 1, __ATOMIC_RELAXED);
        *result = walked;
        return;
    }
    result->count = hak_stack_unwind(bounds, result->pc, result->slot);
    ours_drop(result, here.stack);
    __atomic_fetch_add(&tables->stack_unwinds, 1, __ATOMIC_RELAXED);
    if (result->count < 2 && walked.count > result->count) *result = walked; /* code without its tables */
    else if (walked.count) hak_store_relaxed(trust, walk_proves(&walked, result) ? (uint8_t)(trusted + (trusted < TRUST_ENOUGH)) : TRUST_NEVER);
}

uint32_t hak_stack_take(struct hak_stack_here here, struct hak_stack_bounds *bounds, bool with_stack,
                        struct hak_stack_call *call) {
    bool bounded = here.stack >= bounds->low && here.stack < bounds->high;
    if (!bounded) bounded = hak_stack_bounds_find(bounds, here.stack);
    uint64_t key = mix(mix(3, here.address), bounds->high - here.stack) | 1;
    call->address = here.address;
    call->stack = here.stack;
    if (!with_stack && !is_ours(here.address)) return 0;
    struct path *path = path_at(key);
    if (bounded && hak_load_relaxed(&path->key) == key)
        for (unsigned i = 0; i < PATH_STACKS; i++) {
            uint32_t row = hak_load_relaxed(&path->stack[i]);
            if (!path_repeats(row, &here, bounds)) continue;
            __atomic_fetch_add(&tables->stack_repeats, 1, __ATOMIC_RELAXED);
            call->address = (uintptr_t)frames[rows[row].frame_first];
            call->stack = here.stack + offsets[rows[row].frame_first];
            return row;
        }
    struct gathered found;
    uint32_t offset[HAK_STACK_FRAMES_MAX];
    gather(here, bounds, bounded, &found);
    if (found.count == 0) return 0;
    call->address = found.pc[0];
    if (found.slot[0]) call->stack = found.slot[0] + sizeof(uintptr_t);
    bool repeats = bounded;
    struct hak_cfi_stack stack = words_from(here.stack - sizeof(uintptr_t), bounds);
    for (unsigned i = 0; i < found.count; i++) {
        uintptr_t at = found.slot[i], from = here.stack - sizeof(uintptr_t);
        bool there = bounded && at >= from && at + sizeof(uintptr_t) <= bounds->high && at - from <= UINT32_MAX &&
                     word_is(&stack, at, found.pc[i]);
        offset[i] = there ? (uint32_t)(at - from) : UINT32_MAX;
        repeats &= there;
    }
    uint32_t row = row_find_or_make(found.pc, offset, found.count);
    if (row && repeats && path_repeats(row, &here, bounds)) path_note(key, row);
    return row;
}

/* --- frames without a row --- */

static void walk_instead(struct gathered *found, struct hak_stack_here here, struct hak_stack_bounds *bounds) {
    struct gathered walked;
    bool bounded = here.stack >= bounds->low && here.stack < bounds->high;
    if (!bounded && !hak_stack_bounds_find(bounds, here.stack)) return;
    walked.count = hak_stack_walk(here, bounds, walked.pc, walked.slot);
    ours_drop(&walked, 0);
    if (walked.count > found->count) *found = walked;
}

static unsigned frames_copy(const struct gathered *found, uint64_t *frame, unsigned count_max) {
    unsigned count = found->count < count_max ? found->count : count_max;
    for (unsigned i = 0; i < count; i++) frame[i] = found->pc[i];
    return count;
}

unsigned hak_stack_frames(struct hak_stack_here here, struct hak_stack_bounds *bounds, uint64_t *frame, unsigned count_max) {
    struct gathered found;
    found.count = hak_stack_unwind(bounds, found.pc, found.slot);
    ours_drop(&found, here.stack);
    if (found.count < 2) walk_instead(&found, here, bounds);
    return frames_copy(&found, frame, count_max);
}

unsigned hak_stack_frames_of_signal(struct hak_stack_here here, uint64_t *frame, unsigned count_max) {
    struct gathered found;
    struct hak_stack_bounds bounds = { 0, 0 };
    unsigned count = hak_stack_unwind(&bounds, found.pc, found.slot), first = 0;
    while (first < count && found.pc[first] != here.address) first++; /* the handler's own */
    found.count = count - first;
    memmove(found.pc, found.pc + first, found.count * sizeof *found.pc);
    if (found.count < 2) walk_instead(&found, here, &bounds); /* code without its tables */
    if (found.count) return frames_copy(&found, frame, count_max);
    frame[0] = here.address;
    return 1;
}
