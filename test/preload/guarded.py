#!/usr/bin/env python3
"""guarded.py - real programs give the same results while samples of their blocks stand between guard pages.

Samples are drawn far more often than a service would, so that thousands of blocks are guarded; no report may come, for
these programs touch nothing that is not theirs. That blocks were guarded is proved by the library's own count.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, need

SETTINGS = {
    "every sample": {"HAKMEM_GUARD": "1", "HAKMEM_SAMPLE_BYTES": "4096", "HAKMEM_SAMPLE_MOST": "0", "HAKMEM_GUARD_BLOCKS": "16384"},
    "1 in 20, few places": {"HAKMEM_GUARD": "20", "HAKMEM_SAMPLE_BYTES": "1024", "HAKMEM_SAMPLE_MOST": "0", "HAKMEM_GUARD_BLOCKS": "16"},
}
SQL = b"""
CREATE TABLE t(i INTEGER PRIMARY KEY, town TEXT, note BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 20000)
  INSERT INTO t SELECT i, 'town' || (i * 7919 % 271), zeroblob(i % 300) FROM n;
CREATE INDEX towns ON t(town);
SELECT town, count(*), sum(length(note)) FROM t GROUP BY town ORDER BY 2 DESC, 1 LIMIT 20;
SELECT json_group_array(json_object('i', i, 'town', town)) FROM (SELECT * FROM t LIMIT 500);
PRAGMA integrity_check;
"""
PYTHON = """
import hashlib, json, threading, zlib
def work(seed, out):
    rows = [{"id": i * seed, "text": "%d" % (i * 7919 % 1009) * (i % 40), "list": list(range(i % 17))} for i in range(4000)]
    text = json.dumps(rows, sort_keys=True)
    out[seed] = hashlib.sha256(zlib.compress(json.dumps(json.loads(text)).encode())).hexdigest()
results = {}
threads = [threading.Thread(target=work, args=(seed, results)) for seed in range(1, 5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(results.items()))
"""
PERL = "my %h; $h{$_ * 7919 % 10007} .= 'x' x ($_ % 50) for 1 .. 60000; print join ',', map { length $h{$_} } sort { $a <=> $b } keys %h;"


def guards_of(text):
    """How many blocks the statistics say were guarded: those of the program, where a script that starts it has its own."""
    found = re.findall(rb"guard_alloc\s+([\d,]+)", text)
    return max((int(count.replace(b",", b"")) for count in found), default=0)


def main():
    suite = Suite("guarded", __doc__)
    programs = {
        "sqlite3": (lambda: [need("sqlite3"), "-batch", ":memory:"], SQL),
        "python3": (lambda: [need("python3"), "-c", PYTHON], b""),
        "perl": (lambda: [need("perl"), "-e", PERL], b""),
        "gcc": (lambda: [need("gcc"), "-O2", "-S", "-o", "-", "-x", "c", "-"],
                b"#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv(\"HOME\")); return 0; }\n"),
    }
    for setting, environment in SETTINGS.items():
        for name, (make_argv, stdin) in programs.items():
            more = dict(environment, PYTHONMALLOC="malloc", PYTHONHASHSEED="1")
            suite.same(f"{name}, {setting}", make_argv, stdin=stdin, env=more)

            def is_guarded(make_argv=make_argv, stdin=stdin, more=more):
                done = suite.run(make_argv(), stdin=stdin, env=dict(more, HAKMEM_STATS="1"))
                return None if guards_of(done.err) >= 16 else f"{guards_of(done.err)} blocks were guarded: {done.brief()}"
            suite.case(f"{name}, {setting}: blocks were guarded", is_guarded)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
