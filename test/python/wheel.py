#!/usr/bin/env python3
"""wheel.py - the wheel is built and put into a fresh environment without a network: the command and the module find the library there, and
nothing is left when it is taken away. ctest: timeout=300"""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def skip(reason):
    print(reason)
    sys.exit(77)


def check(holds, what):
    if not holds:
        sys.exit(f"wheel: {what}")


def run(*command, status=0, **more):
    """What a program prints, both ways; it has nothing of our environment but PATH."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.update(more)
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          encoding="utf-8", timeout=120)
    check(done.returncode == status, f"{' '.join(command)}: exit {done.returncode}, not {status}\n{done.stdout}")
    return done.stdout


def files_below(folder):
    """Paths with what they hold: a file that was there before must be the same."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
    return found


def wheel_made(build, folder):
    made = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "wheel.py"), "--offline", "--build", build, "--out", folder],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    if made.returncode == 77:
        skip(made.stdout.strip())
    check(made.returncode == 0, made.stdout)
    return made.stdout.splitlines()[-1]


def archive_check(path, version):
    """The wheel's own papers: name, tag, metadata; and what is in it."""
    tag = re.fullmatch(rf"hakmem-{re.escape(version)}-(py3-none-manylinux_2_\d\d_(x86_64|aarch64))\.whl", os.path.basename(path))
    check(tag, f"{path} is not named as a platform wheel")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        papers = {name: archive.read(f"hakmem-{version}.dist-info/{name}").decode() for name in ("WHEEL", "METADATA")}
        check("LICENSE" in archive.read(f"hakmem-{version}.dist-info/licenses/LICENSE").decode().upper(), "the licence is in it")
    check(f"Tag: {tag.group(1)}\n" in papers["WHEEL"] and "Root-Is-Purelib: false\n" in papers["WHEEL"], papers["WHEEL"])
    with open(os.path.join(ROOT, "packaging", "python", "README.md"), encoding="utf-8") as file:
        readme = file.read()
    for line in (f"Version: {version}\n", "Requires-Python: >=3.8\n", "License: MIT\n", "Description-Content-Type: text/markdown\n", readme):
        check(line in papers["METADATA"], f"METADATA has not {line!r}:\n{papers['METADATA']}")
    check(len(names) == len(set(names)) and not [name for name in names if "__pycache__" in name or name.startswith("/")], f"{names}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    build = os.path.abspath(parser.parse_args().build)
    if not os.path.exists(os.path.join(build, "hakmem")):
        skip(f"{build} has no hakmem command")
    if shutil.which("readelf") is None:
        skip("readelf is missing")
    with_pip = [python for python in (sys.executable, "/usr/bin/python3") if os.path.exists(python) and
                subprocess.run([python, "-c", "import venv, ensurepip"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0]
    if not with_pip:
        skip("no python3 here makes environments with pip (scripts/setup test installs python3-venv)")
    with open(os.path.join(ROOT, "include", "hakmem", "hakmem.h"), encoding="utf-8") as file:
        version = re.search(r'^#define HAKMEM_VERSION "([\d.]+)"', file.read(), re.MULTILINE).group(1)

    with tempfile.TemporaryDirectory(prefix="hakmem-wheel-") as folder:
        wheel = wheel_made(build, folder)
        archive_check(wheel, version)
        place = os.path.join(os.path.realpath(folder), "environment")
        run(with_pip[0], "-m", "venv", place)
        python, command = os.path.join(place, "bin", "python"), os.path.join(place, "bin", "hakmem")
        run(python, "-m", "pip", "--version")  # its own bytecode is there before we look
        before = files_below(place)
        run(python, "-m", "pip", "install", "--no-index", wheel)

        def python_runs(program, *arguments, **more):
            return run(python, "-B", *arguments, "-c", program, **more)

        library = python_runs("import hakmem; print(hakmem.library())").strip()
        check(library.startswith(place) and os.path.exists(library), f"library() is {library}")

        # The command, by its name and by the module's, and the library that it finds.
        for hakmem in ([command], [python, "-B", "-m", "hakmem"]):
            said = run(*hakmem, "--version")
            check(said.startswith(f"hakmem {version}") and library in said, f"--version: {said}")
            findings = json.loads(run(*hakmem, "doctor", "--json", python))["findings"]
            check(f"libhakmem.so {version} is {library}" in [finding["what"] for finding in findings], f"doctor: {findings}")
            ask = "import hakmem; print(hakmem.loaded(), hakmem.option('purge_delay_ms'))"
            check(run(*hakmem, "run", "--purge-delay-ms", "77", "--", python, "-B", "-c", ask) == "True 77\n", "run: the library is loaded, with its option")
            said = run(*hakmem, "run", "--report", "--", python, "-c", "kept = [bytearray(100_000) for _ in range(100)]")
            check(f"hakmem {version}" in said and "peak" in said, f"run --report: {said}")
            check(run(*hakmem, "run", "--", "sh", "-c", "echo ${LC_CTYPE-none}; exit 3", status=3) == "none\n", "run: the environment is what was given")
            check(run(*hakmem, "--no-such", status=2) == "hakmem: there is no flag --no-such\n", "what is wrong is the command's to say")
        check(python_runs("import hakmem; print(hakmem.loaded())") == "False\n", "not loaded without")
        check(python_runs("import hakmem; print(hakmem.loaded())", LD_PRELOAD=library) == "True\n", "loaded by LD_PRELOAD")

        said = python_runs("""
import gc, hakmem
held = [b"x" * 20_000 for _ in range(1000)]
assert hakmem.stats()["live_bytes"] > 20_000_000
del held
gc.collect()
hakmem.set_option("purge_delay_ms", 100)
print(hakmem.option("purge_delay_ms"), hakmem.collect() > 10_000_000, hakmem.stats()["live_bytes"] < 20_000_000)
""", LD_PRELOAD=library, HAKMEM_FREE_MAX_MB="64")
        check(said == "100 True True\n", f"stats, options, collect: {said}")

        # A file as a server reads it, twice: the first time ends where the process begins again.
        script = os.path.join(folder, "app.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write("import os, sys\nprint('begins', os.getpid())\nimport hakmem\nhakmem.preload()\n"
                       "print(hakmem.loaded(), sys.prefix, sys.argv[1:], sys.flags.optimize)\n")
        lines = run(python, "-B", "-O", script, "an argument", "").splitlines()
        check(len(lines) == 3 and lines[0] == lines[1] and lines[2] == f"True {place} ['an argument', ''] 1", f"preload: {lines}")

        pages = os.path.join(place, "share", "man", "man1")
        check({"hakmem.1", "hakmem-run.1"} <= set(os.listdir(pages)), f"{pages} has not the pages")
        if shutil.which("man"):
            shown = subprocess.run(["man", "-w", "hakmem"], env={"PATH": os.path.dirname(command) + ":/usr/bin:/bin"}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8").stdout
            check(shown.strip() == os.path.join(pages, "hakmem.1"), f"man finds {shown!r}")

        run(python, "-m", "pip", "uninstall", "--yes", "hakmem")
        after = files_below(place)
        left = sorted(path for path in set(before) ^ set(after) if not path.endswith(".pyc") or "hakmem" in path)
        changed = [path for path in set(before) & set(after) if before[path] != after[path]]
        check(not left and not changed, f"left or lost by the uninstall: {left}; changed: {changed}")
        check("No module named" in run(python, "-c", "import hakmem", status=1), "it can still be imported")
        print(f"wheel: {os.path.basename(wheel)}, {os.path.getsize(wheel) >> 10} KiB")


main()
