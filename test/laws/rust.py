"""rust.py - what the command and the crate use of Rust's library, tests included, is in the version that Cargo.toml declares.

A build with that very version would tell, too; of the machines at hand few have it. clippy knows since when each function is there.

ctest: first
"""
import os
import re
import shutil
import subprocess
import sys

from _law import ROOT, breach, finish, options

SKIP, KNOWS_TESTS = 77, (1, 91)  # of clippy.toml's option for tests
BUILD = os.path.abspath(options().build)
CRATES = ("tools/hakmem", "crates/hakmem")


def clippy_version():
    if not shutil.which("cargo"):
        return None
    said = subprocess.run(["cargo", "clippy", "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    found = re.match(r"clippy 0\.(\d+)\.(\d+)", said.stdout)  # 0.1.95 is Rust 1.95's
    return (int(found[1]), int(found[2])) if said.returncode == 0 and found else None


if os.path.basename(BUILD) != "release":
    print("the same code in each build: looked at in the release's")
    sys.exit(SKIP)
version = clippy_version()
if version is None or version < KNOWS_TESTS:
    print(f"clippy of Rust {KNOWS_TESTS[0]}.{KNOWS_TESTS[1]} or later is not there")
    sys.exit(SKIP)
for crate in CRATES:
    target = os.path.join(BUILD, "test", "laws-rust", os.path.basename(os.path.dirname(crate)))
    done = subprocess.run(["cargo", "clippy", "--all-targets", "--quiet", "--target-dir", target, "--",
                           "-A", "warnings", "-A", "clippy::all", "-D", "clippy::incompatible_msrv"],
                          cwd=os.path.join(ROOT, crate), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    for place in re.findall(r"stable since `([\d.]+)`\n *--> (\S+)", done.stderr):
        breach(f"{crate}/{place[1]}: what stands there came with Rust {place[0]}")
    if done.returncode != 0 and "incompatible" not in done.stderr:
        breach(f"{crate}: cargo clippy: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
finish(f"rust: {len(CRATES)} packages looked at")
