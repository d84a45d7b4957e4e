/* limited.c - under RLIMIT_AS memory is mapped piece by piece and unmapped when free; refusals of any of it. */
#include "fault/fault.h"

static void nothing_is_missed(void) {
    workload();
    CHECK(nulls == 0);
}

static void nothing_is_unmapped(void) {
    workload();
    CHECK(nulls == 0);
    CHECK(fault.asked_of[HAK_OS_UNMAP] > 0);
}

/* The limit itself is the fault: what is too much is refused, what is given back can be had again. */
static void the_limit_is_met(void) {
    enum { COUNT = 400 };
    static unsigned char *blocks[COUNT];
    for (unsigned round = 0; round < 3; round++) {
        unsigned count = 0;
        for (; count < COUNT; count++) {
            errno = EXDEV;
            blocks[count] = malloc(1 << 20);
            if (!result_good(blocks[count])) break;
            blocks[count][0] = blocks[count][(1 << 20) - 1] = (unsigned char)count;
        }
        CHECK(count > 100 && count < COUNT);
        steps_run(100, 3);
        stranger_run(4);
        for (unsigned i = 0; i < count; i++) {
            CHECK(blocks[i][0] == (unsigned char)i && blocks[i][(1 << 20) - 1] == (unsigned char)i);
            free(blocks[i]);
        }
        for (unsigned i = 0; i < SLOTS; i++) block_give(&slots[i]);
    }
}

int main(void) {
    case_limit_bytes = (size_t)1 << 30;
    CHECK(!case_run(FAULT_NONE, 0, nothing_is_missed));
    CHECK(case_run(FAULT_KIND, HAK_OS_UNMAP, nothing_is_unmapped));
    CHECK(case_run(FAULT_KIND, HAK_OS_RETURN, nothing_is_missed));
    case_run(FAULT_KIND, HAK_OS_MOVE, nothing_is_missed); /* rarely asked for here: blocks grow in place (kind.c) */
    CHECK(case_run(FAULT_KIND, HAK_OS_ADVISE, nothing_is_missed));
    case_run(FAULT_KIND, HAK_OS_MAP_AT, workload);
    unsigned single = cases_run(FAULT_NTH, 13, workload), from = cases_run(FAULT_FROM, 13, workload);
    for (unsigned k = 2; k <= 20; k++) case_run(FAULT_EVERY, k, workload);
    dprintf(1, "under RLIMIT_AS: every 13th of %u calls, from every 13th of %u\n", single, from);
    case_limit_bytes = (size_t)256 << 20;
    case_run(FAULT_NONE, 0, the_limit_is_met);
    case_run(FAULT_KIND, HAK_OS_UNMAP, the_limit_is_met);
    case_run(FAULT_EVERY, 3, workload);
    return 0;
}
