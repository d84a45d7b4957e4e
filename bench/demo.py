#!/usr/bin/env python3
"""demo.py - real programs on real data of this machine, under glibc's malloc and under HAKMEM, side by side.

Usage: demo.py [--build build/release]
Shows: CPU time, peak memory, memory after the work, page faults; three runs each, taken in turn, medians; and
       why, from the library's own report. It prints whichever wins.
Needs: sqlite3 and python3 (the system's), some headers in /usr/include, the standard library of Python.
Takes: about a minute.
"""
import argparse
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from runner import ROOT, BenchError, Stand, machine, median, program_find  # noqa: E402

RUNS = 3
BAR_CELLS = max(10, min(30, shutil.get_terminal_size().columns - 68))  # what stands beside it takes the rest

# After the work the program does next to nothing for two seconds, then its resident memory is read.
SQLITE_JOB = """
create table source(path text, body text);
insert into source select name, cast(readfile(name) as text) from fsdir('/usr/include')
  where (mode & 61440) = 32768 and name glob '*.h' order by name limit 2500;
create index by_path on source(path);
create virtual table words using fts5(body, content='');
insert into words(rowid, body) select rowid, body from source;
insert into words(words) values('optimize');
select 'headers', count(*), sum(length(body)) from source;
select 'malloc or size', count(*) from words where words match 'malloc OR size';
select 'struct near union', count(*) from words where words match 'NEAR(struct union, 5)';
create virtual table lines using fts5vocab(words, 'row');
select 'commonest', group_concat(term, ' ') from (select term from lines order by doc desc, term limit 5);
.open :memory:
select 1;
.system sleep 1
select 1;
.system sleep 1
select 1;
.system cat /proc/$PPID/smaps_rollup
"""

PYTHON_JOB = r"""
import ast, gc, glob, json, os, sys, time
folder = os.path.dirname(os.__file__)
files = sorted(glob.glob(folder + "/**/*.py", recursive=True))
files = [name for name in files if "/test/" not in name and "-packages/" not in name][:350]
trees, sizes = {}, 0
for name in files:
    with open(name, "rb") as file:
        text = file.read()
    try:
        trees[name] = ast.parse(text)
        sizes += len(text)
    except (SyntaxError, ValueError):
        pass
uses, nodes = {}, 0
for name, tree in trees.items():
    for node in ast.walk(tree):
        nodes += 1
        if isinstance(node, ast.Name):
            uses.setdefault(node.id, []).append([os.path.basename(name), node.lineno])
text = json.dumps(uses, indent=1, sort_keys=True)
index = {word: len(places) for word, places in json.loads(text).items()}
print("files", len(trees), sizes, "nodes", nodes, "names", len(index))
print("commonest", sorted(index, key=lambda word: (-index[word], word))[:5])
del trees, uses, text, tree, node
gc.collect()
for _ in range(20):
    time.sleep(0.1)
    str(_) * 100
print(open("/proc/self/smaps_rollup").read())
"""


class Program:
    def __init__(self, name, argv, env, job, tell):
        self.name, self.argv, self.env, self.job, self.tell = name, argv, env, job, tell


def programs():
    return [
        Program("sqlite3", [program_find("sqlite3"), ":memory:"], {}, SQLITE_JOB,
                lambda lines: "full-text index of {0:,} headers of /usr/include ({1:.0f} MB), queries, then closed"
                .format(int(lines["headers"][0]), int(lines["headers"][1]) / 1e6)),
        Program("python3", [program_find("python3"), "-s", "-c", PYTHON_JOB], {"PYTHONMALLOC": "malloc"}, "",
                lambda lines: ("parses {0:,} files of its library ({1:.1f} MB), indexes their names, keeps the index;\n"
                               "          PYTHONMALLOC=malloc, so that every object comes from malloc")
                .format(int(lines["files"][0]), int(lines["files"][1]) / 1e6)),
    ]


def answers(out):
    """{first word: the rest} of the program's own lines, and the resident memory it read at the end."""
    lines, resident_kb = {}, None
    for line in out.splitlines():
        if line.startswith("Rss:"):
            resident_kb = int(line.split()[1])
        fields = line.replace("|", " ").split()
        if len(fields) > 1 and ":" not in line:
            lines[fields[0]] = fields[1:]
    if resident_kb is None:
        raise BenchError("the program did not say how much memory it holds at the end")
    return lines, resident_kb


def run_once(stand, program, preload):
    report = os.path.join(stand.scratch, "report.json")
    env = {**program.env, **({"HAKMEM_REPORT": report} if preload else {})}
    script = os.path.join(stand.scratch, "job.sql")
    with open(script, "w", encoding="utf-8") as file:
        file.write(program.job)
    with open(script, "rb") as stdin:
        done = stand.run(preload, program.argv, env=env, stdin=stdin)
    lines, resident_kb = answers(done["out"])
    result = {"time": (done["user_us"] + done["sys_us"]) / 1e6, "peak": done["peak_kb"] * 1024 / 1e6,
              "after": resident_kb * 1024 / 1e6, "faults": done["faults"], "lines": lines, "report": None}
    if preload:
        try:
            with open(report, encoding="utf-8") as file:
                result["report"] = json.load(file)
            os.unlink(report)
        except (OSError, ValueError) as error:
            raise BenchError(f"{program.name} left no report, so HAKMEM was not there: {error}") from None
    return result


