/* report.c - write the statistics: a table for people, JSON for programs.
 *
 * Owns:      the copy of standard error that the report at exit goes to.
 * Borrows:   the numbers (hak_stats_get), names of counters (rules/counters.h), descriptors (os/).
 * Threads:   any; every caller has its own buffers on its stack. At exit the first one writes.
 * Invariant: the file that HAKMEM_REPORT names is either whole or not touched: a sibling is written and renamed.
 */
#include "front/report.h"

#include "base/text.h"
#include "hakmem/hakmem.h"
#include "memory/limit.h"
#include "os/descriptor.h"
#include "os/module.h"
#include "os/os.h"
#include "rules/counters.h"
#include "rules/options.h"

#include <errno.h>

enum { SINK_BYTES = 8192, ROW_BYTES_MAX = 1024, PATH_BYTES_MAX = 512 };

/* Where a report goes: into the caller's bytes (fd is -1), or through a buffer into a descriptor. */
struct sink {
    struct hak_text text;
    int fd;
    int error; /* the first that a write met, -errno */
};

static void sink_flush(struct sink *sink) {
    if (sink->fd < 0)
        return;
    if (!sink->error)
        sink->error = hak_os_write_all(sink->fd, sink->text.at, hak_text_held(&sink->text));
    sink->text.used = 0;
}

/* After each row: a row never needs more than ROW_BYTES_MAX. */
static void sink_row(struct sink *sink) {
    if (sink->fd >= 0 && sink->text.used + ROW_BYTES_MAX > sink->text.capacity)
        sink_flush(sink);
}

/* --- JSON -------------------------------------------------------------------------------------- */

static void json_number(struct sink *sink, const char *key, uint64_t number) {
    hak_text_format(&sink->text, "\"%s\": %lu,\n  ", key, number);
    sink_row(sink);
}

static void json_counters(struct sink *sink, const struct hak_stats *stats) {
    hak_text_str(&sink->text, "\"counters\": {");
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++) {
        hak_text_format(&sink->text, "%s\n    \"%s\": %lu", i ? "," : "", hak_counter_rows[i].name, stats->counter[i]);
        sink_row(sink);
    }
    hak_text_str(&sink->text, "\n  },\n  ");
}

static bool class_is_used(const struct hak_class_stats *row) {
    return row->slab_count || row->alloc_count;
}

static void json_classes(struct sink *sink, const struct hak_stats *stats) {
    const char *separator = "";
    hak_text_str(&sink->text, "\"classes\": [");
    for (unsigned i = 0; i < stats->class_count && i < HAK_CLASS_COUNT_MAX; i++) {
        const struct hak_class_stats *row = &stats->class_stats[i];
        if (!class_is_used(row))
            continue;
        hak_text_format(&sink->text,
                        "%s\n    {\"bytes\": %u, \"slabs\": %u, \"allocs\": %lu, \"frees\": %lu, \"live\": %lu}",
                        separator, row->block_bytes, row->slab_count, row->alloc_count, row->free_count,
                        row->live_count);
        separator = ",";
        sink_row(sink);
    }
    hak_text_str(&sink->text, "\n  ]\n");
}

void (*hak_report_on_json)(struct hak_text *text, void (*row_end)(void *context), void *context);

static void json_row_end(void *sink) { sink_row(sink); }

static void json_write(struct sink *sink, const struct hak_stats *stats) {
    hak_text_str(&sink->text, "{\n  \"version\": \"" HAKMEM_VERSION "\",\n  ");
    json_number(sink, "pid", hak_os_pid());
    json_number(sink, "live_bytes", stats->live_bytes);
    json_number(sink, "resident_bytes", stats->resident_bytes);
    json_number(sink, "reserved_bytes", stats->reserved_bytes);
    json_number(sink, "committed_bytes", stats->committed_bytes);
    json_number(sink, "free_bytes", stats->free_bytes);
    json_number(sink, "returned_bytes", stats->returned_bytes);
    json_number(sink, "retouched_bytes", stats->retouched_bytes);
    json_number(sink, "large_count", stats->large_count);
    json_number(sink, "large_bytes", stats->large_bytes);
    json_number(sink, "heap_count", stats->heap_count);
    json_number(sink, "dead_heap_count", stats->dead_heap_count);
    json_number(sink, "taken_bytes", stats->taken_bytes);
    json_number(sink, "limit_soft_bytes", HAK_OPT(limit_soft_mb) << 20);
    json_number(sink, "group_memory_bytes", hak_load_relaxed(&hak_limit_group_bytes));
    json_counters(sink, stats);
    if (hak_report_on_json)
        hak_report_on_json(&sink->text, json_row_end, sink);
    json_classes(sink, stats);
    hak_text_str(&sink->text, "}\n");
}

HAK_EXPORT size_t hak_stats_json(char *bytes, size_t count) {
    struct hak_stats stats;
    struct sink sink = { .text = { bytes, 0, bytes ? count : 0 }, .fd = -1 };
    hak_stats_get(&stats, sizeof(stats));
    json_write(&sink, &stats);
    return hak_text_end(&sink.text);
}

