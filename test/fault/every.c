/* every.c - every k-th call is refused, whatever it is for. */
#include "fault/fault.h"

int main(void) {
    for (unsigned k = 2; k <= 40; k++) case_run(FAULT_EVERY, k, workload);
    return 0;
}
