#!/usr/bin/env python3
"""sqlite.py - sqlite3 works through real load under HAKMEM with the same output as without."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Skip, Suite, need

LOAD = """
PRAGMA journal_mode=WAL;
PRAGMA cache_size=2000;
CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT, town TEXT, note BLOB);
CREATE TABLE orders(id INTEGER PRIMARY KEY, person INTEGER, cents INTEGER, what TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 30000)
  INSERT INTO people SELECT i, 'name' || (i * 7919 % 60000), 'town' || (i % 271), zeroblob(i % 300) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 60000)
  INSERT INTO orders SELECT i, i * 31 % 60000 + 1, i * 97 % 100000, printf('%0*d', i % 90 + 1, i) FROM n;
COMMIT;
CREATE INDEX people_town ON people(town, name);
CREATE INDEX orders_person ON orders(person);
SELECT town, count(*), sum(length(note)) FROM people GROUP BY town ORDER BY 2 DESC, 1 LIMIT 20;
SELECT p.name, sum(o.cents) AS total, group_concat(o.id) FROM people p JOIN orders o ON o.person = p.id
  WHERE p.town = 'town17' GROUP BY p.id ORDER BY total DESC, 1 LIMIT 30;
UPDATE orders SET cents = cents + 1 WHERE person % 3 = 0;
DELETE FROM people WHERE id % 4 = 0;
SELECT count(*), sum(cents), max(length(what)) FROM orders;
SELECT what, cents FROM orders ORDER BY what DESC, cents LIMIT 25;
CREATE VIRTUAL TABLE texts USING fts5(body);
INSERT INTO texts SELECT name || ' lives in ' || town FROM people LIMIT 10000;
SELECT count(*) FROM texts WHERE texts MATCH 'town17';
SELECT json_group_array(json_object('id', id, 'town', town)) FROM (SELECT * FROM people LIMIT 500);
VACUUM;
PRAGMA integrity_check;
SELECT hex(sha) FROM (SELECT group_concat(name || town, ',') AS sha FROM people ORDER BY id);
"""

# A database of some 40 MB is closed, another one opened, and next to nothing is done with it for two seconds.
CLOSES = """
CREATE TABLE big(id INTEGER PRIMARY KEY, what TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 30000)
  INSERT INTO big SELECT i, printf('%0*d', i % 1800 + 1, i) FROM n;
CREATE VIRTUAL TABLE texts USING fts5(body);
INSERT INTO texts SELECT what || ' of ' || id FROM big LIMIT 5000;
.open :memory:
SELECT 1;
.system sleep 1
SELECT 1;
.system sleep 1
SELECT 1;
.system grep Vm /proc/$PPID/status
"""


def main():
    suite = Suite("sqlite", __doc__)

    def in_memory():
        return [need("sqlite3"), "-batch", ":memory:"]

    def on_disk():
        # A fresh database for each of the two runs: the shell removes what the last one left.
        return [need("bash"), "-c", "rm -f load.db*; exec " + need("sqlite3") + " -batch load.db"]

    suite.same("sqlite3 in memory", in_memory, stdin=LOAD.replace("PRAGMA journal_mode=WAL;", "").encode())
    suite.same("sqlite3 on disk", on_disk, stdin=LOAD.encode())
    suite.same("sqlite3 dumps and loads", lambda: [need("bash"), "-c", "sqlite3 load.db .dump | sqlite3 :memory: -batch "
               "-cmd '.read /dev/stdin' 'SELECT count(*), sum(cents) FROM orders'"])
    suite.same("sqlite3 sorts beyond its cache", in_memory, stdin=b"""
        PRAGMA temp_store=MEMORY;
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 150000)
          SELECT sum(r) FROM (SELECT i * 7919 % 300007 AS r FROM n ORDER BY printf('%09d', r) LIMIT 100000);
        """)

    def gives_back():
        if os.environ.get("HAK_TEST_SECURE"):
            raise Skip("what is freed stays in quarantine")
        done = suite.run([need("sqlite3"), "-batch", ":memory:"], stdin=CLOSES.encode())
        kib = {name: int(number) for name, number in re.findall(rb"(VmHWM|VmRSS):\s+(\d+) kB", done.out)}
        if done.status != 0 or len(kib) != 2:
            return f"ended with {done.brief()}"
        if kib[b"VmRSS"] > kib[b"VmHWM"] / 3:
            return f"{kib[b'VmRSS']} KiB of {kib[b'VmHWM']} are resident after it was closed"
        return None
    suite.case("sqlite3 gives back what it closed", gives_back)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
