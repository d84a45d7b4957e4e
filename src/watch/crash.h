/* crash.h - on SIGSEGV, SIGBUS and SIGABRT say what is known of the address, then let things take their course.
 *
 * Only with HAKMEM_CRASH_REPORT=1. A handler that the program installs later replaces ours, and then nothing is
 * said: staying in front of it would mean to interpose sigaction, and a program that looks at what it had
 * installed would find something else. Programs that install their handler only where none is (Rust's, for
 * stack overflow) find ours and leave it.
 */
#ifndef HAK_WATCH_CRASH_H
#define HAK_WATCH_CRASH_H

#include "base/attr.h"
#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes what is known of the address (no newline) and returns whether it is in our memory. It is called in a
 * signal handler, at any moment: it reads what it can trust, takes nothing and changes nothing. */
typedef bool hak_describe_function(uintptr_t address, struct hak_text *text);

/* At start, when the option is set. */
void hak_crash_at_start(hak_describe_function *describe);

#ifdef __cplusplus
}
#endif
#endif
