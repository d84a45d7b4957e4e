/* hang.c - a negative control: an allocator whose thousandth call never returns. It sleeps, so as to disturb nobody. */
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static atomic_int calls;

static void shim_before(void) {
    while (atomic_load(&calls) >= 1000) pause();
    atomic_fetch_add(&calls, 1);
}
static size_t shim_bytes(size_t bytes) { return bytes; }

#include "shim.h"
