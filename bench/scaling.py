#!/usr/bin/env python3
"""scaling.py - what each allocator does with 1 to all processors: operations a second, and peak memory.

Usage: scaling.py [--build build/release] [--also NAME=LIBRARY]... [--rows ROW,...] [--threads N,...] [--with PEER,...] [--rounds 3]
                  [--limit-s SECONDS] [--json FILE] [--markdown FILE] [--svg FILE] [--list]
       scaling.py --from FILE [--markdown FILE] [--svg FILE]     the table and the picture of an earlier run
  --with      the peers to measure beside HAKMEM; without it all that are at hand, the newest of each
  --also      NAME=LIBRARY[,OPTION=VALUE...]: another build of HAKMEM beside it, or the same with other options
  --limit-s   no further round is begun that would end later; what was measured until then counts
Method:  in each round every row with every number of threads under every allocator, one after the other; the
         table has the medians, the JSON all. Each thread does the same work however many there are, so that a row that
         scales takes as long with all processors as with one. Wall time: other work on the machine shows.
Failing: an allocator that fails in a row is left out there, and said; when HAKMEM fails, the run ends with 1.
"""
import argparse
import datetime
import json
import os
import re
import sys
import time
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from runner import ROOT, BenchError, Stand, machine, median  # noqa: E402

