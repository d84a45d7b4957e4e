/* recorded_again.c - a recording that begins finds room in tables that the one before filled; what lives keeps its stacks.
 *
 * Owns:   the control word of this very process, which it writes as another one would.
 *
 * ctest: native
 */
#include "recorded.h"

enum { RATE = 64, DEPTH = 16, KEPT = 100, THREADS = 1500 };
static void *kept[KEPT];
static unsigned way;

static int asked(uint32_t command) { return recorded_asked(command, RATE); }

/* Each way down is a stack of its own. */
static void *down_right(unsigned depth);
__attribute__((noinline)) static void *down_left(unsigned depth)
{
    void *block = depth == 0 ? malloc(2000) : way >> (depth - 1) & 1 ? down_right(depth - 1) : down_left(depth - 1);
    __asm__ volatile("" : "+r"(block));
    return block;
}
__attribute__((noinline)) static void *down_right(unsigned depth)
{
    void *block = depth == 0 ? malloc(2000) : way >> (depth - 1) & 1 ? down_right(depth - 1) : down_left(depth - 1);
    __asm__ volatile("" : "+r"(block));
    return block;
}

static void ways_go(unsigned first, unsigned count)
{
    for (way = first; way < first + count; way++)
        for (int again = 0; again < 2; again++)
            free(down_left(DEPTH));
}

static const struct hak_live_row *live_row(const void *block)
{
    for (uint64_t i = 0; i < hakmem_published.live.used; i++) {
        const struct hak_live_row *row = recorded_live(i);
        if (row->state == 1 && row->block == (uintptr_t)block)
            return row;
    }
    return NULL;
}
static const uint64_t *frames_of(const struct hak_stack_row *row)
{
    return (const void *)(uintptr_t)(hakmem_published.frames.address + row->frame_first * hakmem_published.frames.row_bytes);
}

struct before {
    uint32_t frame_count;
    uint64_t frame[HAK_STACK_FRAMES_MAX];
};
static struct before before[KEPT];

static void stacks_are_full_then_only_those_of_what_lives_are_there(void)
{
    EXPECT(asked(HAK_CONTROL_START) == 0);
    ways_go(0, 3000);
    way = 3000;
    for (int i = 0; i < KEPT; i++, way += 7)
        kept[i] = down_right(DEPTH);
    ways_go(9000, 17000);
    EXPECT_SAY(hakmem_published.lost_stacks > 0, "%llu rows of %llu", (unsigned long long)hakmem_published.stacks.used,
               (unsigned long long)hakmem_published.stacks.capacity);
    int seen = 0;
    for (int i = 0; i < KEPT; i++) {
        const struct hak_live_row *row = live_row(kept[i]);
        if (!row || !row->stack)
            continue;
        const struct hak_stack_row *stack = recorded_stack(row->stack);
        before[i].frame_count = stack->frame_count;
        memcpy(before[i].frame, frames_of(stack), stack->frame_count * sizeof(uint64_t));
        seen++;
    }
    EXPECT_SAY(seen > KEPT / 2, "%d", seen);
    EXPECT(asked(HAK_CONTROL_STOP) == 0);
    EXPECT(asked(HAK_CONTROL_START) == 0);
    EXPECT_SAY(hakmem_published.stacks.used < 1000 && hakmem_published.lost_stacks == 0, "%llu rows", (unsigned long long)hakmem_published.stacks.used);
    EXPECT(hakmem_published.renewed > 0 && hakmem_published.renewed % 2 == 0);
    for (int i = 0; i < KEPT; i++) {
        const struct hak_live_row *row = live_row(kept[i]);
        if (!row || !before[i].frame_count)
            continue;
        const struct hak_stack_row *stack = recorded_stack(row->stack);
        EXPECT_SAY(row->stack > 0 && row->stack < hakmem_published.stacks.used && stack->sequence == 2 && stack->frame_count == before[i].frame_count &&
                       memcmp(frames_of(stack), before[i].frame, stack->frame_count * sizeof(uint64_t)) == 0,
                   "block %d: stack %u of %u frames, not %u", i, row->stack, stack->frame_count, before[i].frame_count);
    }
    ways_go(30000, 5000);
    EXPECT_SAY(hakmem_published.lost_stacks == 0 && hakmem_published.stacks.used > 4000, "%llu rows, %llu lost",
               (unsigned long long)hakmem_published.stacks.used, (unsigned long long)hakmem_published.lost_stacks);
    uint64_t allocated = 0, samples = 0;
    for (uint32_t row = 1; row < hakmem_published.stacks.used; row++) {
        allocated += recorded_stack(row)->alloc_bytes;
        samples += recorded_stack(row)->alloc_samples;
    }
    EXPECT_SAY(samples <= hakmem_published.samples && samples > hakmem_published.samples / 10 * 9 && allocated <= hakmem_published.alloc_bytes,
               "%llu samples of %llu, %llu bytes of %llu", (unsigned long long)samples, (unsigned long long)hakmem_published.samples,
               (unsigned long long)allocated, (unsigned long long)hakmem_published.alloc_bytes);
    for (int i = 0; i < KEPT; i++)
        free(kept[i]);
    EXPECT(asked(HAK_CONTROL_STOP) == 0);
}

