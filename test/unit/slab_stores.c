/* slab_stores.c - in which order a slab's header is written where a page is opened: a thread may vanish by a fork between any two stores.
 *
 * Method: the page of the header may not be written. Each store there traps, is noted by its field, and is run by itself.
 *
 * ctest: native
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/heap_room.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined __x86_64__
enum { STORES_MAX = 64, TRAP_FLAG = 1 << 8, PAGE = 4096 };
static struct { size_t offset; uint64_t returned; } stores[STORES_MAX];
static volatile sig_atomic_t store_count;
static struct hak_slab *slab;

static char *page_of(const void *at) { return (char *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1)); }

static void on_store(int number, siginfo_t *info, void *context) {
    (void)number;
    ucontext_t *state = context;
    size_t offset = (size_t)((char *)info->si_addr - (char *)slab);
    if (offset < sizeof *slab && store_count < STORES_MAX) {
        stores[store_count].offset = offset;
        stores[store_count++].returned = slab->returned;
    }
    mprotect(page_of(slab), PAGE, PROT_READ | PROT_WRITE);
    state->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void after_store(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    ucontext_t *state = context;
    mprotect(page_of(slab), PAGE, PROT_READ);
    state->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
}

/* Were the page open first, a child would hand out its blocks without a look, and calloc would take live memory for zeros. */
static void a_page_is_marked_as_used_before_its_blocks_count_as_opened(void **state) {
    (void)state;
    struct sigaction action = { .sa_flags = SA_SIGINFO }, before[2];
    struct hak_heap *heap = heap_make();
    unsigned c = 16;
    class_is_common(heap, c);
    slab = slab_of(block_take(heap, c));
    for (uint16_t frontier = slab->frontier; slab->frontier == frontier;) { /* to the last block before a page is opened */
        struct hak_bin *bin = hak_bin_at(heap, c);
        while (bin->word) block_take(heap, c);
        store_count = 0;
        action.sa_sigaction = on_store;
        sigaction(SIGSEGV, &action, &before[0]);
        action.sa_sigaction = after_store;
        sigaction(SIGTRAP, &action, &before[1]);
        mprotect(page_of(slab), PAGE, PROT_READ);
        block_take(heap, c);
        mprotect(page_of(slab), PAGE, PROT_READ | PROT_WRITE);
        sigaction(SIGSEGV, &before[0], NULL);
        sigaction(SIGTRAP, &before[1], NULL);
    }
    int opened = -1;
    for (int i = 0; i < store_count; i++)
        if (stores[i].offset == offsetof(struct hak_slab, frontier)) opened = i;
    assert_true(opened >= 0); /* the stores were seen at all */
    assert_int_equal(stores[opened].returned, slab->returned);
    heap_end(heap);
}
#else
static void a_page_is_marked_as_used_before_its_blocks_count_as_opened(void **state) {
    (void)state;
    skip();
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_page_is_marked_as_used_before_its_blocks_count_as_opened) };
    return cmocka_run_group_tests(tests, heap_room_start, NULL);
}
