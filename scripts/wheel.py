#!/usr/bin/env python3
"""wheel.py - build the Python wheel of packaging/python from a build folder, and print its path.

    scripts/wheel.py [--build BUILD] [--out FOLDER] [--offline]

hatchling builds it: that of this interpreter or of Debian's (scripts/setup test installs it), else one that pip installs into
build/wheel-tools. With --offline nothing is fetched: where there is no hatchling the exit status is 77.
"""
import argparse
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOLS = os.path.join(ROOT, "build", "wheel-tools")


def has_hatchling(python):
    command = [python, "-c", "import hatchling"]
    return os.path.exists(python) and subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def builder(is_offline):
    """An interpreter that has hatchling."""
    own = os.path.join(TOOLS, "bin", "python")
    for python in (sys.executable, "/usr/bin/python3", own):
        if has_hatchling(python):
            return python
    if is_offline:
        print("no python3 here has hatchling, which builds the wheel (scripts/setup test installs it)")
        sys.exit(77)
    subprocess.run([sys.executable, "-m", "venv", "--clear", TOOLS], check=True)
    subprocess.run([own, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "hatchling>=1.12"], check=True)
    return own


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--out", help="where the wheel is put; else into the build folder")
    parser.add_argument("--offline", action="store_true", help="fetch nothing")
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    out = os.path.abspath(arguments.out or build)
    done = subprocess.run([builder(arguments.offline), "-B", "-m", "hatchling", "build", "-t", "wheel", "-d", out],
                          cwd=os.path.join(ROOT, "packaging", "python"), env=dict(os.environ, HAK_BUILD=build),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    wheels = [line.strip() for line in done.stdout.splitlines() if line.strip().endswith(".whl")]
    if done.returncode != 0 or not wheels:
        sys.exit(f"{done.stdout}wheel: hatchling failed (exit {done.returncode})")
    wheel = os.path.basename(wheels[-1])
    for name in os.listdir(out):  # of other versions: pip takes one of a name
        if name.startswith("hakmem-") and name.endswith(".whl") and name != wheel:
            os.remove(os.path.join(out, name))
    print(os.path.join(out, wheel))


main()
