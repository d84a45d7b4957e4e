/* nth.c - the kernel refuses one single call, whichever it is: nothing is lost. */
#include "fault/fault.h"

int main(void) {
    case_run(FAULT_NONE, 0, workload);
    unsigned count = cases_run(FAULT_NTH, 1, workload);
    dprintf(1, "each of %u calls refused\n", count);
    return count < 50; /* a workload that asks the kernel for so little tests nothing */
}
