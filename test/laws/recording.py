"""recording.py - what recording costs, in instructions: nothing while it is off, a hundredth of the program while it is on.

Workloads of the suite that do nothing but allocate: by a library built without src/watch, by this one, and by this one
recording; each the difference of two counts. Such a program allocates up to terabytes a second, and the rate then grows until
there are 5,000 samples a second; under callgrind it is slow, and would take every sample. So each is counted at about the rate
that it comes to by itself, and keeps it (HAKMEM_SAMPLE_MOST=0). callgrind counts the same whatever else the machine does, but
for what the clock brings (a quarter of a hundredth in burst_order; in mid_large_mt 571.5 an operation, and 567 in one
of seven, by any library): the least of up to 25. Pages that go back, by the clock or because free memory is at its bound,
are not a recording's: all counts go without.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from _law import ROOT, breach, copy_without, finish, options, output

TRIES = 25
# What is counted, against which of the others, and how much it may be of that.
OFF, ON = ("off", "without", 1.002), ("recorded", "off", 1.01)
# workload, its arguments but for the count (at *), less and more, bytes a sample
ROWS = (
    (("tiny_hot", "*", "64"), 200000, 1200000, 512 << 10),
    (("random_mixed", "*", "256", "16", "1024", "12345"), 100000, 600000, 8 << 20),
    (("random_mixed", "*", "1024", "16", "1024", "12345"), 100000, 600000, 8 << 20),
    (("random_mixed", "*", "4096", "16", "1024", "12345"), 100000, 600000, 8 << 20),
    (("burst_order", "random", "20000", "16", "512", "*", "12345"), 6, 66, 2 << 20),
    (("random_mixed", "*", "1024", "1024", "32768", "12345"), 20000, 200000, 64 << 20),
    (("mid_large_mt", "1", "*", "32", "262144", "327680", "12345"), 20000, 150000, 1 << 30), # two sizes: how many are kept depends on the clock, too
)


def build_without_watch(folder, build):
    """The library as it is shipped, less src/watch, by the same compilers."""
    copy_without(["watch"], folder)
    for part in ("CMakeLists.txt", "cmake", "packaging", "bench"):
        os.symlink(os.path.join(ROOT, part), os.path.join(folder, part))
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
        compilers = re.findall(r"^(CMAKE_CX?X?_COMPILER):\w+=(.+)$", file.read(), re.M)
    made = os.path.join(folder, "build")
    output("cmake", "-G", "Ninja", "-S", folder, "-B", made, "-DCMAKE_BUILD_TYPE=Release", "-DHAKMEM_TESTS=OFF", "-DHAKMEM_TOOL=OFF",
           *(f"-D{name}={path}" for name, path in compilers))
    output("cmake", "--build", made, "--target", "hakmem")
    return os.path.join(made, "libhakmem.so")


def count(folder, build, library, row, number, rate):
    log = os.path.join(folder, "log")
    words = [os.path.join(build, "bench", row[0])] + [word if word != "*" else str(number) for word in row[1:]]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    environment.update(LD_PRELOAD=library, HAKMEM_EVO_POLICY="off", HAKMEM_PURGE_DELAY_MS="600000", HAKMEM_FREE_MAX_MB="64")
    if rate:
        environment.update(HAKMEM_RECORD="/dev/null", HAKMEM_SAMPLE_BYTES=str(rate), HAKMEM_SAMPLE_MOST="0")
    done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={log}"] + words,
                          capture_output=True, text=True, env=environment)
    with open(log, encoding="utf-8") as file:
        found = re.search(r"Collected\s*:\s*(\d+)", file.read())
    if done.returncode != 0 or not found:
        sys.exit(f"{words}: exit {done.returncode}\n{done.stderr}")
    return int(found.group(1))


def main():
    build = os.path.abspath(options().build)
    if shutil.which("valgrind") is None or not os.path.exists(os.path.join(build, "bench", "tiny_hot")):
        print("valgrind or the workloads are missing")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        shipped = os.path.join(build, "libhakmem.so")
        libraries = {"without": build_without_watch(folder, build), "off": shipped, "recorded": shipped}
        for row, less, more, rate in ROWS:
            counts, least = {}, {}
            for _ in range(TRIES):
                for name, library in libraries.items():
                    bytes_a_sample = rate if name == "recorded" else 0
                    for number in (less, more):
                        now = count(folder, build, library, row, number, bytes_a_sample)
                        counts[name, number] = min(now, counts.get((name, number), now))
                    least[name] = counts[name, more] - counts[name, less]
                if all(least[name] <= least[beside] * most for name, beside, most in (OFF, ON)):
                    break
            each = {name: least[name] / (more - less) for name in least}
            print(f"{' '.join(row)}: {each['without']:.3f} instructions without src/watch, off {each['off'] / each['without']:.4f} of that,"
                  f" recorded {each['recorded'] / each['off']:.4f} of off")
            for name, beside, most in (OFF, ON):
                if least[name] > least[beside] * most:
                    breach(f"{' '.join(row)}: {name}, it makes {least[name] / least[beside]:.4f} of the instructions {beside}; {most} at the most")
    finish("instructions of recording, off and on")


main()
