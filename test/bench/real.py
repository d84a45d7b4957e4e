"""real.py - the drivers of real programs: each gives the answer it should under the library, and says what is wrong.

ctest: native timeout=900
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REAL = os.path.join(ROOT, "bench", "real")
sys.dont_write_bytecode = True
sys.path.insert(0, REAL)
import _real  # noqa: E402

breaches = []
# Takes memory, then forbids itself to open or make any file, as xz 5.6 and later do; 77: this kernel has no Landlock.
SHUT_IN = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
    uint64_t handled = 0x1fff; /* all of Landlock's first version: files may be neither read nor written nor made */
    char *block = memset(malloc(24 << 20), 1, 24 << 20);
    long rules = syscall(444 /* landlock_create_ruleset */, &handled, sizeof handled, 0);
    if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(446 /* landlock_restrict_self */, rules, 0))
        return 77;
    return open("/proc/self/maps", O_RDONLY) >= 0 || write(1, "shut in\n", 8) != 8 || block[1] != 1;
}
"""


def breach(text):
    print("BREACH: " + text)
    breaches.append(text)


def driver(name, *arguments, preload="", **more):
    return subprocess.run([os.path.join(REAL, name), *arguments], env={**os.environ, "HAKMEM_BENCH_PRELOAD": preload},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **more)


def rows():
    """[(driver, piece)] of bench/suite.toml."""
    with open(os.path.join(ROOT, "bench", "suite.toml"), encoding="utf-8") as file:
        return re.findall(r'^real = "(\w+)"\nquick = \["(\w+)"', file.read(), re.M)


def each_row_runs(library):
    ran = 0
    for name, piece in rows():
        done = driver(name, piece, "1", preload=library)
        if done.returncode == 77 and len(done.stderr.splitlines()) == 1:
            print(f"skipped: {done.stderr.strip()}")
            continue
        if done.returncode:
            breach(f"{name} {piece}: status {done.returncode}: {done.stderr.strip()}")
            continue
        line = json.loads(done.stdout)
        if os.path.realpath(library) not in line["objects"] or not line["check"]:
            breach(f"{name} {piece}: no proof of the library, or no answer")
        if min(line[key] for key in ("ops", "wall_ns", "cpu_ns", "peak_kb", "faults")) <= 0:
            breach(f"{name} {piece}: nothing measured: {done.stdout}")
        ran += 1
    return ran


def one_line(what, done, status, word):
    if done.returncode != status or word not in done.stderr or len(done.stderr.splitlines()) != 1 or done.stdout:
        breach(f"{what}: status {done.returncode}, said: {done.stdout}{done.stderr}")


def wrong_is_told(folder):
    text = os.path.join(folder, "text.so")
    with open(text, "w", encoding="utf-8") as file:
        file.write("no shared object\n")
    crash = os.path.join(folder, "crash.so")
    subprocess.run([os.environ.get("CC") or "cc", "-O2", "-fPIC", "-shared", "-fno-builtin", "-o", crash,
                    os.path.join(ROOT, "bench", "shims", "crash.c")], check=True)
    one_line("an unknown piece", driver("perl", "nothing", "1"), 2, "usage: perl mixed SCALE")
    one_line("a scale of 0", driver("perl", "mixed", "0"), 2, "usage")
    for name, piece in (("perl", "mixed"), ("redis", "load")):
        if driver(name, "--version").returncode == 77:
            continue
        one_line("a preload that is not there", driver(name, piece, "1", preload="/nonexistent.so"), 1, "is not there")
        one_line("a preload that is no library", driver(name, piece, "1", preload=text), 1, "not loaded")
        one_line("a crash", driver(name, piece, "1", preload=crash), 1, "signal 11")


def who_shuts_itself_in_is_seen(folder, library):
    """No file can be opened at the end; the library and the peak are proved all the same."""
    source, program = os.path.join(folder, "shut_in.c"), os.path.join(folder, "shut_in")
    with open(source, "w", encoding="utf-8") as file:
        file.write(SHUT_IN)
    subprocess.run([os.environ.get("CC") or "cc", "-O1", "-fno-builtin", "-o", program, source], check=True)
    if subprocess.run([program], stdout=subprocess.DEVNULL, check=False).returncode == 77:
        print("no Landlock in this kernel: left out")
        return
    one = _real.Driver("shut_in", lambda: "1")
    one.preload, one.scratch = library, folder
    try:
        done = one.run([program])
    except _real.Stop as stop:
        breach(f"a program that shuts itself in: {stop}")
        return
    if os.path.realpath(library) not in done.objects or not 24 << 10 < done.peak_kb < 64 << 10:
        breach(f"a program that shuts itself in: {done.peak_kb} KiB, {done.objects}")


def below(number):
    """Processes that descend from it."""
    try:
        with open(f"/proc/{number}/task/{number}/children", encoding="ascii") as file:
            found = [int(one) for one in file.read().split()]
    except OSError:
        return []
    return found + [deeper for one in found for deeper in below(one)]


def alive(number):
    try:
        with open(f"/proc/{number}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def nothing_is_left(library):
    """Ended or killed in the middle, a driver takes its server with it."""
    if driver("redis", "--version").returncode == 77:
        return
    for how in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen([os.path.join(REAL, "redis"), "benchmark", "50"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "HAKMEM_BENCH_PRELOAD": library})
        until = time.monotonic() + 30
        while len(below(process.pid)) < 3 and time.monotonic() < until: # launcher, server, client
            time.sleep(0.05)
        started = below(process.pid)
        process.send_signal(how)
        process.wait()
        until = time.monotonic() + 10
        while any(alive(one) for one in started) and time.monotonic() < until:
            time.sleep(0.05)
        left = [one for one in started if alive(one)]
        if len(started) < 3 or left:
            breach(f"{how.name}: {len(started)} processes were started, {len(left)} are left")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    library = os.path.join(os.path.abspath(parser.parse_args().build), "libhakmem.so")
    if not os.path.exists(library):
        print(f"skipped: {library} is not there")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="hakmem-real-test-") as folder:
        os.environ["TMPDIR"] = folder
        wrong_is_told(folder)
        nothing_is_left(library)
        who_shuts_itself_in_is_seen(folder, library)
        ran = each_row_runs(library)
    print(f"real: {ran} rows ran, {len(breaches)} breaches")
    sys.exit(1 if breaches else 0 if ran else 77)


main()
