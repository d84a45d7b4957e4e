#!/usr/bin/env python3
"""cliffs.py - states from which an allocator does not come back: loops that take many times what they should, and go on so.

    bench/cliffs.py [--library build/release/libhakmem.so] [--seeds 20] [--from 1] [--steps 60] [--limit 16] [--limit-large 64]

cliffs.c does one thing after another, by chance, and times two simple loops after each. What stays above the limit in four of them is told with the
steps before, worst first. Ends with 1 if there is such a case. Twenty seeds take a minute or two; a neighbour on the machine makes cases of its own.
"""
import argparse
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default="build/release/libhakmem.so", help="'' is libc's")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="SEED")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--limit", type=float, default=16, help="ns an operation, blocks of up to 32 KiB")
    parser.add_argument("--limit-large", type=float, default=64)
    options = parser.parse_args()
    if options.library and not os.path.isfile(options.library):
        sys.exit(f"cliffs.py: {options.library} is not there")
    if min(options.seeds, options.steps, options.limit, options.limit_large) <= 0:
        sys.exit("cliffs.py: seeds, steps and limits are above 0")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_") and name != "LD_PRELOAD"}
    if options.library:
        kept["LD_PRELOAD"] = os.path.abspath(options.library)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "cliffs")
        command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-fno-builtin", os.path.join(HERE, "cliffs.c"), "-o", program, "-pthread"]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode:
            sys.exit(f"cliffs.py: {built.stderr.strip()}")
        for seed in range(options.first, options.first + options.seeds):
            if sys.stderr.isatty():
                print(f"\rseed {seed}, {len(cases)} cases ", end="", file=sys.stderr, flush=True)
            run = [program, str(seed), str(options.steps), str(options.limit), str(options.limit_large)]
            done = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=kept, check=False)
            if done.returncode or done.stderr:
                sys.exit(f"cliffs.py: seed {seed} ended with {done.returncode}: {done.stderr.strip()}")
            cases += [line.split("\t") for line in done.stdout.splitlines()]
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    for seed, step, kind, size, count, ns, held, told in sorted(cases, key=lambda case: -float(case[5])):
        print(f"{ns} ns: {kind} of {size} bytes, {count} held; seed {seed}, step {step}, {held} MB held otherwise\n    {told}")
    print(f"{len(cases)} cases in {options.seeds} seeds")
    sys.exit(1 if cases else 0)


main()
