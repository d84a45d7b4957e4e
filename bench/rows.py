"""rows.py - the figures that HAKMEM promises: one function a row, each measures and judges.

A row's function gets the stand and whether to be quick, and returns a Figure. It raises BenchError when it
cannot measure: the row then says so and is not called reached. Rows that only compare (no figure was promised)
are in beside.py.
"""
import os
import re
import subprocess
import sys

import callgrind
from runner import ROOT, BenchError, median, median_and_spread, pair_ratio, program_find

MB = 1e6


class Figure:
    """`measured` and `peers` are text for the table; `reached` True or False; `detail` goes into the JSON."""

    def __init__(self, measured, reached, peers="", detail=None):
        self.measured, self.reached, self.peers, self.detail = measured, bool(reached), peers, detail


class Row:
    def __init__(self, name, what, reach, measure, is_timed=False):
        self.name, self.what, self.reach, self.measure, self.is_timed = name, what, reach, measure, is_timed


ROWS = []


def row(name, what, reach, is_timed=False):
    def keep(function):
        ROWS.append(Row(name, what, reach, function, is_timed))
        return function
    return keep


def others(results, show):
    """'glibc 330, mimalloc 342': the peers' medians, smallest first."""
    medians = sorted((median(values), name) for name, values in results.items() if name != "hakmem")
    return ", ".join(f"{name} {show(value)}" for value, name in medians)


def field_of(results, field, scale=1.0):
    return {name: [line[field] / scale for line in lines] for name, lines in results.items()}


def megabytes(results, field):
    return field_of(results, field, MB / 1024)


# --- instructions ---------------------------------------------------------------------------------

@row("path", "malloc / free, same thread, up to 1 KiB: instructions (branches) on the path, from the disassembly",
     "<= 18 (2) / <= 30 (6), no call, no lock")
