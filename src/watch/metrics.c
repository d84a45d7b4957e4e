/* metrics.c - recording's and guards' numbers for Prometheus, as front/metrics.c writes them. Apart from publish.c, whose constants every
 * program reads (packaging/hakmem.lds).
 *
 * Threads:   any; sums and flags are read as they stand.
 */
#include "watch/published.h"
#include "watch/watch.h"

/* As the command says them: tools/hakmem/src/metrics/rows.rs. */
void hak_watch_metrics(void (*add)(void *context, const char *name, const char *kind, const char *help, uint64_t number), void *context) {
#define READ(field) __atomic_load_n(&hakmem_published.field, __ATOMIC_RELAXED)
    bool is_on = READ(is_on) != 0;
    add(context, "recording", "gauge", "1 while a recording goes on", is_on);
    add(context, "recording_rate_bytes", "gauge", "Mean distance between two samples; 0: none are taken", READ(rate_bytes));
    add(context, "samples_total", "counter", "Samples taken", READ(samples));
    add(context, "samples_lost_total", "counter", "Samples that found no place in a table", READ(lost_live) + READ(lost_stacks));
    add(context, "samples_without_thread_total", "counter", "Samples of threads that found no place in the table of threads", READ(lost_threads));
    add(context, "recording_held_ns_total", "counter", "Time that recording took from the program's threads, nanoseconds", READ(held_ns));
    add(context, "recording_held_max_ns", "gauge", "The longest of it at once", READ(held_max_ns));
    if (is_on) {
        add(context, "allocated_bytes_total", "counter", "Allocated while recording, estimated", READ(alloc_bytes));
        add(context, "freed_bytes_total", "counter", "Of it, freed, estimated", READ(free_bytes));
    }
    add(context, "guarded_blocks", "gauge", "Live blocks between guard pages", READ(guarded_live));
    add(context, "guarded_freed_blocks", "gauge", "Freed blocks that stay untouchable, so that their use is found", READ(guarded_freed));
    add(context, "guard_found_total", "counter", "Misuses of guarded blocks that were found", READ(guard_found));
#undef READ
}
