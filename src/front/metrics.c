/* metrics.c - see metrics.h.
 *
 * The command has the same from outside: names, kinds and help are those of tools/hakmem/src/metrics/rows.rs; test/tool/metrics.py compares.
 *
 * Borrows:   the numbers (hak_stats_get, hak_census_pages); names of counters (rules/counters.h).
 * Threads:   any; every caller has its own numbers on its stack.
 */
#include "front/metrics.h"

#include "hakmem/hakmem.h"
#include "heap/heap.h"
#include "memory/rush.h"
#include "os/os.h"
#include "rules/counters.h"

void (*hak_metrics_on_recording)(hak_metric_add *add, void *context);

static void head(struct hak_text *text, const char *name, const char *kind, const char *help) {
    hak_text_format(text, "# HELP hakmem_%s %s\n# TYPE hakmem_%s %s\n", name, help, name, kind);
}

static void metric(void *text, const char *name, const char *kind, const char *help, uint64_t number) {
    head(text, name, kind, help);
    hak_text_format(text, "hakmem_%s %lu\n", name, number);
}
static void gauge(struct hak_text *text, const char *name, const char *help, uint64_t number) { metric(text, name, "gauge", help, number); }
static void counter(struct hak_text *text, const char *name, const char *help, uint64_t number) { metric(text, name, "counter", help, number); }

/* A label's value, up to a line's end. */
static void label(struct hak_text *text, const char *value) {
    for (; *value && *value != '\n'; value++) {
        if (*value == '\\' || *value == '"') hak_text_char(text, '\\');
        hak_text_char(text, *value);
    }
}

static void process(struct hak_text *text, const struct hak_stats *stats) {
    char name[64];
    hak_os_file_read("/proc/self/comm", name, sizeof name);
    head(text, "info", "gauge", "The library and the program");
    hak_text_str(text, "hakmem_info{version=\"" HAKMEM_VERSION "\",program=\"");
    label(text, name);
    hak_text_format(text, "\",pid=\"%u\"} 1\n", hak_os_pid());
    uint64_t peak = hak_os_resident_peak_bytes();
    if (stats->resident_bytes) gauge(text, "resident_bytes", "Resident memory of the process, as the kernel counts it", stats->resident_bytes);
    if (peak) gauge(text, "resident_peak_bytes", "The most that was resident", peak);
}

/* --- by size class --- */

/* One number of each class that has slabs. */
typedef uint64_t number_function(const struct hak_class_stats *class, const struct hak_census_pages *pages, unsigned c);

static uint64_t slabs(const struct hak_class_stats *class, const struct hak_census_pages *pages, unsigned c) {
    (void)pages, (void)c;
    return class->slab_count;
}
static uint64_t live_blocks(const struct hak_class_stats *class, const struct hak_census_pages *pages, unsigned c) {
    (void)pages, (void)c;
    return class->live_count;
}
static uint64_t resident_bytes(const struct hak_class_stats *class, const struct hak_census_pages *pages, unsigned c) {
    (void)class;
    return pages->resident_bytes[c];
}
static uint64_t sparse_bytes(const struct hak_class_stats *class, const struct hak_census_pages *pages, unsigned c) {
    (void)class;
    return pages->sparse_bytes[c];
}

static void by_class(struct hak_text *text, const struct hak_stats *stats, const struct hak_census_pages *pages, number_function *number,
                     const char *name, const char *help) {
    head(text, name, "gauge", help);
    for (unsigned i = 1; i < HAK_CLASS_COUNT; i++) {
        const struct hak_class_stats *class = &stats->class_stats[i - 1];
        unsigned c = hak_class_by_size(i);
        if (class->slab_count)
            hak_text_format(text, "hakmem_%s{class_bytes=\"%u\"} %lu\n", name, hak_classes[c].block_bytes, number(class, pages, c));
    }
}

static HAK_NOINLINE void classes(struct hak_text *text, const struct hak_stats *stats) {
    struct hak_census_pages pages;
    uint64_t resident = 0, sparse = 0;
    hak_census_pages(&pages);
    for (unsigned c = 1; c < HAK_CLASS_COUNT; c++) {
        resident += pages.resident_bytes[c];
        sparse += pages.sparse_bytes[c];
    }
    gauge(text, "small_live_bytes", "Blocks of up to 32 KiB that the program holds", stats->live_bytes - stats->large_bytes);
    gauge(text, "slab_resident_bytes", "Resident memory of slabs", resident);
    gauge(text, "sparse_bytes", "Of it, what pages less than a quarter in use hold beside their blocks", sparse);
    by_class(text, stats, &pages, slabs, "class_slabs", "Slabs");
    by_class(text, stats, &pages, live_blocks, "class_live_blocks", "Blocks that the program holds");
    by_class(text, stats, &pages, resident_bytes, "class_resident_bytes", "Resident memory of slabs");
    by_class(text, stats, &pages, sparse_bytes, "class_sparse_bytes", "What sparse pages pin");
}

/* --- all --- */

static uint64_t positive(int64_t number) { return number > 0 ? (uint64_t)number : 0; }

static void others(struct hak_text *text, const struct hak_stats *stats) {
    gauge(text, "large_live_bytes", "Blocks above 32 KiB that the program holds, and those freed last that its threads keep, up to 3 MiB each",
          positive(hak_load_relaxed(&hak_large_live_bytes)));
    gauge(text, "large_live_blocks", "How many they are", positive(hak_load_relaxed(&hak_large_live_count)));
    gauge(text, "free_bytes", "Free and resident, as the allocator counts it", stats->free_bytes);
    counter(text, "returned_bytes_total", "Given back to the kernel", stats->returned_bytes);
    counter(text, "retouched_bytes_total", "Of it, used again", stats->retouched_bytes);
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++) {
        char name[64];
        struct hak_text total = HAK_TEXT(name);
        hak_text_format(&total, "%s_total", hak_counter_rows[i].name);
        hak_text_end(&total);
        counter(text, name, hak_counter_rows[i].what, stats->counter[i]);
    }
}

HAK_EXPORT size_t hak_stats_prometheus(char *bytes, size_t count) {
    struct hak_stats stats;
    struct hak_text text = { bytes, 0, bytes ? count : 0 };
    hak_stats_get(&stats, sizeof stats);
    process(&text, &stats);
    classes(&text, &stats);
    if (hak_metrics_on_recording) hak_metrics_on_recording(metric, &text);
    others(&text, &stats);
    return hak_text_end(&text);
}
