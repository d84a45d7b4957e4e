/* guard_report.c - what was done to which guarded block, from where: on standard error, in the published table, in a dump.
 *
 * A report is made in a signal's handler, or on the way to abort. Nothing is allocated, no lock of libc's is taken (the
 * unwinder's look-up has none with glibc 2.35 and newer), and what is large is static: a handler's stack may be small.
 * Addresses are told by file and offset, as `addr2line -e FILE OFFSET` takes them; names and lines are the tool's work.
 *
 * Threads:   any, one report at a time (reporter.h).
 */
#include "watch/guard.h"

#include "base/text.h"
#include "heap/heap.h"
#include "os/descriptor.h"
#include "os/mappings.h"
#include "os/os.h"
#include "watch/cfi.h"
#include "watch/crash.h"
#include "watch/reporter.h"
#include "watch/sampler.h"

#include <string.h>

enum { FAULTS = 16, FILES = 64, PATH_BYTES = 192, MAPS_BYTES = 8192, LINE_BYTES = 512, ELF_TYPE = 16, ELF_FIXED = 2, TRIES = 16 };

static struct hak_guard_fault faults[FAULTS];
static struct hak_reporter reporter;

/* What a report is made with; the reporter's. */
static struct {
    char maps[MAPS_BYTES];
    struct file {
        char path[PATH_BYTES];
        uintptr_t base, low, high;
        bool is_fixed; /* its addresses are the file's own */
    } file[FILES];
    uint32_t file_count;
    struct hak_guard_event at; /* of who reports */
    struct hak_guard_row was;  /* the block's */
    uint32_t row;              /* its place in the table */
} work;

/* --- addresses as files and offsets --- */

static bool is_wanted(const struct hak_guard_event *event, uintptr_t low, uintptr_t high) {
    for (uint32_t i = 0; i < event->frame_count; i++)
        if (event->frame[i] - low < high - low) return true;
    return false;
}

/* A file's mappings stand one behind another; the one with its beginning says where its addresses count from. */
static bool mapping_note(const struct hak_mapping *mapping, void *context) {
    static uintptr_t base;
    static char base_path[PATH_BYTES];
    const struct hak_guard_event *const *events = context;
    if (mapping->path[0] != '/' && mapping->path[0] != '[') return true;
    if (mapping->offset == 0) {
        base = mapping->low;
        strncpy(base_path, mapping->path, sizeof base_path - 1);
    }
    bool wanted = false;
    for (; *events; events++) wanted |= is_wanted(*events, mapping->low, mapping->high);
    if (!wanted || work.file_count == FILES) return true;
    struct file *file = &work.file[work.file_count++];
    unsigned char head[ELF_TYPE + 2];
    strncpy(file->path, mapping->path, sizeof file->path - 1);
    file->low = mapping->low;
    file->high = mapping->high;
    file->base = strcmp(base_path, file->path) == 0 ? base : mapping->low - (uintptr_t)mapping->offset;
    file->is_fixed = hak_os_read_self(file->base, head, sizeof head) && head[1] == 'E' && head[ELF_TYPE] == ELF_FIXED;
    return true;
}

static void files_find(const struct hak_guard_event *const *events) {
    memset(work.file, 0, sizeof work.file);
    work.file_count = 0;
    hak_os_mappings(work.maps, sizeof work.maps, mapping_note, (void *)(uintptr_t)events);
}

static void frame_text(struct hak_text *text, uint64_t address) {
    for (uint32_t i = 0; i < work.file_count; i++) {
        const struct file *file = &work.file[i];
        if (address - file->low >= file->high - file->low) continue;
        hak_text_char(text, ' ');
        hak_text_foreign(text, file->path, PATH_BYTES);
        hak_text_format(text, "+0x%lx", file->is_fixed ? address : address - file->base);
        return;
    }
}

/* --- lines --- */

static void line_write(struct hak_text *text) {
    hak_text_char(text, '\n');
    hak_text_end_line(text);
    hak_os_note(2, text->at, hak_text_held(text));
    text->used = 0;
}

static void duration_text(struct hak_text *text, uint64_t ns) {
    uint64_t us = ns / 1000;
    if (us < 1000) hak_text_format(text, "%lu us", us);
    else if (us < 1000000) hak_text_format(text, "%lu.%03lu ms", us / 1000, us % 1000);
    else hak_text_format(text, "%lu.%03lu s", us / 1000000, us / 1000 % 1000);
}

