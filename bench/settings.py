#!/usr/bin/env python3
"""settings.py - is there a fixed setting of batch and retention that is better than the default, and where?

    bench/settings.py [--build build/release] [--rounds 7] [WORKLOAD ...]

Blocks that are taken from a slab at a time (HAKMEM_WORD_BYTES), when a full slab is used again (HAKMEM_RELIST_SHARE), and how much
free memory stays (HAKMEM_FREE_MAX_MB, HAKMEM_FREE_SHARE). A workload is one of the suite with its arguments, or a piece of bench/real as DRIVER.PIECE.SCALE.
All settings take turns, the default twice: what the second differs from the first by is what the machine does. A cell is CPU
time and peak of resident memory (MiB), each as the median of the rounds' ratios to the mean of the two defaults of the round.

The last lines say which setting is better somewhere: a twentieth less time where memory is at most a fiftieth more, or a twentieth less
memory where time is at most a fiftieth more. By time it counts only if the least of its rounds is a twentieth below the default's, too.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = ["random_mixed 15000000 256 16 1024 12345", "random_mixed 10000000 4096 16 1024 12345", "random_mixed 8000000 65536 16 256 12345",
        "random_mixed 8000000 65536 16 515 12345", "random_mixed 8000000 1024 1024 32768 12345", "pairs 64 256 200000", "pairs 1024 256 100000",
        "comprehensive random 10000", "comprehensive interleaved 4000", "bench_allocators --allocator any --scenario mixed --iterations 20000",
        "exchange 4 1500000 256 1024 25 12345", "server 4 2 200000 2000 12345", "storm 4 30000 1000 12345", "storm 4 3000 10000 12345",
        "larson 1 8 128 1024 1 12345 4", "mid_large_mt 2 4000000", "binary_trees 16 10", "ast 1500 12345", "lru_cache 1500000 30000 4 12345", "words 60000 12345",
        "cxx_containers 1500000 12345", "aligned 4000000 1024 4096 4096 12345", "burst_order random 100000 16 512 60 12345",
        "temporaries 1200 64 8192 12345", "realloc_growth 15000 12 12345", "drift 64 8 2 12345", "lifetimes 3000000 12345", "three_peaks 3 100 1 12345",
        "sqlite.load.2", "redis.load.2", "python.objects.4", "python.syntax.2", "git.blame.1", "perl.mixed.4", "scripts.gawk.4"]
# Each names one that is set, the default too: to have a variable read costs a page.
SETTINGS = {"default": {"WORD_BYTES": 65536}, "again": {"RELIST_SHARE": 8},
            "word 8 KiB": {"WORD_BYTES": 8192}, "word 24 KiB": {"WORD_BYTES": 24576}, "word 256 KiB": {"WORD_BYTES": 262144},
            "relist 2": {"RELIST_SHARE": 2}, "relist 4": {"RELIST_SHARE": 4}, "relist 16": {"RELIST_SHARE": 16}, "relist 32": {"RELIST_SHARE": 32},
            "free 64 MiB, 1/4": {"FREE_MAX_MB": 64, "FREE_SHARE": 4}, "free 2 MiB, 1/16": {"FREE_MAX_MB": 2, "FREE_SHARE": 16}}
BETTER, NO_WORSE = 0.95, 1.02


def run(build, row, setting):
    library = os.path.join(build, "libhakmem.so")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_") or name == "HAKMEM_BENCH_CACHE"}
    given = {f"HAKMEM_{name}": str(value) for name, value in SETTINGS[setting].items()}
    words = row.split()
    is_real = row.count(".") == 2 and len(words) == 1
    command = [os.path.join(HERE, "real", row.split(".")[0]), *row.split(".")[1:]] if is_real else [os.path.join(build, "bench", words[0]), *words[1:]]
    given["HAKMEM_BENCH_PRELOAD" if is_real else "LD_PRELOAD"] = library
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**kept, **given}, check=False)
    if done.returncode:
        sys.exit(f"settings.py: {row} ended with {done.returncode}: {done.stderr.strip()}")
    result = json.loads(done.stdout.splitlines()[-1])
    return result["cpu_ns"] / result["ops"], result["peak_kb"] / 1024


def measure(build, rows, rounds):
    """(CPU ns an operation, peak MiB), {row: {setting: [one a round]}}."""
    seen = {row: {setting: [] for setting in SETTINGS} for row in rows}
    for number in range(rounds):
        for at, row in enumerate(rows):
            print(f"\rround {number + 1} of {rounds}, workload {at + 1} of {len(rows)} ", end="", file=sys.stderr, flush=True)
            for setting in sorted(SETTINGS, key=list(SETTINGS).index, reverse=number % 2 == 1):
                seen[row][setting].append(run(build, row, setting))
    print("\r" + " " * 48 + "\r", end="", file=sys.stderr)
    return seen


def ratios(of_row, setting):
    """Of time and peak to the default's: the medians of the rounds' ratios; and the ratio of the least times."""
    base = [[statistics.fmean((one[at], again[at])) for one, again in zip(of_row["default"], of_row["again"])] for at in (0, 1)]
    pair = [statistics.median(value[at] / one for value, one in zip(of_row[setting], base[at])) for at in (0, 1)]
    least = min(time for time, _ in of_row[setting]) / min(time for name in ("default", "again") for time, _ in of_row[name])
    return *pair, least


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("rows", nargs="*", metavar="WORKLOAD")
    options = parser.parse_args()
    build, rows = os.path.abspath(options.build), options.rows or ROWS
    if options.rounds < 1:
        sys.exit("settings.py: --rounds: at least 1")
    for row in rows:
        program = os.path.join(HERE, "real", row.split(".")[0]) if row.count(".") == 2 else os.path.join(build, "bench", (row.split() or ["."])[0])
        if not os.path.isfile(program):
            sys.exit(f"settings.py: there is no workload {row!r}")
    seen = measure(build, rows, options.rounds)
    shown = [setting for setting in SETTINGS if setting != "default"]
    print("| workload | default: ns, MiB | " + " | ".join(shown) + " |\n" + "|---" * (2 + len(shown)) + "|")
    better = []
    for row in rows:
        of = {setting: ratios(seen[row], setting) for setting in shown}
        first = [statistics.median(value[at] for value in seen[row]["default"]) for at in (0, 1)]
        print(f"| {row} | {first[0]:.4g}, {first[1]:.1f} | " + " | ".join(f"{time:.3f}, {peak:.3f}" for time, peak, _ in of.values()) + " |")
        for setting, (time, peak, least) in of.items():
            is_faster = max(time, least) <= BETTER and peak <= NO_WORSE
            if setting != "again" and (is_faster or (peak <= BETTER and time <= NO_WORSE)):
                better.append(f"{setting}: {row}: time {time:.3f} (least {least:.3f}), peak {peak:.3f}")
    print("better somewhere: " + ("none" if not better else ""))
    print("\n".join(better))


main()
