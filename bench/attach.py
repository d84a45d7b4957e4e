#!/usr/bin/env python3
"""attach.py - a redis server of 2 GB: what it notices of being recorded for ten seconds, and how long the report takes.

    attach.py --build build/release [--hakmem TOOL] [--gigabytes 2] [--seconds 10] [--json FILE] [--check]

The server runs with the library on loopback and is filled; then a client sets values for some seconds and times each answer
(ping.c): with nobody looking, while `hakmem record -p` records, and with nobody looking again. A machine with other guests
lets any program wait for milliseconds now and then, in bursts; so the same is done by turns of two seconds, recorded from begin
to end or not: what a recording does at its begin and end comes in each of its turns, and the library itself says how long it held
the server up. Before and after each turn comes one in which nobody looks, and a turn counts where both of these had no answer
over 1 ms: what the host does is judged by them alone, whether the turn between them is recorded or not. Two pauses of 2 ms that
the server is told to make, asleep and at work, have to be seen first. Then the report is made. Throughput is turns.py's to say: a
few pairs of redis-benchmark are 7% apart from one to the next.
--check: fails where the figures of docs/recording.md are not met (held up for 1 ms at most, no longer answer in half of the recorded
turns, and no more of them than chance has; report in 5 s, file of 10 MB), or where the host was too busy for enough turns to count.
Wall-clock time: not part of the tests.
"""
import argparse
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
parser.add_argument("--build", required=True)
parser.add_argument("--hakmem")
parser.add_argument("--gigabytes", type=float, default=2)
parser.add_argument("--seconds", type=int, default=10)
parser.add_argument("--alone-seconds", type=int, default=5)
parser.add_argument("--turns", type=int, default=20, help="turns that count, of each kind (20)")
parser.add_argument("--wait", type=int, default=300, help="seconds for them at most (300)")
parser.add_argument("--json")
parser.add_argument("--check", action="store_true")
words = parser.parse_args()
library = os.path.abspath(os.path.join(words.build, "libhakmem.so"))
hakmem = os.path.abspath(words.hakmem or os.path.join(words.build, "hakmem"))
VALUE_BYTES = 1000
PLANTED_US = 1500


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def resident_mb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) / 1024


