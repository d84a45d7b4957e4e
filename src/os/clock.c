/* clock.c - the kernel's clocks, asked without libc.
 *
 * clock_gettime() may be another's: libfaketime's stands still or jumps, and would have pages go back never or at once; and it allocates.
 * The kernel's own code for it is in each process (vDSO, vdso(7)), and looked up once.
 *
 * Threads:   any, at any time; two that look it up at once find the same.
 */
#include "os/os.h"

#include "base/atomic.h"
#include "os/syscall.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>

typedef int clock_function(clockid_t clock, struct timespec *now);

static int by_call(clockid_t clock, struct timespec *now) { return (int)HAK_SYS2(SYS_clock_gettime, clock, now); }

/* An image of a few KiB, made by the kernel: symbols, then their names. */
static clock_function *find(void) {
#ifdef __x86_64__
    static const char name[] = "__vdso_clock_gettime";
#else
    static const char name[] = "__kernel_clock_gettime";
#endif
    int saved = errno;
    uintptr_t image = getauxval(AT_SYSINFO_EHDR), bias = 0;
    errno = saved; /* ENOENT where there is none */
    if (!image) return by_call; /* valgrind, qemu-user */
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Phdr) *parts = (const void *)(image + header->e_phoff);
    const ElfW(Dyn) *row = NULL;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (parts[i].p_type == PT_LOAD) bias = image + parts[i].p_offset - parts[i].p_vaddr;
        if (parts[i].p_type == PT_DYNAMIC) row = (const void *)(image + parts[i].p_offset);
    }
    uintptr_t symbols = 0, names = 0;
    size_t names_bytes = 0;
    for (; row && row->d_tag != DT_NULL; row++) { /* not relocated: the kernel maps it as it is */
        if (row->d_tag == DT_SYMTAB) symbols = bias + row->d_un.d_ptr;
        if (row->d_tag == DT_STRTAB) names = bias + row->d_un.d_ptr;
        if (row->d_tag == DT_STRSZ) names_bytes = row->d_un.d_val;
    }
    if (!symbols || names < symbols) return by_call;
    for (const ElfW(Sym) *symbol = (const void *)symbols; (uintptr_t)(symbol + 1) <= names; symbol++)
        if (symbol->st_shndx != SHN_UNDEF && symbol->st_name < names_bytes && names_bytes - symbol->st_name >= sizeof name &&
            memcmp((const char *)names + symbol->st_name, name, sizeof name) == 0)
            return (clock_function *)(bias + symbol->st_value);
    return by_call;
}

static struct timespec ask(clockid_t clock) {
    static clock_function *found;
    clock_function *function = __atomic_load_n(&found, __ATOMIC_RELAXED);
    struct timespec now = { 0, 0 };
    if (HAK_UNLIKELY(!function)) {
        function = find();
        __atomic_store_n(&found, function, __ATOMIC_RELAXED);
    }
    function(clock, &now); /* it knows no errno, and does not fail */
    return now;
}

static uint64_t ns_of(struct timespec time) { return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec; }

uint64_t hak_os_clock_ms(void) {
    struct timespec now = ask(CLOCK_MONOTONIC_COARSE);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
uint64_t hak_os_clock_ns(void) { return ns_of(ask(CLOCK_MONOTONIC)); }
uint64_t hak_os_clock_realtime_ns(void) { return ns_of(ask(CLOCK_REALTIME)); }
uint64_t hak_os_cpu_ns(void) { return ns_of(ask(CLOCK_THREAD_CPUTIME_ID)); }
