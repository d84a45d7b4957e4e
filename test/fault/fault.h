/* fault.h - one workload, run in a child process while the kernel refuses what the test says.
 *
 * Every block is stamped when it comes and checked when it goes, so a block that is lost, doubled or overlapped
 * shows. A refusal may show as NULL with ENOMEM and in no other way. After the faults end everything must work,
 * and the sums must agree with the bits (unit/audit.h).
 *
 * The parent never allocates: each child sees the library's first call.
 */
#ifndef HAK_TEST_FAULT_H
#define HAK_TEST_FAULT_H

#include "hakmem/hakmem.h"
#include "os/os.h"
#include "rules/options.h"
#include "unit/audit.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- what is refused --- */

enum fault_mode { FAULT_NONE, FAULT_NTH, FAULT_FROM, FAULT_EVERY, FAULT_KIND };

static struct {
    enum fault_mode mode;
    unsigned number; /* N, k, or the kind */
    unsigned salt;
    unsigned asked, refused;
    unsigned asked_of[HAK_OS_CALL_COUNT];
} fault;

static const char *const fault_names[] = { "nothing", "the N-th call", "all calls from N on", "every N-th call", "kind N" };

static bool fault_hook(enum hak_os_call call) {
    unsigned n = __atomic_fetch_add(&fault.asked, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&fault.asked_of[call], 1, __ATOMIC_RELAXED);
    bool refuse = false;
    if (fault.mode == FAULT_NTH) refuse = n == fault.number;
    if (fault.mode == FAULT_FROM) refuse = n >= fault.number;
    if (fault.mode == FAULT_EVERY) refuse = n % fault.number == fault.number - 1;
    if (fault.mode == FAULT_KIND) refuse = call == (enum hak_os_call)fault.number;
    if (refuse) __atomic_fetch_add(&fault.refused, 1, __ATOMIC_RELAXED);
    return refuse;
}

static void fault_arm(enum fault_mode mode, unsigned number) {
    fault.mode = mode;
    fault.number = number;
    fault.asked = fault.refused = 0;
    hak_os_fault = fault_hook;
}

/* --- saying what is wrong, without allocating --- */

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) fault_failed(#condition, __FILE__, __LINE__);                                       \
    } while (0)

__attribute__((noreturn)) static void fault_failed(const char *what, const char *file, int line) {
    hak_os_fault = NULL;
    dprintf(2, "%s:%d: %s does not hold (refused: %s, N = %u; %u calls, %u refused)\n", file, line, what,
            fault_names[fault.mode], fault.number, fault.asked, fault.refused);
    _exit(1);
}

static void audit_check(void) {
    struct audit audit;
    const char *wrong = audit_find(&audit, 0);
    if (!wrong) return;
    dprintf(2, "used %lld explained %lld sum %lld; free %lld sum %lld; absent %lld sum %lld; large %lld sum %lld\n",
            (long long)audit.used, (long long)audit.explained, (long long)hak_purge.used_granules,
            (long long)audit.free_bytes, (long long)hak_purge.free_bytes, (long long)audit.absent_bytes,
            (long long)hak_purge.absent_bytes, (long long)audit.large_count, (long long)hak_large_live_count);
    fault_failed(wrong, __FILE__, __LINE__);
}

/* --- blocks --- */

enum { SLOTS = 120, MANY = 600 };

struct block {
    unsigned char *at;
    size_t bytes;
    uint32_t salt;
};
static struct block slots[SLOTS];
static unsigned nulls; /* allocations that were refused */

static uint32_t dice_next(uint32_t *dice) {
    *dice ^= *dice << 13;
    *dice ^= *dice >> 17;
    *dice ^= *dice << 5;
    return *dice;
}

/* coarse in large blocks: what costs in this test is touching pages */
static size_t block_step(size_t bytes) { return bytes <= 2048 ? 1 : bytes <= 65536 ? 1009 : 20011; }
static unsigned char block_byte(uint32_t salt, size_t i) { return (unsigned char)(salt * 2654435761u >> 13 ^ i * 37 ^ i >> 9); }

static void block_stamp(struct block *block) {
    for (size_t i = 0; i < block->bytes; i += block_step(block->bytes)) block->at[i] = block_byte(block->salt, i);
    if (block->bytes) block->at[block->bytes - 1] = block_byte(block->salt, block->bytes - 1);
}

