#!/usr/bin/env python3
"""check.py - configure, build and test presets, then say in one line how it went.

    scripts/check.py PRESET...            each preset of CMakePresets.json in turn
    scripts/check.py --soak SECONDS       the release build's stress and fuzz tests over and over

What failed tests printed comes once more at the end, 40 lines of each. The last line is `N passed, N failed,
N skipped` over all presets, from what CTest recorded; a configure or build that fails counts as one failed. The
exit status is 0 only if something passed and nothing failed.
"""
import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LINES_SAID = 40  # of what a failed test printed
DAY_S = 24 * 3600
JOBS = str(min(os.cpu_count() or 2, 16))


def say(text):
    print(f"== {text}", flush=True)


def run(*command, **more):
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, **more).returncode


class Count:
    """How many tests passed, failed and were skipped, and the names of those that failed."""

    def __init__(self):
        self.passed, self.failed, self.skipped, self.names, self.said = 0, 0, 0, [], {}

    def fail(self, name, said=""):
        self.failed += 1
        self.names.append(name)
        self.said[name] = said

    def add_junit(self, preset, path, status):
        """What ctest recorded, and its status: not 0 with nothing failed means that it did not run them."""
        failed = self.failed
        self.add_cases(preset, path)
        if status != 0 and self.failed == failed:
            self.fail(f"{preset}: ctest ended with {status}")

    def add_cases(self, preset, path):
        try:
            cases = xml.parse(path).getroot().iter("testcase")
        except (OSError, xml.ParseError) as error:
            self.fail(f"{preset}: no test results ({error})")
            return
        ran = False
        for case in cases:
            ran = True
            skipped = case.find("skipped")
            if case.get("status") == "run":
                self.passed += 1
            elif skipped is not None and "SKIP" in (skipped.get("message") or ""):
                self.skipped += 1
            else:  # failed, timed out, or its program was not there to be run
                self.fail(f"{preset}: {case.get('name')}", case.findtext("system-out") or "")
        if not ran:
            self.fail(f"{preset}: no test is registered")


def check_preset(preset, count, deadline, select):
    start = time.monotonic()
    if start > deadline:
        count.fail(f"{preset}: not reached within the time limit")
        return
    say(f"{preset}: build")
    build = os.path.join(ROOT, "build", preset)
    junit = os.path.join(build, "junit.xml")
    # In CI, where the compilers are known, src/ compiles without a warning; elsewhere a newer one may know more.
    strict = "ON" if os.environ.get("CI") == "true" else "OFF"
    if run("cmake", "--preset", preset, f"-DHAKMEM_WERROR={strict}", stdout=subprocess.DEVNULL) != 0:
        count.fail(f"{preset}: configure")
        return
    if run("cmake", "--build", "--preset", preset, "-j", JOBS) != 0:
        # What did build is tested all the same, so that one run tells everything.
        count.fail(f"{preset}: build")
        run("cmake", "--build", "--preset", preset, "-j", JOBS, "--", "-k", "0", stdout=subprocess.DEVNULL)
    if os.path.exists(junit):
        os.remove(junit)
    built = time.monotonic()
    say(f"{preset}: built in {built - start:.0f} s; tests")
    left = deadline - built
    if left <= 0:  # ctest would take that time of day for tomorrow's
        count.fail(f"{preset}: not tested within the time limit")
        return
    stop = ["--stop-time", time.strftime("%H:%M:%S", time.localtime(time.time() + left))] if left < DAY_S else []
    status = run("ctest", "--preset", preset, "-j", JOBS, "--output-junit", junit, "--no-tests=ignore", *stop, *select)
    count.add_junit(preset, junit, status)
    if time.monotonic() > deadline:  # what ctest did not begin it does not name
        count.fail(f"{preset}: not all tests within the time limit")
    say(f"{preset}: tested in {time.monotonic() - built:.0f} s")


def soak(seconds, count):
    """Rounds of ten minutes at most, each with a seed of its own (HAK_TEST_SEED repeats one)."""
    end = time.monotonic() + seconds
    junit = os.path.join(ROOT, "build", "release", "soak.xml")
    while time.monotonic() < end and not count.failed:
        each = max(5, min(60, (end - time.monotonic()) / 4))
        seed = str(time.time_ns() & 0xFFFFFFFF)
        say(f"soak: {end - time.monotonic():.0f} s to go, HAK_TEST_SEED={seed}")
        if os.path.exists(junit):
            os.remove(junit)
        status = run("ctest", "--preset", "release", "-L", "^(stress|fuzz)$", "-j", JOBS, "--output-junit", junit,
                     env=dict(os.environ, HAK_TEST_SEED=seed, HAK_STRESS_SECONDS=f"{each:.0f}"))
        count.add_junit(f"soak, seed {seed}", junit, status)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--soak", type=float, metavar="SECONDS")
    parser.add_argument("--minutes", type=float, default=80, help="time limit for everything (80)")
    parser.add_argument("--tests", metavar="REGEX", help="only the tests whose names match")
    options = parser.parse_args()
    if not options.presets and options.soak is None:
        parser.error("name at least one preset")
    os.environ["PATH"] += os.pathsep + os.path.expanduser("~/.cargo/bin")
    os.environ.pop("LD_PRELOAD", None)

    start = time.monotonic()
    count = Count()
    if options.soak is not None:
        soak(options.soak, count)
    for preset in options.presets:
        check_preset(preset, count, start + options.minutes * 60, ["-R", options.tests] if options.tests else [])
    say(f"{time.monotonic() - start:.0f} s in all")
    for name in count.names:  # again, where whoever reads the end of a long log sees it
        print("".join(f"{name} | {line}\n" for line in count.said[name].splitlines()[-LINES_SAID:]), end="")
    for name in count.names:
        print(f"failed: {name}")
    print(f"{count.passed} passed, {count.failed} failed, {count.skipped} skipped", flush=True)
    return 0 if count.passed and not count.failed else 1


if __name__ == "__main__":
    sys.exit(main())
