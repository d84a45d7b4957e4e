#!/usr/bin/env python3
"""secure.py - what the secure level costs: programs and workloads without it, with it, and under hardened_malloc.

Usage: secure.py [--build build/release] [--rounds 5] [--rows ROW,...] [--json FILE] [--markdown FILE]
Method:  in each round every row under each allocator, one after the other; ratios pair by pair to the default level, of CPU time an operation (user and
         system) and of peak resident memory, as median and range. "hardened" is hardened_malloc as it is built by default, "hardened-light"
         its light configuration; both are built by `peers.py --build-newest --only hardened --only hardened-light`.
Failing: a peer that fails in a row is left out there, and said; when HAKMEM fails, the run ends with 1.
"""
import argparse
import datetime
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from runner import ROOT, BenchError, Stand, machine, median, program_find  # noqa: E402

SQL = """CREATE TABLE t(i INTEGER PRIMARY KEY, town TEXT, note BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200000)
  INSERT INTO t SELECT i, 'town' || (i * 7919 % 271), zeroblob(i % 300) FROM n;
CREATE INDEX towns ON t(town);
SELECT town, count(*), sum(length(note)) FROM t GROUP BY town ORDER BY 2 DESC, 1 LIMIT 20;
SELECT length(json_group_array(json_object('i', i, 'town', town))) FROM t;
"""
PYTHON = """import json, re
rows = [{"id": i, "text": "%d" % (i * 7919 % 1009) * (i % 40), "list": list(range(i % 17))} for i in range(30000)]
text = json.dumps(rows)
for _ in range(3): rows = json.loads(text)
print(len(re.findall(r"7+[0-6]", text)), sum(len(row["list"]) for row in rows))
"""
PERL = "my %h; for my $r (1 .. 3) { $h{$_ * 7919 % 100003} .= 'x' x ($_ % 50) for 1 .. 300000 } print scalar(keys %h), \"\\n\";"
# name, what it is, workload and arguments, or a program and arguments
ROWS = [
    ("sqlite3", "a table of 200,000 rows, an index, JSON", ["sqlite3", "-batch", ":memory:", SQL]),
    ("python3", "JSON and regular expressions, PYTHONMALLOC=malloc", ["python3", "-c", PYTHON]),
    ("perl", "a hash of 100,000 strings that grow", ["perl", "-e", PERL]),
    ("gcc", "a workload's source, -O2", ["gcc", "-O2", "-S", "-o", "/dev/null", os.path.join(ROOT, "bench", "workloads", "server.c")]),
    ("random_mixed/4096", "random sizes 16-1024, 4,096 slots", ("random_mixed", 3000000, 4096, 16, 1024, 12345)),
    ("storm", "two threads, batches of up to 1,000 blocks", ("storm", 2, 3000, 1000, 12345)),
    ("larson", "two threads, blocks handed to a successor", ("larson", 1, 8, 128, 1024, 1, 12345, 2)),
    ("lru_cache", "a cache of strings", ("lru_cache", 1000000, 200000, 32, 12345)),
    ("exchange", "two threads, a quarter of all blocks freed by the other", ("exchange", 2, 1000000, 256, 1024, 25, 12345)),
    ("server", "clients and a worker; values change hands both ways", ("server", 1, 1, 120000, 2000, 12345)),
    ("producer_consumer", "one allocates, one frees", ("producer_consumer", 1, 3000000, 12345, 0, 1)),
    ("mid_large_mt/32K", "two threads, 2 to 32 KiB", ("mid_large_mt", 2, 1000000, 256, 2048, 32768, 12345)),
    ("mid_large_mt/512K", "two threads, 32 to 512 KiB", ("mid_large_mt", 2, 30000, 32, 32768, 524288, 12345)),
    ("thread_births", "4,000 threads, four at a time", ("thread_births", 4000, 4, 200, 12345)),
]
VARIANTS = ["secure", "hardened-light", "hardened"]


