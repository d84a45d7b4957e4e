/* loaded.c - symbols looked up in the hash tables of the libraries that are mapped, and led elsewhere.
 *
 * Owns:      nothing. Writes the values of symbols in the table of another library where it is asked to: pages of that file
 *            that become this process's own.
 * Threads:   any; the loader's lock is held while its list is walked.
 * Source:    the layout of DT_GNU_HASH as in glibc, elf/dl-lookup.c.
 * Rejected:  dlopen with RTLD_NOLOAD and dlsym: they want the library's name, and in a static link the linker warns
 *            of the mere reference.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "os/loaded.h"

#include "base/word.h"
#include "os/os.h"

#include <elf.h>
#include <link.h>

struct search {
    const char *name;
    uint32_t hash;
    void *found;
    const void *inside; /* hak_loaded_next: the library that is passed over, and whether it was met */
    bool is_behind;
    void *before;
};

struct tables {
    const uint32_t *hash; /* DT_GNU_HASH */
    const ElfW(Sym) *symbols;
    const char *names;
};

static uint32_t name_hash(const char *name) {
    uint32_t hash = 5381;
    for (; *name; name++) hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static bool names_equal(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

/* glibc has made the addresses absolute, other loaders leave them as they are in the file. */
static const void *table_at(uintptr_t base, uintptr_t address) {
    return (const void *)(address < base ? base + address : address);
}

static struct tables tables_of(const struct dl_phdr_info *library) {
    struct tables tables = { NULL, NULL, NULL };
    const ElfW(Dyn) *row = NULL;
    for (unsigned i = 0; i < library->dlpi_phnum; i++)
        if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
            row = (const ElfW(Dyn) *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
    for (; row && row->d_tag != DT_NULL; row++) {
        const void *table = table_at(library->dlpi_addr, row->d_un.d_ptr);
        if (row->d_tag == DT_GNU_HASH) tables.hash = table;
        if (row->d_tag == DT_SYMTAB) tables.symbols = table;
        if (row->d_tag == DT_STRTAB) tables.names = table;
    }
    return tables;
}

static const ElfW(Sym) *symbol_find(const struct tables *tables, const char *name, uint32_t name_hashed) {
    uint32_t bucket_count = tables->hash[0], first = tables->hash[1], filter_words = tables->hash[2];
    const uint32_t *buckets = tables->hash + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    if (!bucket_count) return NULL;
    for (uint32_t i = buckets[name_hashed % bucket_count]; i >= first; i++) {
        const ElfW(Sym) *symbol = &tables->symbols[i];
        uint32_t hash = chain[i - first];
        if ((hash | 1) == (name_hashed | 1) && symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && names_equal(tables->names + symbol->st_name, name))
            return symbol;
        if (hash & 1) break; /* the last of its bucket */
    }
    return NULL;
}

static bool tables_there(const struct tables *tables) { return tables->hash && tables->symbols && tables->names; }

static void *library_function(const struct dl_phdr_info *library, const struct search *search) {
    struct tables tables = tables_of(library);
    const ElfW(Sym) *symbol = tables_there(&tables) ? symbol_find(&tables, search->name, search->hash) : NULL;
    return symbol ? (void *)(library->dlpi_addr + symbol->st_value) : NULL;
}

static int library_search(struct dl_phdr_info *library, size_t bytes, void *context) {
    (void)bytes;
    struct search *search = context;
    search->found = library_function(library, search);
    return search->found != NULL;
}

void *hak_loaded_function(const char *name) {
    struct search search = { .name = name, .hash = name_hash(name) };
    dl_iterate_phdr(library_search, &search);
    return search.found;
}

/* The part of the library that holds the address, or NULL. */
static const ElfW(Phdr) *part_of(const struct dl_phdr_info *library, uintptr_t address) {
    for (unsigned i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && address - (library->dlpi_addr + part->p_vaddr) < part->p_memsz) return part;
    }
    return NULL;
}

static int library_search_next(struct dl_phdr_info *library, size_t bytes, void *context) {
    (void)bytes;
    struct search *search = context;
    if (part_of(library, (uintptr_t)search->inside)) {
        search->is_behind = true;
        return 0;
    }
    void *function = library_function(library, search);
    if (search->is_behind) search->found = function;
    else if (!search->before) search->before = function;
    return search->found != NULL;
}

void *hak_loaded_next(const char *name, const void *inside) {
    struct search search = { .name = name, .hash = name_hash(name), .inside = inside };
    dl_iterate_phdr(library_search_next, &search);
    return search.found ? search.found : search.before;
}

/* --- another function in its place ------------------------------------------------------------------------ */

struct redirect {
    const char *mark;
    const struct hak_loaded_name *names;
    size_t count;
    bool is_done;
};

/* Where the symbol's value is to stand; NULL: no such symbol, or it has that value. */
static ElfW(Addr) *value_place(const struct dl_phdr_info *library, const struct tables *tables, const struct hak_loaded_name *name) {
    const ElfW(Sym) *symbol = symbol_find(tables, name->name, name_hash(name->name));
    bool is_other = symbol && symbol->st_value != (uintptr_t)name->function - library->dlpi_addr;
    return is_other ? (ElfW(Addr) *)&symbol->st_value : NULL;
}

static int library_redirect(struct dl_phdr_info *library, size_t bytes, void *context) {
    (void)bytes;
    struct redirect *redirect = context;
    struct tables tables = tables_of(library);
    if (!tables_there(&tables) || !symbol_find(&tables, redirect->mark, name_hash(redirect->mark))) return 0;
    uintptr_t first = UINTPTR_MAX, last = 0;
    for (size_t i = 0; i < redirect->count; i++) {
        uintptr_t place = (uintptr_t)value_place(library, &tables, &redirect->names[i]);
        if (place && place < first) first = place;
        if (place > last) last = place;
    }
    redirect->is_done = last == 0;
    if (redirect->is_done) return 1;
    const ElfW(Phdr) *part = part_of(library, first);
    if (!part || part != part_of(library, last)) return 1;
    bool is_code = part->p_flags & PF_X, was_open = part->p_flags & PF_W; /* older linkers put the tables before the code */
    uintptr_t start = hak_round_down(first, hak_os_page_bytes());
    size_t length = hak_round_up(last + sizeof(ElfW(Addr)), hak_os_page_bytes()) - start;
    if (hak_os_protect_file((void *)start, length, true, is_code) != 0) return 1;
    for (size_t i = 0; i < redirect->count; i++) {
        ElfW(Addr) *place = value_place(library, &tables, &redirect->names[i]);
        if (place) __atomic_store_n(place, (uintptr_t)redirect->names[i].function - library->dlpi_addr, __ATOMIC_RELAXED);
    }
    if (!was_open) hak_os_protect_file((void *)start, length, false, is_code);
    redirect->is_done = true;
    return 1;
}

bool hak_loaded_redirect(const char *mark, const struct hak_loaded_name *names, size_t count) {
    struct redirect redirect = { mark, names, count, false };
    dl_iterate_phdr(library_redirect, &redirect); /* one thread at a time */
    return redirect.is_done;
}
