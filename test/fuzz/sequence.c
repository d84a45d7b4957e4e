/* sequence.c - random sequences of calls against a reference model of what is live.
 *
 * Owns:      the model: a treap of live blocks ordered by address.
 * Invariant: no two live blocks overlap (by their usable sizes); alignments hold; contents stay; calloc is
 *            zero; usable size is at least what was asked and does not change.
 * Usage:     fuzz_sequence [SEED [ITERATIONS]]; without arguments a few seconds of new seeds
 *            (HAK_STRESS_SECONDS: that many). A failure prints the seed and the step.
 * ctest: secure
 */
#include "../api/expect.h"

#include <hakmem/hakmem.h>

enum { LIVE_MAX = 4096 };

struct live {
    char *block;
    size_t bytes, usable, alignment; /* alignment: 0 where none was asked for */
    uint64_t owner, priority;
    struct live *left, *right;
};

static struct live pool[LIVE_MAX], *pool_free[LIVE_MAX], *table[LIVE_MAX], *root;
static size_t pool_free_count, live_count, live_bytes;
static uint64_t seed, step, owner_next;

static void failed(const char *what, const struct live *live)
{
    fprintf(stderr, "fuzz_sequence: seed %llu, step %llu: %s (block %p, %zu bytes, %zu usable)\n", (unsigned long long)seed,
            (unsigned long long)step, what, live ? (void *)live->block : NULL, live ? live->bytes : 0, live ? live->usable : 0);
    exit(1);
}

/* --- the treap -------------------------------------------------------------------------------------- */

static void treap_split(struct live *tree, const char *at, struct live **below, struct live **above)
{
    if (tree == NULL) {
        *below = *above = NULL;
    } else if (tree->block < at) {
        treap_split(tree->right, at, &tree->right, above);
        *below = tree;
    } else {
        treap_split(tree->left, at, below, &tree->left);
        *above = tree;
    }
}

static struct live *treap_join(struct live *below, struct live *above)
{
    if (below == NULL || above == NULL)
        return below != NULL ? below : above;
    if (below->priority > above->priority) {
        below->right = treap_join(below->right, above);
        return below;
    }
    above->left = treap_join(below, above->left);
    return above;
}

static struct live *treap_last(struct live *tree)
{
    while (tree != NULL && tree->right != NULL)
        tree = tree->right;
    return tree;
}

static struct live *treap_first(struct live *tree)
{
    while (tree != NULL && tree->left != NULL)
        tree = tree->left;
    return tree;
}

static void model_insert(struct live *live, struct random_state *random)
{
    struct live *below, *above;
    treap_split(root, live->block, &below, &above);
    const struct live *before = treap_last(below), *after = treap_first(above);
    if (before != NULL && before->block + before->usable > live->block)
        failed("overlaps the block before it", live);
    if (after != NULL && live->block + live->usable > after->block)
        failed("overlaps the block after it", live);
    live->priority = random_next(random);
    live->left = live->right = NULL;
    root = treap_join(treap_join(below, live), above);
}

static void model_remove(struct live *live)
{
    struct live *below, *rest, *self, *above;
    treap_split(root, live->block, &below, &rest);
    treap_split(rest, live->block + 1, &self, &above);
    if (self != live)
        failed("the model lost a block", live);
    root = treap_join(below, above);
}

/* --- calls --------------------------------------------------------------------------------------------- */

static size_t size_random(struct random_state *random)
{
    uint64_t r = random_next(random);
    unsigned kind = (unsigned)(r & 1023);
    r >>= 10;
    if (kind < 20)
        return (size_t)(r % 3);
    if (kind < 600)
        return (size_t)(r % 257);
    if (kind < 850)
        return (size_t)(r % 2100);
    if (kind < 960)
        return (size_t)(r % 34000);
    if (kind < 1010)
        return (size_t)(r % 400000);
    if (kind < 1015) { /* one off a power of two */
        size_t power = (size_t)1 << (4 + r % 19);
        return power + (size_t)(r >> 8) % 35 - 17 + (power < 32 ? 17 : 0);
    }
    return (size_t)(r % ((size_t)8 << 20));
}

static void live_take(char *block, size_t bytes, size_t alignment, struct random_state *random)
{
    if (block == NULL)
        failed("allocation failed", NULL);
    struct live *live = pool_free[--pool_free_count];
    *live = (struct live){.block = block, .bytes = bytes, .usable = malloc_usable_size(block), .owner = owner_next++,
                          .alignment = alignment};
    if ((alignment != 0 && ((uintptr_t)block & (alignment - 1)) != 0) || ((uintptr_t)block & 15) != 0)
        failed("wrong alignment", live);
    if (live->usable < bytes)
        failed("usable size below the request", live);
    model_insert(live, random);
    stamp_fill(block, bytes, live->owner);
    table[live_count++] = live;
    live_bytes += bytes;
}

static void live_check(const struct live *live)
{
    if (malloc_usable_size(live->block) != live->usable)
        failed("usable size changed", live);
    if (stamp_check(live->block, live->bytes, live->bytes, live->owner) != SIZE_MAX)
        failed("contents changed", live);
}

static void live_drop(size_t index)
{
    struct live *live = table[index];
    live_check(live);
    model_remove(live);
    live_bytes -= live->bytes;
    pool_free[pool_free_count++] = live;
    table[index] = table[--live_count];
}

static void call_release(size_t index, struct random_state *random)
{
    struct live *live = table[index];
    char *block = live->block;
    size_t bytes = live->bytes, alignment = live->alignment;
    live_drop(index);
    switch (random_next(random) & 7) {
    case 0:
        if (alignment != 0)
            free_aligned_sized(block, alignment, bytes);
        else
            free_sized(block, bytes);
        break;
    case 1: if (realloc(block, 0) != NULL) failed("realloc to zero gave a block", live); break;
    case 2: hak_free_at(block, 0); break;
    default: free(block);
    }
}

