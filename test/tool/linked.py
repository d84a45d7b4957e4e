#!/usr/bin/env python3
"""linked.py - programs that were linked with libhakmem.a are seen like preloaded ones: dynamic, static, and stripped; and one whose
main thread has ended, so that /proc/self has no memory."""
import argparse
import os
import subprocess
import sys
import tempfile

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
__attribute__((noinline)) static void *taken(size_t bytes) { void *block = malloc(bytes); return memset(block, 1, bytes); }
int main(int argc, char **argv) {
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 0);
    static void *kept[2000];
    for (int round = 0; round < 3 || time(NULL) < end; round++) {
        for (int i = 0; i < 2000; i++) { free(kept[i]); kept[i] = taken(1000 + i); }
        if (round == 1 && argc > 1) { puts("ready"); fflush(stdout); }
    }
    puts("done");
    return 0;
}
"""

MAIN_ENDED = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) static void *taken(size_t bytes) { void *block = malloc(bytes); return memset(block, 1, bytes); }
static void *work(void *unused) {
    usleep(200000); /* main is gone by then */
    for (int i = 0; i < 3000; i++) *(void *volatile *)taken(1000 + i) = unused;
    exit(0);
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_exit(NULL);
}
"""

failures = 0


def check(holds, what):
    global failures
    print(("PASS " if holds else "FAIL ") + what)
    failures += not holds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    build = os.path.abspath(parser.parse_args().build)
    hakmem = os.path.join(build, "hakmem")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HAKMEM_", "LD_"))}

    def run(*argv, **more):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**environment, **more}, check=False)
        return done.returncode, done.stdout + done.stderr

    with tempfile.TemporaryDirectory(prefix="hakmem-linked-") as folder:
        source = os.path.join(folder, "kept.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        for kind, flags in (("dynamic", ["-g"]), ("static", ["-g", "-static"]), ("stripped", ["-s"])):
            program = os.path.join(folder, kind)
            status, said = run("gcc", "-O1", *flags, source, "-o", program, os.path.join(build, "libhakmem.a"), "-pthread")
            check(status == 0, f"{kind}: it links {said}")
            status, said = run(program, HAKMEM_RECORD="/dev/null", HAKMEM_SAMPLE_BYTES="1024", HAKMEM_CRASH_REPORT="1")
            check(status == 0 and said == "done\n", f"{kind}: it runs recorded: {status} {said}")
            status, said = run(hakmem, "run", "--report", "--", program)
            if kind == "stripped":
                said = ""  # nobody can tell
            calls = [line for line in said.splitlines() if line.split()[:1] == ["calls"]]
            check(status == 0 and (kind == "stripped" or calls and int(calls[0].split()[1].replace(",", "")) >= 2000),
                  f"{kind}: the report is of the library that serves it: {calls}")
            status, said = run(hakmem, "run", "--", program)
            check(status == 0 and said == "done\n", f"{kind}: nothing is said where nothing is asked: {said}")
            child = subprocess.Popen([program, "60"], stdout=subprocess.PIPE, env=environment)
            child.stdout.readline()  # it has begun
            profile = os.path.join(folder, kind + ".hakprof")
            status, said = run(hakmem, "record", "-p", str(child.pid), "--seconds", "2", "--rate", "4K", "-o", profile)
            check(child.poll() is None, f"{kind}: it goes on while it is recorded")
            if kind == "stripped":  # nothing in the process says where it is
                check(status != 0 and "stripped" in said, f"{kind}: the reason: {said}")
            else:
                check(status == 0, f"{kind}: it is found: {said}")
                page = profile + ".html"
                status, said = run(hakmem, "report", profile, "-o", page)
                with open(page, encoding="utf-8") as file:
                    check(status == 0 and "taken" in file.read(), f"{kind}: its functions have names: {said}")
            child.kill()
            child.communicate()
        source, program, dump = (os.path.join(folder, name) for name in ("ended.c", "ended", "ended.hakdump"))
        with open(source, "w", encoding="utf-8") as file:
            file.write(MAIN_ENDED)
        run("gcc", "-O1", "-g", source, "-o", program, "-pthread")
        status, said = run(program, LD_PRELOAD=os.path.join(build, "libhakmem.so"), HAKMEM_RECORD=dump, HAKMEM_SAMPLE_BYTES="1024")
        check(status == 0 and not said, f"main ended: it runs recorded {said}")
        page = dump + ".html"
        status, said = run(hakmem, "report", dump, "-o", page)
        with open(page, encoding="utf-8") as file:
            check(status == 0 and "taken" in file.read(), f"main ended: its functions have names: {said}")
        status, said = run(hakmem, "run", "--report", "--", program)
        check(" 0 bytes at the end" not in said, f"main ended: its memory is counted: {said}")
    return 1 if failures else 0


sys.exit(main())
