/* measure.c - see measure.h. */
#include "learn/measure.h"

#include "heap/heap.h"
#include "learn/maths.h"
#include "memory/large.h"
#include "memory/purge.h"
#include "rules/counters.h"

#include <string.h>

enum { LARGE_BYTES = 64 << 10 }; /* of work, whatever the block's size: most of it costs the same */

static const uint32_t price[HAK_COUNTER_COUNT] = {
#define HAK_PRICE(counter, ns) [HAK_C_##counter] = (ns),
#include "learn/prices.def"
#undef HAK_PRICE
};

static uint64_t counted(const struct hak_counters *counters, enum hak_counter which) {
    return __atomic_load_n(&counters->n[which], __ATOMIC_RELAXED);
}

/* A word that its owner adds to by one plain instruction: whole on our processors, and a number that only steers. */
static __attribute__((noinline, no_sanitize_thread)) uint64_t owners_word(const uint64_t *word) {
    return *(const volatile uint64_t *)word;
}

static void heap_add(struct hak_heap *heap, void *context) {
    struct hak_sums *sums = context;
    const struct hak_counters *counters = &heap->counters;
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++)
        if (price[i]) sums->work_ns += price[i] * counted(counters, i);
    sums->visits += counted(counters, HAK_C_visit_next_word) + counted(counters, HAK_C_visit_coarse) +
                    counted(counters, HAK_C_visit_collect) + counted(counters, HAK_C_visit_partial) +
                    counted(counters, HAK_C_visit_dead) + counted(counters, HAK_C_visit_new_slab) +
                    counted(counters, HAK_C_large_alloc);
    sums->dear += counted(counters, HAK_C_visit_new_slab) + counted(counters, HAK_C_visit_dead);
    sums->work_bytes += counted(counters, HAK_C_large_alloc) * LARGE_BYTES;
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        uint64_t handed = owners_word(&heap->shelf[c].handed);
        if (c > HAK_SMALL_CLASS_MAX) handed += owners_word(&hak_middle_of(heap, c)->handed);
        sums->work_bytes += handed * hak_classes[c].block_bytes;
    }
    sums->thread_count += hak_load_relaxed(&heap->state) == HAK_HEAP_LIVE;
}

static uint64_t positive(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

void hak_sums_read(struct hak_sums *sums, uint64_t now_ms, bool has_usage) {
    memset(sums, 0, sizeof *sums);
    hak_heap_each(heap_add, sums);
    sums->work_bytes += hak_load_relaxed(&hak_handed_ended[0]);
    struct hak_os_usage usage = { 0 };
    if (has_usage) usage = hak_os_usage();
    sums->time_ms = now_ms;
    sums->cpu_us = usage.cpu_us;
    sums->fault_count = usage.fault_count;
    sums->return_calls = hak_load_relaxed(&hak_purge.return_calls);
    sums->dear += sums->return_calls;
    sums->returned_bytes = hak_load_relaxed(&hak_purge.returned_bytes);
    sums->retouched_bytes = hak_load_relaxed(&hak_purge.retouched_bytes);
    int64_t used = hak_load_relaxed(&hak_purge.used_granules) * HAK_GRANULE_BYTES;
    sums->resident_bytes = positive(used - hak_load_relaxed(&hak_purge.absent_bytes) + hak_load_relaxed(&hak_purge.free_bytes));
    sums->large_bytes = positive(hak_load_relaxed(&hak_large_live_bytes));
}

/* Counters of one heap are read one after the other while it counts, so a difference may be a little below 0. */
static double grown(uint64_t from, uint64_t to) { return to > from ? (double)(to - from) : 0; }

void hak_measure_between(struct hak_measure *window, const struct hak_sums *from, const struct hak_sums *to, double pace) {
    double ms = grown(from->time_ms, to->time_ms), work = grown(from->work_bytes, to->work_bytes) + 1;
    double resident = ((double)from->resident_bytes + (double)to->resident_bytes) / 2;
    double page_kb = (double)((uint64_t)1 << hak_region.page_shift) / 4096;
    double faults = grown(from->fault_count, to->fault_count);
    double fault_ns = HAK_FAULT_NS * faults * page_kb;
    double returned = grown(from->returned_bytes, to->returned_bytes);
    double work_ns = grown(from->work_ns, to->work_ns) + HAK_CALL_NS * grown(from->return_calls, to->return_calls) +
                     HAK_PAGE_NS * returned / 4096;
    double memory_ns = HAK_MEMORY_NS * (pace > 0 ? pace * work : ms) * resident / (1 << 20);
    double cost = fault_ns + work_ns + memory_ns, visits = grown(from->visits, to->visits);
    double cpu_s = grown(from->cpu_us, to->cpu_us) / 1e6 + 1e-6;
    memset(window, 0, sizeof *window);
    window->seconds = ms / 1000;
    window->cost = hak_ln((cost + 1) / work);
    window->time = hak_ln((1000 * grown(from->cpu_us, to->cpu_us) + 1) / work);
    window->dear = grown(from->dear, to->dear) * (1 << 20) / work; /* not by visits: who needs fewer of them is not dearer */
    window->pace = ms / work;
    window->faults_each_s = faults / cpu_s;
    window->visits_each_s = visits / cpu_s;
    window->visits = (uint64_t)visits;
    window->resident_bytes = to->resident_bytes > from->resident_bytes ? to->resident_bytes : from->resident_bytes;
    window->returned_bytes = (uint64_t)returned;
    window->retouched_bytes = (uint64_t)grown(from->retouched_bytes, to->retouched_bytes);
    window->thread_count = to->thread_count;
    window->cost_ns = (uint64_t)cost;
    window->faults_ns = (uint64_t)fault_ns;
    window->memory_ns = (uint64_t)memory_ns;
    window->work_ns = (uint64_t)work_ns;
}
