/* fail.c - the end of a process whose HAK_ASSERT was wrong: one line, then SIGABRT.
 *
 * Owns:      nothing.
 * Threads:   any, at any moment, signal handlers included.
 * Rejected:  the os layer's write and abort: base stands below os, and an assert in os itself must still be
 *            able to speak. So the four system calls are made here, bare.
 */
#include "base/attr.h"
#include "base/text.h"

#include <signal.h>
#include <sys/syscall.h>

static long bare_call(long number, long a, long b, long c) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#else
#error "no system call written down for this processor"
#endif
}

HAK_COLD void hak_assert_failed(const char *what, const char *file, int line) {
    char bytes[512];
    struct hak_text text = HAK_TEXT(bytes);
    hak_text_format(&text, "hakmem: internal error at %s:%d: %s does not hold; please report it", file, line, what);
    hak_text_end_line(&text);
    bare_call(SYS_write, 2, (long)bytes, (long)hak_text_held(&text));
    bare_call(SYS_tgkill, bare_call(SYS_getpid, 0, 0, 0), bare_call(SYS_gettid, 0, 0, 0), SIGABRT);
    __builtin_trap(); /* SIGABRT is blocked or handled: this is not */
}
