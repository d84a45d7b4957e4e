/* drop.c - a program that gives most of its memory back at once, or within a tenth of a second, and then does next to nothing, as a server whose
 * keys were deleted: what it freed goes back, though it hardly calls the library any more; nor what it freed of a thread that waits.
 *
 * ctest: native
 */
#include "expect.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 160000, PARTS = 80 };
static void *blocks[MOST];
static int child_count;

static void nap_ms(long ms)
{
    struct timespec nap = { 0, ms * 1000000 };
    nanosleep(&nap, NULL);
}

static size_t small(int i) { return 16 + (size_t)(i % 16) * 16; }

/* Allocates for another thread, and waits. */
static struct { int count; size_t bytes; bool is_done; } made;
static void *make(void *unused)
{
    (void)unused;
    for (int i = 0; i < made.count; i++)
        memset(blocks[i] = malloc(made.bytes), 1, made.bytes);
    __atomic_store_n(&made.is_done, true, __ATOMIC_RELEASE);
    pause();
    return NULL;
}

/* In a process of its own: after a few rounds the library would keep what is wanted again. */
static void drop_of(bool others, int count, size_t bytes, int parts, int at_hand)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child != 0) {
        child_count++;
        return;
    }
    made.count = count;
    made.bytes = bytes;
    pthread_t maker;
    if (others) {
        REQUIRE(pthread_create(&maker, NULL, make, NULL) == 0);
        while (!__atomic_load_n(&made.is_done, __ATOMIC_ACQUIRE))
            nap_ms(1);
    } else {
        for (int i = 0; i < count; i++)
            memset(blocks[i] = malloc(bytes), 1, bytes);
    }
    long full = resident_kib();
    for (int part = 0; part < parts; part++) {
        for (int i = part * (count / parts); i < (part + 1) * (count / parts); i++)
            free(blocks[i]);
        if (parts > 1)
            nap_ms(1);
    }
    for (int i = 0; i < at_hand; i++) /* the answer, and as many blocks more are at hand */
        free(malloc(small(i)));
    for (int i = 0; i < 60; i++) { /* a little, from what is at hand */
        free(malloc(small(i)));
        nap_ms(25);
    }
    long kept = resident_kib(), dropped = (long)((size_t)count * bytes >> 10);
    EXPECT_SAY(kept < full - dropped * 5 / 8, "%d blocks of %zu bytes%s, freed in %d parts, %d more at hand: %ld of %ld KiB are resident", count, bytes,
               others ? " of a thread that waits" : "", parts, at_hand, kept, full);
    exit(EXPECT_RESULT());
}

static void drop(int count, size_t bytes, int parts, int at_hand)
{
    drop_of(false, count, bytes, parts, at_hand);
}

int main(void)
{
    if (!resident_is_known())
        return EXPECT_SKIPPED;
    drop(MOST, 256, PARTS, 0);
    drop(MOST, 256, PARTS, 40);
    drop(MOST, 256, 1, 0);
    drop(MOST, 256, 1, 40);
    drop(MOST, 256, 1, 1400); /* it opens another database, say */
    drop(10000, 4096, 1, 40);
    drop(30, 1 << 20, 1, 0);
    drop(30, 1 << 20, 1, 40);
    drop(1, 50 << 20, 1, 0);
    drop_of(true, MOST, 256, PARTS, 0);
    drop_of(true, MOST, 256, PARTS, 40);
    drop_of(true, MOST, 256, 1, 0);
    drop_of(true, MOST, 256, 1, 40);
    drop_of(true, MOST, 64, 1, 0);
    for (; child_count > 0; child_count--) { /* side by side: most of their time they wait */
        int status = -1;
        EXPECT(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return EXPECT_RESULT();
}
