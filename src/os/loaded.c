/* loaded.c - symbols looked up in the hash tables of the libraries that are mapped.
 *
 * Owns:      nothing.
 * Threads:   any; the loader's lock is held while its list is walked.
 * Source:    the layout of DT_GNU_HASH as in glibc, elf/dl-lookup.c.
 * Rejected:  dlopen with RTLD_NOLOAD and dlsym: they want the library's name, and in a static link the linker warns
 *            of the mere reference.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "os/loaded.h"

#include <elf.h>
#include <link.h>

struct search {
    const char *name;
    uint32_t hash;
    void *found;
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

static const ElfW(Sym) *symbol_find(const struct tables *tables, const struct search *search) {
    uint32_t bucket_count = tables->hash[0], first = tables->hash[1], filter_words = tables->hash[2];
    const uint32_t *buckets = tables->hash + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    if (!bucket_count) return NULL;
    for (uint32_t i = buckets[search->hash % bucket_count]; i >= first; i++) {
        const ElfW(Sym) *symbol = &tables->symbols[i];
        uint32_t hash = chain[i - first];
        if ((hash | 1) == (search->hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && names_equal(tables->names + symbol->st_name, search->name))
            return symbol;
        if (hash & 1) break; /* the last of its bucket */
    }
    return NULL;
}

static int library_search(struct dl_phdr_info *library, size_t bytes, void *context) {
    (void)bytes;
    struct search *search = context;
    struct tables tables = tables_of(library);
    if (!tables.hash || !tables.symbols || !tables.names) return 0;
    const ElfW(Sym) *symbol = symbol_find(&tables, search);
    if (symbol) search->found = (void *)(library->dlpi_addr + symbol->st_value);
    return search->found != NULL;
}

void *hak_loaded_function(const char *name) {
    struct search search = { name, name_hash(name), NULL };
    dl_iterate_phdr(library_search, &search);
    return search.found;
}
