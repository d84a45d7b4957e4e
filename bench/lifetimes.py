#!/usr/bin/env python3
"""lifetimes.py - what slabs by lifetime bring and cost in real programs: the same runs with and without, interleaved.

    python3 bench/lifetimes.py build/release/libhakmem.so [--runs 5] [row ...]

Prints a table for docs/learning.md. CPU time is the least of the runs (what disturbs only adds), memory the median;
`resident` is what the row's driver says (bench/real): after the work, or after most was dropped. Nothing is saved from
one run to the next. Rows whose program is not installed are left out.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_INSTALLED = 77  # bench/real/_real.py
ROWS = {
    "redis sessions": (["redis", "sessions", "4"], "240,000 sessions in three waves, deleted; 12,000 users stay"),
    "redis load": (["redis", "load", "4"], "32,000 keys of all types, a third deleted and replaced; then all deleted"),
    "python documents": (["python", "documents", "6"], "1,800 documents parsed in three waves, dropped; an index stays"),
    "python objects": (["python", "objects", "10"], "trees, dictionaries and lists that live and die"),
    "sqlite load": (["sqlite", "load", "12"], "a database in memory: inserts, indexes, joins, full-text; closed"),
    "gcc templates": (["gcc", "templates", "12"], "one C++ file of templates and containers"),
}


def run(command, library, is_off):
    env = {**os.environ, "HAKMEM_BENCH_PRELOAD": library, "HAKMEM_DISABLE_LIFETIMES": "1" if is_off else "0"}
    done = subprocess.run([os.path.join(HERE, "real", command[0]), *command[1:]], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    said = f"{' '.join(command)}: {done.stderr.strip()}"
    if done.returncode == NOT_INSTALLED:
        print(said, file=sys.stderr)
        return None
    if done.returncode:
        sys.exit(f"lifetimes.py: {said or done.returncode}")
    return json.loads(done.stdout)


def measured(command, library, runs):
    """[without, with], each a list of JSON lines; None where the program is not there."""
    lines = ([], [])
    for number in range(runs):
        for which in ((0, 1), (1, 0))[number % 2]:
            line = run(command, library, which == 0)
            if line is None:
                return None
            lines[which].append(line)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("row", nargs="*", help=", ".join(ROWS))
    asked = parser.parse_args()
    unknown = [name for name in asked.row if name not in ROWS]
    if unknown or asked.runs < 1:
        parser.error(f"no such row: {unknown[0]}" if unknown else "--runs is at least 1")
    print("| program | CPU time, without and with | peak MB | resident MB after |\n|---|---|---|---|")
    for name in asked.row or ROWS:
        command, about = ROWS[name]
        lines = measured(command, os.path.realpath(asked.library), asked.runs)
        if not lines:
            continue
        seconds = [min(line["cpu_ns"] for line in some) / 1e9 for some in lines]
        peak, resident = ([statistics.median(line[key] for line in some) * 1024 / 1e6 for some in lines]
                          if key in lines[0][0] else None for key in ("peak_kb", "resident_kb"))
        after = f"{resident[0]:.1f}, {resident[1]:.1f} ({resident[1] / resident[0] - 1:+.0%})" if resident else "-"
        print(f"| {name}: {about} | {seconds[0]:.2f}, {seconds[1]:.2f} s ({seconds[1] / seconds[0] - 1:+.1%}) | "
              f"{peak[0]:.1f}, {peak[1]:.1f} ({peak[1] / peak[0] - 1:+.1%}) | {after} |", flush=True)


main()
