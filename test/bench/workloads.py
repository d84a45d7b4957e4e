"""The benchmark's workloads: each runs, says what it should in one line of JSON, does the same work under every
allocator, finds a broken block, and refuses bad arguments in one line.

Every program of bench/suite.toml and every source in bench/workloads has tiny arguments here. It is run under the C
library's malloc and under libhakmem.so, as it is measured, and built to write and read every byte of every block
(BUILD/bench/checked). Operations and `check` must be equal in all of these. A shim that hands out broken blocks on
purpose proves that the checks are there.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile
import tomllib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIMEOUT_S = 120

TINY = {
    "aligned": ["3000 100 4096 4096 1"],
    "ast": ["30 1"],
    "bench_allocators": [f"--scenario {name} --iterations 17" for name in ("json", "mir", "vm", "mixed")],
    "binary_trees": ["8 1"],
    "burst_idle": ["20 2 2 1"],
    "burst_order": [f"{order} 2000 16 512 2 1" for order in ("forward", "reverse", "random")],
    "calloc_half": ["3 1"],
    "comprehensive": ["all 2 1", "each 1", "lifo 1", "fifo 1", "random 1", "interleaved 1"],
    "cxx_containers": ["5000 1"],
    "cxx_growth": ["1 1"],
    "drift": ["1 8 1 1"],
    "every_size": ["32 512 2 1 0 1 whole 1", "32 512 1 8 25 1 pages 1"],
    "exchange": ["4 3000 64 128 25 1", "40 100 64 128 50 1"],
    "false_sharing": ["own 2 200 20 8", "given 3 200 20 8", "dealt 2 200 20 64"],
    "fork_cow": ["64 2 1", "512 2 1"],
    "forks": ["3 2 50 1"],
    "heap_build": ["2 16 512 1", "2 513 8192 1"],
    "idle_pool": ["3 2 0 1"],
    "larson": ["1 8 128 256 1 1 3"],
    "launches": ["3 true"],
    "lifetimes": ["20000 1"],
    "lru_cache": ["20000 5000 1 1"],
    "many_threads": ["20 30"],
    "mid_large_mt": ["2 2000", "2 200 8 32768 524288 1"],
    "pairs": ["64 256 10", "1024 256 10"],
    "producer_consumer": ["1 10000 1", "4 5000 1", "2 10000 1 3000", "5 4000 1 0 3"],
    "random_mixed": ["20000 1024 12345", "20000 4096 16 256 1"],
    "realloc_growth": ["50 1 1"],
    "realloc_steps": ["2 8 256 last", "1 8 256 whole"],
    "rotating": ["7 3 1 4 pages 20 1", "7 3 1 4 whole 0 1"],
    "server": ["4 2 1500 300 1", "1 3 500 100 1"],
    "storm": ["4 20 200 1", "40 3 100 1"],
    "temporaries": ["4 64 512 1"],
    "thread_births": ["60 4 50 1"],
    "three_peaks": ["5 2 0 1"],
    "tiny_hot": ["20000 64"],
    "vm": ["50 2097152 1 0", "50 2097152 2 1", "20 300000 2 2"],
    "words": ["300 1"],
}
FIXED_TIME = {"larson"} # what it measures is how far it comes
PROFILES = {"quick", "tiny", "mid", "large", "threads", "server", "memory", "seeds", "real"}
KEYS = {"name", "about", "program", "real", "quick", "full", "time", "profiles", "rate", "per_operation", "count",
        "count_less", "resident_after", "shows", "sleeps"}

# An allocator that never takes anything back, and whose blocks are broken in one way, at some of its calls.
BROKEN = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
static _Atomic(char *) at;
static atomic_ulong call;
static char *_Atomic last;
static void *taken(size_t alignment, size_t bytes) {
    char *mine = atomic_load(&at);
    if (!mine) {
        char *all = mmap(NULL, 1ul << 36, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (atomic_compare_exchange_strong(&at, &mine, all)) mine = all;
    }
    char *block;
    do block = (char *)(((uintptr_t)mine + alignment - 1) & -alignment);
    while (!atomic_compare_exchange_weak(&at, &mine, block + ((bytes + 31) & ~15ul)));
    unsigned long number = atomic_fetch_add(&call, 1);
    char *before = atomic_exchange(&last, block);
    (void)number; (void)before;
#if BREAK == 1 /* the same block twice */
    if (number % 101 == 100 && bytes >= 16) return before;
#elif BREAK == 2 /* not aligned */
    if (number % 101 == 100 && bytes >= 16) return block + 8;
#elif BREAK == 3 /* not zero */
    if (bytes >= 4096) memset(block, 1, 4096);
#endif
    return block;
}
void *malloc(size_t bytes) { return taken(16, bytes); }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) { return taken(16, count * bytes); }
void *realloc(void *block, size_t bytes) {
    void *other = taken(16, bytes);
    if (block) memmove(other, block, bytes);
    return other;
}
int posix_memalign(void **block, size_t alignment, size_t bytes) { *block = taken(alignment, bytes); return 0; }
void *aligned_alloc(size_t alignment, size_t bytes) { return taken(alignment, bytes); }
void *memalign(size_t alignment, size_t bytes) { return taken(alignment, bytes); }
"""

