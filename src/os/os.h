/* os.h - what the kernel does for us; the contract, and nothing else of the system is used below front.
 *
 * Owns:      the system calls. They are made directly, never through libc, so errno stays as it is.
 * Threads:   any, at any time, start-up and signal handlers included.
 * Errors:    functions that return int give 0 or -errno; pointers are NULL on failure.
 * Faults:    in debug builds every call first asks hak_os_fault (test/fault), which may refuse it.
 */
#ifndef HAK_OS_OS_H
#define HAK_OS_OS_H

#include "base/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hak_range {
    void *start; /* page aligned */
    size_t bytes;
};

enum hak_os_call {
    HAK_OS_MAP_AT, HAK_OS_UNMAP, HAK_OS_RETURN, HAK_OS_MOVE, HAK_OS_FRESH, HAK_OS_ADVISE, HAK_OS_BARRIER, HAK_OS_RESERVE,
    HAK_OS_PROTECT, HAK_OS_MOVE_EARLY, HAK_OS_FRESH_LATE,
    HAK_OS_CALL_COUNT
};
#ifdef HAK_DEBUG
extern bool (*hak_os_fault)(enum hak_os_call call); /* true: this call fails */
#endif

/* --- address space --- */
/* Read-write, exactly there, no huge pages; -EEXIST when taken. Where the program locks what it maps it is locked as it is touched. */
int hak_os_map_at(void *address, size_t bytes);
void *hak_os_map(size_t bytes);                         /* read-write, anywhere */
int hak_os_unmap(void *address, size_t bytes);
/* Maps zero pages over what is there, read-write. -EFAULT: it failed, and nothing is there any more. */
int hak_os_fresh(void *address, size_t bytes);
void *hak_os_reserve(size_t bytes);                     /* addresses that nothing may touch, anywhere */
int hak_os_protect(void *address, size_t bytes, bool is_open); /* read-write, or no access; what is there stays */
/* The same by markers in the page tables, where the kernel has them (Linux 6.13; there: ask once): no mapping more, and it waits for no other thread's
 * faults. What is closed is given back as well, and reads as zeros when it is opened. */
bool hak_os_guards_there(void);
int hak_os_guard(void *address, size_t bytes, bool is_open);
int hak_os_protect_file(void *address, size_t bytes, bool is_writable, bool is_code); /* a file's pages: readable, and so */
bool hak_os_wipe_on_fork(void *page, size_t bytes);     /* the child reads zeros there */

/* Gives the pages back: they read as zeros afterwards and are not resident. One system call for all ranges
 * where the kernel takes it, else one each; *call_count is raised by how many were made. Returns how many
 * of the ranges, from the first on, went back. */
size_t hak_os_return(const struct hak_range *ranges, size_t count, uint64_t *call_count);

/* --- huge pages; 0 or -errno --- */
bool hak_os_huge_there(void);                            /* are there any in this system? */
int hak_os_huge(void *address, size_t bytes);            /* as hak_os_fresh, and the pages may be huge */
int hak_os_not_huge(void *address, size_t bytes);        /* what comes here from now on is small */
int hak_os_populate(void *address, size_t bytes);        /* makes it resident */
enum { HAK_OS_RESIDENT_PAGES_MAX = 1024 };
size_t hak_os_resident_pages(void *start, size_t bytes); /* of the range, at most so many pages of it; 0 if unknown */
/* Of each page of the range: is bit 0 set, it is resident. A page that is not may be swapped out. False: unknown. */
bool hak_os_readable(const void *address); /* the eight bytes there, at a multiple of eight */
bool hak_os_resident(void *start, size_t bytes, unsigned char *page);
int hak_os_split(void *page);                            /* the huge page that this is a part of becomes small ones */

/* Moves pages without copying; both ranges stay mapped, `from` reads as zeros. If it fails `from` is as it was. NOT_BEGUN: and so is `to`. MENDED: `to` is
 * mapped, and reads as anything. After another error there may be a hole in it. */
enum { HAK_OS_MOVE_NOT_BEGUN = 1, HAK_OS_MOVE_MENDED };
int hak_os_move(void *from, void *to, size_t bytes);

/* --- other threads --- */
/* Every thread of the process has passed a full memory barrier between call and return: it sees what the caller wrote before,
 * and the caller what it wrote before. False: the kernel does not do that. begin: once, best with one thread. */
