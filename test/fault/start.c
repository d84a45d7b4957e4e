/* start.c - the very first call finds no memory, once or several times; later ones do. */
#include "fault/fault.h"

/* The N-th call of the start fails: malloc says so, or does without; the next one works. */
static void first_block_may_be_refused(void) {
    errno = EXDEV;
    void *block = malloc(24);
    if (result_good(block)) free(block);
    hak_os_fault = NULL;
    block = malloc(24);
    CHECK(block && malloc_usable_size(block) >= 24);
    free(block);
}

static void until_the_kernel_gives_in(void) {
    for (unsigned i = 0; i < 100; i++) {
        errno = EXDEV;
        void *block = i % 3 == 0 ? malloc(24) : i % 3 == 1 ? calloc(1, 100000) : memalign(4096, 64);
        CHECK(!block && errno == ENOMEM);
        CHECK(realloc(NULL, 10) == NULL && errno == ENOMEM);
        CHECK(malloc_usable_size(NULL) == 0);
        free(NULL);
        hak_collect();
        struct hak_stats stats;
        hak_stats_get(&stats, sizeof stats);
        CHECK(stats.live_bytes == 0);
    }
    hak_os_fault = NULL;
    workload();
    CHECK(nulls <= 200);
}

static void *thread_first(void *unused) {
    (void)unused;
    errno = EXDEV;
    void *block = malloc(100);
    if (result_good(block)) free(block);
    return NULL;
}

/* Threads whose heaps cannot be had: they are told so, and the heaps that are there serve later ones. */
static void heaps_cannot_be_born(void) {
    void *first = malloc(24);
    pthread_t thread;
    CHECK(first);
    for (unsigned n = 0; n < 12; n++) {
        fault_arm(FAULT_FROM, n % 4);
        if (pthread_create(&thread, NULL, thread_first, NULL) == 0) pthread_join(thread, NULL);
        hak_os_fault = NULL;
        CHECK(pthread_create(&thread, NULL, thread_first, NULL) == 0);
        pthread_join(thread, NULL);
    }
    free(first);
    fault.refused = 1;
}

int main(void) {
    unsigned count = cases_run(FAULT_NTH, 1, first_block_may_be_refused);
    unsigned from = cases_run(FAULT_FROM, 1, first_block_may_be_refused);
    CHECK(count >= 4 && from >= 4);
    case_run(FAULT_FROM, 0, until_the_kernel_gives_in);
    case_run(FAULT_KIND, HAK_OS_MAP_AT, until_the_kernel_gives_in);
    case_run(FAULT_FROM, 1000000, heaps_cannot_be_born);
    dprintf(1, "the start makes %u calls\n", count);
    return 0;
}
