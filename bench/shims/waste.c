/* waste.c - a positive control: glibc's malloc, with a known waste of time and memory.
 *
 * Wastes:    WASTE_TURNS turns of an empty loop, and at least WASTE_NS nanoseconds by the clock, in each malloc and each
 *            free; WASTE_PERCENT more bytes for each block, touched. Compiled in by -DWASTE_TURNS=N and so on;
 *            environment variables of the same names stand above that.
 * Why:       a measuring stand that cannot see this measures nothing.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#ifndef WASTE_TURNS
#define WASTE_TURNS 0
#endif
#ifndef WASTE_NS
#define WASTE_NS 100
#endif
#ifndef WASTE_PERCENT
#define WASTE_PERCENT 25
#endif

/* Read once, before main; earlier calls take what was compiled in. */
static uint64_t turns = WASTE_TURNS, ns = WASTE_NS, percent = WASTE_PERCENT;

static void number(const char *name, uint64_t *value) {
    const char *text = getenv(name);
    if (text && *text >= '0' && *text <= '9') *value = strtoull(text, NULL, 10);
}
__attribute__((constructor)) static void environment_read(void) {
    number("WASTE_TURNS", &turns);
    number("WASTE_NS", &ns);
    number("WASTE_PERCENT", &percent);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static void shim_before(void) {
    for (uint64_t turn = 0; turn < turns; turn++) __asm__ volatile("" : : : "memory");
    if (ns)
        for (uint64_t end = now_ns() + ns; now_ns() < end;) { }
}
static size_t shim_bytes(size_t bytes) {
    if (bytes > PTRDIFF_MAX / 1024 || percent > 1000) return bytes; /* glibc refuses it */
    return bytes + bytes * percent / 100;
}

#include "shim.h"
