#!/usr/bin/env python3
"""learning.py - real programs with what earlier runs of theirs taught, against the default: docs/learning.md's table.

Each workload is a piece of bench/real. RUNS runs learn into a policy file of its own; then that file, frozen, and the default
take turns. CPU time (children included) is the least of the rounds, and compared by the median of the rounds' ratios, the
least by the least beside it; peak, resident memory after the work and page faults are medians.

    bench/learning.py [--build build/release] [--runs 6] [--rounds 16] [--warm MB] [DRIVER.PIECE.SCALE ...]

--warm: before each run a process touches so many MB of huge pages and ends. A virtual machine's host that takes free memory away has given it back then,
as it is where no host does.

The last line says whether the aim holds: CPU time at most 1.01 by the median everywhere, and memory or faults a tenth less in two programs.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WORKLOADS = ["redis.load.6", "python.json.4", "python.objects.4", "python.syntax.4", "sqlite.load.6", "gcc.templates.1",
             "clang.templates.3", "scripts.gawk.4", "git.blame.2"]
MEASURES = [("peak", "peak_kb", statistics.median, 1024), ("resident after", "resident_kb", statistics.median, 1024),
            ("faults", "faults", statistics.median, 1)]


WARM = """
import mmap, sys
size = int(sys.argv[1]) << 20
with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory: # shared memory has none
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, 2 << 20):
        memory[at] = 1
"""
warm_mb = 0


def run(workload, library, **environment):
    if warm_mb:
        subprocess.run([sys.executable, "-c", WARM, str(warm_mb)], check=True)
    driver, piece, scale = workload.split(".")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_") or name == "HAKMEM_BENCH_CACHE"}
    done = subprocess.run([os.path.join(HERE, "real", driver), piece, scale], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, env={**kept, "HAKMEM_BENCH_PRELOAD": library, **environment}, check=False)
    if done.returncode:
        sys.exit(f"bench/learning.py: {workload} ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def learnt(workload, library, runs, folder):
    """A folder with a policy file for each program that the workload starts."""
    os.mkdir(folder)
    for _ in range(runs):
        run(workload, library, HAKMEM_POLICY=os.path.join(folder, "%e.policy"))
    spare = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="ascii") as file:
            spare += [int(line.split()[1]) for line in file if line.startswith("spare ")]
    return max(spare, default=0)


def compare(workload, library, runs, rounds, folder):
    first = os.path.join(folder, "learnt")
    spare = learnt(workload, library, runs, first)
    seen = {"default": [], "learnt": []}
    for number in range(rounds):
        for kind in sorted(seen, reverse=number % 2 == 1):
            policy = os.path.join(folder, f"{number}")
            shutil.copytree(first, policy, dirs_exist_ok=True)
            known = {"HAKMEM_POLICY": os.path.join(policy, "%e.policy"), "HAKMEM_EVO_POLICY": "frozen"} if kind == "learnt" else {}
            seen[kind].append(run(workload, library, **known))
    least = {kind: min(one["cpu_ns"] for one in seen[kind]) / 1e6 for kind in seen}
    time = statistics.median(one["cpu_ns"] / other["cpu_ns"] for one, other in zip(seen["learnt"], seen["default"]))
    cells, best = [f"{least['default']:.0f} ms", f"{time:.3f}", f"{least['learnt'] / least['default']:.3f}"], 1.0
    for _, field, of, unit in MEASURES:
        one, other = ([run_.get(field, 0) for run_ in seen[kind]] for kind in ("default", "learnt"))
        if not any(one):
            cells += ["", ""]
            continue
        ratio = of(other) / of(one)
        best = min(best, ratio)
        cells += [f"{of(one) / unit:.1f} MiB" if unit > 1 else f"{of(one):.0f}", f"{ratio:.3f}"]
    print(f"| {workload} | {spare} | " + " | ".join(cells) + " |", flush=True)
    return time, best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--warm", type=int, default=0, metavar="MB")
    parser.add_argument("workloads", nargs="*", default=WORKLOADS)
    options = parser.parse_args()
    global warm_mb  # of every run
    warm_mb = options.warm
    for workload in options.workloads:
        if workload.count(".") != 2:
            parser.error(f"{workload}: not of the form DRIVER.PIECE.SCALE, such as {WORKLOADS[0]}")
    library = os.path.join(os.path.abspath(options.build), "libhakmem.so")
    print("| workload | halvings | CPU time | learnt: median | least | " + " | ".join(f"{name} | learnt" for name, *_ in MEASURES) + " |")
    print("|---" * (5 + 2 * len(MEASURES)) + "|")
    found = {}
    for workload in options.workloads:
        with tempfile.TemporaryDirectory() as folder:
            found[workload] = compare(workload, library, options.runs, options.rounds, folder)
    slow = [workload for workload, (time, _) in found.items() if time > 1.01]
    better = {workload.split(".")[0] for workload, (_, best) in found.items() if best <= 0.9}
    print(f"slower by more than 1%: {', '.join(slow) or 'none'}; a tenth less memory or faults: {', '.join(sorted(better)) or 'none'}")


main()
