/* no_keys.c - a program that took all thread keys before the library made its own: its threads' ends are not told, and cost nothing.
 *
 * Owns:    all of the process's pthread keys.
 * Threads: births and deaths; every second one leaves a block to the main thread.
 *
 * ctest: timeout=120
 */
#include "expect.h"

#include <hakmem/hakmem.h>
#include <limits.h>
#include <pthread.h>

enum { THREADS = 3000, BLOCKS = 60 };

static void *thread(void *left)
{
    unsigned char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t bytes = i * i * 20 + 1;
        blocks[i] = (unsigned char *)(i % 3 == 0 ? calloc(1, bytes) : malloc(bytes));
        REQUIRE(blocks[i] != NULL);
        EXPECT(i % 3 != 0 || (blocks[i][0] == 0 && blocks[i][bytes - 1] == 0));
        memset(blocks[i], (int)i, bytes);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        EXPECT(blocks[i][0] == i && blocks[i][i * i * 20] == i);
        blocks[i] = (unsigned char *)realloc(blocks[i], i * i * 30 + 1);
        EXPECT(blocks[i] != NULL && blocks[i][0] == i && blocks[i][i * i * 20] == i);
        if (i != 7 || !left)
            free(blocks[i]);
        else
            *(void **)left = blocks[i];
    }
    return NULL;
}

static void threads_without_a_key_leave_nothing(void)
{
    struct hak_stats stats;
    for (int i = 0; i < THREADS; i++) {
        void *left = NULL;
        pthread_t id;
        REQUIRE(pthread_create(&id, NULL, thread, i % 2 ? &left : NULL) == 0);
        pthread_join(id, NULL);
        free(left);
    }
    hak_stats_get(&stats, sizeof stats);
    EXPECT_SAY(stats.heap_count <= 4, "%llu heaps", (unsigned long long)stats.heap_count);
    EXPECT_SAY(stats.live_bytes < 1000000, "%llu bytes", (unsigned long long)stats.live_bytes);
}

static int key_count;

/* Before the library's constructor, which makes its own key: .preinit_array comes before all, but musl knows none; where the library is in
 * the program itself, .init_array sorts it. */
static void take_all_keys(void)
{
    pthread_key_t key;
    while (pthread_key_create(&key, NULL) == 0)
        key_count++;
}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = take_all_keys;
__attribute__((section(".init_array.00100"), used)) static void (*const early)(void) = take_all_keys;

int main(void)
{
#ifndef __GLIBC__
    if (key_count < PTHREAD_KEYS_MAX)
        return EXPECT_SKIPPED; /* the library, apart, was first */
#endif
    EXPECT(key_count > 100);
    RUN(threads_without_a_key_leave_nothing);
    return EXPECT_RESULT();
}
