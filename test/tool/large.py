#!/usr/bin/env python3
"""large.py - blocks above 32 KiB are counted by `metrics` and `top` before, during and after a recording. ctest: timeout=300"""
import re
import time

from seeing_lib import Bench, check

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    char *held[94], byte;
    for (int i = 0; i < 94; i++) memset(held[i] = malloc(1 << 20), 1, 1 << 20);
    puts("ready"); fflush(stdout);
    while (read(0, &byte, 1) == 1) {
        for (int i = 0; i < 90; i++) free(held[i]);
        puts("freed"); fflush(stdout);
    }
    return 0;
}
"""


def main():
    with Bench() as bench:
        program = bench.built("holds", SOURCE, "gcc", "-O2", "-fno-builtin")
        child = bench.start(program)
        pid = str(child.pid)

        def large(metrics):
            return [int(re.search(rf"^hakmem_large_live_{name} (\d+)", metrics, re.M).group(1)) for name in ("bytes", "blocks")]

        def held():
            return large(bench.hakmem("metrics", "-p", pid).stdout)

        size, count = held()
        check(94 << 20 <= size < 98 << 20 and 94 <= count < 100, f"94 MiB in 94 blocks without a recording: {size} in {count}")
        said = bench.hakmem("top", "-p", pid, "--once", "-i", "0.2").stdout
        check(re.search(r"live +9[4-7]\.\d MiB in (9\d|1\d\d) blocks", said), "top counts them, too\n" + said)
        bench.hakmem("record", "-p", pid, "--seconds", "1", "-o", bench.path("a.hakprof"))
        child.stdin.write("x")
        child.stdin.flush()
        check(child.stdout.readline() == "freed\n", "it goes on")
        time.sleep(0.2)
        metrics = bench.hakmem("metrics", "-p", pid).stdout
        size, count = large(metrics)
        check(4 << 20 <= size < 8 << 20 and 4 <= count < 10, f"4 MiB after it: {size} in {count}")
        check("hakmem_free_bytes" not in metrics and "hakmem_recording 0\n" in metrics, "what only a recording knows is not told after it")
        bench.finish(child)


main()