/* --- the table --------------------------------------------------------------------------------- */

/* 1234567 as 1,234,567, to the right of `width` columns. */
static void text_grouped(struct hak_text *text, uint64_t number, unsigned width) {
    char digits[32];
    unsigned used = 0, groups = 0;
    do {
        if (groups && groups % 3 == 0)
            digits[used++] = ',';
        digits[used++] = (char)('0' + number % 10);
        number /= 10;
        groups++;
    } while (number);
    for (unsigned fill = used; fill < width; fill++)
        hak_text_char(text, ' ');
    while (used)
        hak_text_char(text, digits[--used]);
}

static void summary_row(struct sink *sink, const char *name, uint64_t number, const char *unit, const char *what) {
    hak_text_format(&sink->text, "  %-16s", name);
    text_grouped(&sink->text, number, 22);
    hak_text_format(&sink->text, " %-7s %s\n", unit, what);
    sink_row(sink);
}

static void table_summary(struct sink *sink, const struct hak_stats *stats) {
    summary_row(sink, "live", stats->live_bytes, "bytes", "that the program holds");
    summary_row(sink, "resident", stats->resident_bytes, "bytes", "of the whole process, as the kernel counts");
    summary_row(sink, "taken", stats->taken_bytes, "bytes", "by spans in use: what counts against HAKMEM_LIMIT_HARD_MB");
    bool is_groups = !hak_option_is_pinned(HAK_O_limit_soft_mb);
    if (HAK_OPT(limit_soft_mb))
        summary_row(sink, "soft limit", HAK_OPT(limit_soft_mb) << 20, "bytes",
                    is_groups ? "nine tenths of what the control group allows" : "HAKMEM_LIMIT_SOFT_MB");
    summary_row(sink, "free", stats->free_bytes, "bytes", "resident, for the next allocations (an upper estimate)");
    summary_row(sink, "committed", stats->committed_bytes, "bytes", "usable without a further system call");
    summary_row(sink, "reserved", stats->reserved_bytes, "bytes", "of address space");
    summary_row(sink, "returned", stats->returned_bytes, "bytes", "given back to the kernel since the start");
    summary_row(sink, "touched again", stats->retouched_bytes, "bytes", "of these (an estimate by pages)");
    summary_row(sink, "large, live", stats->large_count, "blocks", "above 32 KiB");
    summary_row(sink, "large, live", stats->large_bytes, "bytes", "in these");
    summary_row(sink, "heaps", stats->heap_count, "heaps", "one per thread that allocates, and spares");
    summary_row(sink, "dead heaps", stats->dead_heap_count, "heaps", "of these, without a thread");
}

static void table_classes(struct sink *sink, const struct hak_stats *stats) {
    hak_text_format(&sink->text, "\n%9s %9s %17s %17s %15s %19s\n", "class", "slabs", "allocations", "frees", "live",
                    "live bytes");
    for (unsigned i = 0; i < stats->class_count && i < HAK_CLASS_COUNT_MAX; i++) {
        const struct hak_class_stats *row = &stats->class_stats[i];
        if (!class_is_used(row))
            continue;
        text_grouped(&sink->text, row->block_bytes, 9);
        text_grouped(&sink->text, row->slab_count, 10);
        text_grouped(&sink->text, row->alloc_count, 18);
        text_grouped(&sink->text, row->free_count, 18);
        text_grouped(&sink->text, row->live_count, 16);
        text_grouped(&sink->text, row->live_count * row->block_bytes, 20);
        hak_text_char(&sink->text, '\n');
        sink_row(sink);
    }
}

static void table_counters(struct sink *sink, const struct hak_stats *stats) {
    hak_text_char(&sink->text, '\n');
    for (unsigned i = 0; i < HAK_COUNTER_COUNT; i++) {
        const struct hak_counter_row *row = &hak_counter_rows[i];
        summary_row(sink, row->name, stats->counter[i], row->unit, row->what);
    }
}

/* What both reports at exit are made in: exit() may be called by a thread of 16 KiB of stack. One thread of a process comes there. */
static struct {
    char bytes[SINK_BYTES];
    struct hak_stats stats;
} room;

static void text_write(int fd) {
    struct sink sink = { .text = HAK_TEXT(room.bytes), .fd = fd };
    hak_stats_get(&room.stats, sizeof(room.stats));
    hak_text_format(&sink.text, "hakmem " HAKMEM_VERSION ": statistics of process %u\n\n", hak_os_pid());
    table_summary(&sink, &room.stats);
    table_classes(&sink, &room.stats);
    table_counters(&sink, &room.stats);
    sink_flush(&sink);
}

/* --- at exit ----------------------------------------------------------------------------------- */

