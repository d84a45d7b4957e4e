#!/usr/bin/env python3
"""turns.py - what a recording costs, measured within one process: it is turned on and off while the program runs (turns.c).

    bench/turns.py [--build build/release] [--turns 160] [--plant PERMILLE] [WORKLOAD ... | --redis]

Processes of one program differ by several hundredths, and so do two minutes of a machine with other guests; turns of 50 ms of one
process see nearly the same of both. Compared are the CPU times an allocation of all that ran with a recording and without, in each group
of four turns (off, on, on, off); given is the mean of the groups without a tenth at either end, and a bootstrap's standard error. The
mean over the rows weighs each by its precision; the plain one stands beside it.

`quiet` is another look at the same: the fastest tenth of slices of 10 ms, which no neighbour disturbed. It is precise, and blind to what
falls on some slices only, as samples do at a few a slice: it bounds what recording costs always, not what it costs now and then.

--plant 20 is the control: of each second with a recording a thread burns 20 ms, unevenly, and the table has to show 0.98.

--redis takes a redis-server that redis-benchmark fills instead; most of its time is the kernel's.
"""
import argparse
import math
import os
import random
import shutil
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


def start(build, folder, command, turns, plant):
    """The program, with both libraries, and where it writes its turns."""
    found = os.path.join(folder, "turns")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    preload = os.path.join(build, "libhakmem.so") + ":" + os.path.join(folder, "turns.so")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=folder,
                               env={**kept, "LD_PRELOAD": preload, "TURNS_FILE": found, "TURNS_COUNT": str(turns), "TURNS_MS": str(TURN_MS),
                                    "TURNS_PLANT": str(plant)})
    return process, found


