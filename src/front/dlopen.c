/* dlopen.c - who looks malloc's names up in libc itself finds ours there, so that all blocks of the process are of one kind.
 *
 * A library that is loaded with RTLD_DEEPBIND (all extensions of PHP, those of Julia) searches itself and what it needs before the
 * program and what is preloaded: its malloc and free are libc's. But libc's own strdup, getline and getaddrinfo call ours, and so does
 * who hands blocks to it: it frees what libc does not know, and ends. The same happens to who opens libc.so.6 by name and asks for
 * its free (Python's ctypes, P/Invoke of .NET, and Java, whose libsyslookup.so needs libc). So before the first such call the names in
 * libc's table of symbols are led to us (os/loaded.h): it costs pages of that table, 60 KB, and programs that do neither pay nothing.
 *
 * Owns:      nothing.
 * Threads:   any.
 * Only in libhakmem.so: an archive that defines dlopen would be in the way of static programs.
 * The call:  the next dlopen is left to by a jump, because the loader asks whose call it is: it searches that one's RUNPATH.
 * Rejected:  leaving RTLD_DEEPBIND out: who asks for it may have its own version of what the program has, too. Writing into the loaded
 *            library's table: its constructors have run by then, and have blocks of libc's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEEPBIND */
#endif
#include "base/atomic.h"
#include "base/attr.h"
#include "os/loaded.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

typedef void *dlopen_function(const char *file, int mode);
typedef void *dlsym_function(void *handle, const char *name);
typedef void *dlvsym_function(void *handle, const char *name, const char *version);
typedef void *dlmopen_function(Lmid_t space, const char *file, int mode);

/* libc's, and ours under the same names. */
void __libc_free(void *);
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void *__libc_valloc(size_t), *__libc_pvalloc(size_t);
int __posix_memalign(void **, size_t, size_t);
void __libc_cfree(void *), cfree(void *);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
#define NAME(function) { #function, (void *)(function) }
static const struct hak_loaded_name names[] = {
    NAME(malloc), NAME(calloc), NAME(realloc), NAME(free), NAME(reallocarray),
    NAME(posix_memalign), NAME(aligned_alloc), NAME(memalign), NAME(valloc), NAME(pvalloc), NAME(cfree), NAME(malloc_usable_size),
    NAME(malloc_trim), NAME(mallinfo), NAME(mallinfo2), NAME(mallopt), NAME(malloc_info), NAME(malloc_stats),
    NAME(__libc_malloc), NAME(__libc_calloc), NAME(__libc_realloc), NAME(__libc_free), NAME(__libc_cfree),
    NAME(__libc_memalign), NAME(__libc_valloc), NAME(__libc_pvalloc), NAME(__posix_memalign),
};

/* Opened for its functions, and not to be searched after the program's. */
static bool names_libc(const char *file) {
    if (!file) return false;
    const char *name = strrchr(file, '/');
    name = name ? name + 1 : file;
    return strncmp(name, "libc.so", 7) == 0 || strncmp(name, "libsyslookup.so", 15) == 0;
}

/* Not if the program has a malloc of its own, which is in force then: what libc hands out is its. */
static HAK_COLD void redirect(void) {
    static _Atomic bool is_done;
    if (hak_load_acquire(&is_done)) return;
    bool is_ours = hak_loaded_function("malloc") == (void *)malloc;
    if (!is_ours || hak_loaded_redirect("gnu_get_libc_version", names, sizeof names / sizeof *names)) hak_store_release(&is_done, true);
}

/* The same for who asks for one of the names by the handle of any library, whose dependencies are searched as well (ctypes' lib.free). */
static bool names_ours(const char *name) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].name[0] == name[0] && strcmp(names[i].name, name) == 0) return true;
    return false;
}

/* The function of that name behind ours. */
static void *next_of(_Atomic(void *) *known, const char *name, const void *ours) {
    void *next = hak_load_relaxed(known);
    if (next) return next;
    next = hak_loaded_next(name, ours);
    hak_store_relaxed(known, next);
    return next;
}

HAK_EXPORT void *dlsym(void *handle, const char *name) {
    static _Atomic(void *) known;
    dlsym_function *next = (dlsym_function *)next_of(&known, "dlsym", (const void *)dlsym);
    if (handle != RTLD_NEXT && handle != RTLD_DEFAULT && names_ours(name)) redirect();
    return next ? next(handle, name) : NULL; /* a jump: RTLD_NEXT is behind the caller */
}

HAK_EXPORT void *dlvsym(void *handle, const char *name, const char *version) {
    static _Atomic(void *) known;
    dlvsym_function *next = (dlvsym_function *)next_of(&known, "dlvsym", (const void *)dlvsym);
    if (handle != RTLD_NEXT && handle != RTLD_DEFAULT && names_ours(name)) redirect();
    return next ? next(handle, name, version) : NULL; /* a jump */
}

HAK_EXPORT void *dlmopen(Lmid_t space, const char *file, int mode) {
    static _Atomic(void *) known;
    dlmopen_function *next = (dlmopen_function *)next_of(&known, "dlmopen", (const void *)dlmopen);
    if (space == LM_ID_BASE && ((mode & RTLD_DEEPBIND) || names_libc(file))) redirect();
    return next ? next(space, file, mode) : NULL;
}

HAK_EXPORT void *dlopen(const char *file, int mode) {
    static _Atomic(void *) known;
    dlopen_function *next = (dlopen_function *)next_of(&known, "dlopen", (const void *)dlopen);
    if ((mode & RTLD_DEEPBIND) || names_libc(file)) redirect();
    return next ? next(file, mode) : NULL; /* a jump */
}