def path(stand, quick):
    script = os.path.join(ROOT, "test", "laws", "fastpath.py")
    if not os.path.exists(script):
        raise BenchError("test/laws/fastpath.py is not there")
    done = subprocess.run([sys.executable, script, "--build", os.path.dirname(stand.original)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    found = {}
    for line in done.stdout.splitlines():
        name, _, rest = line.partition(": ")
        numbers = dict(reversed(part.split(" ", 1)) for part in rest.split(", ") if re.match(r"\d+ [a-z]+$", part))
        if name in ("malloc", "free") and "instructions" in numbers:
            found[name] = {key: int(value) for key, value in numbers.items()}
    if set(found) != {"malloc", "free"}:
        raise BenchError("fastpath.py counted no path: " + (done.stdout.strip().splitlines() or ["nothing"])[-1])
    malloc, free = found["malloc"], found["free"]
    reached = (malloc["instructions"] <= 18 and malloc["branches"] <= 2 and free["instructions"] <= 30
               and free["branches"] <= 6 and not any(one[key] for one in (malloc, free) for key in ("calls", "locks")))
    return Figure(f"{malloc['instructions']} ({malloc['branches']}) / {free['instructions']} ({free['branches']}), "
                  f"{malloc['calls'] + free['calls']} calls, {malloc['locks'] + free['locks']} locks", reached, "",
                  found)


def visits(stand, block_bytes, malloc_max, free_max):
    counts, lines = {}, []
    for name, preload in stand.variants().items():
        try:
            counts[name] = [callgrind.instructions(stand, preload, block_bytes, phase) for phase in ("alloc", "free")]
        except BenchError as error:
            if name == "hakmem":
                raise
            stand.say(f"    {name} is left out: {error}")
    for name in sorted(counts, key=lambda name: sum(counts[name])):
        if name != "hakmem":
            lines.append(f"{name} {counts[name][0]:.0f} / {counts[name][1]:.0f}")
    malloc, free = counts["hakmem"]
    return Figure(f"{malloc:.1f} / {free:.1f}", malloc <= malloc_max and free <= free_max, ", ".join(lines), counts)


@row("visits-64", "64 B, 256 mallocs then 256 frees, visits included: instructions a malloc / a free (callgrind)",
     "<= 20 / <= 32")
def visits_64(stand, quick):
    return visits(stand, 64, 20, 32)


@row("visits-1024", "1 KiB, the same", "<= 35 / <= 32")
def visits_1024(stand, quick):
    return visits(stand, 1024, 35, 32)


@row("tls", "thread-local storage of the library", "<= 64 bytes")
def tls(stand, quick):
    def bytes_of(library):
        text = subprocess.run(["readelf", "-lW", library], stdout=subprocess.PIPE, text=True, check=True).stdout
        found = re.search(r"^\s+TLS\s+(\S+)\s+\S+\s+\S+\s+\S+\s+(\S+)", text, re.M)
        return int(found.group(2), 16) if found else 0
    own = bytes_of(stand.library)
    told = sorted((bytes_of(peer.path), name) for name, peer in stand.peers.items() if peer.path)
    return Figure(f"{own} bytes", own <= 64, ", ".join(f"{name} {count}" for count, name in told),
                  {"hakmem": own, **{name: count for count, name in told}})


# --- starting ----------------------------------------------------------------------------------------

@row("start", "start: `true` preloaded against none: added time, page faults", "<= 0.1 ms, <= 12", is_timed=True)
def start(stand, quick):
    program = [program_find("true")]
    results = stand.interleaved(stand.variants(), 60 if quick else 400, lambda preload: stand.run(preload, program))
    base = results["glibc"]
    added = {name: ([(one["wall_ns"] - none["wall_ns"]) / 1e6 for one, none in zip(lines, base)],
                    [one["faults"] - none["faults"] for one, none in zip(lines, base)])
             for name, lines in results.items() if name != "glibc"}
    time_ms, faults = (median(values) for values in added["hakmem"])
    text = ", ".join(f"{name} {median(times):+.2f} ms {median(counts):+.0f}"
                     for name, (times, counts) in sorted(added.items(), key=lambda item: median(item[1][0]))
                     if name != "hakmem")
    return Figure(f"{time_ms:+.3f} ms, {faults:+.0f} faults", time_ms <= 0.1 and faults <= 12, text,
                  {name: {"ms": median(times), "faults": median(counts)} for name, (times, counts) in added.items()})


PYTHON_RESIDENT = ("import os\n"
                   "fd = os.open('/proc/self/smaps_rollup', os.O_RDONLY)\n"
                   "text = os.read(fd, 4096).decode()\n"
                   "maps = open('/proc/self/maps').read()\n"
                   "print(text.split('Rss:')[1].split()[0])\n"
                   "print(maps)")


def python_resident_kb(stand, preload):
    out = stand.run(preload, [program_find("python3"), "-c", PYTHON_RESIDENT])["out"]
    first, _, maps = out.partition("\n")
    if preload and os.path.realpath(preload) not in maps:
        raise BenchError(f"{os.path.basename(preload)} is not mapped in python3")
    return int(first)


@row("python", "`python3` at its prompt: resident memory against glibc", "<= +1 MB")
def python(stand, quick):
    results = stand.interleaved(stand.variants(), 3 if quick else 9,
                                lambda preload: python_resident_kb(stand, preload) * 1024 / MB)
    base = median(results["glibc"])
    own = [value - base for value in results["hakmem"]]
    return Figure(f"{median(own):+.2f} MB (glibc {base:.1f})", median(own) <= 1.0,
                  others({name: [value - base for value in values] for name, values in results.items()
                          if name != "glibc"}, lambda value: f"{value:+.1f}"), results)


# --- memory that comes back ---------------------------------------------------------------------------

def peaks(stand, share, mb_max, quick, sites="one"):
    whole = (share, 300, 12, 12345, sites)
    lines = {name: [line] for name, line in stand.side_by_side(stand.variants(), 4, "three_peaks", *whole).items()}
    work = stand.interleaved(stand.variants(), 1 if quick else 3,
                             lambda preload: stand.work(preload, "three_peaks", share, 300, 0, 12345, sites))
    resident = megabytes(lines, "resident_kb")
    seconds = field_of(work, "wall_ns", 1e9)
    own = resident["hakmem"][0]
    live = lines["hakmem"][0]["live_bytes"] / MB
    text = others(resident, lambda value: f"{value:.0f}")
    ratio = pair_ratio(seconds["hakmem"], seconds["glibc"])
    return Figure(f"{own:.0f} MB ({live:.0f} live); {median(seconds['hakmem']):.2f} s, {ratio:.2f} of glibc's",
                  own <= mb_max, text, {"resident_mb": resident, "work_s": seconds, "lines": lines})


@row("peaks", "three peaks of 300 MB, 1% long-lived small blocks kept, light traffic: resident 12 s later", "<= 110 MB")
def peaks_1(stand, quick):
    return peaks(stand, 1, 110, quick)


@row("peaks-calls", "the same, long-lived blocks from a call of their own, as in programs; nothing saved from an earlier run",
     "<= 30 MB")
def peaks_calls(stand, quick):
    return peaks(stand, 1, 30, quick, "two")


@row("peaks-calls-5", "the same with 5% long-lived blocks", "<= 80 MB")
def peaks_calls_5(stand, quick):
    return peaks(stand, 5, 80, quick, "two")


def idle(stand, threads, mb, reach_mb):
    lines = stand.side_by_side(stand.variants(), 3, "idle_pool", threads, mb)
    resident = megabytes({name: [line] for name, line in lines.items()}, "resident_kb")
    own = resident["hakmem"][0]
    at_once = lines["hakmem"]["resident_at_once_kb"] * 1024 / MB
    return Figure(f"{own:.1f} MB ({at_once:.1f} right after the frees)", own <= reach_mb,
                  others(resident, lambda value: f"{value:.0f}"), lines)


@row("idle-8", "8 threads allocate 100 MB each, free it, block: resident 15 s later, default options", "<= 10 MB")
def idle_8(stand, quick):
    return idle(stand, 8, 100, 10)


@row("idle-16", "16 threads, 200 MB each", "<= 20 MB")
def idle_16(stand, quick):
    return idle(stand, 16, 200, 20)


@row("threads", "200 threads, each one live block in 30 classes (2.9 MB live in all): growth of resident memory, "
     "stacks included", "<= 12 MB")
def threads(stand, quick):
    results = stand.interleaved(stand.variants(), 2 if quick else 5,
                                lambda preload: stand.work(preload, "many_threads"))
    growth, blocks = megabytes(results, "growth_all_kb"), megabytes(results, "growth_kb")
    return Figure(f"{median_and_spread(growth['hakmem'])} MB, {median_and_spread(blocks['hakmem'])} of it after the "
                  "threads stood", median(growth["hakmem"]) <= 12, others(growth, lambda value: f"{value:.1f}"),
                  {"growth_mb": growth, "growth_after_birth_mb": blocks})


# --- narrow places -----------------------------------------------------------------------------------

PYTHON_THREADS = ("import threading\n"
                  "done = []\n"
                  "def work():\n"
                  "    rows = [str(i) * 20 for i in range(3000)]\n"
                  "    done.append(sum(map(len, rows)))\n"
                  "all = [threading.Thread(target=work) for _ in range(4)]\n"
                  "[one.start() for one in all]\n"
                  "[one.join() for one in all]\n"
                  "print(done)\n"
                  "print('MAPS', open('/proc/self/maps').read().count('hakmem'))")
SQL = ("create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) "
       "insert into t select i, hex(i * 7919) from n; create index tb on t(b); "
       "select count(*), sum(a), max(b) from t where b > '5';")


def narrow_programs():
    return {"true": [program_find("true")], "sqlite3": [program_find("sqlite3"), ":memory:", SQL],
            "python3, 4 threads": [program_find("python3"), "-c", PYTHON_THREADS]}


def without_proof(text):
    return re.sub(r"MAPS \d+", "", text)


def same_as_glibc(stand, name, argv, **options):
    """Runs under HAKMEM and says None, or what is different from the C library's run."""
    ours = stand.run(stand.library, argv, **options)
    theirs = stand.run(None, argv, **options)
    if without_proof(ours["out"]) != without_proof(theirs["out"]):
        raise BenchError(f"{name}: another result than with glibc")
    if "MAPS 0" in ours["out"]:
        raise BenchError(f"{name}: the library was not mapped")
    if "hakmem:" in ours["err"]:
        raise BenchError(f"{name}: {ours['err'].strip().splitlines()[-1]}")


def runs_all(tries):
    """[(name, function)]: all of them tried; the figure lists what failed."""
    failed, passed = {}, []
    for name, attempt in tries:
        try:
            attempt()
            passed.append(name)
        except BenchError as error:
            failed[name] = str(error)
    told = [", ".join(passed) + " run"] if passed else []
    text = "; ".join(told + [f"{name} FAILS: {why}" for name, why in failed.items()])
    return Figure(text, not failed, "", {"runs": passed, "fails": failed})


@row("ulimit", "`ulimit -v 65536` (KiB): `true`, `sqlite3` on a small database, `python3` with 4 threads", "run")
def ulimit(stand, quick):
    return runs_all([(name, lambda name=name, argv=argv: same_as_glibc(stand, name, argv,
                                                                       launch_flags=["-v", "65536"]))
                     for name, argv in narrow_programs().items()])


@row("places", "valgrind memcheck and callgrind, a seccomp filter that refuses madvise and process_madvise",
     "run")
def places(stand, quick):
    valgrind, programs = program_find("valgrind"), narrow_programs()
    sqlite = programs["sqlite3"]
    tools = {"memcheck": ["--tool=memcheck", "--error-exitcode=9", "--leak-check=no"],
             "memcheck, malloc left to us": ["--tool=memcheck", "--soname-synonyms=somalloc=nouserintercepts"],
             "callgrind": ["--tool=callgrind", "--callgrind-out-file=/dev/null"]}
    tries = [(name, lambda name=name, flags=flags: same_as_glibc(stand, name, [valgrind, "-q", *flags, *sqlite]))
             for name, flags in tools.items()]
    tries += [(f"seccomp: {name}", lambda name=name, argv=argv: same_as_glibc(stand, name, argv, launch_flags=["-m"]))
              for name, argv in programs.items()]
    tries += [("seccomp: storm", lambda: stand.work(stand.library, "storm", 4, 300, launch_flags=["-m"]))]
    return runs_all(tries)


OVERCOMMIT = "/proc/sys/vm/overcommit_memory"


@row("overcommit", "overcommit 2 (the kernel grants no memory it may not have)", "run")
def overcommit(stand, quick):
    if not stand.may_set_overcommit:
        raise BenchError("it changes the whole system for a second; ask for it with --overcommit, as root")
    with open("/proc/meminfo", encoding="utf-8") as file:
        told = dict(line.split(":", 1) for line in file)
    limit_kb, promised_kb = (int(told[name].split()[0]) for name in ("CommitLimit", "Committed_AS"))
    if promised_kb > limit_kb * 9 // 10: # nothing at all could be started then
        raise BenchError(f"{promised_kb >> 10} MiB are promised to other programs, of {limit_kb >> 10} it would allow")
    with open(OVERCOMMIT, encoding="utf-8") as file:
        before = file.read()
    try:
        with open(OVERCOMMIT, "w", encoding="utf-8") as file:
            file.write("2")
    except OSError as error:
        raise BenchError(f"{OVERCOMMIT} cannot be set here: {error.strerror}") from None
    try:
        return runs_all([(name, lambda name=name, argv=argv: same_as_glibc(stand, name, argv))
                         for name, argv in narrow_programs().items()])
    finally:
        with open(OVERCOMMIT, "w", encoding="utf-8") as file:
            file.write(before)


# --- speed --------------------------------------------------------------------------------------------

STORMS = {"1,000": (4, 10000, 1000), "10,000": (4, 1000, 10000)} # blocks in the largest batch: arguments


@row("storm", "a storm (4 threads allocate and free batches of up to 1,000, and of up to 10,000, blocks of 1 to 1,000 "
     "bytes) against the best peers at hand: the fastest, and the smallest of those that take at most 1.10 of its time",
     "time <= 1.10, peak memory <= 1.10", is_timed=True)
def storm(stand, quick):
    rounds, texts, told, detail, reached = 3 if quick else 9, [], [], {}, True
    for name, arguments in STORMS.items():
        results = stand.interleaved(stand.variants(), rounds, lambda preload: stand.work(preload, "storm", *arguments))
        times, peak = field_of(results, "wall_ns", 1e6), megabytes(results, "peak_kb")
        rivals = [rival for rival in results if rival != "hakmem"]
        fastest = min(rivals, key=lambda rival: median(times[rival]))
        quick_ones = [rival for rival in rivals if pair_ratio(times[rival], times[fastest]) <= 1.10]
        smallest = min(quick_ones, key=lambda rival: median(peak[rival]))
        slow_and_small = min(rivals, key=lambda rival: median(peak[rival]))
        ratios = [pair_ratio(times["hakmem"], times[fastest]), pair_ratio(peak["hakmem"], peak[smallest])]
        reached = reached and max(ratios) <= 1.10
        texts.append(f"{name}: time {ratios[0]:.2f} of {fastest}'s, peak {ratios[1]:.2f} of {smallest}'s "
                     f"({median_and_spread(times['hakmem'], 0)} ms, {median(peak['hakmem']):.1f} MB, against {fastest} "
                     f"{median_and_spread(times[fastest], 0)} ms, {median(peak[fastest]):.1f} MB; the smallest of all, "
                     f"{slow_and_small}, holds {median(peak[slow_and_small]):.1f} MB in {median(times[slow_and_small]):.0f} ms)")
        told.append(f"{name}: " + ", ".join(f"{rival} {median(times[rival]):.0f} ms {median(peak[rival]):.1f} MB"
                                            for rival in sorted(rivals, key=lambda rival: median(times[rival]))))
        detail[name] = {"ms": times, "peak_mb": peak, "faults": field_of(results, "faults")}
    return Figure("; ".join(texts), reached, "; ".join(told), detail)