static void threads_of_the_recording_before_make_way(void)
{
    char *stacks = recorded_stacks(THREADS + 1);
    EXPECT(asked(HAK_CONTROL_START) == 0);
    for (size_t i = 0; i < THREADS; i++)
        recorded_thread_run(stacks, i);
    EXPECT_SAY(hakmem_published.threads.used > hakmem_published.threads.capacity / 2, "%llu", (unsigned long long)hakmem_published.threads.used);
    EXPECT(asked(HAK_CONTROL_STOP) == 0);
    EXPECT(asked(HAK_CONTROL_START) == 0);
    EXPECT_SAY(hakmem_published.threads.used < 10, "%llu", (unsigned long long)hakmem_published.threads.used);
    recorded_thread_run(stacks, THREADS);
    recorded_blocks_come_and_go(NULL);
    const struct hak_thread_row *rows = (const void *)(uintptr_t)hakmem_published.threads.address;
    uint64_t count = 0, of_all = 0;
    for (uint64_t i = 1; i < hakmem_published.threads.used; i++) {
        count += rows[i].tid == (uint32_t)getpid() && rows[i].alloc_samples > 0;
        of_all += rows[i].alloc_samples;
    }
    EXPECT_SAY(count == 1 && of_all <= hakmem_published.samples, "%llu rows of the first thread; %llu of %llu samples", (unsigned long long)count,
               (unsigned long long)of_all, (unsigned long long)hakmem_published.samples);
    EXPECT(asked(HAK_CONTROL_STOP) == 0);
}

/* As a child finds them whose parent forked in the middle of it. */
static void tables_that_were_left_half_moved_begin_anew(void)
{
    EXPECT(asked(HAK_CONTROL_START) == 0);
    ways_go(0, 100);
    way = 5;
    void *block = down_right(DEPTH);
    EXPECT(asked(HAK_CONTROL_STOP) == 0);
    hakmem_published.renewed++;
    EXPECT(asked(HAK_CONTROL_START) == 0);
    EXPECT_SAY(hakmem_published.renewed % 2 == 0 && hakmem_published.stacks.used < 20 && hakmem_published.threads.used < 10, "%llu rows",
               (unsigned long long)hakmem_published.stacks.used);
    EXPECT(live_row(block) && live_row(block)->stack == 0);
    ways_go(0, 100);
    EXPECT(hakmem_published.stacks.used > 50 && hakmem_published.lost_stacks == 0);
    free(block);
    EXPECT(asked(HAK_CONTROL_STOP) == 0);
}

int main(int count, char **words)
{
    (void)count;
    if (!&hakmem_published)
        return EXPECT_SKIPPED;
    if (!getenv("HAKMEM_SAMPLE_MOST")) {
        setenv("HAKMEM_SAMPLE_MOST", "0", 1);
        execv("/proc/self/exe", words);
        return 1;
    }
    free(malloc(100));
    if (hakmem_published.is_on)
        return EXPECT_SKIPPED; /* this run is recorded itself */
    RUN(stacks_are_full_then_only_those_of_what_lives_are_there);
    RUN(threads_of_the_recording_before_make_way);
    RUN(tables_that_were_left_half_moved_begin_anew);
    return EXPECT_RESULT();
}
