/* measure.h - what the allocator did in a stretch of time, and what that cost.
 *
 * Owns:      nothing; sums are read from counters that exist anyway, so a window costs nothing until its end.
 * Threads:   any reader; counters are their owners', read relaxed: a number that was true a moment ago.
 * The price: prices.def for the work, HAK_FAULT_NS for a page fault, HAK_CALL_NS and HAK_PAGE_NS for returning pages, and
 *            memory at HAK_MEMORY_NS for a MiB in a millisecond (ten gigabytes are worth a core).
 */
#ifndef HAK_LEARN_WINDOW_H
#define HAK_LEARN_WINDOW_H

#include "base/attr.h"

enum { HAK_FAULT_NS = 1600, HAK_CALL_NS = 1000, HAK_PAGE_NS = 300, HAK_MEMORY_NS = 100 };

/* Since the start of the process. */
struct hak_sums {
    uint64_t time_ms, visits, work_bytes, work_ns, fault_count, cpu_us, return_calls, returned_bytes, retouched_bytes;
    uint64_t dear; /* visits that cut a slab or came to the kernel */
    /* now: */
    uint64_t resident_bytes; /* of ours: in use and free */
    uint64_t large_bytes, thread_count;
};
/* has_usage: processor time and faults, too, for which the system is asked. */
void hak_sums_read(struct hak_sums *sums, uint64_t now_ms, bool has_usage);

struct hak_measure {
    double seconds;
    double cost;   /* ln of ns per byte handed out */
    double time;   /* ln of CPU ns per byte handed out, the program's own with it */
    double dear;   /* dear visits per MiB handed out */
    double pace;   /* ms that passed for a byte handed out */
    double faults_each_s, visits_each_s; /* of CPU time: what else the machine does is not the program's load */
    uint64_t visits, resident_bytes, returned_bytes, retouched_bytes, thread_count;
    uint64_t cost_ns, faults_ns, memory_ns, work_ns; /* the parts of the cost */
};
/* `pace`: ms that usually pass for a byte, 0: unknown. Memory is charged for that time, not for the window's own: else a machine
 * that is busy with others, or a load that pauses, would look like a strategy that holds memory longer. */
void hak_measure_between(struct hak_measure *window, const struct hak_sums *from, const struct hak_sums *to, double pace);

#endif
