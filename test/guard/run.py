#!/usr/bin/env python3
"""run.py - runs every guard program: the first line of the report, the stacks by function, how the program ends.

    run.py --build DIR [--only TEXT] [--verbose] [--set NAME=VALUE]...
"""
import os
import re
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import programs  # noqa: E402

SECONDS_MAX = 60
GUARDED = {"HAKMEM_GUARD": "1", "HAKMEM_SAMPLE_BYTES": "64", "HAKMEM_SAMPLE_MOST": "0"}
HEAD = re.compile(r"^hakmem:   (passed to the library|[a-z ]+?) by thread (\d+) \((.*)\)(?:, ([\d.]+ (?:us|ms|s)) before)?, at( an unknown place)?$")
FRAME = re.compile(r"^hakmem:     #(\d+) 0x([0-9a-f]+)(?: (.+)\+0x([0-9a-f]+))?$")


def stacks_read(lines):
    """The stacks of a report by what was done there: [(file, offset)]; None where a line is of no kind that there is."""
    stacks, frames = {}, None
    for line in lines:
        head, frame = HEAD.match(line), FRAME.match(line)
        if head:
            frames = stacks.setdefault(head.group(1), [])
        elif frame and frames is not None:
            if int(frame.group(1)) != len(frames):
                return None
            frames.append((frame.group(3), frame.group(4)))
        elif not line.startswith("hakmem:   "):
            return None
    return stacks


def reports_split(said):
    """Their lines; a report's first one is not set in."""
    reports = []
    for line in said.splitlines():
        if not line.startswith("hakmem:   ") or not reports:
            reports.append([])
        reports[-1].append(line)
    return reports


def functions(program, frames):
    """Their names, where they are the program's; a return address is looked up a byte before."""
    offsets = [hex(int(offset, 16) - (at > 0)) for at, (path, offset) in enumerate(frames) if path and os.path.samefile(path, program)]
    if not offsets:
        return []
    done = subprocess.run(["addr2line", "-f", "-i", "-e", program, *offsets], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()[::2]


def program_judge(path, more, can_name):
    """Runs one program; the reason why it fails, or None."""
    status, out, said = programs.run(path, {**GUARDED, **more}, SECONDS_MAX)
    if os.environ.get("HAK_TEST_EMULATED"):  # whose kernel does not say what an access was
        said = re.sub(r"^qemu: .*\n", "", said, flags=re.MULTILINE)
        out = re.sub(r"^(expect: hakmem: [a-z ]+: )(?:read of|write to|jump to) ", r"\1access to ", out, flags=re.MULTILINE)
        out = re.sub(r"^stack (?:read|written|jumped to):", "stack touched:", out, flags=re.MULTILINE)
    announced = dict(re.findall(r"^([a-z ]+): (.*)$", out, re.MULTILINE))
    ends = announced.get("ends")
    if ends is None:
        return f"it announced nothing (exit {status}, said {said!r}, {out!r})"
    wanted = int(ends) if ends.isdigit() else -getattr(signal, "SIG" + ends)
    if status != wanted:
        return f"ended with {status} instead of {wanted}; said {said!r}"
    if announced.get("silent"):
        return f"said {said!r}" if said else None
    reports = reports_split(said)
    if not reports or any(lines[0] != announced["expect"] for lines in reports):
        return f"said {said!r}; expected: {announced['expect']}"
    if len(reports) > 1 and announced.get("reports") != "several":
        return f"{len(reports)} reports: {said!r}"
    # The first is whole. Another thread may be at one of its own when the first one's fault ends the program.
    stacks, *others = (stacks_read(lines[1:]) for lines in reports)
    if stacks is None or None in others:
        return f"a line of no known kind: {said!r}"
    for key, names in announced.items():
        if not key.startswith("stack "):
            continue
        frames = stacks.get(key[len("stack "):])
        if not frames:
            return f"no {key}: {said!r}"
        if not can_name:
            continue
        found = functions(path, frames)
        rest = iter(found)
        if not all(name in rest for name in names.split()):
            return f"{key} is {found}, not {names}: {said!r}"
    return None


def main():
    parser = programs.arguments_parser(__doc__, "guard")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a further variable of the environment")
    arguments = parser.parse_args()
    more = dict(pair.split("=", 1) for pair in arguments.set)
    can_name = shutil.which("addr2line") is not None and not os.environ.get("HAK_TEST_EMULATED")
    return programs.judge_all("guard", HERE, arguments, lambda path, name: program_judge(path, more, can_name))


if __name__ == "__main__":
    sys.exit(main())
