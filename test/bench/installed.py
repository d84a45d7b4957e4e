"""installed.py - what is installed compares allocators as the build folder does, and knows nothing of the source tree.

ctest: serial native timeout=300

Installs into a folder of its own and runs PREFIX/bin/hakmem bench there: a workload, and a real program whose driver
compiles what it needs. Every program that ran must be one of those installed.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ROWS = ["larson/one", "perl/mixed"]


def build_folder():
    arguments = dict(zip(sys.argv[1:-1], sys.argv[2:]))
    return os.path.abspath(arguments.get("--build", os.path.join(ROOT, "build", "release")))


def main():
    build = build_folder()
    if not os.path.exists(os.path.join(build, "hakmem")) or not shutil.which("cmake"):
        print("skipped: no hakmem command in the build, or no cmake")
        return 77
    with tempfile.TemporaryDirectory(prefix="hakmem-installed-") as folder:
        prefix = os.path.join(folder, "prefix")
        done = subprocess.run(["cmake", "--install", build, "--prefix", prefix], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            print(f"BREACH: cmake --install: {done.stdout}")
            return 1
        command, out = os.path.join(prefix, "bin", "hakmem"), os.path.join(folder, "out.json")
        if not os.path.exists(command):
            print("skipped: this build installs no hakmem command")
            return 77
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = subprocess.run([command, "bench", "--quick", *ROWS, "--with", "glibc", "--rounds", "1", "--json", out],
                              env={**kept, "HAKMEM_BENCH_CACHE": os.path.join(folder, "cache")}, cwd=folder, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        breaches = []
        if done.returncode or not os.path.exists(out):
            print(f"BREACH: status {done.returncode}: {done.stdout}{done.stderr}")
            return 1
        with open(out, encoding="utf-8") as file:
            results = json.load(file)
        if not results["allocators"][0]["path"].startswith(prefix):
            breaches.append(f"the library is {results['allocators'][0]['path']}")
        for row in results["rows"]:
            if row.get("skipped"):
                print(f"left out: {row['name']}: {row['skipped']}")
                continue
            if not (row.get("file") or "").startswith(prefix):
                breaches.append(f"{row['name']} ran {row.get('file')}, which is not installed")
            breaches += [f"{row['name']}, {cell['allocator']}: {cell.get('error') or 'no runs'}"
                         for cell in row["cells"] if cell.get("error") or not cell["runs"]]
        if "building" in done.stderr:
            breaches.append(f"it built programs: {done.stderr}")
        for breach in breaches:
            print("BREACH: " + breach)
        print(f"installed: {len(breaches)} breaches" if breaches else "installed: measures from where it is installed")
        return 1 if breaches else 0


sys.exit(main())
