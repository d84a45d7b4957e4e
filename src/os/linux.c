/* linux.c - the contract of os.h, on Linux.
 *
 * Owns:      nothing but what it learnt: does the kernel take process_madvise for oneself, does the program lock what it maps?
 * Rejected:  libc's wrappers: they set errno, which free must keep, and some are cancellation points.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* mremap flags */
#endif
#include "os/os.h"

#include "base/atomic.h"
#include "base/word.h"
#include "os/descriptor.h"
#include "os/syscall.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
/* linux/membarrier.h, which not every system has */
enum { MEMBARRIER_CMD_PRIVATE_EXPEDITED = 8, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED = 16 };
#define PIDFD_SELF_THREAD_GROUP (-10001) /* Linux 6.14 */

#ifdef HAK_DEBUG
bool (*hak_os_fault)(enum hak_os_call call);
#define FAULT(call, result)                                                                                      \
    do {                                                                                                         \
        if (hak_os_fault && hak_os_fault(call)) return result;                                                   \
    } while (0)
#else
#define FAULT(call, result) ((void)0)
#endif

static void *map(void *hint, size_t bytes, int protection, int flags) {
    long result = HAK_SYS6(SYS_mmap, hint, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return result < 0 && result > -4096 ? NULL : (void *)result;
}

/* ENOSYS, EINVAL: an older kernel. EPERM, EACCES: a seccomp filter. Nothing to do about any of them. */
static int advise(void *address, size_t bytes, int advice) {
    return (int)HAK_SYS3(SYS_madvise, address, bytes, advice);
}

/* mlockall(MCL_FUTURE), as the last mapping that is worth a look showed. Then the kernel makes each resident as a whole: of 6 MB that 100
 * threads held, 2 GB. Ours are locked as they are touched: one that nothing may touch is not filled, nor when that changes, if it is to be
 * locked so. */
enum { LOCKED_LOOK_BYTES = 256 << 10 };
static hak_atomic_u32 is_locked;

static bool is_locked_there(void *address) { return advise(address, 1, MADV_DONTNEED) == -EINVAL; } /* of a fresh mapping */
static bool lock_on_touch(void *address, size_t bytes) { return HAK_SYS3(SYS_mlock2, address, bytes, MLOCK_ONFAULT) == 0; }

/* A fresh mapping, of which nothing may be touched yet if it was expected to be locked. 0 or -errno; then it is gone. */
static HAK_COLD int locked_look(void *address, size_t bytes, bool was_expected) {
    bool is_so = is_locked_there(address), is_done = is_so && lock_on_touch(address, bytes);
    if (is_so != hak_load_relaxed(&is_locked)) hak_store_relaxed(&is_locked, is_so);
    if (!was_expected) {
        if (is_done) advise(address, bytes, MADV_DONTNEED_LOCKED); /* it was filled */
        return 0;
    }
    int result = (int)HAK_SYS3(SYS_mprotect, address, bytes, PROT_READ | PROT_WRITE);
    if (result != 0) HAK_SYS2(SYS_munmap, address, bytes);
    return result;
}

HAK_COLD int hak_os_map_at(void *address, size_t bytes) {
    FAULT(HAK_OS_MAP_AT, -ENOMEM);
    bool is_large = bytes >= LOCKED_LOOK_BYTES, is_expected = is_large && hak_load_relaxed(&is_locked);
    long result = HAK_SYS6(SYS_mmap, address, bytes, is_expected ? PROT_NONE : PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (result == (long)address) {
        advise(address, bytes, MADV_NOHUGEPAGE); /* also where the system's setting is "always" */
        return is_large ? locked_look(address, bytes, is_expected) : 0;
    }
    if (result < 0 && result > -4096) return (int)result;
    HAK_SYS2(SYS_munmap, result, bytes); /* before Linux 4.17 the address is only a hint */
    return -EEXIST;
}

static HAK_COLD HAK_NOINLINE void *map_large(size_t bytes) {
    bool is_expected = hak_load_relaxed(&is_locked);
    void *fresh = map(NULL, bytes, is_expected ? PROT_NONE : PROT_READ | PROT_WRITE, 0);
    return fresh && locked_look(fresh, bytes, is_expected) != 0 ? NULL : fresh;
}

HAK_INLINE void *map_anywhere(size_t bytes) { return bytes < LOCKED_LOOK_BYTES ? map(NULL, bytes, PROT_READ | PROT_WRITE, 0) : map_large(bytes); }

void *hak_os_map(size_t bytes) {
    FAULT(HAK_OS_FRESH, NULL);
    return map_anywhere(bytes);
}

int hak_os_unmap(void *address, size_t bytes) {
    FAULT(HAK_OS_UNMAP, -ENOMEM);
    return (int)HAK_SYS2(SYS_munmap, address, bytes);
}

/* Some refusals come after the kernel has taken away what was there. A page is asked, and not the call that would map it: at the limit on mappings
 * that is refused before it looks. */
static bool is_gone(void *address) {
    unsigned char page;
    return !hak_os_resident(address, hak_os_page_bytes(), &page);
}

static int move_over(void *fresh, void *address, size_t bytes) {
#ifdef HAK_DEBUG
    if (hak_os_fault && hak_os_fault(HAK_OS_FRESH_LATE)) {
        HAK_SYS2(SYS_munmap, address, bytes);
        return -ENOMEM;
    }
#endif
    return HAK_SYS5(SYS_mremap, fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address) == (long)address ? 0 : -ENOMEM;
}

/* MAP_FIXED unmaps what is there, and only then do kernels before 6.12 look whether so much may be committed (vm.overcommit_memory 2): a hole
 * in what is ours. So the new mapping is made elsewhere, where a refusal harms nothing, and moved: that commits nothing more. */
static int map_anew(void *address, size_t bytes) {
    void *fresh = map_anywhere(bytes);
    if (!fresh) return -ENOMEM;
    if (move_over(fresh, address, bytes) == 0) return 0;
    HAK_SYS2(SYS_munmap, fresh, bytes);
    if (!is_gone(address)) return -ENOMEM;
    return hak_os_map_at(address, bytes) == 0 ? 0 : -EFAULT;
}

int hak_os_fresh(void *address, size_t bytes) {
    FAULT(HAK_OS_FRESH, -ENOMEM);
    int result = map_anew(address, bytes);
    if (result != 0) return result;
    advise(address, bytes, MADV_NOHUGEPAGE); /* as its neighbours, or they do not merge */
    return 0;
}

void *hak_os_reserve(size_t bytes) {
    FAULT(HAK_OS_RESERVE, NULL);
    return map(NULL, bytes, PROT_NONE, MAP_NORESERVE);
}

int hak_os_protect(void *address, size_t bytes, bool is_open) {
    FAULT(HAK_OS_PROTECT, -ENOMEM);
    return (int)HAK_SYS3(SYS_mprotect, address, bytes, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

int hak_os_guard(void *address, size_t bytes, bool is_open) {
    FAULT(HAK_OS_PROTECT, -ENOMEM);
    return advise(address, bytes, is_open ? MADV_GUARD_REMOVE : MADV_GUARD_INSTALL);
}

/* An emulator may say yes and do nothing: so it is looked at. */
HAK_COLD bool hak_os_guards_there(void) {
    size_t bytes = hak_os_page_bytes();
    volatile uint64_t *page = hak_os_map(bytes);
    if (!page) return false;
    *page = 1;
    bool is_there = hak_os_guard((void *)(uintptr_t)page, bytes, false) == 0 && !hak_os_readable((void *)(uintptr_t)page);
    is_there = is_there && hak_os_guard((void *)(uintptr_t)page, bytes, true) == 0 && hak_os_readable((void *)(uintptr_t)page) && *page == 0;
    hak_os_unmap((void *)(uintptr_t)page, bytes);
    return is_there;
}

int hak_os_protect_file(void *address, size_t bytes, bool is_writable, bool is_code) {
    FAULT(HAK_OS_PROTECT, -ENOMEM);
    return (int)HAK_SYS3(SYS_mprotect, address, bytes, PROT_READ | (is_writable ? PROT_WRITE : 0) | (is_code ? PROT_EXEC : 0));
}

bool hak_os_wipe_on_fork(void *page, size_t bytes) {
    FAULT(HAK_OS_ADVISE, false);
    return advise(page, bytes, MADV_WIPEONFORK) == 0;
}

/* 0 not asked yet, 1 the kernel takes process_madvise for oneself (Linux 6.14 and later), 2 it does not */
static hak_atomic_u32 batch_state;

/* Until something locked was met: that takes an advice of its own, which does for all, and which older kernels do not know. */
static hak_atomic_u32 return_advice = MADV_DONTNEED;

static bool return_one(const struct hak_range *range) {
    int advice = (int)hak_load_relaxed(&return_advice), result = advise(range->start, range->bytes, advice);
    if (result != -EINVAL || advice == MADV_DONTNEED_LOCKED) return result == 0;
    if (advise(range->start, range->bytes, MADV_DONTNEED_LOCKED) != 0) return false;
    hak_store_relaxed(&return_advice, MADV_DONTNEED_LOCKED);
    return true;
}

HAK_COLD size_t hak_os_return(const struct hak_range *ranges, size_t count, uint64_t *call_count) {
    FAULT(HAK_OS_RETURN, 0);
    size_t done = 0;
    if (count > 1 && hak_load_relaxed(&batch_state) != 2) {
        HAK_STATIC(sizeof(struct hak_range) == sizeof(struct iovec));
        size_t bytes = 0;
        for (size_t i = 0; i < count; i++) bytes += ranges[i].bytes;
        long result = HAK_SYS5(SYS_process_madvise, PIDFD_SELF_THREAD_GROUP, ranges, count, hak_load_relaxed(&return_advice), 0);
        ++*call_count;
        if (result == (long)bytes) {
            hak_store_relaxed(&batch_state, 1);
            return count;
        }
        if (result < 0) {
            if (hak_load_relaxed(&batch_state) == 0) hak_store_relaxed(&batch_state, 2);
        } else { /* it stopped at a range it could not do: go on one by one from there */
            while (done < count && (long)ranges[done].bytes <= result) result -= (long)ranges[done++].bytes;
        }
    }
    for (; done < count; done++) {
        ++*call_count;
        if (!return_one(&ranges[done])) break;
    }
    return done;
}

bool hak_os_huge_there(void) {
    char text[64];
    long fd = HAK_SYS4(SYS_openat, AT_FDCWD, "/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    long got = HAK_SYS3(SYS_read, fd, text, sizeof text);
    HAK_SYS1(SYS_close, fd);
    for (long i = 0; i + 1 < got; i++)
        if (text[i] == '[') return text[i + 1] != 'n'; /* always, madvise, never: the one that holds stands in brackets */
    return false;
}

/* A new mapping: where small pages once were the kernel keeps their table, and would fill it with small ones again. */
int hak_os_huge(void *address, size_t bytes) {
    FAULT(HAK_OS_ADVISE, -ENOMEM);
    int result = map_anew(address, bytes);
    return result != 0 ? result : advise(address, bytes, MADV_HUGEPAGE);
}

int hak_os_not_huge(void *address, size_t bytes) { return advise(address, bytes, MADV_NOHUGEPAGE); }

int hak_os_populate(void *address, size_t bytes) {
    FAULT(HAK_OS_ADVISE, -ENOMEM);
    return advise(address, bytes, MADV_POPULATE_WRITE);
}

/* The kernel copies the set before it sees that there is no such way to use it. */
bool hak_os_readable(const void *address) {
    enum { NO_WAY = -1, SET_BYTES = 8 };
    return HAK_SYS4(SYS_rt_sigprocmask, NO_WAY, address, NULL, SET_BYTES) != -EFAULT;
}

bool hak_os_resident(void *start, size_t bytes, unsigned char *page) { return HAK_SYS3(SYS_mincore, start, bytes, page) == 0; }

size_t hak_os_resident_pages(void *start, size_t bytes) {
    unsigned char page[HAK_OS_RESIDENT_PAGES_MAX];
    size_t page_bytes = hak_os_page_bytes(), pages = bytes / page_bytes, count = 0;
    if (pages > sizeof page) pages = sizeof page;
    if (!hak_os_resident(start, pages * page_bytes, page)) return 0;
    for (size_t i = 0; i < pages; i++) count += page[i] & 1;
    return count;
}

int hak_os_split(void *page) { return advise(page, hak_os_page_bytes(), MADV_COLD); }

static int move_part(char *from, char *to, size_t bytes) {
#ifdef HAK_DEBUG
    if (hak_os_fault && hak_os_fault(HAK_OS_MOVE_EARLY)) return -ENOMEM; /* as at vm.max_map_count, or by a kernel that cannot */
    if (hak_os_fault && hak_os_fault(HAK_OS_MOVE)) {
        HAK_SYS2(SYS_munmap, to, bytes); /* as the kernel does before it refuses some */
        return -ENOMEM;
    }
#endif
    long result =
        HAK_SYS5(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
    if (result == (long)to) return 0;
    return result < 0 ? (int)result : -EINVAL;
}

/* What refused a part left all of `to`'s part there, or a hole in its place, which is mapped where it is: a limit on address space has room for that. */
static int move_refused(char *to, size_t done, size_t part, int result) {
    int mapped = is_gone(to + done) ? hak_os_map_at(to + done, part) : -EEXIST;
    if (mapped != 0 && mapped != -EEXIST) return result;
    return done == 0 && mapped != 0 ? HAK_OS_MOVE_NOT_BEGUN : HAK_OS_MOVE_MENDED;
}

/* Of several mappings, each by itself: a kernel before Linux 6.17 refuses them in one call, a later one moves them one after another, and
 * leaves what it has moved when one fails. Here that is copied back. Linux 6.10 and earlier do not say, and move one or nothing. */
int hak_os_move(void *from, void *to, size_t bytes) {
    int maps = hak_os_open_read("/proc/thread-self/maps"), result = maps < 0 ? HAK_OS_MOVE_NOT_BEGUN : 0;
    size_t done = 0, part = bytes;
    while (done < bytes && result == 0) {
        uintptr_t low, high, start = (uintptr_t)from + done;
        part = bytes - done;
        int asked = hak_os_mapping(maps, start, &low, &high);
        if (asked > 0 && high - start < part) part = high - start;
        if (asked == 0) result = done ? -EFAULT : HAK_OS_MOVE_NOT_BEGUN;
        else result = move_part((char *)from + done, (char *)to + done, part);
        if (result == 0) done += part;
    }
    if (maps >= 0) HAK_SYS1(SYS_close, maps);
    if (result != 0 && done) memcpy(from, to, done);
    return result < 0 ? move_refused(to, done, part, result) : result;
}

void hak_os_yield(unsigned turn) {
    static const struct timespec us_50 = { 0, 50000 };
    if (turn < 16) HAK_SYS1(SYS_sched_yield, 0);
    else HAK_SYS2(SYS_nanosleep, &us_50, NULL);
}

void hak_os_barrier_begin(void) { HAK_SYS2(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0); }

bool hak_os_barrier(void) {
    FAULT(HAK_OS_BARRIER, false);
    long result = HAK_SYS2(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
    if (result != -EPERM) return result == 0;
    hak_os_barrier_begin();
    return HAK_SYS2(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0;
}

size_t hak_os_page_bytes(void) {
    size_t bytes = getauxval(AT_PAGESZ);
    return bytes ? bytes : 4096;
}

/* Without waiting: early in a boot there may be none yet. AT_RANDOM's sixteen bytes libc has for its own guards, and who reads the stack has them. */
HAK_COLD void hak_os_random(void *bytes, size_t count) {
    enum { GRND_NONBLOCK_ = 1 };
    long given = HAK_SYS3(SYS_getrandom, bytes, count, GRND_NONBLOCK_);
    if (given == (long)count) return;
    const unsigned char *start = (const unsigned char *)getauxval(AT_RANDOM);
    uint64_t mixed = hak_os_clock_ns() ^ (uintptr_t)&mixed ^ (uint64_t)hak_os_pid() << 32;
    for (size_t i = 0; i < count; i++) {
        mixed = (mixed ^ hak_os_ticks() ^ (start ? start[i % 16] : 0)) * UINT64_C(0x9e3779b97f4a7c15);
        ((unsigned char *)bytes)[i] = (unsigned char)(mixed >> 56);
    }
}

bool hak_os_secure(void) { return getauxval(AT_SECURE) != 0; }
unsigned hak_os_pid(void) { return (unsigned)HAK_SYS1(SYS_getpid, 0); }
unsigned hak_os_tid(void) { return (unsigned)HAK_SYS1(SYS_gettid, 0); }
bool hak_os_thread_is_gone(unsigned tid) { return HAK_SYS3(SYS_tgkill, hak_os_pid(), tid, 0) == -ESRCH; }

/* The signal is the calling thread's own, and comes after a part was written, too. One that waited for the thread before stays. */
long hak_os_write_some(int fd, const void *bytes, size_t count) {
    uint64_t broken = UINT64_C(1) << (SIGPIPE - 1), before = 0, waiting = 0;
    struct timespec none = { 0, 0 };
    bool is_held = HAK_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, &broken, &before, sizeof broken) == 0;
    if (before & broken) HAK_SYS2(SYS_rt_sigpending, &waiting, sizeof waiting);
    long written = HAK_SYS3(SYS_write, fd, bytes, count);
    if (!is_held) return written;
    if (written != (long)count && !(waiting & broken)) HAK_SYS4(SYS_rt_sigtimedwait, &broken, NULL, &none, sizeof broken);
    HAK_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return written;
}

void hak_os_write(int fd, const void *bytes, size_t count) {
    const char *at = bytes;
    while (count > 0) {
        long written = hak_os_write_some(fd, at, count);
        if (written == -EINTR) continue;
        if (written <= 0) return;
        at += written;
        count -= (size_t)written;
    }
}

int hak_os_open_new(const char *path) {
    long fd = -EEXIST;
    for (int tries = 0; fd == -EEXIST && tries < 2; tries++) {
        if (tries) hak_os_unlink(path); /* of an earlier process with our number; or somebody's link, which is not followed */
        fd = HAK_SYS4(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return (int)fd;
}

void hak_os_close(int fd) { HAK_SYS1(SYS_close, fd); }

int hak_os_rename(const char *from, const char *to) {
    return (int)HAK_SYS5(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int hak_os_unlink(const char *path) { return (int)HAK_SYS3(SYS_unlinkat, AT_FDCWD, path, 0); }

void hak_os_abort(void) {
    abort();
}
