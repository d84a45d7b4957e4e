"""start.py - what the library adds to the start of the smallest program: page faults, its own resident code, a mapping of its
variables that no huge page fits into, and (told, not judged) time.

ctest: serial
"""
import os
import re
import shutil
import statistics
import sys
import time

from _law import breach, finish, options, output

# On an average: where the loader's random addresses fall makes one more or less, and of two medians that lie between two numbers the difference
# is anybody's guess (gcc's library adds 7.5).
FAULTS_MAX, FAULTS_MAX_CLANG = 9, 10
# The kernel maps 64 KiB around each page of a file that is touched; see packaging/hakmem.lds. A shell allocates and reallocates
# small blocks; cat asks for a large, aligned one. The first part is filled by gcc 12's code: clang's is some 2 KiB
# longer, gcc 14's 0.6.
# One with threads, with a heap of some MiB, or that forks, runs what lies in the third part.
NEAR_KIB_MAX, NEAR_KIB_MAX_OTHERS, CODE_KIB_MAX = 64, 128, 128
GROWING_KIB_MAX, GROWING_KIB_MAX_CLANG = 192, 256
GROWS = """
import os, threading
def work():
    held = [[bytes(i % 500) for i in range(20000)] for _ in range(3)] + [bytes(1 << i) for i in range(24)]
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0: work()
print(open("/proc/self/smaps").read() if child == 0 else "", end="", flush=True)
if child == 0: os._exit(0)
os.waitpid(child, 0)
"""
READS_ITS_OWN = ("bash", "--norc", "-c", 'while read -r line; do echo "$line"; done < /proc/self/smaps')
# Where the setting of transparent huge pages is "always", the first variable written of an aligned 2 MiB makes all of it resident.
VARIABLES_KIB_MAX = 2048 - 64
RUNS = 101


def start(program, environment):
    began = time.perf_counter()
    child = os.posix_spawn(program, [program], environment)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - began
    if status != 0:
        sys.exit(f"{program}: wait status {status}")
    return usage.ru_minflt, seconds


def code_kib(library, environment, *command):
    """The resident part of the library's code and constants, in a program that shows its own mappings."""
    is_code = False
    for line in output(*command, env=environment).splitlines():
        words = line.split()
        if "-" in words[0]:
            is_code = words[1] == "r-xp" and os.path.realpath(words[-1]) == os.path.realpath(library)
        elif is_code and words[0] == "Rss:":
            return int(words[1])
    sys.exit(f"{library} is not in the mappings of {command[0]}")


def variables_kib(library):
    """Of the segment that holds .data and .bss."""
    for line in output("readelf", "-lW", library).splitlines():
        words = line.split()
        if words and words[0] == "LOAD" and "W" in words[6]:
            return int(words[5], 16) / 1024
    sys.exit(f"{library} has no segment that can be written")


def made_by(library):
    said = output("readelf", "-p", ".comment", library)
    return "clang" if "clang" in said else "gcc 12" if re.search(r"GCC: \([^)]*\) 12\.", said) else "another"


def main():
    library = os.path.abspath(os.path.join(options().build, "libhakmem.so"))
    program = shutil.which("true")
    plain = {key: value for key, value in os.environ.items()
             if key != "LD_PRELOAD" and not key.startswith(("HAKMEM_", "LC_", "LANG"))}
    with_library = dict(plain, LD_PRELOAD=library)
    pairs = [(start(program, plain), start(program, with_library)) for _ in range(RUNS)]
    compiler = made_by(library)
    is_clang = compiler == "clang"
    faults, faults_max = statistics.mean(b[0] - a[0] for a, b in pairs), FAULTS_MAX_CLANG if is_clang else FAULTS_MAX
    added_us = (statistics.median(b[1] for _, b in pairs) - statistics.median(a[1] for a, _ in pairs)) * 1e6
    print(f"added to the start of true: {faults:.2f} page faults (limit {faults_max}), {added_us:.0f} us")
    if faults > faults_max:
        breach(f"{faults:.2f} page faults; the limit is {faults_max}")
    near_max = NEAR_KIB_MAX if compiler == "gcc 12" else NEAR_KIB_MAX_OTHERS
    growing_max = GROWING_KIB_MAX_CLANG if is_clang else GROWING_KIB_MAX
    for command, limit in ((READS_ITS_OWN, near_max), (("cat", "/proc/self/smaps"), CODE_KIB_MAX), ((sys.executable, "-c", GROWS), growing_max)):
        kib = code_kib(library, with_library, *command)
        print(f"the library's code and constants in {os.path.basename(command[0])}: {kib} KiB resident (limit {limit})")
        if kib > limit:
            breach(f"{kib} KiB of the library's code and constants are resident in {os.path.basename(command[0])}; the limit is {limit}; "
                   f"scripts/near.py tells what touched them")
    kib = variables_kib(library)
    print(f"the library's variables: {kib:.0f} KiB of addresses (limit {VARIABLES_KIB_MAX})")
    if kib > VARIABLES_KIB_MAX:
        breach(f"{kib:.0f} KiB of variables; the limit is {VARIABLES_KIB_MAX}: a huge page fits into more at some addresses")
    finish(f"start, {RUNS} times")


main()
