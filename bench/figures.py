#!/usr/bin/env python3
"""figures.py - measure every figure of docs/figures.md on this machine, and write it there.

Usage: figures.py [--build build/release] [--only ROW]... [--resume] [--quick] [--no-beside] [--no-write] [--overcommit]
  --only ROW    only these rows (see --list); the others keep what was measured with the same library, and with another
                one nothing is written
  --resume      go on where a run with the same library was ended
  --quick       fewer rounds: a rough answer
  --no-beside   leave out the workloads for which no figure was promised
  --overcommit  the row of that name too: sets the whole system to strict accounting for a second (root)
  --no-write    print, and leave docs/figures.md and bench/results alone
Reads:  nothing of an earlier run, except with --only and --resume the rows of the same library on the same machine.
Never:  calls a row reached that was not measured with this very library (its SHA-256 is kept with each row).
"""
import argparse
import datetime
import glob
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import beside  # noqa: E402
import picture  # noqa: E402
from rows import ROWS  # noqa: E402
from runner import ROOT, BenchError, Stand, machine  # noqa: E402

DOCUMENT = os.path.join(ROOT, "docs", "figures.md")
BEGIN, END = "<!-- figures.py writes from here -->", "<!-- to here -->"


def results_path(about, date):
    name = re.sub(r"[^a-z0-9]+", "-", f"{about['processor']} {about['processors']}cpu".lower()).strip("-")
    return os.path.join(ROOT, "bench", "results", f"{date}-{name}.json")


def results_read(path, library_sha, is_quick):
    """Rows measured before with the same library and the same care, or none."""
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
    except (OSError, ValueError):
        return {}
    if kept.get("library_sha256") != library_sha or (kept.get("quick") and not is_quick):
        return {}
    return kept


def results_before(about, library_sha, is_quick):
    """The newest that this machine measured with the same library, on whatever day."""
    for path in sorted(glob.glob(results_path(about, "????-??-??")), reverse=True):
        if found := results_read(path, library_sha, is_quick):
            return found
    return {}


def others_keep(library_sha, before):
    """Refuses to write some rows into a document whose other rows would be lost: they are of another library, or in no file."""
    with open(DOCUMENT, encoding="utf-8") as file:
        found = re.search(r"libhakmem\.so ([0-9a-f]+)", file.read())
    if found and found[1] != library_sha:
        raise SystemExit(f"figures.py: docs/figures.md has the rows of libhakmem.so {found[1]}, this one is {library_sha}: "
                         "measure all rows, or add --no-write")
    if found and not before.get("rows"):
        raise SystemExit("figures.py: the other rows of docs/figures.md are in no file of bench/results that this machine measured with as many "
                         "rounds: measure all rows, or add --no-write")


def verdict(result):
    if result is None or "why" in result:
        return "not measured"
    return "yes" if result["reached"] else "**no**"


def rows_markdown(results):
    lines = ["| what | reach | measured | reached | peers |", "|---|---|---|---|---|"]
    for one in ROWS:
        result = results.get(one.name)
        measured = "-" if result is None else result.get("why") or result["measured"]
        peers = (result or {}).get("peers", "")
        lines.append(f"| {one.what} | {one.reach} | {measured} | {verdict(result)} | {peers} |")
    return "\n".join(lines)


# row, file, title, unit, what was promised, the row's detail -> {variant: value}
PICTURES = [
    ("peaks", "peaks.svg", "Three 300 MB peaks, 9 MB still live: resident 12 s later", "MB", 110,
     lambda detail: {name: values[0] for name, values in detail["resident_mb"].items()}),
    ("idle-8", "idle.svg", "8 idle threads that freed 100 MB each: resident 15 s later", "MB", 10,
     lambda detail: {name: line["resident_kb"] * 1024 / 1e6 for name, line in detail.items()}),
]


def pictures_write(rows):
    """Writes docs/img/* for the rows that were measured; returns their markdown."""
    lines = []
    for name, file_name, title, unit, limit, values_of in PICTURES:
        if "detail" not in rows.get(name, {}):
            continue
        values = {"HAKMEM" if who == "hakmem" else who: value for who, value in values_of(rows[name]["detail"]).items()}
        with open(os.path.join(ROOT, "docs", "img", file_name), "w", encoding="utf-8") as file:
            file.write(picture.bars_svg(title, values, unit, limit))
        lines += [f"![{title}](img/{file_name})", ""]
    return lines


def document_write(kept):
    about = kept["machine"]
    care = ", quick run" if kept["quick"] else ""
    text = [BEGIN, "", f"Measured {kept['date']} on {about['processor']}, {about['processors']} processors, "
            f"{about['memory_gb']} GB, {about['system']}, kernel {about['kernel']}, huge pages "
            f"`{about['huge_pages']}`; libhakmem.so {kept['library_sha256']}{care}.", "",
            "Peers: " + ", ".join(f"{peer['name']} {peer['version']} ({peer['source']})" for peer in kept["peers"])
            + ".", "", rows_markdown(kept["rows"]), "", *pictures_write(kept["rows"])]
    if kept.get("beside"):
        text += ["## Workloads side by side", "",
                 "No figure was promised for these. Nanoseconds an operation, medians (smallest-largest).", "",
                 beside.markdown(**kept["beside"]), ""]
    text.append(END)
    with open(DOCUMENT, encoding="utf-8") as file:
        before = file.read()
    if before.count(BEGIN) != 1 or before.count(END) != 1:
        raise SystemExit(f"figures.py: {DOCUMENT} has lost its markers {BEGIN} and {END}")
    head, rest = before.split(BEGIN)
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(head + "\n".join(text) + rest.split(END)[1])


