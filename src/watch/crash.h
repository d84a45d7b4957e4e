/* crash.h - on SIGSEGV, SIGBUS and SIGABRT say what is known of the address, then let things take their course.
 *
 * HAKMEM_CRASH_REPORT=1: all three, from the start. A handler that the program installs later replaces ours, and then nothing
 * is said. Programs that install their handler only where none is (Rust's, for stack overflow) find ours and leave it.
 * Guarded blocks (guard.h) listen to the first two from the first of them on, and once more in front of a handler that came
 * later. The program's is called after ours in either case; a program that looks at what it had installed finds ours.
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

/* An access that the processor refused. */
enum hak_crash_access { HAK_CRASH_ACCESS, HAK_CRASH_READ, HAK_CRASH_WRITE, HAK_CRASH_JUMP };
struct hak_crash {
    uintptr_t address;
    enum hak_crash_access access;
    uintptr_t instruction, stack, frame; /* of the thread, there */
};

/* Told of each, in the handler, before anything else is said or done; of NULL when a fault of this thread has ended what it was told of
 * before. One listener; called again it sees to it that a handler of the program which came since does not stand in the way: once. */
typedef void hak_crash_function(const struct hak_crash *crash);
void hak_crash_listen(hak_crash_function *told, bool may_look); /* false: the first time only */

#ifdef __cplusplus
}
#endif
#endif
