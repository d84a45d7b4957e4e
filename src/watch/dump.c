/* dump.c - everything that a reader would see, in one file: docs/recording.md has the format.
 *
 * Open, write and rename only, with a few KiB of stack: it works when memory is short, in a visit of any thread, and when
 * the program ends. Nothing is symbolised here; the maps and the first pages of the files that are mapped (in which their
 * build ids stand) say what addresses mean.
 *
 * Threads:   any, one at a time: a second one goes away with -EBUSY.
 */
#include "watch/sampler.h"

#include "base/text.h"
#include "os/descriptor.h"
#include "os/mappings.h"
#include "os/os.h"
#include "rules/options.h"
#include "watch/alone.h"

#include <errno.h>
#include <string.h>

enum { PATH_MAX_BYTES = 512, PIECE = 4096 };

/* In front of each section. `name` says what it is; sections of the same name and kind TEXT belong together. */
struct section {
    char name[16];
    uint64_t kind; /* 1 text, 2 memory at `address` */
    uint64_t address, bytes;
};
enum { TEXT = 1, MEMORY = 2 };

static const char dump_magic[16] = "HAKMEM DUMP 1\n\n";
#if defined(__x86_64__)
static const char machine[] = "x86_64";
#elif defined(__aarch64__)
static const char machine[] = "aarch64";
#endif

static int section_write(int fd, const char *name, unsigned kind, uintptr_t address, const void *bytes, size_t count) {
    struct section head = { .kind = kind, .address = address, .bytes = count };
    for (unsigned i = 0; i < sizeof head.name - 1 && name[i]; i++) head.name[i] = name[i];
    int error = hak_os_write_all(fd, &head, sizeof head);
    return error ? error : hak_os_write_all(fd, bytes, count);
}

static int memory_write(int fd, const char *name, const void *bytes, size_t count) {
    return count ? section_write(fd, name, MEMORY, (uintptr_t)bytes, bytes, count) : 0;
}

static int table_write(int fd, const char *name, const struct hak_table *table) {
    return memory_write(fd, name, (const void *)(uintptr_t)table->address, table->used * table->row_bytes);
}

static int file_copy(int fd, const char *name, const char *path) {
    static char bytes[PIECE];
    int from = hak_os_open_read(path), error = 0;
    if (from < 0) return 0; /* no /proc: the dump says less */
    for (long got; !error && (got = hak_os_read(from, bytes, sizeof bytes)) > 0;)
        error = section_write(fd, name, TEXT, 0, bytes, (size_t)got);
    hak_os_close(from);
    return error;
}

/* The first page of each mapped file: ELF header, program headers, build id. Read through the kernel, which refuses where
 * memory is gone meanwhile. */
struct files {
    int fd, error;
};

static bool file_write(const struct hak_mapping *mapping, void *context) {
    static char page[PIECE];
    struct files *files = context;
    bool is_start = mapping->offset == 0 && mapping->path[0] == '/';
    if (is_start && hak_os_read_self(mapping->low, page, sizeof page) && memcmp(page, "\177ELF", 4) == 0)
        files->error = section_write(files->fd, "file", MEMORY, mapping->low, page, sizeof page);
    return !files->error;
}

static int files_write(int fd) {
    static char text[PIECE]; /* who writes a dump is alone; it may be on a small stack, in a signal's handler */
    struct files files = { fd, 0 };
    hak_os_mappings(text, sizeof text, file_write, &files);
    return files.error;
}

/* Chunk structs, slab headers and the rows that are in use: who lives on which page. */
static int slabs_write(int fd) {
    uint64_t top = hak_load_acquire(&hak_chunk_top);
    int error = memory_write(fd, "chunk_top", &hak_chunk_top, sizeof hak_chunk_top);
    for (size_t number = 0; number < top && !error; number++) {
        uint64_t live = hak_chunk_slabs(number);
        if (!hak_unit_ready(number)) continue;
        error = memory_write(fd, "chunk", hak_chunk_at(number), sizeof(struct hak_chunk));
        size_t end = 0;
        for (uint64_t left = live; left; left &= left - 1) {
            const struct hak_slab *slab = hak_slab_at(number * HAK_CHUNK_GRANULES + hak_word_first(left));
            size_t line = slab->owner_line > slab->remote_line ? slab->owner_line : slab->remote_line;
            size_t bytes = line * HAK_LINE + sizeof(struct hak_row) + hak_slab_class(slab)->word_count * 8u;
            if (bytes > end) end = bytes;
        }
        if (end > HAK_META_BYTES) end = HAK_META_BYTES;
        if (end && !error) error = memory_write(fd, "slabs", (const void *)hak_meta_at(number), end);
    }
    return error;
}

/* As they are now. */
static int options_write(int fd) {
    int error = 0;
    for (unsigned i = 0; i < HAK_OPTION_COUNT && !error; i++) {
        const struct hak_option_row *row = &hak_option_rows[i];
        const char *field = (const char *)&hak_options + row->offset;
        char line[sizeof row->name + HAK_OPTION_TEXT_BYTES + 2];
        struct hak_text text = HAK_TEXT(line);
        hak_text_format(&text, "%s ", row->name);
        if (row->is_text) hak_text_format(&text, "%s\n", field);
        else hak_text_format(&text, "%lu\n", __atomic_load_n((const uint64_t *)(const void *)field, __ATOMIC_RELAXED));
        error = section_write(fd, "options", TEXT, 0, line, hak_text_held(&text));
    }
    return error;
}

