#!/usr/bin/env python3
"""metrics.py - what hak_stats_prometheus says within a program and `hakmem metrics` from outside are the same metrics, with the same help,
and of an idle program the same numbers, recorded or not. ctest: timeout=300"""
import os
import re
import time

from seeing_lib import Bench, check

SOURCE = r"""
#include <hakmem/hakmem.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char text[1 << 18];
static void *held[60000];
static void *work(void *unused) {
    for (int i = 1; i < 60000; i += 2) { held[i] = malloc(16 + i % 900 * (i % 50 ? 1 : 30)); memset(held[i], 1, 16); }
    return unused;
}
int main(void) {
    pthread_t thread;
    char byte;
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    for (int i = 0; i < 60000; i += 2) { held[i] = malloc(16 + i % 700 * (i % 100 ? 1 : 200)); memset(held[i], 1, 16); }
    for (int i = 0; i < 60000; i++) if (i % 7) free(held[i]);
    usleep(300000);
    for (int i = 0; i < 2000; i++) { usleep(100); free(malloc(40)); free(malloc(33000)); }   /* the counters are published on visits */
    if (write(1, "ready\n", 6) != 6) return 1;
    while (read(0, &byte, 1) == 1) {
        size_t length = hak_stats_prometheus(text, sizeof text);
        memcpy(text + length, "end\n", 4);
        for (size_t at = 0, part; at < length + 4; at += part)
            if ((long)(part = (size_t)write(1, text + at, length + 4 - at)) <= 0) return 1;
    }
    return 0;
}
"""
# What only a recording tells from outside.
INSIDE_ALONE = {"hakmem_free_bytes", "hakmem_returned_bytes_total", "hakmem_retouched_bytes_total"}


def parsed(text):
    """Of each metric its kind and help, and of each sample the number."""
    kinds, helps, numbers = {}, {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, helps_to = line[7:].split(" ", 1)
            check(name not in helps, f"{name} has one line of help") if name in helps else helps.update({name: helps_to})
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            kinds[name] = kind
        else:
            sample = re.fullmatch(r"(\w+)(\{.*\})? (\d+)", line)
            if not sample or sample[1] not in kinds:
                check(False, "a sample of a metric: " + line)
            numbers[sample[1] + (sample[2] or "")] = int(sample[3])
    return kinds, helps, numbers


def within(bench, child):
    child.stdin.write("x")
    child.stdin.flush()
    text = ""
    while (line := child.stdout.readline()) != "end\n":
        text += line
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        pass
    else:
        check(len(list(text_string_to_metric_families(text))) > 50, "Prometheus's own reader takes it")
    return parsed(text)


def compare(bench, is_recorded, **variables):
    program = bench.path("holds")
    child = bench.start(program, **variables)
    time.sleep(0.3)
    kinds, helps, numbers = within(bench, child)
    theirs, their_helps, their_numbers = parsed(bench.hakmem("metrics", "-p", str(child.pid)).stdout)
    kinds, helps, numbers = within(bench, child)
    alone = set(kinds) - set(theirs)
    check(set(theirs) <= set(kinds) and alone <= (set() if is_recorded else INSIDE_ALONE),
          f"the same metrics: {sorted(set(kinds) ^ set(theirs))}")
    check(all(theirs[name] == kinds[name] and their_helps[name] == helps[name] for name in theirs), "of the same kind, with the same help")
    ours_alone = {name for name in numbers if name not in their_numbers and name.split("{")[0] not in alone}
    check(not ours_alone and set(their_numbers) <= set(numbers), f"the same samples: {sorted(ours_alone)}")
    wrong = []
    for name, number in their_numbers.items():
        ours = numbers[name]
        if name.startswith("hakmem_class_live_blocks"):  # from outside, blocks that wait in bins are live, and samples are not seen
            is_same = ours - (ours // 4 + 32 if is_recorded else 0) <= number <= ours + 512
        elif "sparse" in name or re.match("hakmem_(small_live_bytes|resident|slab_resident|class_resident|free_bytes)", name):
            is_same = abs(ours - number) <= max(number, ours) * 0.1 + (256 << 10)
        elif kinds[name.split("{")[0]] == "counter":  # published now and then
            is_same = number <= ours <= number + 200 + number // 4
        else:
            is_same = ours == number
        if not is_same:
            wrong.append(f"{name}: {ours} within, {number} from outside")
    check(not wrong, "the same numbers\n" + "\n".join(wrong))
    bench.finish(child)


def main():
    with Bench() as bench:
        include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include")
        folder = os.path.dirname(bench.library)
        program = bench.built("holds", SOURCE, "gcc", "-O1", "-g", "-pthread", "-fno-builtin", "-I" + include,
                              "-Wl,--no-as-needed", bench.library, "-Wl,-rpath," + folder)
        check(program, "a program that asks for its own metrics")
        compare(bench, False)
        compare(bench, True, HAKMEM_RECORD=bench.path("a.hakdump"), HAKMEM_SAMPLE_BYTES="4096")


main()
