/* module.c - see module.h. A program without a build-id gets one from its program headers: the same file, the same number. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "os/module.h"
#include "os/os.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

struct walk {
    struct hak_module *rows;
    size_t count, count_max;
};

static size_t note_round(size_t bytes) { return (bytes + 3) & ~(size_t)3; }

static void id_find(struct hak_module *module, const char *at, size_t bytes) {
    while (bytes >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof note);
        size_t name = note_round(note.n_namesz), whole = sizeof note + name + note_round(note.n_descsz);
        if (note.n_namesz > bytes || note.n_descsz > bytes || whole > bytes) return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(at + sizeof note, "GNU", 4) == 0 && note.n_descsz >= 4) {
            module->id_bytes = note.n_descsz < HAK_BUILD_ID_BYTES_MAX ? note.n_descsz : HAK_BUILD_ID_BYTES_MAX;
            memcpy(module->id, at + sizeof note + name, module->id_bytes);
            return;
        }
        at += whole;
        bytes -= whole;
    }
}

static void id_make(struct hak_module *module, const void *headers, size_t bytes) {
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ ((const unsigned char *)headers)[i]) * UINT64_C(0x100000001b3);
    memcpy(module->id, &sum, sizeof sum);
    module->id_bytes = sizeof sum;
}

static int module_add(struct dl_phdr_info *info, size_t bytes, void *context) {
    (void)bytes;
    struct walk *walk = context;
    struct hak_module *module = &walk->rows[walk->count];
    memset(module, 0, sizeof *module);
    module->base = info->dlpi_addr;
    module->start = UINTPTR_MAX;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD) {
            if (start < module->start) module->start = start;
            if (start + part->p_memsz > module->end) module->end = start + part->p_memsz;
        } else if (part->p_type == PT_NOTE && !module->id_bytes) {
            id_find(module, (const char *)start, part->p_memsz);
        }
    }
    if (!module->id_bytes && walk->count == 0) id_make(module, info->dlpi_phdr, info->dlpi_phnum * sizeof(ElfW(Phdr)));
    if (module->end) walk->count++;
    return walk->count == walk->count_max;
}

size_t hak_modules(struct hak_module *rows, size_t count_max) {
    struct walk walk = { rows, 0, count_max };
    if (count_max) dl_iterate_phdr(module_add, &walk);
    return walk.count;
}

uint64_t hak_module_name(const struct hak_module *module) {
    uint64_t name = 0;
    for (unsigned i = 0; i < 8; i++) name = name << 8 | (i < module->id_bytes ? module->id[i] : 0);
    return module->id_bytes ? name : 0;
}

bool hak_path_expand(struct hak_text *text, const char *path) {
    bool is_of_process = false;
    for (; *path; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            hak_text_u64(text, hak_os_pid());
            is_of_process = true;
            path++;
        } else if (path[0] == '%' && path[1] == 'e') {
            char name[65];
            hak_program_name(name, sizeof name);
            hak_text_str(text, name);
            path++;
        } else {
            hak_text_char(text, *path);
            path += path[0] == '%' && path[1] == '%';
        }
    }
    return is_of_process;
}

void hak_program_name(char *bytes, size_t count) {
    const char *path = (const char *)getauxval(AT_EXECFN), *name = path;
    size_t used = 0;
    for (; path && *path; path++)
        if (*path == '/') name = path + 1;
    for (; name && *name && used + 1 < count; name++) {
        char c = *name;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '+' || c == '-';
        bytes[used++] = plain ? c : '_';
    }
    if (!used && count > 1) bytes[used++] = '_';
    bytes[used] = 0;
}