static void event_write(const char *what, const struct hak_guard_event *event, uint64_t until_ns) {
    char bytes[LINE_BYTES];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_format(&text, "hakmem:   %s by thread %u (", what, event->tid);
    hak_text_foreign(&text, event->name, sizeof event->name);
    hak_text_str(&text, ")");
    if (until_ns > event->time_ns) {
        hak_text_str(&text, ", ");
        duration_text(&text, until_ns - event->time_ns);
        hak_text_str(&text, " before");
    }
    hak_text_str(&text, event->frame_count ? ", at" : ", at an unknown place");
    line_write(&text);
    for (uint32_t i = 0; i < event->frame_count; i++) {
        hak_text_format(&text, "hakmem:     #%u 0x%lx", i, event->frame[i]);
        frame_text(&text, event->frame[i]);
        line_write(&text);
    }
}

static const char *const deeds[] = { "touched", "read", "written", "jumped to", "passed to the library" };

/* The row as it is now: other threads go on, and its place is the next block's when they like. Who writes it may be the thread that
 * faulted, and never come to its end: then it is taken as it stands. */
static const struct hak_guard_row *row_keep(const struct hak_guard_row *row) {
    work.row = UINT32_MAX;
    if (!row) return NULL;
    work.row = (uint32_t)(row - (const struct hak_guard_row *)(uintptr_t)hakmem_published.guards.address);
    for (unsigned tries = 0; tries < TRIES; tries++) {
        uint32_t sequence = __atomic_load_n(&row->sequence, __ATOMIC_ACQUIRE); /* pairs with hak_row_write_end() */
        work.was = *row;
#ifndef __SANITIZE_THREAD__ /* which knows no fences */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
        if (sequence % 2 == 0 && __atomic_load_n(&row->sequence, __ATOMIC_RELAXED) == sequence) break;
    }
    return &work.was;
}

static void publish(const struct hak_guard_row *row, const void *address, enum hak_guard_kind kind, enum hak_guard_access access) {
    struct hak_published *published = &hakmem_published;
    uint64_t at = __atomic_fetch_add(&published->guard_found, 1, __ATOMIC_RELAXED);
    if (at >= FAULTS) return;
    struct hak_guard_fault *fault = &faults[at];
    hak_row_write_begin(&fault->sequence);
    fault->kind = kind;
    fault->access = access;
    fault->row = work.row;
    fault->address = (uintptr_t)address;
    fault->at = work.at;
    if (row) fault->was = *row;
    hak_row_write_end(&fault->sequence);
    published->guard_faults = (struct hak_table){ (uintptr_t)faults, sizeof *faults, FAULTS, at + 1 };
}

/* The stacks, behind the first line; the row is as row_keep() gave it. */
static void report(const struct hak_guard_row *row, const void *address, enum hak_guard_kind kind, enum hak_guard_access access) {
    const struct hak_guard_event *events[4] = { &work.at, NULL };
    uint64_t now_ns = work.at.time_ns;
    if (row) {
        events[1] = &row->alloc;
        if (row->free.tid) events[2] = &row->free;
    }
    publish(row, address, kind, access);
    files_find(events);
    event_write(deeds[access], &work.at, 0);
    if (row && row->free.tid && row->free.time_ns != now_ns) event_write("freed", &row->free, now_ns);
    if (row) event_write("allocated", &row->alloc, now_ns);
    char bytes[LINE_BYTES], path[LINE_BYTES];
    struct hak_text text = HAK_TEXT(bytes);
    int error = hak_watch_dump_guard(path, sizeof path);
    if (error > 0) return; /* none is wanted */
    hak_text_str(&text, error ? "hakmem:   no dump could be written to " : "hakmem:   `hakmem guard ");
    hak_text_foreign(&text, path, sizeof path);
    if (!error) hak_text_str(&text, "` names functions and lines");
    line_write(&text);
}

static bool begin(void) {
    if (!hak_reporter_begin(&reporter, hak_reporter_me())) return false;
    hak_guard_event_begin(&work.at);
    return true;
}

static void end(void) { hak_reporter_end(&reporter); }

/* --- what was done --- */

static void place_text(struct hak_text *text, const struct hak_guard_row *row, uintptr_t address) {
    const char *freed = row->state == HAK_GUARD_FREED ? "freed " : "";
    if (address < row->block)
        hak_text_format(text, "%lu bytes before a %sblock of %lu bytes at %p", row->block - address, freed, row->requested_bytes,
                        (void *)(uintptr_t)row->block);
    else
        hak_text_format(text, "byte %lu of a %sblock of %lu bytes at %p", address - row->block, freed, row->requested_bytes,
                        (void *)(uintptr_t)row->block);
}