/* the first `bytes` of them */
static void block_check(const struct block *block, size_t bytes) {
    for (size_t i = 0; i < bytes; i += block_step(block->bytes))
        if (i != block->bytes - 1) CHECK(block->at[i] == block_byte(block->salt, i));
    if (bytes && bytes == block->bytes) CHECK(block->at[bytes - 1] == block_byte(block->salt, bytes - 1));
}

static size_t size_draw(uint32_t *dice) {
    uint32_t kind = dice_next(dice) % 100, n = dice_next(dice);
    if (kind < 55) return n % 1025;
    if (kind < 80) return n % HAK_SLAB_BLOCK_BYTES_MAX;
    if (kind < 97) return n % (1 << 19);
    return n % (6 << 20);
}

/* NULL with ENOMEM, or a block and errno as it was. */
static bool result_good(const void *block) {
    if (!block) {
        CHECK(errno == ENOMEM);
        __atomic_fetch_add(&nulls, 1, __ATOMIC_RELAXED);
        return false;
    }
    CHECK(errno == EXDEV);
    CHECK((uintptr_t)block % 16 == 0);
    return true;
}

static void block_zero_check(const unsigned char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += bytes <= 65536 ? 1 : 5003) CHECK(at[i] == 0);
    if (bytes) CHECK(at[bytes - 1] == 0);
}

static void block_take(struct block *block, uint32_t *dice) {
    size_t bytes = size_draw(dice);
    uint32_t how = dice_next(dice) % 8;
    void *at;
    errno = EXDEV;
    if (how < 4) {
        at = malloc(bytes);
    } else if (how < 6) {
        at = calloc(1, bytes);
    } else if (how < 7) {
        size_t align = (size_t)16 << dice_next(dice) % 14;
        at = memalign(align, bytes);
        CHECK((uintptr_t)at % align == 0);
    } else {
        at = aligned_alloc(4096, bytes);
    }
    if (!result_good(at)) return;
    if (how == 4 || how == 5) block_zero_check(at, bytes);
    *block = (struct block){ at, bytes, dice_next(dice) };
    CHECK(malloc_usable_size(at) >= bytes);
    block_stamp(block);
}

static void block_give(struct block *block) {
    if (!block->at) return;
    block_check(block, block->bytes);
    unsigned char *at = block->at;
    block->at = NULL;
    errno = EXDEV;
    free(at);
    CHECK(errno == EXDEV);
}

static void block_resize(struct block *block, size_t bytes) {
    errno = EXDEV;
    unsigned char *at = realloc(block->at, bytes ? bytes : 1);
    if (!result_good(at)) return; /* the old one stays as it is */
    size_t kept = block->bytes < bytes ? block->bytes : bytes;
    block->at = at;
    block_check(block, kept);
    block->bytes = bytes;
    block_stamp(block);
}

/* --- the workload --- */

static void steps_run(unsigned count, uint32_t seed) {
    uint32_t dice = seed;
    for (unsigned i = 0; i < count; i++) {
        struct block *block = &slots[dice_next(&dice) % SLOTS];
        uint32_t what = dice_next(&dice) % 8;
        if (!block->at) block_take(block, &dice);
        else if (what < 2) block_resize(block, size_draw(&dice));
        else block_give(block);
    }
}

/* Many equal blocks come and go, so that slabs fill, are relisted and end. */
static void burst_run(size_t bytes, uint32_t salt) {
    static __thread unsigned char *many[MANY];
    unsigned count = bytes > 4096 ? MANY / 8 : MANY;
    for (unsigned i = 0; i < count; i++) {
        errno = EXDEV;
        many[i] = malloc(bytes);
        if (result_good(many[i])) many[i][0] = many[i][bytes - 1] = (unsigned char)(salt + i);
    }
    for (unsigned i = 0; i < count; i++) {
        if (!many[i]) continue;
        CHECK(many[i][0] == (unsigned char)(salt + i) && many[i][bytes - 1] == (unsigned char)(salt + i));
        free(many[i]);
    }
}

static void *stranger(void *seed) {
    steps_run(150, (uint32_t)(uintptr_t)seed);
    burst_run(208, 3);
    return NULL;
}