static struct {
    int standard_error;              /* our copy, or -1 */
    struct hak_os_identity identity; /* what it was; zeros: closed, or nobody has asked */
    bool is_asked;                   /* for a report at exit */
    unsigned pid_written;            /* the process that has reported */
} at_exit = { .standard_error = -1 };

void hak_report_at_start(void) {
    if (hak_options.stats || hak_options.report[0] || hak_options.record[0] || hak_options.policy[0]) {
        at_exit.is_asked = true;
        at_exit.standard_error = hak_os_duplicate(2);
        at_exit.identity = hak_os_identity(at_exit.standard_error);
    }
}

static bool is_standard_error(int fd) {
    struct hak_os_identity now = hak_os_identity(fd);
    return now.inode && now.inode == at_exit.identity.inode && now.device == at_exit.identity.device;
}

/* A daemon's parent waits for nobody, but whoever reads its standard error waits for the last copy of it to be closed. */
void hak_report_in_child(void) {
    if (at_exit.standard_error < 0 || !is_standard_error(at_exit.standard_error)) return;
    hak_os_close(at_exit.standard_error);
    at_exit.standard_error = -1;
}

/* 2, or our copy of it: whichever still is what standard error was at the start; the program may have closed either, and opened a
 * file of its own under its number. -1: it is not there any more. */
int hak_report_descriptor(void) {
    if (!at_exit.is_asked || is_standard_error(2)) return 2;
    return is_standard_error(at_exit.standard_error) ? at_exit.standard_error : -1;
}

static void error_name(struct hak_text *text, int error) {
    static const struct {
        int error;
        char name[32];
    } names[] = {
        { ENOENT, "no such file or directory" }, { EACCES, "permission denied" },   { ENOTDIR, "not a directory" },
        { EISDIR, "it is a directory" },         { ENOSPC, "no space left" },       { EROFS, "read-only file system" },
        { EMFILE, "too many open files" },       { ENAMETOOLONG, "name too long" }, { EPERM, "not permitted" },
        { EDQUOT, "quota exceeded" },            { EFBIG, "file too large" },       { EIO, "input/output error" },
        { ENXIO, "nobody reads it" }, /* a pipe */
        { EPIPE, "nobody reads it" },            { EBUSY, "it is being written" },
    };
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].error == error) {
            hak_text_str(text, names[i].name);
            return;
        }
    hak_text_format(text, "error %d", error);
}

HAK_COLD void hak_report_failure_say(const char *what, const char *path, int error) {
    if (hak_command_is_over(path, error)) return;
    char bytes[PATH_BYTES_MAX + 192];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_format(&text, "hakmem: %s: ", what);
    hak_text_foreign(&text, path, PATH_BYTES_MAX);
    hak_text_str(&text, " cannot be written: ");
    error_name(&text, error < 0 ? -error : error);
    hak_text_str(&text, hak_os_sandbox_words(error < 0 ? error : -error));
    hak_text_end_line(&text);
    hak_os_note(hak_report_descriptor(), bytes, hak_text_held(&text));
}

static int json_write_descriptor(int fd) {
    struct sink sink = { .text = HAK_TEXT(room.bytes), .fd = fd };
    if (fd < 0)
        return fd;
    hak_stats_get(&room.stats, sizeof(room.stats));
    json_write(&sink, &room.stats);
    sink_flush(&sink);
    return sink.error;
}

/* A sibling is written and takes the file's place; but a device is written to as it stands. */
static int json_write_path(const char *path) {
    char bytes[PATH_BYTES_MAX + 32];
    struct hak_text sibling = HAK_TEXT(bytes);
    int fd = hak_os_open_standing(path);
    if (fd != HAK_DESCRIPTOR_NONE) {
        int error = json_write_descriptor(fd);
        if (fd >= 0)
            hak_os_close(fd);
        return error;
    }

    hak_text_format(&sibling, "%s.%u.new", path, hak_os_pid());
    hak_text_end(&sibling);
    fd = hak_os_open_new(bytes);
    if (fd < 0)
        return fd;
    return hak_os_replace(fd, json_write_descriptor(fd), bytes, path);
}

static void json_write_file(void) {
    char bytes[PATH_BYTES_MAX];
    struct hak_text path = HAK_TEXT(bytes);
    hak_path_expand(&path, hak_options.report);
    int error = hak_text_end(&path) < sizeof(bytes) ? json_write_path(bytes) : -ENAMETOOLONG;
    if (error)
        hak_report_failure_say("HAKMEM_REPORT", bytes, error);
}

static HAK_NOINLINE void wanted_at_exit(void) {
    unsigned pid = hak_os_pid();
    /* relaxed: who exchanges first writes; nothing else is ordered by it */
    if (__atomic_exchange_n(&at_exit.pid_written, pid, __ATOMIC_RELAXED) == pid)
        return;
    if (hak_options.stats)
        text_write(hak_report_descriptor());
    if (hak_options.report[0])
        json_write_file();
}

void hak_report_at_exit(void) {
    if (hak_options.stats || hak_options.report[0])
        wanted_at_exit();
}