static void call_resize(size_t index, struct random_state *random)
{
    struct live *live = table[index];
    size_t to = size_random(random) + 1, kept = to < live->bytes ? to : live->bytes, from = live->bytes;
    uint64_t owner = live->owner;
    char *block = live->block;
    live_drop(index);
    block = (char *)(random_next(random) & 1 ? realloc(block, to) : reallocarray(block, to, 1));
    if (block == NULL)
        failed("realloc failed", live);
    if (stamp_check(block, from, kept, owner) != SIZE_MAX)
        failed("realloc changed contents", live);
    live_take(block, to, 0, random);
}

static void call_expand(size_t index, struct random_state *random)
{
    struct live *live = table[index];
    size_t to = live->bytes + size_random(random);
    live_check(live);
    size_t got = hak_expand(live->block, to);
    if (got == 0) {
        if (to != 0 && to <= live->usable) /* a block of 0 bytes may have 0 */
            failed("expand within the usable size refused", live);
        live_check(live);
        return;
    }
    if (got < to)
        failed("expand gave less than it was asked for", live);
    if (stamp_check(live->block, live->bytes, live->bytes, live->owner) != SIZE_MAX)
        failed("expand changed contents", live);
    model_remove(live);
    live_bytes += to - live->bytes;
    live->bytes = to;
    live->usable = malloc_usable_size(live->block);
    if (live->usable != got)
        failed("expand and usable size disagree", live);
    model_insert(live, random);
    stamp_fill(live->block, to, live->owner);
}

static void call_allocate(struct random_state *random)
{
    size_t size = size_random(random);
    switch (random_below(random, 12)) {
    case 0: case 1: {
        size_t count = random_below(random, 9) + 1;
        char *block = (char *)calloc(count, size);
        for (size_t i = 0; block != NULL && i < count * size; i++)
            if (block[i] != 0)
                failed("calloc gave dirty memory", NULL);
        live_take(block, count * size, 0, random);
        break;
    }
    case 2: {
        size_t alignment = (size_t)8 << random_below(random, 15);
        void *block = NULL;
        if (posix_memalign(&block, alignment, size) != 0)
            failed("posix_memalign failed", NULL);
        live_take((char *)block, size, alignment, random);
        break;
    }
    case 3: {
        size_t alignment = (size_t)1 << random_below(random, random_below(random, 20) == 0 ? 24 : 14);
        live_take((char *)aligned_alloc(alignment, size), size, alignment, random);
        break;
    }
    case 4: {
        struct hak_block got = hak_alloc_at_least(size);
        live_take((char *)got.ptr, got.bytes, 0, random);
        break;
    }
    case 5: live_take((char *)hak_alloc_at(size, 0), size, 0, random); break;
    case 6: live_take((char *)realloc(NULL, size), size, 0, random); break;
    default: live_take((char *)malloc(size), size, 0, random);
    }
}

static void sequence_run(uint64_t this_seed, uint64_t iterations)
{
    seed = this_seed;
    struct random_state random = {seed};
    root = NULL;
    live_count = pool_free_count = live_bytes = 0;
    for (int i = 0; i < LIVE_MAX; i++)
        pool_free[pool_free_count++] = &pool[i];
    if (seed % 4 == 0) { /* every fourth seed under other options */
        static const char *const words[] = {"1024", "8192", "65536"}, *const delays[] = {"0", "800"}, *const free_mb[] = {"0", "8"};
        hak_option_set("word_bytes", words[random_below(&random, 3)]);
        hak_option_set("purge_delay_ms", delays[random_below(&random, 2)]);
        hak_option_set("free_max_mb", free_mb[random_below(&random, 2)]);
        hak_option_set("limit_soft_mb", free_mb[random_below(&random, 2)]);
    }
    size_t target = (size_t)16 << random_below(&random, 8);
    for (step = 0; step < iterations; step++) {
        if (step % 512 == 0 && random_below(&random, 3) == 0) /* the program breathes */
            target = (size_t)4 << random_below(&random, 10);
        size_t index = live_count ? random_below(&random, live_count) : 0;
        unsigned what = (unsigned)random_below(&random, 100);
        if (live_count == 0 || (live_count < target && live_bytes < (size_t)256 << 20 && what < 60 && pool_free_count > 0))
            call_allocate(&random);
        else if (what < 75 || live_count > target)
            call_release(index, &random);
        else if (what < 92)
            call_resize(index, &random);
        else if (what < 96)
            call_expand(index, &random);
        else if (what < 99)
            live_check(table[index]);
        else if (step % 7 == 0)
            hak_collect();
    }
    while (live_count != 0)
        call_release(live_count - 1, &random);
}

int main(int argument_count, char **arguments)
{
    if (argument_count > 1) {
        uint64_t iterations = argument_count > 2 ? strtoull(arguments[2], NULL, 0) : 20000;
        printf("fuzz_sequence: seed %s, %llu iterations\n", arguments[1], (unsigned long long)iterations);
        sequence_run(strtoull(arguments[1], NULL, 0), iterations);
        return 0;
    }
    uint64_t first = random_seed("fuzz_sequence"), count = 0;
    const char *text = getenv("HAK_STRESS_SECONDS");
    double end = clock_seconds() + (text ? strtod(text, NULL) : 6);
    for (; clock_seconds() < end; count++)
        sequence_run(first + count, 8000);
    printf("fuzz_sequence: %llu seeds of 8000 calls from %llu\n", (unsigned long long)count, (unsigned long long)first);
    return 0;
}