/* In a fault even pthread_create may fail: the C library allocates for it. */
static void stranger_run(uint32_t seed) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, stranger, (void *)(uintptr_t)seed) == 0) pthread_join(thread, NULL);
}

static void child_run(void) {
    pid_t child = fork();
    if (child < 0) return;
    if (child == 0) {
        for (unsigned i = 0; i < SLOTS; i++)
            if (slots[i].at) block_check(&slots[i], slots[i].bytes);
        steps_run(80, 77);
        burst_run(96, 9);
        for (unsigned i = 0; i < SLOTS; i++) block_give(&slots[i]);
        hak_os_fault = NULL;
        hak_collect();
        audit_check();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

/* With a wall behind it a large block cannot grow in place: its pages are moved, or copied. */
static void growth_run(void) {
    struct block block = { NULL, 0, 5 };
    block_resize(&block, 3 << 20);
    for (size_t bytes = 5 << 20; bytes < 20 << 20 && block.at; bytes += 7 << 20) {
        void *wall = malloc(100000);
        block_resize(&block, bytes);
        free(wall);
    }
    block_give(&block);
}

static void workload(void) {
    steps_run(200, 4711);
    growth_run();
    stranger_run(99);
    burst_run(40, 1);
    burst_run(3000, 2);
    child_run();
    for (unsigned i = 0; i < SLOTS; i += 5)
        if (slots[i].at) block_resize(&slots[i], (size_t)(1 + i % 7) << 19);
    hak_collect();
    stranger_run(12345);
    burst_run(20000, 5);
    steps_run(300, 31337);
    growth_run();
    for (unsigned i = 0; i < SLOTS; i += 2) block_give(&slots[i]);
    hak_collect();
    steps_run(100, 271828);
}

/* The faults are over: all that stands is whole, and everything can be had. */
static void aftermath(void) {
    hak_os_fault = NULL;
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i].at) block_check(&slots[i], slots[i].bytes);
    nulls = 0;
    steps_run(300, 161803);
    stranger_run(5);
    burst_run(64, 7);
    burst_run(9000, 8);
    child_run();
    CHECK(nulls == 0);
    for (unsigned i = 0; i < SLOTS; i++) block_give(&slots[i]);
    stranger_run(6); /* what a dead heap was sent is taken in by who adopts it */
    for (unsigned i = 0; i < SLOTS; i++) block_give(&slots[i]);
    hak_collect();
    hak_collect();
    audit_check();
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    uint64_t live = 0;
    for (unsigned c = 0; c < stats.class_count; c++) {
        CHECK(stats.class_stats[c].alloc_count - stats.class_stats[c].free_count == stats.class_stats[c].live_count);
        live += stats.class_stats[c].live_count;
    }
    CHECK(stats.large_count == 0 && stats.large_bytes == 0);
    CHECK(live <= 8); /* the C library's own: its cached threads' */
}

/* --- one case: a child of its own --- */

enum { CASE_SECONDS_MAX = 30, NOT_REACHED = 42 };

static size_t case_limit_bytes; /* RLIMIT_AS of the children; 0: none */

/* false: N is past the workload's last call. */
static bool case_run(enum fault_mode mode, unsigned number, void (*work)(void)) {
    pid_t child = fork();
    if (child == 0) {
        alarm(CASE_SECONDS_MAX);
        if (case_limit_bytes) {
            struct rlimit limit = { case_limit_bytes, case_limit_bytes };
            CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        }
        hak_options.free_max_mb = 1;
        hak_options.purge_delay_ms = 5;
        fault_arm(mode, number);
        work();
        unsigned refused = fault.refused;
        aftermath();
        _exit(refused ? 0 : NOT_REACHED);
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || (status && WEXITSTATUS(status) != NOT_REACHED)) {
        dprintf(2, "%s, N = %u: status %#x\n", fault_names[mode], number, status);
        exit(1);
    }
    return status == 0;
}

/* N = first, first + step ...: until the workload makes no such call any more. */
__attribute__((unused)) static unsigned cases_run(enum fault_mode mode, unsigned step, void (*work)(void)) {
    unsigned n = 0;
    while (case_run(mode, n, work)) n += step;
    return n;
}

#endif