def start_redis(build, folder, turns, plant):
    socket = os.path.join(folder, "redis.sock")
    server, found = start(build, folder, ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"], turns, plant)
    while not os.path.exists(socket):
        if server.poll() is not None:
            sys.exit(f"turns.py: redis-server ended with {server.returncode}: {server.stderr.read().strip()}")
        time.sleep(0.01)
    client = subprocess.Popen(["redis-benchmark", "-s", socket, "-t", "set", "-n", "2000000000", "-c", "30", "-P", "16", "-r", "100000", "-d", "300"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return server, found, client


def turns_of(build, folder, row, turns, plant):
    """[(on, [(allocations, CPU ns), one a slice])]"""
    words = row.split()
    if row != REDIS and not os.path.exists(os.path.join(build, "bench", words[0])):
        sys.exit(f"turns.py: {os.path.join(build, 'bench', words[0])} is not there")
    if row == REDIS:
        process, found, client = start_redis(build, folder, turns, plant)
        try:
            said = process.communicate()[1]
        finally:  # when we are interrupted, too; the client tries for ever when the server is gone
            for one in (client, process):
                one.kill()
                one.wait()
    else:
        process, found = start(build, folder, [os.path.join(build, "bench", words[0]), *words[1:]], turns, plant)
        try:
            said = process.communicate(timeout=turns * 3 + 60)[1]  # a request may take 2 s to be seen
        except subprocess.TimeoutExpired:
            sys.exit(f"turns.py: {row} was not done after {turns * 3 + 60} s")
        finally:
            process.kill()
            process.wait()
    if process.returncode != 0:
        sys.exit(f"turns.py: {row} ended with {process.returncode}: {said.strip()}")
    if not os.path.exists(found):
        sys.exit(f"turns.py: {row}: the libraries were not loaded: {said.strip()}")
    with open(found, encoding="utf-8") as file:
        lines = [[int(word) for word in line.split()] for line in file]
    if len(lines) < 16 * SLICES:
        sys.exit(f"turns.py: {row} ended after {len(lines) // SLICES} turns: with its arguments it runs longer (see ROWS)")
    parts = [lines[at:at + SLICES] for at in range(0, len(lines), SLICES)]
    return [(part[0][0], [(count, ns) for _, count, ns in part]) for part in parts]


def fastest(turns, on):
    slices = sorted(ns / max(count, 1) for is_on, parts in turns if is_on == on for count, ns in parts)
    return slices[int(len(slices) * FASTEST)]


def quiet(turns):
    """The logarithm of the throughput recorded, of that without, by the fastest slices."""
    off, on = fastest(turns, 0), fastest(turns, 1)
    return math.log(off / on) if off > 0 and on > 0 else math.nan


def group_ratio(group):
    """The same by all that ran in the group; None where nothing did."""
    cost = []
    for which in (0, 1):
        parts = [part for is_on, some in group if is_on == which for part in some]
        count, ns = sum(count for count, _ in parts), sum(ns for _, ns in parts)
        if count <= 0 or ns <= 0:
            return None
        cost.append(ns / count)
    return math.log(cost[0] / cost[1])


def trimmed(values):
    """The mean without a tenth at either end."""
    kept = sorted(values)[len(values) // 10:len(values) - len(values) // 10]
    return statistics.fmean(kept)


def measure(build, folder, row, turns, plant):
    """(logarithm of the ratio, its standard error, the quiet slices' logarithm)"""
    seen = turns_of(build, folder, row, turns, plant)
    groups = [seen[at:at + 4] for at in range(0, len(seen) - 3, 4)]
    if row == REDIS:
        groups = groups[len(groups) // 20:]  # without its filling
    each = [one for one in map(group_ratio, groups) if one is not None]
    if len(each) < 4:
        sys.exit(f"turns.py: {row} allocated in {len(each)} of {len(groups)} groups of turns: that tells nothing")
    draw = random.Random(1)
    error = statistics.stdev(trimmed(draw.choices(each, k=len(each))) for _ in range(TRIES))
    return trimmed(each), error, quiet([turn for group in groups for turn in group])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--turns", type=int, default=160, help="of each row; about 0.1 s each")
    parser.add_argument("--redis", action="store_true", help="redis-server instead, which redis-benchmark fills; a thousand turns or more")
    parser.add_argument("--plant", type=int, default=0, metavar="PERMILLE", help="the control: burn so much of a processor while a recording is on")
    parser.add_argument("--check", action="store_true", help="fail if the mean, by precision, is under 0.99")
    parser.add_argument("rows", nargs="*", metavar="WORKLOAD")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    if options.redis and options.rows:
        parser.error("--redis and WORKLOAD exclude each other")
    rows = [REDIS] if options.redis else options.rows or ROWS
    if options.turns < 16:
        sys.exit("turns.py: --turns: at least 16")
    if not 0 <= options.plant <= 500:
        sys.exit("turns.py: --plant: 0 to 500")
    if options.redis and not (shutil.which("redis-server") and shutil.which("redis-benchmark")):
        sys.exit("turns.py: redis is not installed")
    if not os.path.exists(os.path.join(build, "libhakmem.so")):
        sys.exit(f"turns.py: {build}/libhakmem.so is not there: run `make product`")
    if any(sign in build + tempfile.gettempdir() for sign in " :"):
        sys.exit("turns.py: the loader takes no library from a path with a blank or colon (--build, TMPDIR)")
    print("| workload | throughput, recorded of not | standard error | quiet |\n|---|---|---|---|")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-O2", "-std=gnu11", "-shared", "-fPIC", "-I", os.path.join(ROOT, "src"), "-I", os.path.join(ROOT, "include"),
                        "-o", os.path.join(folder, "turns.so"), os.path.join(HERE, "turns.c")], check=True)
        for row in rows:
            found.append(measure(build, folder, row, options.turns, options.plant))
            print(f"| {row.replace(FOREVER, '-')} | {math.exp(found[-1][0]):.4f} | {found[-1][1]:.4f} | {math.exp(found[-1][2]):.4f} |", flush=True)
    weights = [1 / max(error, 1e-4) ** 2 for _, error, _ in found]
    mean = sum(weight * one for weight, (one, _, _) in zip(weights, found)) / sum(weights)
    plain = statistics.fmean(one for one, _, _ in found)
    print(f"| mean, by precision | {math.exp(mean):.4f} | {1 / math.sqrt(sum(weights)):.4f} | |")
    print(f"| plain geometric mean | {math.exp(plain):.4f} | {math.sqrt(sum(error ** 2 for _, error, _ in found)) / len(found):.4f} | |")
    if options.check and math.exp(mean) < 0.99:
        sys.exit("turns.py: throughput while recorded: under 0.99")


main()
