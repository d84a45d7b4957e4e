#!/usr/bin/env python3
"""recorded.py - recording on, so often that every few blocks are samples: nothing else may change.

Misuse is found with the same lines; stress passes with threads, forks, signals and little address space; real programs
print the same.
ctest: timeout=600
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--only", default="")
build = os.path.abspath(parser.parse_args().build)
only = parser.parse_args().only
failures = []


def recorded(sample_bytes, **more):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    environment.update(HAKMEM_RECORD="/dev/null", HAKMEM_SAMPLE_BYTES=str(sample_bytes), HAKMEM_SAMPLE_MOST="0", **more)
    return environment


def judge(name, good, said=""):
    print(f"{'pass' if good else 'FAIL'}  {name}", flush=True)
    if not good:
        failures.append(name)
        print(said)


def misuse():
    done = subprocess.run([sys.executable, os.path.join(HERE, "..", "misuse", "run.py"), "--build", build, "--recorded"],
                          capture_output=True, text=True)
    judge("misuse", done.returncode == 0, done.stdout + done.stderr)


def stress():
    for name in ("strangers", "generations", "large_blocks", "forks", "signals", "shortage", "page_return", "longjmps"):
        path = os.path.join(build, "test", "stress", "stress_" + name)
        if not os.path.exists(path):
            continue
        done = subprocess.run([path], capture_output=True, text=True, env=recorded(1024, HAK_STRESS_SECONDS="3"))
        judge("stress " + name, done.returncode == 0, done.stdout + done.stderr)


PYTHON = """
import json, re, threading, collections
def work(seed, out):
    words = [f"{seed}-{i * 7919 % 1013}" for i in range(20000)]
    table = collections.Counter(words)
    text = json.dumps(sorted(table.items()))
    out[seed] = hash_of(text) + len(re.findall(r"1\\\\d", text))
def hash_of(text):
    h = 0
    for c in text[:5000]:
        h = (h * 31 + ord(c)) % (1 << 61)
    return h
out = {}
threads = [threading.Thread(target=work, args=(n, out)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(out.items()), sum(len(bytearray(n * 1000)) for n in range(300)))
"""
SQL = """
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000)
insert into t select i, hex(i * 2654435761 % 4294967296) || printf('%0100d', i), i / 7.0 from n;
create index tb on t(b);
select count(*), sum(length(b)), round(sum(c), 3) from t where b > '8';
select group_concat(a) from (select a from t order by b limit 20);
"""
C = "".join(f"int f{i}(int n) {{ int a[{i % 7 + 1}] = {{ n }}; for (int i = 0; i < n; i++) a[i % {i % 7 + 1}] += i * {i}; return a[0]; }}\n"
            for i in range(300))


def programs():
    library = os.path.join(build, "libhakmem.so")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "f.c"), "w", encoding="utf-8") as file:
            file.write(C)
        commands = [("python3", [sys.executable, "-c", PYTHON], None), ("sqlite3", ["sqlite3"], SQL),
                    ("gcc", ["gcc", "-O2", "-S", "-o", "-", "f.c"], None)]
        for name, command, text in commands:
            if not shutil.which(command[0]):
                continue
            clean = {key: value for key, value in os.environ.items() if not key.startswith(("HAKMEM_", "LD_PRELOAD"))}
            clean["PYTHONHASHSEED"] = "0"
            plain = subprocess.run(command, input=text, capture_output=True, text=True, env=clean, cwd=folder)
            for rate in (256, 1024, 65536):
                environment = recorded(rate, LD_PRELOAD=library, PYTHONHASHSEED="0", PYTHONMALLOC="malloc")
                with_us = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, cwd=folder)
                same = (plain.returncode, plain.stdout) == (with_us.returncode, with_us.stdout)
                judge(f"{name}, a sample per {rate} bytes", plain.returncode == 0 and same,
                      f"{with_us.returncode}: {with_us.stdout[:500]}{with_us.stderr[:500]}")


for part in (misuse, stress, programs):
    if only in part.__name__:
        part()
print(f"recorded: {len(failures)} failures")
sys.exit(1 if failures else 0)