failures = []


def fail(text):
    failures.append(text)
    print(text, flush=True)


def run(program, arguments, preload=None, timeout_s=TIMEOUT_S):
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    if preload:
        env["LD_PRELOAD"] = preload
    return subprocess.run([program, *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout_s, check=False)


def line_of(program, arguments, preload):
    """The program's JSON line, or None after saying what is wrong with it."""
    told = f"{os.path.basename(program)} {' '.join(arguments)} ({os.path.basename(preload) if preload else 'glibc'})"
    try:
        done = run(program, arguments, preload)
    except subprocess.TimeoutExpired:
        return fail(f"{told}: not done after {TIMEOUT_S} s")
    if done.returncode or done.stderr:
        return fail(f"{told}: exit {done.returncode}: {done.stderr.strip()[:300]}")
    try:
        line = json.loads(done.stdout)
    except ValueError as error:
        return fail(f"{told}: no JSON: {error}: {done.stdout[:200]!r}")
    if done.stdout.count("\n") != 1 or len(set(line)) != len(json.loads(done.stdout, object_pairs_hook=list)):
        return fail(f"{told}: not one line, or a name twice")
    if line.get("workload") != os.path.basename(program) or [str(one) for one in line.get("args", [])] != arguments:
        return fail(f"{told}: says that it was {line.get('workload')} {line.get('args')}")
    for name in ("ops", "wall_ns", "cpu_ns", "resident_kb", "peak_kb", "faults"):
        if not isinstance(line.get(name), int) or line[name] <= 0 or line[name] >= 1 << 62:
            return fail(f"{told}: {name} is {line.get(name)}")
    for part in line.get("parts", []):
        if not part["name"] or part["ops"] <= 0:
            return fail(f"{told}: part {part}")
    if preload and os.path.realpath(preload) not in map(os.path.realpath, line["objects"]):
        return fail(f"{told}: the library is not in objects")
    return line


def rows_check(rows, sources):
    names = [row.get("name") for row in rows]
    for row in rows:
        name = row.get("name", "a row without a name")
        if names.count(name) > 1:
            fail(f"{name}: twice in suite.toml")
        if unknown := set(row) - KEYS:
            fail(f"{name}: unknown {', '.join(sorted(unknown))}")
        if missing := {"about", "quick", "full", "time", "profiles"} - set(row):
            fail(f"{name}: without {', '.join(sorted(missing))}")
            continue
        if ("program" in row) == ("real" in row):
            fail(f"{name}: needs either program or real")
        if row["time"] not in ("cpu", "wall"):
            fail(f"{name}: time is {row['time']}")
        if unknown := set(row["profiles"]) - PROFILES:
            fail(f"{name}: unknown profile {', '.join(sorted(unknown))}")
        if row.get("per_operation") and not ("count" in row and "count_less" in row):
            fail(f"{name}: per_operation without count and count_less")
        if "program" in row and row["program"] not in sources:
            fail(f"{name}: no bench/workloads/{row['program']}.c or .cc")
        lists = [row.get(key, []) for key in ("quick", "full", "count", "count_less")]
        if not all(isinstance(one, str) for one in sum(lists, [])):
            fail(f"{name}: arguments are text")
    for profile in sorted(PROFILES - {"real"}):
        if not any(profile in row.get("profiles", ()) for row in rows):
            fail(f"profile {profile}: no row")


def work_check(build, program, library):
    """Every tiny run, under both allocators, plain and checked: the same work."""
    for arguments in (text.split() for text in TINY[program]):
        told, first = f"{program} {' '.join(arguments)}", None
        for folder in ("bench", "bench/checked"):
            path = os.path.join(build, folder, program)
            if folder == "bench/checked" and not os.path.exists(path):
                continue
            for preload in (None, library):
                line = line_of(path, arguments, preload)
                if not line:
                    continue
                same = (None if program in FIXED_TIME else line["ops"], line.get("check"), line.get("seed"))
                if first is None:
                    first = same
                elif first != same:
                    fail(f"{told}: {same} {'under ' + os.path.basename(preload) if preload else 'under glibc'}, "
                         f"{first} before")


def one_line_check(told, done, status):
    if done.returncode != status or done.stdout or done.stderr.count("\n") != 1 or not done.stderr.endswith("\n"):
        fail(f"{told}: exit {done.returncode}, not {status} with one line: {done.stderr[:300]!r} {done.stdout[:100]!r}")


def arguments_check(build, program):
    path = os.path.join(build, "bench", program)
    bad = [["nonsense"], ["-1"], ["18446744073709551616"], ["1"] * 12]
    if program == "launches":
        bad += [["1", "/nonexistent/program"]]
    if program == "bench_allocators":
        bad = [["--scenario"], ["--scenario", "xml"], ["--iterations", "0"], ["--allocator", "foo"],
               ["--nonsense", "1"]]
    for arguments in bad:
        one_line_check(f"{program} {' '.join(arguments)}", run(path, arguments), 2)


def proof_check(build, library):
    """bench_allocators says which allocator is there, and refuses when it is another."""
    path = os.path.join(build, "bench", "bench_allocators")
    tail = ["--scenario", "json", "--iterations", "3"]
    for name, preload, status in (("glibc", None, 0), ("hakmem", library, 0), ("glibc", library, 3),
                                  ("hakmem", None, 3), ("mimalloc", library, 3), ("any", library, 0),
                                  ("hakmem-baseline", None, 3)):
        done = run(path, ["--allocator", name, *tail], preload)
        if status:
            one_line_check(f"--allocator {name}", done, status)
        elif done.returncode or json.loads(done.stdout)["allocator"].startswith("libhakmem") != bool(preload):
            fail(f"bench_allocators --allocator {name}: exit {done.returncode} {done.stderr}{done.stdout[:200]}")


def broken_check(build):
    """Blocks broken on purpose are found: exit 1 and one line."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "broken.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(BROKEN)
        for number, programs in (
                (1, "random_mixed larson storm lifetimes exchange three_peaks burst_order burst_idle drift"),
                (2, "random_mixed tiny_hot ast binary_trees mid_large_mt producer_consumer server words"),
                (3, "calloc_half")):
            library = os.path.join(folder, f"broken{number}.so")
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", "-shared", "-fPIC", f"-DBREAK={number}",
                            source, "-o", library], check=True)
            for program in programs.split():
                done = run(os.path.join(build, "bench", program), TINY[program][0].split(), library)
                if done.returncode != 1 or done.stderr.count("\n") < 1:
                    fail(f"{program}: blocks broken in way {number} were not found: exit {done.returncode} "
                         f"{done.stderr[:200]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="what cannot be built or run here")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    library = os.path.join(build, "libhakmem.so")
    sources = {os.path.splitext(os.path.basename(path))[0] for ending in ("c", "cc")
               for path in glob.glob(os.path.join(ROOT, "bench", "workloads", f"*.{ending}"))}
    with open(os.path.join(ROOT, "bench", "suite.toml"), "rb") as file:
        rows = tomllib.load(file)["row"]
    rows_check(rows, sources)
    sources -= set(options.without)
    rows = [row for row in rows if row.get("program") not in options.without]
    for program in sorted(sources | (set(TINY) - set(options.without))):
        if program not in TINY:
            fail(f"{program}: no tiny arguments in {os.path.relpath(__file__, ROOT)}")
        elif program not in sources or not os.path.exists(os.path.join(build, "bench", program)):
            fail(f"{program}: not in bench/workloads, or not built")
        else:
            work_check(build, program, library)
            arguments_check(build, program)
    for row in rows:
        if row.get("per_operation") and row["program"] in FIXED_TIME: # how far it comes is the machine's affair; the first argument is seconds
            if float(row["count"][0]) <= float(row["count_less"][0]):
                fail(f"{row['name']}: count runs no longer than count_less")
        elif row.get("per_operation"):
            ops = [line["ops"] for key in ("count", "count_less")
                   if (line := line_of(os.path.join(build, "bench", row["program"]), row[key], None))]
            if len(ops) == 2 and ops[0] <= ops[1]:
                fail(f"{row['name']}: count has no more operations than count_less")
    proof_check(build, library)
    broken_check(build)
    print(f"{len(sources)} workloads, {len(rows)} rows: " + (f"{len(failures)} failures" if failures else "all well"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
