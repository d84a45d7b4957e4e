#!/usr/bin/env python3
"""Check the protocols' models: run.py [--build DIRECTORY]

Owns:      DIRECTORY/model: a copy of this crate, a corrected copy of loom, what cargo makes.
Exit code: 0 all proved and refuted, 77 not to be had here (no or an old cargo, no way to fetch loom), else 1.

loom 0.7.2 as it is published misses executions (tokio-rs/loom, issues 166 and 392): its search for orders
that matter takes a load to depend on stores only, but remembers one last access of either kind, so that a
thread's own load hides another thread's earlier one from the store behind it. Here loads depend on loads as
well: more executions than needed, none missed. tests/checker.rs fails without the correction.

ctest: first
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
CARGO_MIN = (1, 78)
FAULT = "Action::Load => self.last_non_load_access.as_ref(),"
CORRECTION = "Action::Load => self.last_access.as_ref(),"


def cargo_version() -> tuple[int, int] | None:
    if not shutil.which("cargo"):
        return None
    run = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)\.(\d+)", run.stdout)
    return (int(found[1]), int(found[2])) if found else None


def put(path: Path, text: str) -> None:
    """Writes only what is new, so that cargo has nothing to do again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def copy_crate(to: Path) -> None:
    files = [HERE / "Cargo.toml", HERE / "Cargo.lock", *HERE.glob("src/*.rs"), *HERE.glob("tests/*.rs")]
    wanted = {path.relative_to(HERE) for path in files}
    for old in to.glob("tests/*.rs"):
        if old.relative_to(to) not in wanted:
            old.unlink()
    for path in files:
        put(to / path.relative_to(HERE), path.read_text(encoding="utf-8"))


def loom_directory(crate: Path) -> Path | None:
    """Where cargo has unpacked loom, fetched if need be."""
    for extra in (["--offline"], []):
        run = subprocess.run(
            ["cargo", "metadata", "--locked", "--format-version", "1", *extra],
            cwd=crate, capture_output=True, text=True, check=False,
        )
        if run.returncode == 0:
            packages = json.loads(run.stdout)["packages"]
            return Path(next(p["manifest_path"] for p in packages if p["name"] == "loom")).parent
    print(run.stderr.strip().splitlines()[-1] if run.stderr else "cargo metadata failed", file=sys.stderr)
    return None


def correct_loom(source: Path, to: Path) -> bool:
    for path in source.rglob("*"):
        name = path.relative_to(source)
        if path.is_file() and (path.suffix == ".rs" or str(name) == "Cargo.toml"):
            text = path.read_text(encoding="utf-8")
            if str(name) == os.path.join("src", "rt", "atomic.rs"):
                if text.count(FAULT) != 1:
                    print(f"model: this is not the loom that is known here: {path}", file=sys.stderr)
                    return False
                text = text.replace(FAULT, CORRECTION)
            put(to / name, text)
    return True


def test(crate: Path, loom: Path, target: Path) -> int:
    command = ["cargo", "test", "--release", "--offline", "--config", f'patch.crates-io.loom.path="{loom}"',
               "--target-dir", str(target), "--no-fail-fast", "--", "--test-threads", "1", "--nocapture"]
    counts = {"proved": 0, "refuted": 0, "FAILED": 0}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=crate, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line)
            found = re.search(r"(proved|refuted|FAILED)    ?\s*(.*)", line)
            if found and ":" in found[2]:
                counts[found[1]] += 1
                print(f"{found[1]:9} {found[2]}", flush=True)
            elif "not corrected" in line or "panicked" in line:
                print(line.rstrip())
    if process.returncode and not sum(counts.values()):
        print("".join(lines[-40:]), file=sys.stderr)
    proved, refuted, failed = counts.values()
    print(f"models: {proved} proved, {refuted} mutants refuted, {failed} failed")
    return 0 if process.returncode == 0 and proved and not failed else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the protocols' models with loom.")
    parser.add_argument("--build", type=Path, default=HERE / "target", help="where to work (default: target)")
    work = parser.parse_args().build.resolve() / "model"
    version = cargo_version()
    if version is None or version < CARGO_MIN:
        print(f"model: skipped: cargo {CARGO_MIN[0]}.{CARGO_MIN[1]} or newer is needed")
        return SKIPPED
    crate, loom = work / "crate", work / "loom"
    copy_crate(crate)
    source = loom_directory(crate)
    if source is None:
        print("model: skipped: loom cannot be fetched")
        return SKIPPED
    if not correct_loom(source, loom):
        return 1
    return test(crate, loom, work / "target")


if __name__ == "__main__":
    sys.exit(main())
