"""start.py - what the library adds to the start of the smallest program: page faults, its own resident code, and (told, not
judged) time.

ctest: serial
"""
import os
import shutil
import statistics
import sys
import time

from _law import breach, finish, options, output

FAULTS_MAX = 10
CODE_KIB_MAX = 128  # two of the parts of 64 KiB that the kernel maps around a page of a file; see packaging/hakmem.lds
RUNS = 101


def start(program, environment):
    began = time.perf_counter()
    child = os.posix_spawn(program, [program], environment)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - began
    if status != 0:
        sys.exit(f"{program}: wait status {status}")
    return usage.ru_minflt, seconds


def code_kib(library, environment):
    """The resident part of the library's code and constants, in a program that allocates and reallocates."""
    is_code = False
    for line in output("cat", "/proc/self/smaps", env=environment).splitlines():
        words = line.split()
        if "-" in words[0]:
            is_code = words[1] == "r-xp" and os.path.realpath(words[-1]) == os.path.realpath(library)
        elif is_code and words[0] == "Rss:":
            return int(words[1])
    sys.exit(f"{library} is not in cat's mappings")


def main():
    library = os.path.abspath(os.path.join(options().build, "libhakmem.so"))
    program = shutil.which("true")
    plain = {key: value for key, value in os.environ.items()
             if key != "LD_PRELOAD" and not key.startswith(("HAKMEM_", "LC_", "LANG"))}
    with_library = dict(plain, LD_PRELOAD=library)
    pairs = [(start(program, plain), start(program, with_library)) for _ in range(RUNS)]
    faults = statistics.median(b[0] for _, b in pairs) - statistics.median(a[0] for a, _ in pairs)
    added_us = (statistics.median(b[1] for _, b in pairs) - statistics.median(a[1] for a, _ in pairs)) * 1e6
    print(f"added to the start of true: {faults:g} page faults (limit {FAULTS_MAX}), {added_us:.0f} us")
    if faults > FAULTS_MAX:
        breach(f"{faults:g} page faults; the limit is {FAULTS_MAX}")
    kib = code_kib(library, with_library)
    print(f"the library's code and constants in cat: {kib} KiB resident (limit {CODE_KIB_MAX})")
    if kib > CODE_KIB_MAX:
        breach(f"{kib} KiB of the library's code and constants are resident in cat; the limit is {CODE_KIB_MAX}")
    finish(f"start, median of {RUNS}")


main()
