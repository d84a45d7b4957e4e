#!/usr/bin/env python3
"""stages.py - throughput while LEARN learns, and of a second run with what the first saved, against FROZEN.

    bench/stages.py [--build build/release] [--rounds 9] [--runs 3] [WORKLOAD ...]

Workloads of the suite, each some tenths of a second to seconds of CPU time, all stages taking turns. `second`: RUNS runs learn
into a policy file, stages as they come; then each measured run begins with a copy of that file, learning on as it would.
A ratio is the first's CPU time an operation by the other's: of the least of the rounds, and the median of the rounds' own
ratios. The geometric mean closes the table: of these, and of all the rows in one round, the mean over the rounds with its
standard error. A round goes through all rows, so that what else the machine does falls on both sides. The aim is 0.99.
"""
import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROWS = ["tiny_hot 60000000 64", "random_mixed 30000000 256 16 1024 12345", "random_mixed 20000000 4096 16 1024 12345",
        "random_mixed 15000000 65536 16 256 12345", "random_mixed 15000000 1024 1024 32768 12345", "comprehensive random 20000",
        "storm 4 40000 1000", "exchange 4 3000000 256 1024 25 12345", "ast 5000", "lru_cache 5000000 30000 4 12345",
        "burst_order random 100000 16 512 150 12345", "vm 100000", "temporaries 3600 64 8192 12345", "calloc_half 2000", "words 180000 12345",
        "binary_trees 16 40"]
LEARNING = {"frozen": {"HAKMEM_EVO_POLICY": "frozen"}, "learn": {"HAKMEM_EVO_POLICY": "learn"}, "second": {}}


def run(build, row, **environment):
    words = row.split()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    done = subprocess.run([os.path.join(build, "bench", words[0]), *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**kept, "LD_PRELOAD": os.path.join(build, "libhakmem.so"), **environment}, check=False)
    if done.returncode:
        sys.exit(f"stages.py: {row} ended with {done.returncode}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    library = os.path.realpath(os.path.join(build, "libhakmem.so"))
    if library not in [os.path.realpath(path) for path in result["objects"]]:
        sys.exit(f"stages.py: {library} is not mapped in {row}: {done.stderr.strip()}")
    return result["cpu_ns"] / result["ops"]


def measure(build, rows, stages, rounds, runs, folder):
    """Nanoseconds of CPU an operation, {row: {stage: [one a round]}}."""
    first = {row: os.path.join(folder, f"{at}.policy") for at, row in enumerate(rows)}
    for row in rows if "second" in stages else []:
        for _ in range(runs):
            run(build, row, HAKMEM_POLICY=first[row])
    seen = {row: {stage: [] for stage in stages} for row in rows}
    for number in range(rounds):
        print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        for row in rows:
            for stage in sorted(stages, reverse=number % 2 == 1):
                policy = {}
                if stage == "second":
                    policy = {"HAKMEM_POLICY": os.path.join(folder, "now.policy")}
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(policy["HAKMEM_POLICY"])
                    if os.path.exists(first[row]):
                        shutil.copy(first[row], policy["HAKMEM_POLICY"])
                seen[row][stage].append(run(build, row, **stages[stage], **policy))
    print("\r" + " " * 24 + "\r", end="", file=sys.stderr)
    return seen


def ratios(seen, base, stage):
    return (min(seen[base]) / min(seen[stage]), statistics.median(one / other for one, other in zip(seen[base], seen[stage])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="WORKLOAD")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    stages = LEARNING
    rows, rounds = options.rows or ROWS, options.rounds
    base, *others = stages
    if rounds < 1 or options.runs < 1:
        sys.exit("stages.py: --rounds and --runs: at least 1")
    for row in rows:
        if not row.split() or not os.path.exists(os.path.join(build, "bench", row.split()[0])):
            sys.exit(f"stages.py: there is no workload {row!r} in {build}/bench")
    with tempfile.TemporaryDirectory() as folder:
        seen = measure(build, rows, stages, rounds, options.runs, folder)
    print(f"| workload | {base}, ns |" + "".join(f" {stage}: least, median |" for stage in others) + "\n|---|---|" + "---|" * len(others))
    found = {stage: [ratios(seen[row], base, stage) for row in rows] for stage in others}
    for at, row in enumerate(rows):
        cells = ["{:.3f}, {:.3f}".format(*some[at]) for some in found.values()]
        print(f"| {row} | {min(seen[row][base]):.2f} | " + " | ".join(cells) + " |")
    means = [["{:.3f}".format(math.exp(statistics.fmean(math.log(pair[at]) for pair in some))) for at in (0, 1)] for some in found.values()]
    print("| geometric mean | | " + " | ".join(", ".join(mean) for mean in means) + " |")
    for stage in others:
        each = [statistics.fmean(math.log(seen[row][base][n] / seen[row][stage][n]) for row in rows) for n in range(rounds)]
        error = statistics.stdev(each) / math.sqrt(rounds) if rounds > 1 else math.nan
        print(f"{stage}: {math.exp(statistics.fmean(each)):.4f}, standard error {error:.4f}; {rounds} rounds")


main()