bool hak_os_barrier(void);
void hak_os_barrier_begin(void);

void hak_os_yield(unsigned turn); /* another thread's turn, if one waits; from the 16th turn on 50 us for it */

/* --- facts --- */
/* This is a forked child. It may have a sandbox about it that kills at a system call it does not know, as sshd's has: what
 * follows then asks files in /proc, and no call of its own kind. It is one if somebody said so, or if the page reads 0. */
void hak_os_forked(void);
void hak_os_forked_tells(const void *page); /* a uint32_t */
bool hak_os_is_forked(void);

size_t hak_os_file_read(const char *name, char *text, size_t count); /* how much of it fits, and a 0; 0: it cannot be read */
bool hak_os_file_takes(int fd, size_t count); /* no SIGXFSZ for so many bytes more, as far as can be known */
size_t hak_os_page_bytes(void);
unsigned hak_os_processors(void);     /* that the process's first thread may run on; 0 if unknown */
size_t hak_os_address_limit(void);    /* the lower of RLIMIT_AS and RLIMIT_DATA in bytes, SIZE_MAX if none */
size_t hak_os_resident_bytes(void);   /* of this process; 0 if unknown */
size_t hak_os_resident_peak_bytes(void); /* the most that was; 0 if unknown */
size_t hak_os_memory_limit(void);     /* the lowest of these and the control groups' below; SIZE_MAX if none */
/* The smallest memory.max and memory.high (version 1: memory.limit_in_bytes) of the process's control group and those that it lies in, now;
 * UINT64_MAX if none. False: the system does not say which group it is. */
bool hak_os_group_memory(uint64_t *bytes);
unsigned hak_os_group_processors(void); /* the smallest cpu.max (version 1: cpu.cfs_quota_us), rounded up; 0 if none */
#ifdef HAK_DEBUG
extern const char *hak_os_group_list, *hak_os_group_mount; /* a test's own */
#endif
struct hak_os_usage {
    uint64_t cpu_us, fault_count; /* of all threads: user and system time; page faults served without reading */
};
struct hak_os_usage hak_os_usage(void);
void hak_os_random(void *bytes, size_t count); /* that nobody can foretell: the kernel's; at worst what it gave the process at its start */
bool hak_os_secure(void);             /* AT_SECURE: the environment is not to be trusted */
unsigned hak_os_pid(void);
unsigned hak_os_tid(void);
bool hak_os_thread_is_gone(unsigned tid); /* of this process; false if it cannot be known */
bool hak_os_is_last_thread(void);         /* all that is left but for the process's first, which has ended; false if it cannot be known */
void hak_os_thread_name(char name[16]); /* of the calling thread */

/* --- time --- */
uint64_t hak_os_clock_ns(void);          /* monotonic, some 20 ns to read */
uint64_t hak_os_clock_realtime_ns(void); /* since 1970 */
uint64_t hak_os_clock_ms(void); /* monotonic, coarse: moves every 1 to 10 ms */

uint64_t hak_os_cpu_ns(void);   /* that this thread has used */

/* A counter that only moves forward and costs some 20 cycles to read: some GHz. Aarch64's own counts 1 MHz to 1 GHz, and says so; it is shifted to 2 to 4. */
HAK_INLINE uint64_t hak_os_ticks(void) {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks, rate;
    __asm__("mrs %0, cntfrq_el0" : "=r"(rate));
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks << ((__builtin_clzll(rate | 1) - 32) & 31);
#else
#error "HAKMEM runs on x86-64 and aarch64"
#endif
}

/* --- files and the end --- */
/* As much of it as goes at once, or -errno. A pipe or socket that nobody reads is -EPIPE and no SIGPIPE: the program did not write. */
long hak_os_write_some(int fd, const void *bytes, size_t count);
void hak_os_write(int fd, const void *bytes, size_t count); /* all of it; gives up silently on an error */
void hak_os_note(int fd, const void *bytes, size_t count);  /* the same, if that cannot end the program: not for its last words */
int hak_os_open_new(const char *path);                      /* 0600; fd or -errno */
void hak_os_close(int fd);
int hak_os_rename(const char *from, const char *to);
int hak_os_unlink(const char *path);
__attribute__((noreturn, cold)) void hak_os_abort(void);

#ifdef __cplusplus
}
#endif
#endif
