#!/usr/bin/env python3
"""run.py - runs every misuse program: its exact line on standard error, nothing else, death by SIGABRT.

A program announces the line (or lines, where several are right) as "expect: LINE" on standard output just
before it does the wrong thing. The programs control_* are correct and must exit with 0 in silence.

    run.py --build DIR [--only TEXT] [--verbose]
"""
import argparse
import os
import re
import resource
import signal
import subprocess
import sys

SECONDS_MAX = 30


def program_judge(path, name, more):
    """Runs one program; the reason why it fails, or None."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    environment.update(more)
    try:
        done = subprocess.run([path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS_MAX,
                              stdin=subprocess.DEVNULL, env=environment)
    except subprocess.TimeoutExpired:
        return f"still runs after {SECONDS_MAX} s"
    said = done.stderr.decode(errors="replace")
    if name.startswith("control_"):
        if done.returncode != 0 or said:
            return f"a correct program ended with {done.returncode} and said {said!r}"
        return None
    expected = re.findall(r"^expect: (.*)$", done.stdout.decode(errors="replace"), re.MULTILINE)
    if not expected:
        return f"it announced nothing (exit {done.returncode}, said {said!r})"
    if done.returncode == 0:
        return f"it survived; expected: {expected[0]}" + (f"; it said {said!r}" if said else "")
    if said.count("\n") != 1 or not said.endswith("\n"):
        return f"not exactly one line: {said!r}; expected: {expected[0]}"
    if said[:-1] not in expected:
        return f"said {said[:-1]!r}; expected: {' or: '.join(expected)}"
    if done.returncode != -signal.SIGABRT:
        return f"died by {-done.returncode}, not by SIGABRT ({said.strip()})"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True, help="build directory; programs are DIR/test/misuse/misuse_NAME")
    parser.add_argument("--only", default="", help="run only programs whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="print PASS lines too")
    parser.add_argument("--recorded", action="store_true", help="with recording on, most blocks being samples")
    arguments = parser.parse_args()
    more = {"HAKMEM_RECORD": "/dev/null", "HAKMEM_SAMPLE_BYTES": "64", "HAKMEM_SAMPLE_MOST": "0"} if arguments.recorded else {}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    here = os.path.dirname(os.path.abspath(__file__))
    names = sorted(name[:-2] for name in os.listdir(here) if name.endswith(".c") and arguments.only in name)
    failures = []
    if arguments.recorded: # blocks of pools are what these need, and nearly all are samples
        names = [name for name in names if "pool" not in name and "split" not in name]
    for name in names:
        path = os.path.join(os.path.abspath(arguments.build), "test", "misuse", "misuse_" + name)
        reason = program_judge(path, name, more) if os.path.exists(path) else f"{path} was not built"
        if reason is not None:
            failures.append(name)
            print(f"FAIL {name}: {reason}")
        elif arguments.verbose:
            print(f"PASS {name}")
    print(f"misuse: {len(names) - len(failures)} of {len(names)} passed")
    return 1 if failures or not names else 0


if __name__ == "__main__":
    sys.exit(main())