def results_write(path, kept):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def rows_measure(stand, chosen, quick):
    for one in ROWS:
        if one.name not in chosen:
            continue
        print(f"  {one.name} ...", flush=True)
        try:
            figure = one.measure(stand, quick)
            yield one, {"measured": figure.measured, "reached": figure.reached, "peers": figure.peers,
                        "detail": figure.detail}
        except (BenchError, OSError, ValueError, KeyError) as error:
            yield one, {"why": f"not measured: {error}" if isinstance(error, BenchError)
                        else f"not measured: {type(error).__name__} {error}", "reached": False}


def rows_print(results):
    print()
    for one in ROWS:
        result = results.get(one.name)
        if result is None:
            continue
        print(f"{one.name:<12} reach     {one.reach}")
        print(f"{'':<12} measured  {result.get('why') or result['measured']}")
        if result.get("peers"):
            print(f"{'':<12} peers     {result['peers']}")
        print(f"{'':<12} reached   {verdict(result).strip('*')}\n")


def load_warn():
    load, count = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.3 * count:
        print(f"figures: this machine is busy (load {load:.1f} on {count} processors): times will be off",
              file=sys.stderr)
    return load


def main():
    parser = argparse.ArgumentParser(description="measure the figures of docs/figures.md on this machine")
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"), help="folder with libhakmem.so")
    parser.add_argument("--only", action="append", metavar="ROW", help="only this row (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--resume", action="store_true", help="go on where a run with the same library was ended")
    parser.add_argument("--no-beside", action="store_true", help="leave out the workloads without a promised figure")
    parser.add_argument("--no-write", action="store_true", help="leave docs/figures.md and bench/results alone")
    parser.add_argument("--overcommit", action="store_true", help="set the system to overcommit 2 for that row (root)")
    parser.add_argument("--list", action="store_true", help="list the rows")
    options = parser.parse_args()
    if options.list:
        for one in ROWS:
            print(f"{one.name:<12} {one.what}: {one.reach}")
        return 0
    names = [one.name for one in ROWS]
    for name in options.only or []:
        if name not in names + ["beside"]:
            raise SystemExit(f"figures.py: no row {name}; there are {', '.join(names)} and beside")
    try:
        stand = Stand(os.path.join(options.build, "libhakmem.so"))
    except BenchError as error:
        raise SystemExit(f"figures.py: {error}") from None
    stand.may_set_overcommit = options.overcommit
    if not stand.has_library():
        raise SystemExit(f"figures.py: {stand.original} is not there; build it with `make`")
    try:
        about, sha = machine(), stand.library_sha()
        path = results_path(about, datetime.date.today().isoformat())
        kept = {"machine": about, "library_sha256": sha, "quick": options.quick, "rows": {}, "beside": None,
                "date": datetime.date.today().isoformat(), "load_before": load_warn(),
                "peers": [{**peer.describe(), "path": None} for peer in stand.peers.values()]}
        part = os.path.join(options.build, "figures-part.json")  # until all is measured: the record of before stays
        if options.only or options.resume:
            before = results_read(part, sha, options.quick) if options.resume else results_before(about, sha, options.quick)
            if options.only and not options.no_write:
                others_keep(sha, before)
            kept["rows"], kept["beside"] = before.get("rows", {}), before.get("beside")
            kept["quick"] = options.quick or before.get("quick", False)
        chosen = [name for name in names if not options.only or name in options.only]
        if options.resume:
            chosen = [name for name in chosen if "measured" not in kept["rows"].get(name, {})]
        measured, is_whole = {}, True
        for one, result in rows_measure(stand, chosen, options.quick):
            measured[one.name] = kept["rows"][one.name] = result
            if not options.no_write:
                results_write(part, kept)  # who ends this early goes on with --resume
        if ("beside" in options.only) if options.only else not options.no_beside:
            print("  workloads side by side ...", flush=True)
            try:
                kept["beside"] = {"table": beside.measure(stand, options.quick), "fork": beside.fork_pages(stand),
                                  "peaks": beside.peaks_5(stand)}
            except BenchError as error:  # what was measured before stays
                print(f"figures: not measured side by side: {error}", file=sys.stderr)
                is_whole = False
        if stand.library_changed():
            print("figures: the library was built again meanwhile; these figures are of the one before",
                  file=sys.stderr)
    finally:
        stand.close()
    rows_print(measured)
    if not is_whole:
        raise SystemExit("figures.py: docs/figures.md is as it was; go on with --resume")
    if kept["beside"]:
        print(beside.markdown(**kept["beside"]))
    if not options.no_write:
        os.makedirs(os.path.join(ROOT, "docs", "img"), exist_ok=True)
        results_write(path, kept)
        document_write(kept)
        if os.path.exists(part):
            os.remove(part)
        print(f"\nwritten: {os.path.relpath(DOCUMENT)}, {os.path.relpath(path)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        raise SystemExit(f"figures.py: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("figures.py: interrupted; go on with --resume") from None
