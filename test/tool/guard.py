#!/usr/bin/env python3
"""guard.py - of a program that lives on after faults, its blocks freed and their places used again since, `hakmem guard` says what was
true at each: of the process, and of a dump that was written at its end. ctest: timeout=300"""
import re
import sys

from seeing_lib import Bench, check

SOURCE = r"""
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#define APART __attribute__((noipa))
static sigjmp_buf away;
static void leaves(int signal) { siglongjmp(away, signal); }
APART static char *site_live(void) { return malloc(201); }
APART static char *site_freed(void) { return malloc(301); }
APART static char *site_later(void) { return malloc(3001); }
APART static void let_go(char *block) { free(block); }
APART static void let_go_later(char *block) { free(block); }
APART static void look_at(volatile char *byte) { if (sigsetjmp(away, 1) == 0) (void)*byte; }
int main(void) {
    char *block;
    signal(SIGSEGV, leaves);
    while (block = site_live(), malloc_usable_size(block) != 201 || ((uintptr_t)block + 208) % 4096) free(block);
    look_at(block + 208);
    let_go_later(block);
    while (block = site_freed(), malloc_usable_size(block) != 301) free(block);
    let_go(block);
    look_at(block);
    for (int i = 0; i < 1000; i++) let_go_later(site_later()); /* there are 16 places */
    puts("ready");
    fflush(stdout);
    getchar();
    return 0;
}
"""


def told(text):
    """What is said of each misuse."""
    return re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]


def main():
    with Bench() as bench:
        program, dump = bench.built("goes_on", SOURCE, "gcc", "-O1", "-g", "-fno-builtin"), bench.path("end.hakdump")
        child = bench.start(program, HAKMEM_GUARD="1", HAKMEM_GUARD_BLOCKS="16", HAKMEM_SAMPLE_BYTES="64", HAKMEM_SAMPLE_MOST="0",
                            HAKMEM_RECORD=dump)
        of_process = bench.hakmem("guard", "-p", str(child.pid), status=1).stdout
        bench.finish(child)
        of_dump = bench.hakmem("guard", dump, status=1).stdout
        for source, said in (("process", of_process), ("dump", of_dump)):
            check(len(told(said)) == 2, f"{source}: two misuses\n{said}")
            first, second = told(said)
            check(re.match(r"heap buffer overflow: read of 0x\w+, byte 208 of a block of 201 bytes at ", first) and "site_live" in first,
                  f"{source}: the block that was read behind, and where it is from\n{first}")
            check("freed" not in first and "let_go_later" not in first, f"{source}: it lived then\n{first}")
            check(re.match(r"use after free: read of 0x\w+, byte 0 of a freed block of 301 bytes at ", second) and "site_freed" in second,
                  f"{source}: the block that was read after its free\n{second}")
            check("let_go " in second and "site_later" not in second, f"{source}: and who freed it\n{second}")
        check(of_process == of_dump, "both say the same")
    return 0


sys.exit(main())
