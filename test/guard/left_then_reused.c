/* left_then_reused.c - what is published of a fault is of the block that was there, as it was then: a handler leaves by siglongjmp, the block is
 * freed, and its place becomes another's. */
#include "guard.h"

#include <setjmp.h>

enum { ROUNDS = 1000 }; /* more than there are places for */

static sigjmp_buf away;
static void leaves(int signal)
{
    (void)signal;
    siglongjmp(away, 1);
}

static bool is_same(const struct hak_guard_event *a, const struct hak_guard_event *b)
{
    return a->time_ns == b->time_ns && a->tid == b->tid && a->frame_count == b->frame_count &&
           memcmp(a->frame, b->frame, a->frame_count * sizeof *a->frame) == 0;
}

int main(void)
{
    signal(SIGSEGV, leaves);
    char *block = guarded(16, 200, RIGHT);
    const struct hak_guard_row *row = guard_row(block);
    struct hak_guard_row before = *row;
    announce_overflow("read of", block + 208, block, 200);
    announce("ends", "0");
    announce("stack read", "touch_read main");
    if (sigsetjmp(away, 1) == 0) {
        touch_read(block + 208);
        return 95;
    }
    block_drop(block);
    for (int i = 0; i < ROUNDS && row->serial == before.serial; i++) block_drop(guarded(16, 3000, ANY));
    if (row->serial == before.serial) return 94;
    const struct hak_guard_fault *fault = (const struct hak_guard_fault *)(uintptr_t)hakmem_published.guard_faults.address;
    if (hakmem_published.guard_faults.used != 1 || hakmem_published.guard_faults.row_bytes != sizeof *fault) return 93;
    const struct hak_guard_row *was = &fault->was;
    if (was->sequence == 0 || was->sequence % 2 || was->state != HAK_GUARD_LIVE || was->free.tid) return 92;
    if (was->block != (uintptr_t)block || was->requested_bytes != 200 || was->serial != before.serial) return 91;
    return is_same(&was->alloc, &before.alloc) ? 0 : 90;
}