static int all_write(int fd, const char *reason) {
    struct hak_published *published = &hakmem_published;
    char line[320];
    struct hak_text text = HAK_TEXT(line);
    hak_text_format(&text, "reason %s\npid %u\nmonotonic_ns %lu\nrealtime_ns %lu\npublished %p\nresident_bytes %zu\n", reason,
                    hak_os_pid(), hak_os_clock_ns(), hak_os_clock_realtime_ns(), (void *)published, hak_os_resident_bytes());
    hak_text_format(&text, "machine %s\nprocessors %u\npage_bytes %zu\n", machine, hak_os_processors(), hak_os_page_bytes());
    int error = hak_os_write_all(fd, dump_magic, sizeof dump_magic);
    if (!error) error = section_write(fd, "about", TEXT, 0, line, hak_text_held(&text));
    if (!error) error = file_copy(fd, "host", "/proc/sys/kernel/hostname");
    if (!error) error = file_copy(fd, "kernel", "/proc/sys/kernel/osrelease");
    if (!error) error = file_copy(fd, "meminfo", "/proc/meminfo");
    if (!error) error = options_write(fd);
    if (!error) error = file_copy(fd, "cmdline", "/proc/thread-self/cmdline");
    if (!error) error = file_copy(fd, "maps", "/proc/thread-self/maps");
    if (!error) error = memory_write(fd, "published", published, sizeof *published);
    const struct {
        const char *name;
        const struct hak_table *table;
    } all[] = { { "stacks", &published->stacks },     { "frames", &published->frames },   { "live", &published->live },
                { "threads", &published->threads },   { "timeline", &published->timeline }, { "classes", &published->classes },
                { "guards", &published->guards },     { "guard_faults", &published->guard_faults },
                { "counter_names", &published->counter_names }, { "counters", &published->counters } };
    for (unsigned i = 0; i < sizeof all / sizeof *all && !error; i++) error = table_write(fd, all[i].name, all[i].table);
    if (!error) error = slabs_write(fd);
    if (!error) error = files_write(fd);
    if (!error) error = section_write(fd, "end", TEXT, 0, "", 0);
    return error;
}

/* --- its name --- */

static void name_program(struct hak_text *text) {
    char command[64];
    int fd = hak_os_open_read("/proc/self/comm");
    long got = fd < 0 ? 0 : hak_os_read(fd, command, sizeof command);
    if (fd >= 0) hak_os_close(fd);
    for (long i = 0; i < got && command[i] != '\n'; i++)
        hak_text_char(text, command[i] == '/' || (unsigned char)command[i] <= ' ' ? '_' : command[i]);
    if (got <= 0) hak_text_str(text, "program");
}

static bool is_folder(const char *path) {
    size_t length = strlen(path);
    return length && (path[length - 1] == '/' || hak_os_is_folder(path));
}

void hak_dump_name(struct hak_text *text, const char *path, const char *reason) {
    hak_text_str(text, path);
    if (is_folder(path)) {
        if (path[strlen(path) - 1] != '/') hak_text_char(text, '/');
        name_program(text);
        hak_text_format(text, ".%u.%s.hakdump", hak_os_pid(), reason);
    }
    hak_text_end(text);
}

int hak_dump_write(const char *path, const char *reason) {
    static struct hak_alone busy;
    char name[PATH_MAX_BYTES], fresh[PATH_MAX_BYTES + 8];
    if (!path[0]) return -EINVAL;
    if (!hak_alone_begin(&busy)) return -EBUSY;
    hak_publish_tick(hak_os_clock_ms());
    struct hak_text text = HAK_TEXT(name);
    hak_dump_name(&text, path, reason);
    int error = text.used >= sizeof name - 1 ? -ENAMETOOLONG : 0, fd = error;
    /* what the user named may be a pipe; what has a name of ours in a folder is a file, or somebody's trap */
    if (!error) fd = is_folder(path) ? HAK_DESCRIPTOR_NONE : hak_os_open_standing(name);
    bool standing = fd != HAK_DESCRIPTOR_NONE;
    if (!error && !standing) {
        struct hak_text other = HAK_TEXT(fresh);
        hak_text_format(&other, "%s.%u~", name, hak_os_pid() % 1000000);
        hak_text_end(&other);
        fd = hak_os_open_new(fresh);
    }
    if (!error && fd >= 0) {
        error = all_write(fd, reason);
        if (standing) hak_os_close(fd);
        else error = hak_os_replace(fd, error, fresh, name);
        if (!error) __atomic_fetch_add(&hakmem_published.dumps, 1, __ATOMIC_RELAXED);
    } else if (!error) {
        error = fd;
    }
    hak_alone_end(&busy);
    return error;
}