def one(stand, row, preload, environment):
    name, _, what = row
    if isinstance(what, tuple):
        line = stand.work(preload, what[0], *what[1:], timeout_s=300, env=environment)
        return {"cpu_ns": line["cpu_ns"] / line["ops"], "peak_kb": line["peak_kb"] - line.get("tables_kb", 0)}
    more = {**(environment or {}), **({"PYTHONMALLOC": "malloc"} if name == "python3" else {})}
    done = stand.run(preload, [program_find(what[0]), *what[1:]], timeout_s=300, env=more)
    return {"cpu_ns": (done["user_us"] + done["sys_us"]) * 1000, "peak_kb": done["peak_kb"]}


def measure(stand, rows, rounds):
    variants = {"default": (stand.library, None), "secure": (stand.library, {"HAKMEM_SECURE": "1"})}
    variants.update({name: (stand.peers[name].path, None) for name in VARIANTS[1:] if name in stand.peers})
    results = {row[0]: {name: [] for name in variants} for row in rows}
    for number in range(rounds):
        for row in rows:
            for name, (preload, environment) in variants.items():
                cells = results[row[0]]
                if cells[name] is None: continue
                try:
                    cells[name].append(one(stand, row, preload, environment))
                except (BenchError, ValueError) as error:
                    if name in ("default", "secure"): raise
                    print(f"  {row[0]}: {name} is left out: {error}", file=sys.stderr)
                    cells[name] = None
            print(f"  round {number + 1} of {rounds}: {row[0]}", file=sys.stderr, flush=True)
    return {row: {name: cell for name, cell in cells.items() if cell} for row, cells in results.items()}


def ratios(cells, name, key):
    return [mine[key] / base[key] for mine, base in zip(cells[name], cells["default"])]


def geometric(values):
    product = 1.0
    for value in values: product *= value
    return product ** (1 / len(values))


def markdown(record):
    names = [name for name in VARIANTS if any(name in cells for cells in record["rows"].values())]
    about = record["machine"]
    lines = [f"{about['processor']}, {about['processors']} processors, {about['system']}, kernel {about['kernel']}; libhakmem.so {record['library_sha256']}; "
             f"{record['rounds']} interleaved rounds; {record['started'][:10]}. CPU time, and in brackets peak resident memory, as parts of the default level's.", "",
             "| row | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, about_row, _ in ROWS:
        cells = record["rows"].get(row)
        if not cells: continue
        texts = []
        for name in names:
            if name not in cells:
                texts.append("-")
                continue
            cpu = ratios(cells, name, "cpu_ns")
            texts.append(f"{median(cpu):.2f}, {min(cpu):.2f}-{max(cpu):.2f} ({median(ratios(cells, name, 'peak_kb')):.2f})")
        lines.append(f"| {row}: {about_row} | " + " | ".join(texts) + " |")
    means = []
    for name in names:
        rows = [cells for cells in record["rows"].values() if name in cells]
        means.append(f"{geometric([median(ratios(cells, name, 'cpu_ns')) for cells in rows]):.2f} "
                     f"({geometric([median(ratios(cells, name, 'peak_kb')) for cells in rows]):.2f})")
    lines += ["| geometric mean | " + " | ".join(means) + " |", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join("build", "release"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    arguments = parser.parse_args()
    library = os.path.join(ROOT, arguments.build, "libhakmem.so")
    if not os.path.exists(library): raise SystemExit(f"secure.py: {library} is not there: run `make product`")
    if arguments.rounds < 1: raise SystemExit("secure.py: --rounds: at least 1")
    for path in filter(None, (arguments.json, arguments.markdown)):
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))): raise SystemExit(f"secure.py: {path}: there is no such folder")
    wanted = [name for name in arguments.rows.split(",") if name]
    unknown = [name for name in wanted if name not in [row[0] for row in ROWS]]
    if unknown: raise SystemExit(f"secure.py: there is no row {unknown[0]}; there is {', '.join(row[0] for row in ROWS)}")
    stand = Stand(library, say=lambda text: print(text, file=sys.stderr))
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    results = measure(stand, [row for row in ROWS if not wanted or row[0] in wanted], arguments.rounds)
    record = {"machine": machine(), "started": started, "library_sha256": stand.library_sha(), "rounds": arguments.rounds, "rows": results}
    text = markdown(record)
    print(text)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file: json.dump(record, file, indent=1)
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file: file.write(text)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        raise SystemExit(f"secure.py: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("\nsecure.py: interrupted") from None
