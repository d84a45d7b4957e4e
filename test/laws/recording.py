"""recording.py - what a recording costs, in instructions: a hundredth of the program at the most.

Workloads of the suite that do nothing but allocate, on and off, each the difference of two counts. Such a program allocates up
to terabytes a second, and the rate then grows until there are 5,000 samples a second; under callgrind it is slow, and would
take every sample. So each is counted at about the rate that it comes to by itself, and keeps it (HAKMEM_SAMPLE_MOST=0).
callgrind counts the same whatever else the machine does, but for what the clock brings: the least of up to five. Pages that
go back, by the clock or because free memory is at its bound, are not a recording's: both counts go without.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from _law import breach, finish, options

TRIES = 5
MORE = 1.01
# workload, its arguments but for the count (at *), less and more, bytes a sample
ROWS = (
    (("tiny_hot", "*", "64"), 200000, 1200000, 512 << 10),
    (("random_mixed", "*", "1024", "16", "1024", "12345"), 100000, 600000, 8 << 20),
    (("burst_order", "random", "20000", "16", "512", "*", "12345"), 6, 66, 2 << 20),
    (("random_mixed", "*", "1024", "1024", "32768", "12345"), 20000, 200000, 64 << 20),
    (("mid_large_mt", "1", "*", "32", "32768", "524288", "12345"), 20000, 150000, 1 << 30),
)


def count(folder, build, row, number, rate):
    log = os.path.join(folder, "log")
    words = [os.path.join(build, "bench", row[0])] + [word if word != "*" else str(number) for word in row[1:]]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    environment.update(LD_PRELOAD=os.path.join(build, "libhakmem.so"), HAKMEM_EVO_POLICY="off",
                       HAKMEM_PURGE_DELAY_MS="600000", HAKMEM_FREE_MAX_MB="64")
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
        for row, less, more, rate in ROWS:
            share = 9.0
            each = [None, None]
            for _ in range(TRIES):
                for on in (0, 1):
                    now = count(folder, build, row, more, on * rate) - count(folder, build, row, less, on * rate)
                    each[on] = min(now, each[on] or now)
                share = each[1] / each[0]
                if share <= MORE:
                    break
            print(f"{' '.join(row)}: {share:.4f} of its instructions")
            if share > MORE:
                breach(f"{' '.join(row)}: recording makes {share:.4f} of the instructions, {MORE} at the most")
    finish("instructions of a recording")


main()