# name, what it is, workload, its arguments for a number of threads, the smallest number
ROWS = [
    ("larson", "blocks of 8 to 128 bytes, handed to a successor each round", "larson",
     lambda threads: [1, 8, 128, 1024, 1, 12345, threads], 1),
    ("larson/100", "blocks of 8 to 1,000 bytes, 100 rounds before the successor", "larson",
     lambda threads: [1, 8, 1000, 5000, 100, 4141, threads], 1),
    ("storm", "batches of up to 1,000 blocks of up to 1,000 bytes, nothing shared", "storm",
     lambda threads: [threads, 1500, 1000, 12345], 1),
    ("mid_large_mt/32K", "2 to 32 KiB in 256 slots a thread", "mid_large_mt",
     lambda threads: [threads, 1000000, 256, 2048, 32768, 12345], 1),
    ("mid_large_mt/512K", "32 to 512 KiB in 32 slots a thread", "mid_large_mt",
     lambda threads: [threads, 100000, 32, 32768, 524288, 12345], 1),
    ("producer_consumer", "half of the threads allocate, each for one that frees", "producer_consumer",
     lambda threads: [threads // 2, 1500000, 12345, 0, threads // 2], 2),
    ("producers/one", "all threads but one allocate, one frees", "producer_consumer",
     lambda threads: [threads - 1, 3000000 // (threads - 1), 12345, 0, 1], 2),
    ("exchange", "a quarter of all blocks freed by another thread; 16 bytes to 32 KiB", "exchange",
     lambda threads: [threads, 500000, 256, 1024, 25, 12345], 1),
    ("server", "two thirds clients, one third workers; values change hands both ways", "server",
     lambda threads: [threads - min(64, max(1, threads // 3)), min(64, max(1, threads // 3)), 60000, 2000, 12345], 2),
    ("thread_births", "threads are born, allocate 200 blocks, free half and die", "thread_births",
     lambda threads: [500 * threads, threads, 200, 12345], 1),
]
OLD_PEERS = ("jemalloc", "mimalloc", "scudo", "hardened-light", "hardened")


def thread_counts(processors):
    """1, 2, 4 ... and all; twice as many as there are, too."""
    counts = [1]
    while counts[-1] * 2 < processors: counts.append(counts[-1] * 2)
    return [*counts, processors, 2 * processors] if processors > 1 else [1, 2]


def measure(stand, rows, variants, counts, rounds, limit_s, environments):
    """[{row, about, threads, cells: {allocator: {rates, peaks}}}], in the order of the table."""
    begun, results, failed, longest = time.monotonic(), {}, set(), 0
    for round_number in range(rounds):
        round_begun = time.monotonic()
        for name, about, workload, arguments, threads_min in rows:
            for threads in counts:
                if threads < threads_min: continue
                at = results.setdefault((name, threads), {"row": name, "about": about, "threads": threads, "cells": {}})
                for variant, preload in variants.items():
                    if (name, variant) in failed: continue
                    try:
                        line = stand.work(preload, workload, *arguments(threads), timeout_s=60, env=environments.get(variant))
                    except (BenchError, ValueError) as error:
                        if variant == "hakmem": raise
                        print(f"  {name}, {threads} threads: {variant} is left out: {error}", file=sys.stderr)
                        failed.add((name, variant))
                        continue
                    cell = at["cells"].setdefault(variant, {"rates": [], "peaks_kb": [], "cpu_ns": []})
                    cell["rates"].append(line["ops"] / line["wall_ns"] * 1e9)
                    cell["cpu_ns"].append(line["cpu_ns"] / line["ops"])
                    cell["peaks_kb"].append(line["peak_kb"] - line.get("tables_kb", 0))
                print(f"  round {round_number + 1}: {name}, {threads} threads, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        longest = max(longest, time.monotonic() - round_begun)
        if limit_s and time.monotonic() - begun + longest > limit_s: break
    return list(results.values())


def rate_text(rate):
    return f"{rate / 1e6:,.1f}" if rate < 1e8 else f"{rate / 1e6:,.0f}"


def markdown(record):
    names = record["allocators"]
    about = record["machine"]
    lines = [f"{about['processor']}, {about['processors']} processors, {about['memory_gb']} GB, {about['system']}, kernel {about['kernel']}, huge pages "
             f"{about['huge_pages']}; libhakmem.so {record['library_sha256']}; {record['rounds']} interleaved rounds, medians; {record['started'][:10]}.", "",
             "Million operations a second (thread_births: thousand threads a second); in brackets the peak of resident memory in MiB, without the program's own "
             "tables. The fastest of each line is bold.", ""]
    for row in dict.fromkeys(point["row"] for point in record["points"]):
        points = [point for point in record["points"] if point["row"] == row]
        lines += [f"**{row}**: {points[0]['about']}.", "", "| threads | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        scale = 1000 if row == "thread_births" else 1
        for point in points:
            rates = {name: median(cell["rates"]) * scale for name, cell in point["cells"].items()}
            cells = []
            for name in names:
                if name not in rates:
                    cells.append("-")
                    continue
                text = rate_text(rates[name])
                text = f"**{text}**" if rates[name] == max(rates.values()) else text
                cells.append(f"{text} ({median(point['cells'][name]['peaks_kb']) / 1024:.1f})")
            lines.append(f"| {point['threads']} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


COLOURS = {"hakmem": "#1a7f5a", "glibc": "#8b95a1", "mimalloc3": "#d1791f", "mimalloc2": "#e8b46c", "jemalloc5": "#7a5cc0", "snmalloc": "#c2417a",
           "rpmalloc": "#3d7fc4", "tcmalloc-google": "#b33a2e", "gperftools": "#d98a80", "tbbmalloc": "#5f6b2d"}


def svg(record):
    """Small multiples: a panel a row, a line an allocator, threads across (logarithmic), throughput up from zero."""
    rows = list(dict.fromkeys(point["row"] for point in record["points"]))
    columns, wide, high, left, top = 3, 310, 210, 52, 66
    panel_rows = (len(rows) + columns - 1) // columns
    width, height = columns * wide + 20, top + panel_rows * (high + 34) + 10
    processors = record["machine"]["processors"]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           f'<text x="10" y="21" font-weight="bold" font-size="13" fill="#222222">Throughput by threads, {processors} processors (million operations a second; '
           'thread_births: thousand threads)</text>']
    at = 10
    for name in record["allocators"]:
        bold = ' font-weight="bold"' if name == "hakmem" else ""
        shown = "HAKMEM" if name == "hakmem" else name
        out += [f'<rect x="{at}" y="34" width="14" height="4" fill="{COLOURS.get(name, "#444444")}"/>',
                f'<text x="{at + 18}" y="40" fill="#222222"{bold}>{escape(shown)}</text>']
        at += 34 + (8.2 if name == "hakmem" else 6.6) * len(name)
    for number, row in enumerate(rows):
        points = [point for point in record["points"] if point["row"] == row]
        counts = [point["threads"] for point in points]
        scale = 1e3 if row == "thread_births" else 1e6
        most = max(median(cell["rates"]) for point in points for cell in point["cells"].values()) / scale
        x0, y0 = number % columns * wide + left, top + number // columns * (high + 34)
        inner_w, inner_h = wide - left - 14, high - 34
        def x(index): return x0 + index / max(len(counts) - 1, 1) * inner_w
        def y(value): return y0 + 22 + inner_h - value / most * inner_h
        out.append(f'<text x="{x0}" y="{y0 + 8}" font-weight="bold" fill="#222222">{escape(row)}</text>')
        for tick in (0, most / 2, most):
            out += [f'<line x1="{x0}" x2="{x0 + inner_w}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#e3e7ec"/>',
                    f'<text x="{x0 - 6}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#667080">{tick:.3g}</text>']
        for index, count in enumerate(counts):
            out.append(f'<text x="{x(index):.1f}" y="{y0 + 22 + inner_h + 14}" text-anchor="middle" fill="#667080">{count}</text>')
        for name in sorted(record["allocators"], key=lambda one: one == "hakmem"):
            line = [(x(index), y(median(point["cells"][name]["rates"]) / scale)) for index, point in enumerate(points) if name in point["cells"]]
            if not line: continue
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in line)
            out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS.get(name, "#444444")}" stroke-width="{2.6 if name == "hakmem" else 1.2}"/>')
    return "\n".join([*out, "</svg>"]) + "\n"


def names_of(text, known, what):
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    for name in chosen:
        if name not in known: raise SystemExit(f"scaling.py: there is no {what} {name}; there is {', '.join(map(str, known))}")
    return chosen


def also_read(text):
    name, _, rest = text.partition("=")
    library, *options = rest.split(",")
    if not name or not os.path.exists(library) or any("=" not in option for option in options):
        raise SystemExit(f"scaling.py: --also {text}: NAME=LIBRARY[,OPTION=VALUE...], with a library that is there")
    return name, os.path.abspath(library), dict(option.split("=", 1) for option in options)


def record_make(arguments):
    library = os.path.join(ROOT, arguments.build, "libhakmem.so")
    if not os.path.exists(library): raise SystemExit(f"scaling.py: {library} is not there: run `make product`")
    rows = [row for row in ROWS if not arguments.rows or row[0] in names_of(arguments.rows, [row[0] for row in ROWS], "row")]
    stand = Stand(library, say=lambda text: print(text, file=sys.stderr))
    wanted = names_of(arguments.peers, list(stand.peers), "peer") if arguments.peers is not None else \
        [name for name in stand.peers if name not in OLD_PEERS or (name in OLD_PEERS[:2] and not any(other.startswith(name) and other != name for other in stand.peers))]
    variants, environments = stand.variants(wanted), {}
    for name, path, options in map(also_read, arguments.also):
        variants[name], environments[name] = path, options
    counts = thread_counts(os.cpu_count())
    if arguments.threads:
        if not re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", arguments.threads): raise SystemExit(f"scaling.py: --threads {arguments.threads}: numbers of threads, with commas")
        counts = [int(count) for count in arguments.threads.split(",")]
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    points = measure(stand, rows, variants, counts, arguments.rounds, arguments.limit_s, environments)
    return {"machine": machine(), "started": started, "library_sha256": stand.library_sha(), "allocators": list(variants),
            "versions": {name: peer.version for name, peer in stand.peers.items() if name in wanted},
            "rounds": max(len(cell["rates"]) for point in points for cell in point["cells"].values()), "points": points}


def main():
    parser = argparse.ArgumentParser(description="throughput by threads, under HAKMEM and its peers")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rows")
    parser.add_argument("--threads")
    parser.add_argument("--with", dest="peers")
    parser.add_argument("--also", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-s", type=float)
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--svg")
    parser.add_argument("--from", dest="earlier")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        for name, about, *_ in ROWS: print(f"{name:20} {about}")
        return
    try:
        if arguments.earlier:
            with open(arguments.earlier, encoding="utf-8") as file: record = json.load(file)
        else:
            record = record_make(arguments)
        for path, text in ((arguments.json, json.dumps(record, indent=1) + "\n"), (arguments.markdown, markdown(record) + "\n"), (arguments.svg, svg(record))):
            if not path: continue
            with open(path, "w", encoding="utf-8") as file: file.write(text)
    except (BenchError, OSError, KeyError, ValueError) as error:
        raise SystemExit(f"scaling.py: {error}") from None
    print(markdown(record))


if __name__ == "__main__":
    main()