def wait_for(port, server):
    for _ in range(200):
        if server.poll() is not None:
            sys.exit(f"redis-server ended with {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("redis-server does not answer")


def held_us(said):
    """What the library says that it held the server up for: in all, and at most at once."""
    found = re.search(r"held the program up for ([\d.]+) (us|ms|s) in all, ([\d.]+) (us|ms|s) at most", said)
    if not found:
        sys.exit(f"hakmem record does not say what it cost: {said}")
    unit = {"us": 1, "ms": 1e3, "s": 1e6}
    return {"in_all": float(found[1]) * unit[found[2]], "at_once": float(found[3]) * unit[found[4]]}


def chance_of_more(on, off):
    """How likely at least so many turns with a pause are among the recorded ones if recording does nothing (Fisher's exact test)."""
    slow, count = sum(on) + sum(off), len(on) + len(off)
    ways = [math.comb(slow, k) * math.comb(count - slow, len(on) - k) for k in range(sum(on), min(slow, len(on)) + 1)]
    return sum(ways) / math.comb(count, len(on))


def turns(pings, pid):
    """The longest answers of turns of two seconds, [not recorded, recorded]; each recording begins and ends in its turn."""
    longest, held, around = [[], []], [], [pings(2)["longest_own_us"]]
    end = time.monotonic() + words.wait
    while min(len(some) for some in longest) < words.turns and time.monotonic() < end:
        recorded = int(len(longest[1]) < len(longest[0]))
        recorder = recorded and subprocess.Popen([hakmem, "record", "-p", str(pid), "--seconds", "1", "-o", "/dev/null"],
                                                 stderr=subprocess.PIPE, text=True)
        between = pings(2)["longest_own_us"]
        said = recorder.communicate(timeout=60)[1] if recorder else ""
        if recorder and recorder.returncode != 0:
            sys.exit("hakmem record failed")
        if recorder:
            held.append(held_us(said)["at_once"])
        around.append(pings(2)["longest_own_us"])
        if max(around[-2:]) <= 1000:
            longest[recorded].append(between)
        progress(f"{len(longest[0])} and {len(longest[1])} of {words.turns} turns count, {len(around)} beside them")
    slow = [[each > 1000 for each in some] for some in longest]
    return {"longest_own_us": {"off": longest[0], "on": longest[1]}, "over_1ms": {"off": sum(slow[0]), "on": sum(slow[1])},
            "beside": {"turns": len(around), "over_1ms": sum(each > 1000 for each in around)},
            "held_at_once_us": held, "chance": round(chance_of_more(slow[1], slow[0]), 3)}


def planted(pings, port):
    """The longest answers while the server makes a pause of 2 ms or more: asleep, at work. On a busy host the command that asks for it
    may come when the client has ended: so it is asked for three times at most."""
    pauses = [["debug", "sleep", "0.002"], ["eval", "for i = 1, 1000000 do end", "0"]]
    seen = []
    for pause in pauses:
        seen.append(0)
        for _ in range(3):
            if seen[-1] < PLANTED_US:
                seen[-1] = max(seen[-1], during(pings, port, pause))
    return seen


def during(pings, port, pause):
    pauser = subprocess.Popen(["sh", "-c", 'sleep 0.5; exec "$@"', "sh", "redis-cli", "-p", str(port)] + pause,
                              stdout=subprocess.DEVNULL)
    longest = pings(1)["longest_own_us"]
    if pauser.wait(30) != 0:
        sys.exit("redis-cli failed")
    return longest


def main():
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        print("redis is not installed")
        sys.exit(77)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        ping = os.path.join(folder, "ping")
        run("cc", "-O2", "-o", ping, os.path.join(HERE, "ping.c"))
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
        server = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                   "--dir", folder, "--enable-debug-command", "yes"],
                                  stdout=subprocess.DEVNULL, env=dict(environment, LD_PRELOAD=library))
        try:
            wait_for(port, server)
            keys = int(words.gigabytes * (1 << 30) / (VALUE_BYTES + 100))
            run("redis-cli", "-p", str(port), "debug", "populate", str(keys), "key", str(VALUE_BYTES))
            figures = {"keys": keys, "resident_mb": round(resident_mb(server.pid))}

            def pings(seconds):
                return json.loads(run(ping, str(port), str(seconds), str(server.pid), str(VALUE_BYTES), str(keys)))

            figures["alone"] = pings(words.alone_seconds)
            profile, page = os.path.join(folder, "redis.hakprof"), os.path.join(folder, "redis.html")
            recorder = subprocess.Popen([hakmem, "record", "-p", str(server.pid), "--seconds", str(words.seconds), "-o", profile],
                                        stderr=subprocess.PIPE, text=True)
            figures["recorded"] = pings(words.seconds + 1)
            figures["said"] = recorder.communicate(timeout=60)[1].strip()
            figures["held_us"] = held_us(figures["said"])
            if recorder.returncode != 0:
                sys.exit(figures["said"])
            figures["alone_again"] = pings(words.alone_seconds)
            figures["planted_us"] = planted(pings, port)
            figures["turns"] = turns(pings, server.pid)
            progress("")
            start = time.monotonic()
            run(hakmem, "report", profile, "-o", page)
            figures["report_s"] = round(time.monotonic() - start, 2)
            figures["file_mb"] = round(os.path.getsize(profile) / 1e6, 2)
            figures["page_mb"] = round(os.path.getsize(page) / 1e6, 2)
        finally:
            server.terminate()
            server.wait(30)
    print(json.dumps(figures, indent=1))
    if words.json:
        with open(words.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    turned = figures["turns"]
    counted = min(len(some) for some in turned["longest_own_us"].values())
    recorded = sorted(turned["longest_own_us"]["on"])
    is_short = (recorded != [] and max(turned["held_at_once_us"] + [figures["held_us"]["at_once"]]) <= 1000 and
                recorded[len(recorded) // 2] <= 1000 and turned["chance"] > 0.05)
    missed = [name for name, is_met in (("planted pauses seen", min(figures["planted_us"]) >= PLANTED_US),
                                        ("a quiet host", counted >= words.turns), ("pause", is_short),
                                        ("report", figures["report_s"] <= 5), ("file", figures["file_mb"] <= 10))
              if not is_met]
    print("missed: " + ", ".join(missed) if missed else "all is met")
    sys.exit(1 if missed and words.check else 0)


main()
