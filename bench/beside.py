"""beside.py - workloads side by side: no figure was promised for them; time and memory are shown together.

Measured by `hakmem bench`, whose rows these are (bench/suite.toml): short runs, each begun in a quiet moment. What stands
here is which of them, under which heading.
"""
import json
import os
import subprocess

from rows import MB
from runner import BenchError, median, pair_ratio

# heading, row of the suite
WORKLOADS = [
    ("malloc + free, 64 B", "tiny_hot/64"),
    ("256 x 64 B, then freed", "pairs/64"),
    ("random sizes 16-1024, 4096 slots", "random_mixed/4096"),
    ("random sizes 16-256, 65536 slots", "random_mixed/65536"),
    ("random sizes 1-32 KiB, 1024 slots", "random_mixed/32K"),
    ("larson, 4 threads", "larson"),
    ("2-32 KiB, 2 threads", "mid_large_mt/32K"),
    ("producer and consumer", "producer_consumer/one"),
    ("buffers of 2 MiB", "vm/touched"),
    ("growth by realloc", "realloc_growth"),
    ("calloc, half untouched", "calloc_half"),
]
FORK = "fork_cow/64"


def bench(stand, rows, rounds, *more):
    """{row: row of the result file}, each with the cells of all variants that were measured."""
    command = os.path.join(os.path.dirname(stand.original), "hakmem")
    out = os.path.join(stand.scratch, "beside.json")
    try:
        done = subprocess.run([command, "bench", *rows, "--with", ",".join(stand.peers), "--rounds", str(rounds),
                               "--json", out, *more], env={**os.environ, "HAKMEM_LIB": stand.library},
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              check=False)
        said = done.stderr.strip() or f"status {done.returncode}, nothing said"
        # Status 1: HAKMEM itself failed in a row. The others are measured, and stderr says which.
        if done.returncode not in (0, 1):
            raise BenchError(f"{command} bench: {said.splitlines()[-1]}")
        if done.returncode == 1:
            stand.say(said)
        with open(out, encoding="utf-8") as file:
            results = json.load(file)
    except OSError as error:
        raise BenchError(f"{command} does not measure: {error}") from None
    return {row["name"]: {**row, "cells": {cell["allocator"]: cell for cell in row["cells"]
                                           if cell["runs"] and not cell.get("error")}} for row in results["rows"]}


def per_op(row, cell):
    """Nanoseconds an operation, by round."""
    return {run["round"]: run[row["time"] + "_ns"] / run["ops"] for run in cell["runs"]}


def variant(row, cell, glibc):
    times, base = per_op(row, cell), per_op(row, glibc)
    both = sorted(times.keys() & base.keys())
    runs = cell["runs"]
    return {"ns": median(times.values()), "ns_min": min(times.values()), "ns_max": max(times.values()),
            "against_glibc": pair_ratio([times[at] for at in both], [base[at] for at in both]),
            "peak_mb": median([run["peak_kb"] for run in runs]) * 1024 / MB,
            "resident_mb": median([run.get("resident_kb") or 0 for run in runs]) * 1024 / MB,
            "faults": median([run["faults"] for run in runs])}


def measure(stand, quick, say=print):
    """[{name, variants: {variant: {ns, peak_mb, resident_mb, faults, against_glibc}}}]"""
    say("  hakmem bench", flush=True)
    rows = bench(stand, [row for _, row in WORKLOADS], 3 if quick else 15)
    table = []
    for name, row in ((name, rows[row]) for name, row in WORKLOADS if row in rows):
        cells = row["cells"]
        if "glibc" not in cells:
            continue
        table.append({"name": name, "workload": row["program"], "arguments": row["arguments"], "clock": row["time"],
                      "variants": {which: variant(row, cell, cells["glibc"]) for which, cell in cells.items()}})
    return table


def fork_pages(stand, say=print):
    """Pages that a child copies when it frees a random half of 512 MB of 64-byte blocks."""
    say("  fork, the child frees half of 512 MB", flush=True)
    cells = bench(stand, [FORK], 1, "--full").get(FORK, {"cells": {}})["cells"]
    return {which: int(cell["runs"][0]["extra"]["pages_copied"]) for which, cell in cells.items()}


def peaks_5(stand, say=print):
    """Resident MB 12 s after three peaks with 5% long-lived blocks (47 MB live)."""
    say("  three peaks, 5% long-lived", flush=True)
    lines = stand.side_by_side(stand.variants(), 4, "three_peaks", 5)
    return {variant: line["resident_kb"] * 1024 / MB for variant, line in lines.items()}


def markdown(table, fork, peaks):
    lines = ["| workload | HAKMEM ns | of glibc's | best peer ns | HAKMEM peak MB | glibc | smallest peer | faults "
             "| glibc |", "|---|---|---|---|---|---|---|---|---|"]
    for one in table:
        own, glibc = one["variants"].get("hakmem"), one["variants"]["glibc"]
        if not own:
            lines.append(f"| {one['name']} | **failed** | | | | {glibc['peak_mb']:.1f} | | | {glibc['faults']:,.0f} |")
            continue
        rivals = {name: value for name, value in one["variants"].items() if name != "hakmem"}
        best = min(rivals, key=lambda name: rivals[name]["ns"])
        least = min(rivals, key=lambda name: rivals[name]["peak_mb"])
        lines.append(f"| {one['name']} | {own['ns']:,.1f} ({own['ns_min']:,.1f}-{own['ns_max']:,.1f}) "
                     f"| {own['against_glibc']:.2f} | {rivals[best]['ns']:,.1f} {best} | {own['peak_mb']:.1f} "
                     f"| {glibc['peak_mb']:.1f} | {rivals[least]['peak_mb']:.1f} {least} | {own['faults']:,.0f} "
                     f"| {glibc['faults']:,.0f} |")


    def listed(values, digits):
        rising = sorted(values.items(), key=lambda item: item[1])
        return ", ".join(f"{name} {value:,.{digits}f}" for name, value in rising)

    lines += ["", f"Fork, the child frees a random half of 512 MB of 64-byte blocks; pages copied: {listed(fork, 0)}.",
              "", f"Three peaks of 300 MB with 5% long-lived blocks, resident MB 12 s later: {listed(peaks, 0)}."]
    return "\n".join(lines)
