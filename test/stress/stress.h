/* stress.h - a block that knows its owner and size, and how long a stress test runs.
 *
 * Owns:      nothing.
 * Invariant: every live block starts with a header { mark, size, owner } whose mark is a hash of the two
 *            others and of the address, and is filled with a pattern to its end; a block that overlaps
 *            another, moves, or is handed out twice fails the check at its free.
 */
#ifndef HAK_TEST_STRESS_H
#define HAK_TEST_STRESS_H

#include "../api/expect.h"

#include <hakmem/hakmem.h>

struct stamp {
    uint64_t mark, owner;
    size_t bytes;
};

static inline uint64_t stamp_mark(const struct stamp *stamp)
{
    uint64_t x = (uint64_t)(uintptr_t)stamp ^ stamp->owner * 0x9e3779b97f4a7c15u ^ stamp->bytes * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    return x * 0x94d049bb133111ebu | 1;
}

/* Stamps a block of at least sizeof(struct stamp) bytes. Above 512 bytes only the head and the tail are
 * filled: the speed of the stress is worth more than each byte. */
EXPECT_UNUSED static void block_stamp(void *block, size_t bytes, uint64_t owner)
{
    struct stamp *stamp = (struct stamp *)block;
    stamp->owner = owner;
    stamp->bytes = bytes;
    stamp->mark = stamp_mark(stamp);
    size_t head = bytes < 512 ? bytes : 512;
    memset(stamp + 1, (int)(owner & 255), head - sizeof *stamp);
    if (bytes > 512 + 64)
        memset((char *)block + bytes - 64, (int)(owner & 255), 64);
}

EXPECT_UNUSED static void block_verify(const void *block, size_t bytes_least)
{
    const struct stamp *stamp = (const struct stamp *)block;
    if (stamp->mark != stamp_mark(stamp) || stamp->bytes < bytes_least) {
        EXPECT_SAY(false, "block %p was overwritten: owner %llu, %zu bytes", block, (unsigned long long)stamp->owner, stamp->bytes);
        _exit(1);
    }
    const unsigned char *bytes = (const unsigned char *)block;
    unsigned char fill = (unsigned char)stamp->owner;
    size_t head = stamp->bytes < 512 ? stamp->bytes : 512;
    for (size_t i = sizeof *stamp; i < head; i++)
        if (bytes[i] != fill) {
            EXPECT_SAY(false, "block %p of %zu bytes changed at %zu", block, stamp->bytes, i);
            _exit(1);
        }
    if (stamp->bytes > 512 + 64)
        for (size_t i = stamp->bytes - 64; i < stamp->bytes; i++)
            if (bytes[i] != fill) {
                EXPECT_SAY(false, "block %p of %zu bytes changed at %zu", block, stamp->bytes, i);
                _exit(1);
            }
}

/* The mark goes before the block does: whoever meets it again knows. */
EXPECT_UNUSED static void block_free(void *block)
{
    block_verify(block, sizeof(struct stamp));
    ((struct stamp *)block)->mark = 0;
    free(block);
}

/* Small sizes mostly, now and then a large one, as programs have them. */
EXPECT_UNUSED static size_t size_random(struct random_state *random)
{
    uint64_t r = random_next(random);
    size_t least = sizeof(struct stamp);
    switch (r & 127) {
    case 0: return least + (r >> 8) % 2000000;
    case 1: case 2: return least + (r >> 8) % 120000;
    default: break;
    }
    if ((r & 127) < 16)
        return least + (r >> 8) % 16000;
    return least + (r >> 8) % ((size_t)16 << ((r >> 40) % 6));
}

/* A refusal is a failure here; the machine's mood (overcommit 2 is another test's for a moment) says why. */
EXPECT_UNUSED static void block_require(const void *block, size_t bytes)
{
    if (block != NULL)
        return;
    int error = errno;
    char mood = '?';
    FILE *file = fopen("/proc/sys/vm/overcommit_memory", "r");
    if (file != NULL)
        mood = (char)fgetc(file);
    expect_failed(__FILE__, __LINE__, "%zu bytes were refused, errno %d, overcommit_memory %c", bytes, error, mood);
    _exit(1);
}

EXPECT_UNUSED static void *block_make(struct random_state *random, uint64_t owner)
{
    size_t bytes = size_random(random);
    void *block;
    uint64_t how = random_next(random) & 31;
    if (how == 0) {
        size_t alignment = (size_t)16 << (random_next(random) % 9);
        block = memalign(alignment, bytes);
        EXPECT(((uintptr_t)block & (alignment - 1)) == 0);
    } else if (how < 4) {
        block = calloc(1, bytes);
        const unsigned char *zeros = (const unsigned char *)block;
        for (size_t i = 0; block != NULL && i < bytes; i += bytes < 4096 ? 1 : 509)
            if (zeros[i] != 0) {
                EXPECT_SAY(false, "calloc(%zu) is dirty at %zu", bytes, i);
                _exit(1);
            }
    } else {
        block = malloc(bytes);
    }
    block_require(block, bytes);
    block_stamp(block, bytes, owner);
    return block;
}

EXPECT_UNUSED static void *block_resize(struct random_state *random, void *block)
{
    struct stamp *stamp = (struct stamp *)block;
    block_verify(block, sizeof *stamp);
    size_t bytes = size_random(random), kept = bytes < stamp->bytes ? bytes : stamp->bytes;
    uint64_t owner = stamp->owner;
    unsigned char fill = (unsigned char)owner;
    if (kept > 512)
        kept = 512;
    unsigned char *moved = (unsigned char *)realloc(block, bytes);
    REQUIRE(moved != NULL);
    stamp = (struct stamp *)(void *)moved;
    if (stamp->owner != owner)
        EXPECT_SAY(false, "realloc to %zu lost the head", bytes);
    for (size_t i = sizeof *stamp; i < kept; i++)
        if (moved[i] != fill) {
            EXPECT_SAY(false, "realloc to %zu changed byte %zu", bytes, i);
            _exit(1);
        }
    block_stamp(moved, bytes, owner);
    return moved;
}

/* Half of all runs change options, so that every run of many meets other paths; the seed decides. */
EXPECT_UNUSED static void options_choose(struct random_state *random)
{
    static const struct {
        const char *name, *values[4];
    } choices[] = {
        {"word_bytes", {"1024", "4096", "8192", "65536"}},   {"relist_share", {"1", "8", "8", "64"}},
        {"purge_delay_ms", {"0", "5", "800", "60000"}},      {"free_max_mb", {"0", "1", "8", "256"}},
        {"free_share", {"1", "8", "64", "1024"}},            {"limit_soft_mb", {"0", "0", "4", "64"}},
    };
    if (random_next(random) & 1)
        return;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const char *value = choices[i].values[random_below(random, 4)];
        EXPECT(hak_option_set(choices[i].name, value) == 0);
        printf(" %s=%s", choices[i].name, value);
    }
    printf("\n");
    fflush(stdout);
}

/* HAK_STRESS_SECONDS soaks: each test then takes that long. */
EXPECT_UNUSED static double stress_seconds(double otherwise)
{
    const char *text = getenv("HAK_STRESS_SECONDS");
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 ? seconds : otherwise;
}

#endif
