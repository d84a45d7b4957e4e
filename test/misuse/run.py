#!/usr/bin/env python3
"""run.py - runs every misuse program: its exact line on standard error, nothing else, death by SIGABRT.

A program announces the line (or lines, where several are right) as "expect: LINE" on standard output just
before it does the wrong thing. The programs control_* are correct and must exit with 0 in silence.

    run.py --build DIR [--only TEXT] [--recorded | --secure] [--verbose]
"""
import os
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import programs  # noqa: E402

SECONDS_MAX = 30
RECORDED = {"HAKMEM_RECORD": "/dev/null", "HAKMEM_SAMPLE_BYTES": "64", "HAKMEM_SAMPLE_MOST": "0"}


# Under the secure level nothing is split by lifetime, and slabs are not where these reckon them to be, nor is anything in front of their blocks.
NOT_SECURE = re.compile(r"pool|split|free_never_allocated_block|free_slab_tail|in_front|large_again")


def sizes_forget(line):
    return re.sub(r"block of \d+ bytes", "block of N bytes", line)


def program_judge(path, name, more):
    """Runs one program; the reason why it fails, or None."""
    status, out, said = programs.run(path, more, SECONDS_MAX)
    secure = "HAKMEM_SECURE" in more
    if name.startswith("control_"):
        if status != 0 or said:
            return f"a correct program ended with {status} and said {said!r}"
        return None
    expected = re.findall(r"^expect: (.*)$", out, re.MULTILINE)
    if not expected:
        return f"it announced nothing (exit {status}, said {said!r})"
    if status == 0:
        return f"it survived; expected: {expected[0]}" + (f"; it said {said!r}" if said else "")
    if said.count("\n") != 1 or not said.endswith("\n"):
        return f"not exactly one line: {said!r}; expected: {expected[0]}"
    # what a block has and what was asked for differ there; in a sample's place another size's may have lain last, once in a thousand runs
    if secure or ("HAKMEM_RECORD" in more and "other_sizes" in name):
        said, expected = sizes_forget(said), [sizes_forget(line) for line in expected]
    if said[:-1] not in expected:
        return f"said {said[:-1]!r}; expected: {' or: '.join(expected)}"
    if status != -signal.SIGABRT:
        return f"died by {-status}, not by SIGABRT ({said.strip()})"
    return None


def main():
    parser = programs.arguments_parser(__doc__, "misuse")
    parser.add_argument("--recorded", action="store_true", help="with recording on, most blocks being samples")
    parser.add_argument("--secure", action="store_true", help="under the secure level")
    arguments = parser.parse_args()
    more = RECORDED if arguments.recorded else {"HAKMEM_SECURE": "1"} if arguments.secure else {}

    def is_wanted(name):  # ordinary blocks are what these need, and with a recording nearly all are samples
        if arguments.secure:
            return not NOT_SECURE.search(name)
        return not arguments.recorded or not re.search(r"pool|split|in_front", name)

    return programs.judge_all("misuse", HERE, arguments, lambda path, name: program_judge(path, name, more), is_wanted)


if __name__ == "__main__":
    sys.exit(main())
