/* from.c - from some call on the kernel refuses everything, then it is itself again. */
#include "fault/fault.h"

int main(void) {
    unsigned count = cases_run(FAULT_FROM, 1, workload);
    dprintf(1, "all calls from each of %u on refused\n", count);
    return count < 50;
}
