#!/usr/bin/env python3
"""started_with.py - the programs of other kinds once more, each with an option that only the environment sets.

Every option that acts from the start changes paths (a thread of our own, another region, handlers, reports);
nothing that the programs check may change by it.  ctest: timeout=600 first
"""
import argparse
import os
import subprocess
import sys

OPTIONS = ["HAKMEM_BACKGROUND=1", "HAKMEM_REGION_GB=4", "HAKMEM_REGION_GB=16384", "HAKMEM_CRASH_REPORT=1",
           "HAKMEM_REPORT=/dev/null", "HAKMEM_PURGE_DELAY_MS=0", "HAKMEM_WORD_BYTES=1024", "HAKMEM_FREE_MAX_MB=0",
           "HAKMEM_LIMIT_SOFT_MB=1", "HAKMEM_SECURE=1"]
PROGRAMS = ["api/fork_children", "api/thread_ends", "api/destructors", "api/info", "api/statistics", "stress/forks",
            "stress/generations", "stress/page_return", "stress/large_blocks", "fuzz/sequence"]
SECONDS_MAX = 120


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    arguments = parser.parse_args()
    # Each option meets half of the programs, each program half of the options.
    pairs = [(option, program) for i, option in enumerate(OPTIONS) for k, program in enumerate(PROGRAMS) if (i + k) % 2 == 0]
    failed = ran = 0
    for option, program in pairs:
        kind, name = program.split("/")
        path = os.path.join(os.path.abspath(arguments.build), "test", kind, f"{kind}_{name}")
        if not os.path.exists(path):
            continue
        ran += 1
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
        key, value = option.split("=")
        environment.update({key: value, "HAK_STRESS_SECONDS": "2"})
        try:
            done = subprocess.run([path], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=SECONDS_MAX)
            said, ending = done.stdout.decode(errors="replace"), done.returncode
        except subprocess.TimeoutExpired as late:
            said, ending = (late.stdout or b"").decode(errors="replace"), f"none after {SECONDS_MAX} s"
        if ending not in (0, 77):
            failed += 1
            print(f"FAIL {option} {program}: status {ending}\n{said[:1000]}", flush=True)
    print(f"started_with: {ran - failed} of {ran} passed")
    return 1 if failed else 0 if ran else 77


if __name__ == "__main__":
    sys.exit(main())
