#!/usr/bin/env python3
"""run.py - runs every program here under the secure level: its exact line on standard error, and death as it says.

A program announces on standard output, just before it does the wrong thing, the line that must come ("expect: LINE"), or that the access
itself must not be possible ("expect a fault"). Programs control_* are correct, and exit with 0 in silence. Each runs several times, for which block
is handed out is chance. Then the programs of test/misuse run, which must be found out under this level as well.

    run.py --build DIR [--only TEXT] [--verbose]
"""
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import programs  # noqa: E402

SECONDS_MAX, TIMES = 60, 5
SECURE = {"HAKMEM_SECURE": "1"}


def run_judge(path, name):
    status, out, said = programs.run(path, SECURE, SECONDS_MAX)
    if name.startswith("control_"):
        return None if status == 0 and not said else f"a correct program ended with {status} and said {said!r}"
    expected = re.findall(r"^expect: (.*)$", out, re.MULTILINE)
    if "expect a fault" in out.splitlines():
        return None if status in (-signal.SIGSEGV, -signal.SIGBUS) and not said else f"no fault: it ended with {status} and said {said!r}"
    if not expected:
        return f"it announced nothing (exit {status}, said {said!r})"
    if status == 0:
        return f"it survived; expected: {expected[0]}"
    if said.count("\n") != 1 or said[:-1] not in expected:
        return f"said {said!r}; expected: {' or: '.join(expected)}"
    return None if status == -signal.SIGABRT else f"died by {-status}, not by SIGABRT ({said.strip()})"


def program_judge(path, name):
    """Runs one program; the reason why it fails, or None."""
    times = 1 if os.environ.get("HAK_TEST_EMULATED") else TIMES
    return next((reason for reason in (run_judge(path, name) for _ in range(times)) if reason), None)


def main():
    arguments = programs.arguments_parser(__doc__, "secure").parse_args()
    failed = programs.judge_all("secure", HERE, arguments, program_judge)
    misuse = [sys.executable, os.path.join(os.path.dirname(HERE), "misuse", "run.py"), "--build", arguments.build, "--secure", "--only", arguments.only]
    return failed | subprocess.run(misuse, check=False).returncode if not arguments.only else failed


if __name__ == "__main__":
    sys.exit(main())
