"""controls.py - the measuring stand, measured: allocators of known faults must come out as what they are.

ctest: serial native timeout=600

One that wastes time is slower by what it wastes, one that wastes memory is larger by what it wastes, the same one
entered twice ties; one that crashes, hangs, prints garbage, hands out a block twice or cannot be loaded has an error
in its cell and no figures, and the others are measured. The shims are bench/shims.

On a shared machine a time says little, so the margins are wide and the wasted time is several times the work; what can be
counted (instructions) is compared closely. --precise, on an idle machine: nanoseconds within a tenth, ties within 3%.
"""
import argparse
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHIMS = os.path.join(ROOT, "bench", "shims")
FLAGS = ["-O2", "-g", "-fPIC", "-shared", "-ftls-model=initial-exec", "-fno-builtin", "-pthread"]
HOT, HEAP = "tiny_hot/64", "heap_build/512"   # one malloc and one free an operation; a heap of small blocks
PAIRS, PAIRS_CALLS = "pairs/1024", 2           # fewer of them; calls an operation
TIMES = 12                                    # HAKMEM is counted, at most
BAD = {"crash": "crashed", "hang": "hangs", "garbage": "garbage", "overlap": "ended with status 1", "foreign": "not loaded"}


class Control:
    def __init__(self, build):
        self.build, self.breaches = os.path.abspath(build), []
        self.folder = tempfile.mkdtemp(prefix="hakmem-controls-")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def skip(self, why):
        print("skipped: " + why)
        sys.exit(77)

    def breach(self, text):
        print("BREACH: " + text)
        self.breaches.append(text)

    def expect(self, is_so, text):
        print(("ok: " if is_so else "") + text) if is_so else self.breach(text)

    def within(self, value, low, high, what):
        self.expect(low <= value <= high, f"{what}: {value:.3f}, expected {low:g} to {high:g}")

    def shim(self, source, name=None, **wastes):
        """Path of bench/shims/SOURCE.c, compiled with those wastes."""
        path = os.path.join(self.folder, (name or source) + ".so")
        command = [os.environ.get("CC") or "cc", *FLAGS, *(f"-DWASTE_{key.upper()}={value}" for key, value in wastes.items()),
                   os.path.join(SHIMS, source + ".c"), "-o", path]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        except OSError:
            self.skip("no C compiler")
        if done.returncode:
            sys.exit(f"{source}.c does not compile: {done.stdout}")
        return path

    def bench(self, rows, entries, *more, status=0):
        """The result file of one `hakmem bench`, as {row: {allocator: cell}}."""
        out = os.path.join(self.folder, "out.json")
        # None: a peer known by its name.
        named = ",".join(name if path is None else f"{name}={path}" for name, path in entries.items())
        environment = {**os.environ, "HAKMEM_LIB": os.path.join(self.build, "libhakmem.so")}
        done = subprocess.run([os.path.join(self.build, "hakmem"), "bench", *rows, "--quick", "--with", named, "--json", out,
                               *more], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != status or not os.path.exists(out):
            sys.exit(f"hakmem bench ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
        with open(out, encoding="utf-8") as file:
            results = json.load(file)
        os.unlink(out)
        return {row["name"]: {cell["allocator"]: cell for cell in row["cells"]} for row in results["rows"]}, done.stdout

    def finish(self):
        print(f"controls: {len(self.breaches)} breaches" if self.breaches else "controls: as expected")
        sys.exit(1 if self.breaches else 0)


def middle(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2


def ns_per_op(cell):
    return middle([run["cpu_ns"] / run["ops"] for run in cell["runs"]])


def ns_least(cell):
    """The least disturbed run."""
    return min(run["cpu_ns"] / run["ops"] for run in cell["runs"])


def peak_kb(cell):
    return middle([run["peak_kb"] for run in cell["runs"]])


def extra(cell, name):
    return cell["runs"][0]["extra"][name]


def errors(control, cells):
    for name, cell in cells.items():
        if cell.get("error") or not cell["runs"]:
            control.breach(f"{name} was not measured: {cell.get('error') or 'no runs'}")
            return True
    return False


def wastes_show(control):
    slow = control.shim("waste", "slow", turns=150, ns=0, percent=0)
    fat = control.shim("waste", "fat", turns=0, ns=0, percent=100)
    same = os.path.join(control.build, "libhakmem.so")
    for rounds in ("3", "9", "27"): # a shared machine may be busy for as long as three take
        rows, text = control.bench([HOT], {"glibc": None, "slow": slow, "twin": same}, "--rounds", rounds)
        cells = rows[HOT]
        if errors(control, cells):
            break
        waste, tie = ns_least(cells["slow"]) / ns_least(cells["glibc"]), ns_least(cells["twin"]) / ns_least(cells["hakmem"])
        if waste > 4 and 0.6 <= tie <= 1.67:
            break
    if not errors(control, cells):
        control.expect(waste > 4, f"300 turns of a loop an operation: {ns_least(cells['glibc']):.1f} -> "
                                  f"{ns_least(cells['slow']):.0f} ns, more than four times as long")
        control.within(peak_kb(cells["slow"]) / peak_kb(cells["glibc"]), 0.8, 1.25, "its memory, of glibc's")
        control.within(tie, 0.6, 1.67, "the same library twice, time")
        control.within(peak_kb(cells["twin"]) / peak_kb(cells["hakmem"]), 0.8, 1.25, "the same library twice, memory")
        control.expect("slow" in text and "twin" in text, "the table names them")
    rows, _ = control.bench([HEAP], {"glibc": None, "fat": fat}, "--rounds", "3")
    cells = rows[HEAP]
    if not errors(control, cells):
        wasted = (peak_kb(cells["fat"]) - peak_kb(cells["glibc"])) * 1024 / extra(cells["glibc"], "live_bytes")
        control.within(wasted, 0.9, 1.1, "100% more memory a block: more at the peak, of the bytes that are live")


def counts_agree(control):
    """Instructions do not depend on the machine's other work: a known waste, and ties to the digit."""
    if not shutil.which("valgrind"):
        print("counts: no valgrind here, left out")
        return
    turns = 100
    slow = control.shim("waste", "slow", turns=turns, ns=0, percent=0)
    slower = control.shim("waste", "slower", turns=2 * turns, ns=0, percent=0)
    hakmem = os.path.join(control.build, "libhakmem.so")
    twins = ("hakmem", "twin", "triplet")
    allocators = {"slow": slow, "slow_again": slow, "slower": slower, **dict.fromkeys(twins[1:], hakmem)}
    rows, _ = control.bench([HOT], allocators, "--rounds", "1", "--count")
    cells = rows[HOT]
    if errors(control, cells):
        return
    absent = next((cell["counts_error"] for cell in cells.values() if cell.get("counts_error")), None)
    if absent:
        control.breach(f"instructions were not counted: {absent}")
        return
    instructions = {name: cell["counts"]["total"]["instructions"] for name, cell in cells.items()}
    added = (instructions["slower"] - instructions["slow"]) / (2 * turns) # two calls an operation
    control.within(added, 1.9, 4.1, "instructions a turn of the wasted loop (2 to 4 of them)")
    control.within(abs(added - round(added)), 0, 0.05, "of that, what is no whole instruction")
    control.within(instructions["slow_again"] / instructions["slow"], 0.9999, 1.0001, "the same shim twice, instructions")
    # HAKMEM looks at the clock by the clock, and callgrind's time is the machine's: the least of up to twelve, as laws/instructions.
    counts = [instructions[name] for name in twins]
    while (ratio := sorted(counts)[1] / min(counts)) > 1.001 and len(counts) < TIMES:
        rows, _ = control.bench([HOT], dict.fromkeys(twins[1:], hakmem), "--rounds", "1", "--count")
        if errors(control, rows[HOT]):
            return
        counts += [rows[HOT][name]["counts"]["total"]["instructions"] for name in twins]
    control.within(ratio, 0.999, 1.001, f"HAKMEM again, instructions, the two least of {len(counts)}")


def bad_ones_are_told(control):
    entries = {"glibc": None, **{name: control.shim(name) for name in BAD if name != "foreign"}}
    entries["foreign"] = control.shim("waste", "foreign")
    with open(entries["foreign"], "r+b") as file: # for another processor: the loader says so, and goes on without it
        file.seek(18)
        file.write(b"\x16\x00")
    before = processes()
    rows, text = control.bench(["random_mixed/4096"], entries, "--rounds", "1", "--timeout", "10")
    cells = rows["random_mixed/4096"]
    for name, word in BAD.items():
        error = (cells.get(name) or {}).get("error") or "no error"
        control.expect(word in error and not cells[name].get("figures"), f"{name}: {error}")
    errors(control, {name: cells[name] for name in ("hakmem", "glibc")})
    left = [line for line in processes() - before]
    control.expect(not left, "no process is left" if not left else f"left behind: {left}")


def no_allocator_is_refused(control):
    """A shared object without malloc would be glibc under another name."""
    command = [os.path.join(control.build, "hakmem"), "bench", HOT, "--with", f"none={control.shim('none')}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "HAKMEM_LIB": os.path.join(control.build, "libhakmem.so")}, check=False)
    lines = done.stderr.splitlines()
    control.expect(done.returncode == 2 and len(lines) == 1 and "exports no malloc" in lines[0] and not done.stdout,
                   f"no malloc: status {done.returncode}, {done.stderr.strip()}")


def processes():
    """Processes of the suite's programs."""
    found = set()
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                command = file.read().split(b"\0")[0].decode(errors="replace")
        except OSError:
            continue
        if os.path.basename(command) in ("random_mixed", "heap_build", "tiny_hot"):
            found.add((number, command))
    return found


def precise(control):
    """On an idle machine."""
    short, long = (control.shim("waste", f"waste{ns}", turns=0, ns=ns, percent=0) for ns in (200, 600))
    quarter = control.shim("waste", "quarter", turns=0, ns=0, percent=25)
    same = os.path.join(control.build, "libhakmem.so")
    rows, _ = control.bench([PAIRS], {"short": short, "long": long}, "--rounds", "9")
    added = (ns_per_op(rows[PAIRS]["long"]) - ns_per_op(rows[PAIRS]["short"])) / PAIRS_CALLS
    control.within(added, 360, 440, "400 ns more a call, as measured")
    rows, _ = control.bench([HEAP, HOT], {"glibc": None, "quarter": quarter, "twin": same}, "--rounds", "15")
    cells = rows[HEAP]
    wasted = (peak_kb(cells["quarter"]) - peak_kb(cells["glibc"])) * 1024 / extra(cells["glibc"], "live_bytes")
    control.within(wasted, 0.24, 0.26, "25% more memory a block, as measured")
    for name, cells in rows.items():
        control.within(ns_per_op(cells["twin"]) / ns_per_op(cells["hakmem"]), 0.97, 1.03, f"{name}: a tie, in time")
        control.within(peak_kb(cells["twin"]) / peak_kb(cells["hakmem"]), 0.98, 1.02, f"{name}: a tie, in memory")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    parser.add_argument("--precise", action="store_true", help="close margins; wants an idle machine")
    options = parser.parse_args()
    control = Control(options.build)
    command = os.path.join(control.build, "hakmem")
    try:
        told = subprocess.run([command, "bench", "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        control.skip(f"{command} is not there")
    if told.returncode:
        control.skip(f"{command} has no bench")
    if options.precise:
        precise(control)
    else:
        wastes_show(control)
        counts_agree(control)
        bad_ones_are_told(control)
        no_allocator_is_refused(control)
    control.finish()


main()
