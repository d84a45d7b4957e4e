#!/usr/bin/env python3
"""entries.py - what each entry point costs, beside the peers.

    bench/entries.py [--build build/release] [--rounds 7] [--with NAME=FILE ...]

entries.cc goes through them in one process, without touching what it allocates but where it has to; here it runs with one allocator
after the other, in turns. A figure is nanoseconds, the median over the rounds of the least of five in each. All of it is first-level cache and branch
predictor at their best: it finds a cliff or a detour, and says little about programs, which bench/suite.toml has.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import peers

HERE = os.path.dirname(os.path.abspath(__file__))
FAR = 1.5  # times the best peer


def build_program(folder):
    program = os.path.join(folder, "entries")
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-fno-builtin", "-fno-plt", "-Wl,-z,now", os.path.join(HERE, "entries.cc"), "-o", program, "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"entries.py: {done.stderr.strip()}")
    return program


def run(program, library, environment, times):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_") and name != "LD_PRELOAD"}
    kept.update(environment)
    if library:
        kept["LD_PRELOAD"] = library
    done = subprocess.run([program, str(times)], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=kept, check=False)
    if done.returncode or done.stderr:
        sys.exit(f"entries.py: with {library or 'glibc'} it ended with {done.returncode}: {done.stderr.strip()}")
    return {name: float(ns) for name, ns in (line.split("\t") for line in done.stdout.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--times", type=int, default=200000, help="operations in each measurement (default 200000)")
    parser.add_argument("--with", dest="libraries", action="append", metavar="NAME=FILE", help="these instead of the peers")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.rounds < 1:
        sys.exit("entries.py: --rounds: at least 1")
    others = {} if options.libraries else {peer.name: (peer.path, peer.environment) for peer in peers.all_peers() if "hardened" not in peer.name}
    for given in options.libraries or []:
        name, equals, path = given.partition("=")
        if not equals or not os.path.isfile(path):
            sys.exit(f"entries.py: --with: NAME=FILE, of a file that is there: {given!r}")
        others[name] = (os.path.abspath(path), {})
    own = os.path.join(os.path.abspath(options.build), "libhakmem.so")
    libraries = {"hakmem": (own, {}), **others}
    if not os.path.isfile(own):
        sys.exit(f"entries.py: {own} is not there: build it first")
    seen = {name: {} for name in libraries}
    with tempfile.TemporaryDirectory() as folder:
        program = build_program(folder)
        for number in range(options.rounds):
            for at, name in enumerate(sorted(libraries, key=list(libraries).index, reverse=number % 2 == 1)):
                if sys.stderr.isatty():
                    print(f"\rround {number + 1} of {options.rounds}, {at + 1} of {len(libraries)} ", end="", file=sys.stderr, flush=True)
                for case, ns in run(program, *libraries[name], options.times).items():
                    seen[name].setdefault(case, []).append(ns)
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(seen, file)
    print("| ns | " + " | ".join(libraries) + " |\n" + "|---" * (1 + len(libraries)) + "|")
    far = []
    for case in seen["hakmem"]:
        ns = {name: statistics.median(values[case]) for name, values in seen.items()}
        print(f"| {case} | " + " | ".join(f"{value:.1f}" for value in ns.values()) + " |")
        best = min((value, name) for name, value in ns.items() if name != "hakmem")
        if ns["hakmem"] > FAR * best[0]:
            far.append(f"{case}: {ns['hakmem'] / best[0]:.2f} of {best[1]}")
    print(f"\nmore than {FAR} times the best: " + ("none" if not far else "\n\n- " + "\n- ".join(far)))


main()
