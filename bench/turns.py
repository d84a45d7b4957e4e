#!/usr/bin/env python3
"""turns.py - what a recording costs, measured within one process: it is turned on and off while the program runs (turns.c).

    bench/turns.py [--build build/release] [--turns 160] [WORKLOAD ... | --redis]

Processes of one program differ by several hundredths, and so do two minutes of a machine with other guests; turns of 50 ms of one
process see nearly the same of both. Each turn is cut into slices of 10 ms; compared are the CPU times an allocation of the
fastest tenth of the slices with a recording and of those without, which no neighbour disturbed. The standard error is a bootstrap's
over groups of four turns (off, on, on, off). The mean over the rows weighs each by its precision; the plain one stands beside it.
Programs whose slices are not alike (a burst, then its frees) have wide errors.

--redis takes a redis-server that redis-benchmark fills instead. Most of its time is the kernel's, and no slice is undisturbed by its
client: compared are the medians of turns within each group of four, and the trimmed mean of the groups is given.
"""
import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SLICES, TURN_MS, FASTEST, TRIES = 5, 50, 0.1, 200
FOREVER, REDIS = "4000000000", "redis, SET of 300 bytes"
ROWS = [f"tiny_hot {FOREVER} 64", f"random_mixed {FOREVER} 256 16 1024 12345", f"random_mixed {FOREVER} 4096 16 1024 12345",
        f"random_mixed {FOREVER} 65536 16 256 12345", f"random_mixed {FOREVER} 1024 1024 32768 12345", "comprehensive random 20000000",
        "storm 4 6000000 1000", "exchange 4 1500000000 256 1024 25 12345", "ast 1200000", f"lru_cache {FOREVER} 30000 4 12345",
        "burst_order random 100000 16 512 40000 12345", f"vm {FOREVER}", "temporaries 4000000 64 8192 12345", "calloc_half 1600000",
        "words 60000000 12345", "binary_trees 16 40000"]


def start(build, folder, command, turns):
    """The program, with both libraries, and where it writes its turns."""
    found = os.path.join(folder, "turns")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    preload = os.path.join(build, "libhakmem.so") + ":" + os.path.join(folder, "turns.so")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder,
                               env={**kept, "LD_PRELOAD": preload, "TURNS_FILE": found, "TURNS_COUNT": str(turns), "TURNS_MS": str(TURN_MS)})
    return process, found


def start_redis(build, folder, turns):
    socket = os.path.join(folder, "redis.sock")
    server, found = start(build, folder, ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"], turns)
    while not os.path.exists(socket):
        if server.poll() is not None:
            sys.exit(f"turns.py: redis-server ended with {server.returncode}: {server.stderr.read().strip()}")
        time.sleep(0.01)
    client = subprocess.Popen(["redis-benchmark", "-s", socket, "-t", "set", "-n", "2000000000", "-c", "30", "-P", "16", "-r", "100000", "-d", "300"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return server, found, client


def turns_of(build, folder, row, turns):
    """[(on, [CPU ns an allocation, one a slice])]"""
    words = row.split()
    if row == REDIS:
        process, found, client = start_redis(build, folder, turns)
        try:
            said = process.communicate()[1]
        finally:  # when we are interrupted, too; the client tries for ever when the server is gone
            for one in (client, process):
                one.kill()
                one.wait()
    else:
        process, found = start(build, folder, [os.path.join(build, "bench", words[0]), *words[1:]], turns)
        said = process.communicate()[1]
    if process.returncode != 0:
        sys.exit(f"turns.py: {row} ended with {process.returncode}: {said.strip()}")
    with open(found, encoding="utf-8") as file:
        lines = [[int(word) for word in line.split()] for line in file]
    if len(lines) < 16 * SLICES:
        sys.exit(f"turns.py: {row} ended after {len(lines) // SLICES} turns: with its arguments it runs longer (see ROWS)")
    parts = [lines[at:at + SLICES] for at in range(0, len(lines), SLICES)]
    return [(part[0][0], [ns / max(count, 1) for _, count, ns in part]) for part in parts]


def fastest(turns, on):
    slices = sorted(value for is_on, values in turns if is_on == on for value in values)
    return slices[int(len(slices) * FASTEST)]


def ratio(groups):
    """The logarithm of the throughput recorded, of that without."""
    turns = [turn for group in groups for turn in group]
    return math.log(fastest(turns, 0) / fastest(turns, 1))


def group_ratio(group):
    off, on = (statistics.fmean(statistics.median(values) for is_on, values in group if is_on == which) for which in (0, 1))
    return math.log(off / on)


def trimmed(values):
    """The mean without a tenth at either end."""
    kept = sorted(values)[len(values) // 10:len(values) - len(values) // 10]
    return statistics.fmean(kept)


def measure(build, folder, row, turns):
    seen = turns_of(build, folder, row, turns)
    groups = [seen[at:at + 4] for at in range(0, len(seen) - 3, 4)]
    if row == REDIS:
        each = [group_ratio(group) for group in groups[len(groups) // 20:]]  # without its filling
        draw = random.Random(1)
        return trimmed(each), statistics.stdev(trimmed(draw.choices(each, k=len(each))) for _ in range(TRIES))
    draw = random.Random(1)
    error = statistics.stdev(ratio(draw.choices(groups, k=len(groups))) for _ in range(TRIES))
    return ratio(groups), error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--turns", type=int, default=160, help="of each row; about 0.1 s each")
    parser.add_argument("--redis", action="store_true", help="redis-server instead, which redis-benchmark fills; a thousand turns or more")
    parser.add_argument("--check", action="store_true", help="fail if the mean, by precision, is under 0.99")
    parser.add_argument("rows", nargs="*", metavar="WORKLOAD")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    if options.redis and options.rows:
        parser.error("--redis and WORKLOAD exclude each other")
    rows = [REDIS] if options.redis else options.rows or ROWS
    if options.turns < 16:
        sys.exit("turns.py: --turns: at least 16")
    print("| workload | throughput, recorded of not | standard error |\n|---|---|---|")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-O2", "-std=gnu11", "-shared", "-fPIC", "-I", os.path.join(ROOT, "src"), "-I", os.path.join(ROOT, "include"),
                        "-o", os.path.join(folder, "turns.so"), os.path.join(HERE, "turns.c")], check=True)
        for row in rows:
            found.append(measure(build, folder, row, options.turns))
            print(f"| {row.replace(FOREVER, '-')} | {math.exp(found[-1][0]):.4f} | {found[-1][1]:.4f} |", flush=True)
    weights = [1 / max(error, 1e-4) ** 2 for _, error in found]
    mean = sum(weight * one for weight, (one, _) in zip(weights, found)) / sum(weights)
    plain = statistics.fmean(one for one, _ in found)
    print(f"| mean, by precision | {math.exp(mean):.4f} | {1 / math.sqrt(sum(weights)):.4f} |")
    print(f"| plain geometric mean | {math.exp(plain):.4f} | {math.sqrt(sum(error ** 2 for _, error in found)) / len(found):.4f} |")
    if options.check and math.exp(mean) < 0.99:
        sys.exit("turns.py: throughput while recorded: under 0.99")


main()
