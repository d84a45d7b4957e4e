/* stack.h - where the calling thread's stack begins. */
#ifndef HAK_OS_STACK_H
#define HAK_OS_STACK_H

#include "base/attr.h"

/* An address at the top of the calling thread's stack, the same distance from the thread's first frame in every
 * thread and in every run of a program. No system call. */
uintptr_t hak_os_stack_top(void);
/* The calling thread is the process's first. Not told, it is taken for a made one while it runs on a stack near its control block. */
void hak_os_stack_is_main(void);

#endif
