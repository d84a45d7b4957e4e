/* guarded.c - blocks are guarded (watch/guard.h) while the kernel refuses one call, every k-th, or a kind: what cannot be guarded is
 * an ordinary block. */
#include "fault/fault.h"

#include "watch/published.h"
#include "watch/sample.h"

static void guarded_workload(void) {
    hak_options.guard_blocks = 64;
    hak_options.sample_most = 0;
    free(malloc(1)); /* the start */
    hak_sample_want(HAK_SAMPLE_GUARD, 4096, false);
    workload();
}

static void without_refusals_blocks_are_guarded(void) {
    guarded_workload();
    CHECK(nulls == 0 && hakmem_published.guarded > 100 && fault.asked_of[HAK_OS_PROTECT] > 200);
    CHECK(fault.asked_of[HAK_OS_RESERVE] == 1);
}

/* Nothing but a place is missing. */
static void nothing_is_missed(void) {
    guarded_workload();
    CHECK(nulls == 0);
}

int main(void) {
    CHECK(!case_run(FAULT_NONE, 0, without_refusals_blocks_are_guarded));
    CHECK(case_run(FAULT_KIND, HAK_OS_RESERVE, nothing_is_missed));
    CHECK(case_run(FAULT_KIND, HAK_OS_PROTECT, nothing_is_missed));
    CHECK(case_run(FAULT_KIND, HAK_OS_RETURN, nothing_is_missed));
    for (unsigned k = 2; k <= 17; k++) case_run(FAULT_EVERY, k, guarded_workload);
    unsigned count = cases_run(FAULT_NTH, 13, guarded_workload);
    dprintf(1, "every 13th of %u calls refused\n", count);
    return count < 300;
}