# --- showing ------------------------------------------------------------------------------------------

MEASURES = [("time", "CPU time", "{:.2f} s"), ("peak", "peak memory", "{:.1f} MB"),
            ("after", "memory after", "{:.1f} MB"), ("faults", "page faults", "{:,.0f}")]


def bar(share):
    """A bar of eighths of a cell where the terminal can show them."""
    if "utf" not in (sys.stdout.encoding or "").lower():
        return "#" * max(1, round(share * BAR_CELLS))
    eighths = max(1, round(share * BAR_CELLS * 8))
    return "\u2588" * (eighths // 8) + ("", *"\u258f\u258e\u258d\u258c\u258b\u258a\u2589")[eighths % 8]


def comparison(ours, theirs):
    change = ours / theirs - 1
    if abs(change) < 0.02:
        return "as good as equal"
    if change < -0.5:
        return f"{theirs / ours:.1f} times less"
    if change > 1.0:
        return f"{ours / theirs:.1f} times MORE"
    return f"{abs(change):.0%} {'less' if change < 0 else 'MORE'}"


def color(text, code):
    return f"\x1b[{code}m{text}\x1b[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text


def table_print(results):
    for key, name, form in MEASURES:
        values = {who: [one[key] for one in runs] for who, runs in results.items()}
        largest = max(median(one) for one in values.values())
        for who in ("glibc", "HAKMEM"):
            middle, low, high = (function(values[who]) for function in (median, min, max))
            spread = f"({form.format(low).split()[0]}-{form.format(high).split()[0]})" if key == "time" else ""
            verdict = comparison(middle, median(values["glibc"])) if who == "HAKMEM" else ""
            picture = bar(middle / largest).ljust(BAR_CELLS)
            picture = color(picture, "32" if who == "HAKMEM" else "90")
            print(f"  {name if who == 'glibc' else '':<13} {who:<6} {form.format(middle):>10} {spread:<13} {picture} "
                  f"{color(verdict, '31' if 'MORE' in verdict else '32') if verdict else ''}".rstrip())


def why_print(report):
    """In plain words, from the library's own counters of the last run."""
    counter, classes = report["counters"], report["classes"]
    allocs = sum(one["allocs"] for one in classes)
    # a visit to a dead heap's slab goes on as one to a partly free slab, and is counted there
    visits = sum(counter["visit_" + way] for way in ("next_word", "coarse", "collect", "partial", "new_slab"))
    returned, retouched = report["returned_bytes"] / 1e6, report["retouched_bytes"] / 1e6
    fast = 1 - visits / max(allocs, 1)
    print("  why, from HAKMEM's own report:")
    print(f"    {allocs / 1e6:.2f} million small blocks in {len(classes)} size classes, {fast:.1%} of them without "
          "leaving the fast path:")
    print(f"    {visits:,} visits to the slow path, {allocs / max(visits, 1):.0f} blocks a visit; "
          f"{counter['visit_next_word'] / max(visits, 1):.0%} of these took the slab's next word of blocks")
    print(f"    {returned:.0f} MB went back to Linux while it ran, in {counter['return_call']:,} calls; "
          f"{retouched:.0f} MB of that was used again;")
    print(f"    at the end {report['live_bytes'] / 1e6:.1f} MB were live, "
          f"{report['free_bytes'] / 1e6:.1f} MB free but kept")


def demo(stand):
    about = machine()
    print(f"HAKMEM beside glibc's malloc: same program, same data, {RUNS} runs each, taken in turn")
    print(f"{about['processor']}, {about['processors']} processors, {about['system']}\n")
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        print(f"This machine is busy (load {os.getloadavg()[0]:.1f}): times may be off.\n")
    variants = {"glibc": None, "HAKMEM": stand.library}
    for program in programs():
        results = {who: [] for who in variants}
        for number in range(RUNS):
            for who, preload in variants.items():
                if sys.stdout.isatty():
                    print(f"\r  {program.name}: run {number + 1} of {RUNS} under {who} ...   ", end="", flush=True)
                results[who].append(run_once(stand, program, preload))
        if sys.stdout.isatty():
            print("\r" + " " * 60 + "\r", end="")
        told = [one["lines"] for runs in results.values() for one in runs]
        if any(lines != told[0] for lines in told):
            raise BenchError(f"{program.name} gave another result under one of the two")
        print(f"{color(program.name, '1')}   {program.tell(told[0])}")
        table_print(results)
        why_print(results["HAKMEM"][-1]["report"])
        print()
    folder = os.path.relpath(os.path.dirname(stand.original))
    print(f"Both gave the same results. Try your own: {folder}/hakmem run --report -- PROGRAM ARGS")


def main():
    parser = argparse.ArgumentParser(description="real programs under glibc's malloc and under HAKMEM, side by side")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="folder with libhakmem.so")
    options = parser.parse_args()
    stand = None
    sys.stdout.reconfigure(line_buffering=True)
    try:
        stand = Stand(os.path.join(options.build, "libhakmem.so"), with_peers=False)
        if not stand.has_library():
            raise BenchError(f"{stand.original} is not there; build it with `make`")
        demo(stand)
    except BenchError as error:
        raise SystemExit(f"demo.py: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("\ndemo.py: interrupted") from None
    finally:
        if stand:
            stand.close()


if __name__ == "__main__":
    main()
