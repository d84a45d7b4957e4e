#!/usr/bin/env python3
"""attach.py - a running program with threads is attached to, looked at in every way, and left unharmed; what is seen
agrees with what it does; profiles open where the program is not. ctest: timeout=600"""
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time

from seeing_lib import Bench, check

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <atomic>
static std::atomic<bool> ended;
static std::atomic<long> errors, rounds;
struct Table { char *rows[64]; };
static inline __attribute__((always_inline)) char *row_make(size_t bytes, char mark) {
    char *row = (char *)malloc(bytes);          // line 14
    memset(row, mark, bytes);
    return row;
}
__attribute__((noinline)) void table_fill(Table &table, int thread) {
    for (int i = 0; i < 64; i++) table.rows[i] = row_make(1000 + (size_t)i, (char)(thread + i));   // line 19
}
__attribute__((noinline)) void table_check(Table &table, int thread) {
    for (int i = 0; i < 64; i++) {
        for (int at = 0; at < 1000; at += 333) if (table.rows[i][at] != (char)(thread + i)) errors++;
        free(table.rows[i]);
    }
}
__attribute__((noinline)) char *kept_make() { char *p = new char[1 << 20]; *p = 1; return p; }   // 32 of them stay
int main() {
    std::vector<std::thread> threads;
    for (int n = 0; n < 3; n++) threads.emplace_back([n] {
        pthread_setname_np(pthread_self(), "filler");
        while (!ended) { Table table; table_fill(table, n); table_check(table, n); rounds++; }
    });
    std::puts("ready"); std::fflush(stdout);
    std::vector<char *> kept;
    char byte;
    if (read(0, &byte, 1) != 1) return 2;       // told to go on: what follows is seen
    for (int n = 0; n < 32; n++) { char *p = kept_make(); memset(p, 1, 1 << 20); kept.push_back(p); }
    std::puts("kept"); std::fflush(stdout);
    while (read(0, &byte, 1) == 1) {}
    ended = true;
    for (auto &thread : threads) thread.join();
    for (char *p : kept) delete[] p;
    std::printf("%ld errors\n", errors.load());
    return rounds > 0 ? 0 : 1;
}
"""


def profile_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def frames(profile, stack):
    for at in stack["locations"]:
        for line in profile["locations"][at]["lines"]:
            function = profile["functions"][line["function"]]
            yield function["name"], os.path.basename(function["file"]), line["line"]


def recording_await(bench, pid):
    """Until it records, however slow the machine is."""
    for _ in range(600):
        if "hakmem_recording 1\n" in bench.hakmem("metrics", "-p", pid).stdout:
            return
        time.sleep(0.1)
    sys.exit("FAIL: it does not record after a minute")


def main():
    with Bench() as bench:
        program = bench.built("tables", SOURCE, "g++", "-O2", "-g", "-pthread", "-fno-builtin")
        child = bench.start(program, HAKMEM_SAMPLE_MOST="0")  # as many samples as there are: blocks of 1 MiB all
        pid = str(child.pid)
        file = bench.path("a.hakprof")

        refused = bench.hakmem("dump", "-p", pid, "-o", file, status=2)
        check("does not record" in refused.stderr and refused.stderr.count("\n") == 1, "nothing is recorded before")

        # Attached while it runs; what it allocates meanwhile is seen.
        recorder = subprocess.Popen([bench.command, "record", "-p", pid, "--seconds", "6", "--rate", "64K", "-o", file],
                                    stderr=subprocess.PIPE, text=True)
        threads_before = len(os.listdir(f"/proc/{pid}/task"))
        recording_await(bench, pid)
        child.stdin.write("x")
        child.stdin.flush()
        check(child.stdout.readline() == "kept\n", "it runs while it is recorded")
        _, said = recorder.communicate(timeout=120)
        check(recorder.returncode == 0, "it is recorded: " + said)
        held = re.search(r"held the program up for ([\d.]+) (us|ms|s) in all, ([\d.]+) (us|ms|s) at most at once", said)
        check(held, "it says what it cost: " + said)
        in_all, at_once = (float(held[at]) * {"us": 1, "ms": 1e3, "s": 1e6}[held[at + 1]] for at in (1, 3))
        check(0 < at_once <= in_all < 6e6, f"a part of it at once: {at_once} us, {in_all} us")
        check(len(os.listdir(f"/proc/{pid}/task")) == threads_before, "with no thread more than before")

        profile = profile_of(file)
        kept = [s for s in profile["stacks"] if any(name.startswith("kept_make") for name, _, _ in frames(profile, s))]
        live = sum(s["live"]["bytes"] for s in kept)
        check(abs(live / (32 << 20) - 1) < 0.02, f"32 MiB live at kept_make: {live}")
        rows = [s for s in profile["stacks"] if any(name.startswith("table_fill") for name, _, _ in frames(profile, s))]
        chain = list(frames(profile, rows[0]))
        print(chain)
        check(any(n.startswith("row_make") and (f, l) == ("tables.cc", 14) for n, f, l in chain), "the inlined frame, with its line")
        check(any(n.startswith("table_fill(Table&, int)") and (f, l) == ("tables.cc", 19) for n, f, l in chain),
              "its caller, demangled, with its line")
        total = sum(s["allocated"]["bytes"] for s in profile["stacks"])
        part = sum(s["allocated"]["bytes"] for s in rows) / total
        check(part > 0.8, f"what the threads do most is seen most: {part:.2f}")
        temporary = sum(s["temporary"]["count"] for s in rows) / max(1, sum(s["freed"]["count"] for s in rows))
        check(temporary > 0.5, f"most rows are temporary: {temporary:.2f}")
        named = [t for t in profile["threads"] if t["name"] == "filler"]
        check(len(named) == 3 and all(t["allocated_bytes"] > 0 for t in named), "three threads, by name")
        check(len(profile["timeline"]) > 5, "there is a timeline")
        check(all(m["build_id"] for m in profile["modules"]), "modules have their build ids")

        # Over: nothing is sampled any more.
        before = int(re.search(r"^hakmem_samples_total (\d+)", bench.hakmem("metrics", "-p", pid).stdout, re.M).group(1))
        time.sleep(1)
        metrics = bench.hakmem("metrics", "-p", pid).stdout
        after = int(re.search(r"^hakmem_samples_total (\d+)", metrics, re.M).group(1))
        check(before == after and "hakmem_recording 0\n" in metrics, "the recording ended with the command")
        resident = int(re.search(r"^hakmem_resident_bytes (\d+)", metrics, re.M).group(1))
        check(32 << 20 < resident < 200 << 20, "metrics have the resident memory")
        check(int(re.search(r"^hakmem_visit_next_word_total (\d+)|^hakmem_visit_total (\d+)", metrics, re.M).group(0).split()[1]) > 0,
              "and the library's counters")

        # A second time, and a kill of the recorder: nothing is left behind that disturbs.
        second = subprocess.Popen([bench.command, "record", "-p", pid, "--seconds", "60", "-o", bench.path("b.hakprof")],
                                  stderr=subprocess.DEVNULL)
        recording_await(bench, pid)
        second.kill()
        second.wait()
        third = bench.hakmem("record", "-p", pid, "--seconds", "1", "-o", bench.path("c.hakprof"))
        check("records already" in third.stderr, "after a kill the recording goes on, and is said to")

        check(bench.finish(child) == "0 errors\n", "the program did its work to the end, unharmed")

        # What was recorded opens where neither program nor library is.
        os.rename(program, program + ".gone")
        report = bench.hakmem("diff", file, file).stdout
        check("(tables.cc:" in report, "the profile is whole without the program")
        bench.hakmem("pprof", file, "-o", bench.path("a.pb.gz"))
        if shutil.which("go"):
            raw = subprocess.run(["go", "tool", "pprof", "-raw", bench.path("a.pb.gz")], capture_output=True, text=True,
                                 env={**os.environ, "PPROF_TMPDIR": bench.folder}, check=False)
            check(raw.returncode == 0 and "tables.cc:19" in raw.stdout and "[FN][FL][LN][IN]" in raw.stdout,
                  "go tool pprof reads it, with inlined lines\n" + raw.stderr)
        os.rename(program + ".gone", program)

        # From its start to its end, by the command that starts it.
        script = "import sys\nx = [bytearray(5000) for _ in range(4000)]\nprint(len(x))\n"
        whole = bench.path("w.hakprof")
        ran = bench.hakmem("run", "--record", whole, "--", sys.executable, "-c", script)
        check(ran.stdout == "4000\n" and "samples from python" in ran.stderr, "run --record writes at the end: " + ran.stderr)
        check(profile_of(whole)["recording"]["reason"] == "exit", "by the program's own dump")
        killed = bench.hakmem("run", "--record", bench.path("k.hakprof"), "--", "sh", "-c", "kill -9 $$", status=-9)
        check("no profile" in killed.stderr and "SIGKILL" in killed.stderr, "a kill at once leaves none of its end, and one line says so")


main()
