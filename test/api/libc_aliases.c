/* libc_aliases.c - the names under which libraries reach glibc's malloc all lead to the same allocator.
 *
 * Owns:   nothing.
 * Why:    a block from one name may be freed by any other; were one left to glibc, that free would abort.
 */
#include "expect.h"

#include <dlfcn.h>
#include <hakmem/hakmem.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *ptr, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void *__libc_valloc(size_t size);
extern void *__libc_pvalloc(size_t size);
extern void __libc_free(void *ptr);

static void *(*volatile libc_malloc)(size_t) = __libc_malloc;
static void *(*volatile libc_calloc)(size_t, size_t) = __libc_calloc;
static void *(*volatile libc_realloc)(void *, size_t) = __libc_realloc;
static void *(*volatile libc_memalign)(size_t, size_t) = __libc_memalign;
static void *(*volatile libc_valloc)(size_t) = __libc_valloc;
static void *(*volatile libc_pvalloc)(size_t) = __libc_pvalloc;
static void (*volatile libc_free)(void *) = __libc_free;

static void blocks_of_one_name_are_freed_by_the_other(void)
{
    for (size_t size = 0; size < (size_t)8 << 20; size += size / 3 + 1) {
        void *blocks[6] = {libc_malloc(size), libc_calloc(1, size), libc_realloc(NULL, size), libc_memalign(64, size),
                           libc_valloc(size), libc_pvalloc(size)};
        for (int i = 0; i < 6; i++) {
            REQUIRE(blocks[i] != NULL);
            EXPECT(malloc_usable_size(blocks[i]) >= size);
            memset(blocks[i], i, size);
        }
        for (int i = 0; i < 6; i++) {
            blocks[i] = realloc(blocks[i], size + 10);
            EXPECT(size == 0 || *(char *)blocks[i] == (char)i);
            free(blocks[i]);
        }
        void *block = malloc(size);
        block = libc_realloc(block, size * 2 + 1);
        libc_free(block);
        block = memalign(4096, size);
        libc_free(block);
    }
    libc_free(NULL);
}

static void every_name_refuses_too_large_sizes(void)
{
    volatile size_t size = (size_t)PTRDIFF_MAX + 1;
    errno = 0;
    EXPECT(libc_malloc(size) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(libc_calloc(size, 2) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(libc_realloc(NULL, size) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(libc_memalign(64, size) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(libc_valloc(size) == NULL && errno == ENOMEM);
    errno = 0;
    EXPECT(libc_pvalloc(SIZE_MAX) == NULL && errno == ENOMEM);
}

/* A program that finds a name at run time must find ours: who serves a name decides which free takes it. */
static char program_itself;
static void every_name_is_served_by_the_same_object(void)
{
    static const char *const names[] = {
        "malloc", "calloc", "realloc", "free", "reallocarray", "posix_memalign", "aligned_alloc", "memalign",
        "valloc", "pvalloc", "malloc_usable_size",
#ifdef __GLIBC__
        "malloc_trim", "malloc_stats", "malloc_info", "mallopt", "mallinfo", "mallinfo2",
#endif
        "free_sized", "free_aligned_sized", "__libc_malloc", "__libc_calloc",
        "__libc_realloc", "__libc_free", "__libc_memalign", "__libc_valloc", "__libc_pvalloc",
        "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t",
        "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t", "_ZdlPvSt11align_val_t",
        "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
        "_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t",
        "hak_version", "hak_alloc_at", "hak_free_at", "hak_site_stats", "hak_alloc_at_least", "hak_expand",
        "hak_usable_size", "hak_good_size", "hak_collect", "hak_stats_get", "hak_stats_json", "hak_option_set",
        "hak_option_get"};
    Dl_info ours = {0}, info = {0}, program = {0};
#ifndef __GLIBC__
    if (dladdr((void *)(uintptr_t)&program_itself, &program) == 0) return; /* a static program has no names */
#endif
    REQUIRE(dladdr((void *)(uintptr_t)&hak_version, &ours) != 0);
    REQUIRE(dladdr((void *)(uintptr_t)&program_itself, &program) != 0);
    bool is_static = strcmp(ours.dli_fname, program.dli_fname) == 0; /* then only what libc asks for is visible */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *address = dlsym(RTLD_DEFAULT, names[i]);
        EXPECT_SAY(address != NULL || is_static, "%s is missing", names[i]);
        if (is_static && strcmp(names[i], "malloc") != 0 && strcmp(names[i], "free") != 0)
            continue;
        if (address == NULL || dladdr(address, &info) == 0)
            continue;
        EXPECT_SAY(strcmp(info.dli_fname, ours.dli_fname) == 0, "%s is in %s", names[i], info.dli_fname);
    }
}

/* cfree left glibc in 2.26; where the symbol exists it must be ours. */
static void cfree_frees_where_it_exists(void)
{
    void (*cfree_found)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "cfree");
    if (cfree_found != NULL)
        cfree_found(malloc(100));
}

int main(void)
{
    RUN(blocks_of_one_name_are_freed_by_the_other);
    RUN(every_name_refuses_too_large_sizes);
    RUN(every_name_is_served_by_the_same_object);
    RUN(cfree_frees_where_it_exists);
    return EXPECT_RESULT();
}
