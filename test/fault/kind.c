/* kind.c - one kind of call is always refused, as by a seccomp filter or an old kernel; what does without it works. */
#include "fault/fault.h"

static void without_refusals_everything_is_granted(void) {
    workload();
    CHECK(nulls == 0 && fault.asked > 50);
    CHECK(fault.asked_of[HAK_OS_MAP_AT] && fault.asked_of[HAK_OS_RETURN] && fault.asked_of[HAK_OS_MOVE] &&
          fault.asked_of[HAK_OS_FRESH] && fault.asked_of[HAK_OS_ADVISE]);
}

/* Nothing but address space itself is needed to serve the program. */
static void nothing_is_missed(void) {
    workload();
    CHECK(nulls == 0);
}

static void no_memory_at_all(void) {
    workload();
    CHECK(nulls > 0);
    for (unsigned i = 0; i < SLOTS; i++) CHECK(!slots[i].at);
    free(NULL);
    hak_collect();
}

static void calloc_is_zero_though_nothing_went_back(void) {
    enum { COUNT = 24 };
    static unsigned char *blocks[COUNT];
    for (unsigned round = 0; round < 4; round++) {
        size_t bytes = (size_t)3 << 20 >> round * 5;
        for (unsigned i = 0; i < COUNT; i++) {
            blocks[i] = calloc(1, bytes);
            CHECK(blocks[i]);
            for (size_t k = 0; k < bytes; k += bytes > 65536 ? 509 : 1) CHECK(blocks[i][k] == 0);
            for (size_t k = 0; k < bytes; k += bytes > 65536 ? 509 : 1) blocks[i][k] = 0xa5;
        }
        for (unsigned i = 0; i < COUNT; i += 2) free(blocks[i]);
        hak_collect();
        for (unsigned i = 0; i < COUNT; i += 2) {
            blocks[i] = calloc(1, bytes);
            CHECK(blocks[i]);
            for (size_t k = 0; k < bytes; k += bytes > 65536 ? 509 : 1) CHECK(blocks[i][k] == 0);
        }
        for (unsigned i = 0; i < COUNT; i++) free(blocks[i]);
        hak_collect();
    }
    CHECK(fault.refused > 0);
    CHECK(hak_load_relaxed(&hak_purge.returned_bytes) == 0); /* nothing is told that did not happen */
    workload();
    CHECK(nulls == 0);
}

/* Pages that cannot be moved are copied; the contents are the same. */
static void growth_copies_what_cannot_be_moved(void) {
    size_t bytes = 2 << 20;
    unsigned char *block = malloc(bytes), *wall = NULL;
    CHECK(block);
    for (size_t i = 0; i < bytes; i += 4001) block[i] = block_byte(1, i);
    for (; bytes < (64 << 20); bytes *= 2) {
        wall = malloc(1 << 20); /* behind the block: it cannot grow in place */
        CHECK(wall);
        unsigned char *grown = realloc(block, bytes * 2);
        CHECK(grown);
        block = grown;
        for (size_t i = 0; i < 2 << 20; i += 4001) CHECK(block[i] == block_byte(1, i));
        free(wall);
    }
    free(block);
    struct hak_stats stats;
    hak_stats_get(&stats, sizeof stats);
    CHECK(fault.refused > 0 && stats.counter[HAK_C_large_moved] == 0 && stats.counter[HAK_C_large_copied] > 0);
    workload();
    CHECK(nulls == 0);
}

/* As a signal handler would, while its thread gives back all that is free. */
static unsigned nested_nulls;
static bool allocating_hook(enum hak_os_call call) {
    static bool is_nested;
    bool refuse = fault_hook(call);
    if (is_nested || hak_heap_is_none(hak_self) || !hak_self->is_short) return refuse;
    is_nested = true;
    int saved = errno;
    for (size_t bytes = 16; bytes <= HAK_SLAB_BLOCK_BYTES_MAX; bytes += bytes / 2) {
        errno = EXDEV;
        void *block = malloc(bytes);
        nested_nulls += block == NULL;
        CHECK(errno == (block ? EXDEV : ENOMEM));
        free(block);
    }
    errno = saved;
    is_nested = false;
    return refuse;
}

static void in_the_middle_of_a_shortage_a_refusal_says_so_too(void) {
    void *filled[32]; /* so that giving back has to ask the kernel */
    for (unsigned i = 0; i < 32; i++) {
        filled[i] = malloc(100000);
        CHECK(filled[i]);
        memset(filled[i], 1, 100000);
    }
    for (unsigned i = 0; i < 32; i += 2) free(filled[i]);
    hak_os_fault = allocating_hook;
    static void *all[100000];
    unsigned count = 0;
    while (count < 100000 && (all[count] = malloc(600)) != NULL) count++;
    CHECK(count < 100000 && nested_nulls > 0);
    while (count > 0) free(all[--count]);
    hak_os_fault = fault_hook;
    for (unsigned i = 1; i < 32; i += 2) free(filled[i]);
}

static pthread_barrier_t barrier;
enum { HELD = 500 };
static void *held[HELD];

static void *holder(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < HELD; i++) held[i] = malloc(1 + i * 7 % 900);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

/* Without a page that the kernel wipes it is fork's own handler that tells the child: a thread that is not there
 * any more keeps nothing back. */
static void a_child_knows_itself_without_the_wiped_page(void) {
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    free(malloc(1));
    CHECK(fault.refused > 0 && !hak_region.fork_page_wipes);
    CHECK(pthread_create(&thread, NULL, holder, NULL) == 0);
    pthread_barrier_wait(&barrier);
    for (unsigned generation = 0; generation < 2; generation++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(hak_load_relaxed(&hak_epoch) == 2);
            for (unsigned i = 0; i < HELD; i++) free(held[i]);
            hak_collect();
            struct hak_stats stats;
            hak_stats_get(&stats, sizeof stats);
            uint64_t live = 0;
            for (unsigned c = 0; c < stats.class_count; c++) live += stats.class_stats[c].live_count;
            CHECK(live <= 8 && stats.dead_heap_count == stats.heap_count - 1);
            audit_check();
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < HELD; i++) free(held[i]);
}

int main(void) {
    CHECK(!case_run(FAULT_NONE, 0, without_refusals_everything_is_granted));
    CHECK(case_run(FAULT_KIND, HAK_OS_RETURN, calloc_is_zero_though_nothing_went_back));
    CHECK(case_run(FAULT_KIND, HAK_OS_MOVE, growth_copies_what_cannot_be_moved));
    CHECK(case_run(FAULT_KIND, HAK_OS_ADVISE, nothing_is_missed)); /* the fork page is not wiped */
    CHECK(case_run(FAULT_KIND, HAK_OS_ADVISE, a_child_knows_itself_without_the_wiped_page));
    case_run(FAULT_KIND, HAK_OS_UNMAP, nothing_is_missed);
    CHECK(case_run(FAULT_KIND, HAK_OS_FRESH, no_memory_at_all)); /* no place is found for the window */
    CHECK(case_run(FAULT_KIND, HAK_OS_MAP_AT, no_memory_at_all));
    CHECK(case_run(FAULT_FROM, 40, in_the_middle_of_a_shortage_a_refusal_says_so_too));
    return 0;
}
