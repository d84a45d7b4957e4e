/* crash.c - a negative control: an allocator that crashes in its thousandth call. */
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int calls;

static void shim_before(void) {
    if (atomic_fetch_add(&calls, 1) == 1000) raise(SIGSEGV);
}
static size_t shim_bytes(size_t bytes) { return bytes; }

#include "shim.h"
