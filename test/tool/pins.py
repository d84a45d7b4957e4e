#!/usr/bin/env python3
"""pins.py - of three peaks with one block in a hundred that stays, `hakmem pins` names those that stay first, with what
they hold within 10%. ctest: timeout=600"""
import re

from seeing_lib import Bench, check

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>
#include <poll.h>
enum { PEAKS = 3, BLOCKS = 1000000 };
static char **short_lived;
static void **long_lived;
static size_t long_count, long_bytes;
static unsigned seed = 1;
static unsigned next(void) { return seed = seed * 1103515245u + 12345u, seed >> 8; }
__attribute__((noinline)) void *index_entry(size_t bytes) {  /* stays */
    void *p = malloc(bytes);
    memset(p, 1, bytes);
    long_lived[long_count++] = p, long_bytes += bytes;
    return p;
}
__attribute__((noinline)) char *message(size_t bytes) {  /* goes */
    char *p = malloc(bytes);
    memset(p, 2, bytes);
    return p;
}
int main(void) {
    static void *idle[200];
    short_lived = calloc(BLOCKS, sizeof *short_lived);
    long_lived = calloc(BLOCKS, sizeof *long_lived);
    for (int peak = 0; peak < PEAKS; peak++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t bytes = 16 + next() % 240;
            short_lived[i] = message(bytes);
            if (next() % 100 == 0) index_entry(bytes);
        }
        for (int i = 0; i < BLOCKS; i++) free(short_lived[i]);
    }
    /* light traffic, on which pages go back */
    struct pollfd in = {0, POLLIN, 0};
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int n = 0, told = 0; !told || poll(&in, 1, 0) == 0; n++) {
        for (int i = 0; i < 200; i++) idle[i] = malloc(48);
        for (int i = 0; i < 200; i++) free(idle[i]);
        usleep(20000);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (!told && now.tv_sec - begin.tv_sec >= 6) told = printf("ready %zu %zu\n", long_bytes, long_count), fflush(stdout);
    }
    return 0;
}
"""
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def bytes_of(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def main():
    with Bench() as bench:
        program = bench.built("peaks", SOURCE, "gcc", "-O1", "-g", "-fno-builtin")
        raw = bench.path("raw/")
        # From the start, or what stays would have been allocated before anybody looked. Without lifetimes: they would see to
        # it that next to nothing is pinned.
        child = bench.start(program, HAKMEM_RECORD=raw, HAKMEM_SAMPLE_BYTES="16384", HAKMEM_SAMPLE_MOST="0",
                            HAKMEM_DISABLE_LIFETIMES="1")
        # `start` took the line; the figures are the same at every run.
        file = bench.path("peaks.hakprof")
        bench.hakmem("dump", "-p", str(child.pid), "-o", file)
        report = bench.hakmem("pins", file).stdout
        child.kill()
        print(report)
        first = report.splitlines()[0]
        check("index_entry (peaks.c:" in first, "what stays is named first")
        holds = bytes_of(re.search(r"with ([\d.]+ \w+) in", first).group(1))
        truth, count = 0, 0
        seed = 1
        state = {"seed": seed}

        def step():
            state["seed"] = (state["seed"] * 1103515245 + 12345) & 0xFFFFFFFF
            return state["seed"] >> 8

        for _ in range(3 * 1000000):
            size = 16 + step() % 240
            if step() % 100 == 0:
                truth += size
                count += 1
        print(f"held in truth {truth} in {count}, told {holds:.0f}: {holds / truth:.3f}")
        check(0.9 <= holds / truth <= 1.1, "with what it holds within 10%")


main()
