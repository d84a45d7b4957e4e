"""preloaded.py - what the preload tests share: run a program with and without HAKMEM and compare.

A Suite counts its cases: same() passes when exit status, standard output and standard error are equal with
and without the library; works() when a preloaded run ends with 0 (and says what it should). finish() gives
the script's exit status: 1 when a case failed, 77 when all were skipped, else 0.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77


class Skip(Exception):
    """Raised by a case that cannot run on this machine; its text says why."""


def need(*programs):
    """The paths of programs, or Skip."""
    paths = []
    for program in programs:
        path = shutil.which(program)
        if path is None:
            raise Skip(f"{program} is not installed")
        paths.append(path)
    return paths if len(paths) > 1 else paths[0]


class Run:
    """What a program left behind."""

    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds

    def brief(self):
        ending = f"signal {-self.status} ({signal.Signals(-self.status).name})" if isinstance(self.status, int) and self.status < 0 \
            else f"status {self.status}"
        last = (self.err or self.out).decode(errors="replace").strip().splitlines()[-3:]
        return f"{ending}: {' | '.join(last)[-300:]}"


class Suite:
    """The cases of one script."""

    def __init__(self, name, description, add_arguments=None):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--build", required=True, help="build directory with libhakmem.so")
        parser.add_argument("--only", default="", help="run only cases whose name contains this")
        if add_arguments is not None:
            add_arguments(parser)
        self.arguments = parser.parse_args()
        self.name = name
        self.library = os.path.join(os.path.abspath(self.arguments.build), "libhakmem.so")
        self.folder = tempfile.mkdtemp(prefix="hakmem-preload-")
        self.counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
        if not os.path.exists(self.library):
            print(f"{name}: {self.library} does not exist; run make first", file=sys.stderr)
            sys.exit(1)

    def environment(self, preload, more=None):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HAKMEM_", "LD_", "MALLOC_"))}
        kept.update({"LC_ALL": "C", "TZ": "UTC"})
        kept.update(more or {})
        if preload:
            kept["LD_PRELOAD"] = self.library
            if os.environ.get("HAK_TEST_SECURE"): # secured.py
                kept["HAKMEM_SECURE"] = "1"
        return kept

    def run(self, argv, preload=True, stdin=b"", env=None, cwd=None, seconds=120, before=None):
        """Runs a program in a session of its own, so that all it started ends with it."""
        begin = time.monotonic()
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=self.environment(preload, env), cwd=cwd or self.folder, start_new_session=True,
                                 preexec_fn=before)
        try:
            out, err = child.communicate(stdin, timeout=seconds)
            status = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            status = f"none: still ran after {seconds} s"
        return Run(status, out, err, time.monotonic() - begin)

    def case(self, name, function):
        """Runs one case: a function that returns None, or the reason of its failure."""
        if self.arguments.only not in name:
            return
        begin = time.monotonic()
        try:
            reason = function()
            word = "FAIL" if reason else "PASS"
        except Skip as skip:
            word, reason = "SKIP", str(skip)
        self.counts[word] += 1
        seconds = time.monotonic() - begin
        print(f"{word} {name} ({seconds:.1f} s)" + (f": {reason}" if reason else ""), flush=True)

    def same(self, name, make_argv, **options):
        """A case: the same result with and without. make_argv() gives the command, or raises Skip."""
        def compare():
            argv = make_argv()
            without, with_us = self.run(argv, preload=False, **options), self.run(argv, preload=True, **options)
            if without.status != 0:
                raise Skip(f"fails without HAKMEM: {without.brief()}")
            if with_us.status != without.status:
                return f"ended with {with_us.brief()}"
            for what, ours, theirs in (("output", with_us.out, without.out), ("standard error", with_us.err, without.err)):
                if ours != theirs:
                    return f"{what} differs: {first_difference(theirs, ours)}"
            return None
        self.case(name, compare)

    def works(self, name, make_argv, says=None, **options):
        """A case: a preloaded run ends with 0 and, if given, its output holds `says`."""
        def judge():
            done = self.run(make_argv(), **options)
            if done.status != 0:
                return f"ended with {done.brief()}"
            if says is not None and says not in done.out + done.err:
                return f"did not say {says!r}: {done.brief()}"
            return None
        self.case(name, judge)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def finish(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        counts = self.counts
        print(f"{self.name}: {counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
        if counts["FAIL"]:
            return 1
        return 0 if counts["PASS"] else SKIPPED


def first_difference(theirs, ours):
    ours_lines, theirs_lines = ours.splitlines(), theirs.splitlines()
    for i in range(max(len(ours_lines), len(theirs_lines))):
        one = theirs_lines[i] if i < len(theirs_lines) else b"(end)"
        two = ours_lines[i] if i < len(ours_lines) else b"(end)"
        if one != two:
            return f"line {i + 1}: {one[:120]!r} without, {two[:120]!r} with"
    return "only in line ends"


def compile_c(suite, name, flags=()):
    """Builds helper/NAME.c; the program's path, or Skip."""
    compiler = need("gcc")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".c")
    target = os.path.join(suite.folder, name)
    include = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "include")
    done = suite.run([compiler, "-O1", "-w", "-I" + include, source, "-o", target, "-ldl", "-lpthread", *flags], preload=False)
    if done.status != 0:
        raise RuntimeError(done.brief())
    return target