static enum hak_guard_kind kind_of(const struct hak_guard_row *row, uintptr_t address) {
    if (!row) return HAK_GUARD_OTHER;
    if (row->state == HAK_GUARD_FREED) return HAK_GUARD_AFTER_FREE;
    return address < row->block ? HAK_GUARD_UNDERFLOW : HAK_GUARD_OVERFLOW;
}

static const char *const kind_names[] = { "", "heap buffer overflow", "heap buffer underflow", "use after free", "double free",
                                          "invalid free", "wild access between guarded blocks" };

static void on_crash(const struct hak_crash *crash) {
    static const char access_names[][12] = { "access to", "read of", "write to", "jump to" };
    if (!crash) { /* its report was left by a fault */
        if (hak_reporter_is(&reporter, hak_reporter_me())) end();
        return;
    }
    const void *address = (const void *)crash->address;
    if (!hak_guard_holds(address) || !begin()) return;
    const struct hak_guard_row *row = row_keep(hak_guard_near(address));
    enum hak_guard_kind kind = kind_of(row, crash->address);
    char bytes[LINE_BYTES];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_format(&text, "hakmem: %s: %s %p", kind_names[kind], access_names[crash->access], address);
    if (row) {
        hak_text_str(&text, ", ");
        place_text(&text, row, crash->address);
    }
    line_write(&text);
    struct hak_stack_here here = { crash->instruction, crash->stack, crash->frame };
    if (crash->access == HAK_CRASH_JUMP) hak_cfi_jumped(crash->instruction);
    work.at.frame_count = hak_stack_frames_of_signal(here, work.at.frame, HAK_GUARD_FRAMES_MAX);
    report(row, address, kind, (enum hak_guard_access)crash->access);
    end();
}

void hak_guard_listen(void) { hak_crash_listen(on_crash, !hak_os_is_forked()); }
void hak_guard_listen_in_child(void) { hak_crash_listen(on_crash, true); }

static void here_fill(struct hak_stack_here here) {
    struct hak_stack_bounds bounds = { 0, 0 };
    work.at.frame_count = hak_stack_frames(here, &bounds, work.at.frame, HAK_GUARD_FRAMES_MAX);
}

void hak_guard_misused(const void *address, bool frees, struct hak_stack_here here) {
    if (!begin()) return;
    const struct hak_guard_row *row = row_keep(hak_guard_near(address));
    bool is_freed = row && row->state == HAK_GUARD_FREED && row->block == (uintptr_t)address;
    if (row && row->block != (uintptr_t)address) {
        char bytes[LINE_BYTES];
        struct hak_text text = HAK_TEXT(bytes);
        hak_text_format(&text, "hakmem:   %p is ", address);
        place_text(&text, row, (uintptr_t)address);
        line_write(&text);
    }
    here_fill(here);
    report(row, address, !is_freed ? HAK_GUARD_BAD_FREE : frees ? HAK_GUARD_DOUBLE_FREE : HAK_GUARD_AFTER_FREE, HAK_GUARD_FREE);
    end();
}

void hak_guard_overwritten(struct hak_guard_row *row, const char *byte) {
    bool is_before = (uintptr_t)byte < row->block;
    enum hak_guard_kind kind = is_before ? HAK_GUARD_UNDERFLOW : HAK_GUARD_OVERFLOW;
    char bytes[LINE_BYTES];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_format(&text, "hakmem: %s, found by free: ", kind_names[kind]);
    if (is_before) hak_text_format(&text, "%p was written to, %lu bytes before a block of %lu bytes at %p", (const void *)byte,
                                   row->block - (uintptr_t)byte, row->requested_bytes, (void *)(uintptr_t)row->block);
    else hak_text_format(&text, "%p was written to, byte %lu of a block of %lu bytes at %p", (const void *)byte,
                         (uintptr_t)byte - row->block, row->requested_bytes, (void *)(uintptr_t)row->block);
    bool is_begun = begin();
    line_write(&text); /* also where another thread's report goes on */
    if (is_begun) {
        const struct hak_guard_row *kept = row_keep(row);
        work.at = kept->free;
        report(kept, byte, kind, HAK_GUARD_FREE);
        end();
    }
    hak_os_abort();
}
