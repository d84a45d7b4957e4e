/* turns.c - a recording that is turned on and off while its program runs, and what the program gets done meanwhile.
 *
 *     LD_PRELOAD=libhakmem.so:turns.so TURNS_FILE=out TURNS_COUNT=80 TURNS_MS=200 PROGRAM ...
 *
 * One process is compared with itself, so that neither the place of its memory nor the minute matters. Turns are off, on, on,
 * off, off, on, ...; after each change SETTLE_MS pass before the turn begins. A line for each SLICE_MS: on (1) or off (0), allocations, and
 * nanoseconds of CPU time without those of the thread that looks (of one slice alone it may be a little below 0: the two clocks
 * are read one after the other). After the last turn the process ends, whatever it was doing.
 *
 * A control, TURNS_PLANT=20: of each second with a recording a thread burns 20 ms, in one piece of every 40 ms, as uneven as samples are.
 */
#define _GNU_SOURCE
#include "hakmem/hakmem.h"
#include "rules/counters.h"
#include "watch/published.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SETTLE_MS = 45, WAIT_MS = 1, SLICE_MS = 10, PLANT_MS = 40 };
static struct hak_stats stats;
static FILE *file;
static long turn_count, turn_ms, plant;
static int is_on;

static void wait_ms(long ms) {
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&time, NULL);
}

static uint64_t cpu_ns(void) {
    struct timespec all, own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return (uint64_t)(all.tv_sec - own.tv_sec) * 1000000000u + (uint64_t)all.tv_nsec - (uint64_t)own.tv_nsec;
}

static uint64_t alloc_count(void) {
    hak_stats_get(&stats, sizeof stats);
    uint64_t count = stats.counter[HAK_C_large_alloc];
    for (uint32_t i = 0; i < stats.class_count; i++) count += stats.class_stats[i].alloc_count;
    return count;
}

/* False: the program does not take the request; it may not be allocating. */
static int turn(int on) {
    struct hak_control *control = &hakmem_published.control;
    uint32_t request = control->request + 1;
    __atomic_store_n(&is_on, on, __ATOMIC_RELAXED);
    control->command = on ? HAK_CONTROL_START : HAK_CONTROL_STOP;
    control->rate_bytes = 0;
    __atomic_store_n(&control->request, request, __ATOMIC_RELEASE);
    for (int waited = 0; __atomic_load_n(&control->seen, __ATOMIC_ACQUIRE) != request; waited++) {
        if (waited == 2000) return 0;
        wait_ms(WAIT_MS);
    }
    return control->result == 0;
}

static void *look(void *nothing) {
    (void)nothing;
    wait_ms(200); /* its start */
    for (long i = 0; i < turn_count; i++) {
        int on = (i + 1) / 2 % 2;
        if (!turn(on)) {
            fprintf(stderr, "turns: the program takes no request\n");
            _exit(3);
        }
        wait_ms(SETTLE_MS);
        uint64_t count = alloc_count(), ns = cpu_ns();
        for (long slice = 0; slice < turn_ms / SLICE_MS; slice++) {
            wait_ms(SLICE_MS);
            uint64_t count_now = alloc_count(), ns_now = cpu_ns();
            fprintf(file, "%d %llu %lld\n", on, (unsigned long long)(count_now - count), (long long)(ns_now - ns));
            count = count_now;
            ns = ns_now;
        }
    }
    if (fclose(file) != 0) {
        fprintf(stderr, "turns: TURNS_FILE cannot be written\n");
        _exit(3);
    }
    _exit(0);
}

static uint64_t own_ns(void) {
    struct timespec own;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
    return (uint64_t)own.tv_sec * 1000000000u + (uint64_t)own.tv_nsec;
}

static void *burn(void *nothing) {
    (void)nothing;
    for (;;) {
        wait_ms(PLANT_MS);
        if (!__atomic_load_n(&is_on, __ATOMIC_RELAXED)) continue;
        uint64_t until = own_ns() + (uint64_t)plant * PLANT_MS * 1000;
        while (own_ns() < until) {
        }
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    /* here, for a program may take its environment away in main (redis, for its title) */
    const char *name = getenv("TURNS_FILE"), *count = getenv("TURNS_COUNT"), *ms = getenv("TURNS_MS"), *planted = getenv("TURNS_PLANT");
    if (!name || !count || !ms) return;
    file = fopen(name, "w");
    turn_count = atol(count);
    turn_ms = atol(ms);
    plant = planted ? atol(planted) : 0;
    if (!file) {
        fprintf(stderr, "turns: TURNS_FILE cannot be written\n");
        _exit(3);
    }
    if (pthread_create(&thread, NULL, look, NULL) != 0) _exit(3);
    pthread_detach(thread);
    if (plant <= 0) return;
    if (pthread_create(&thread, NULL, burn, NULL) != 0) _exit(3);
    pthread_detach(thread);
}
