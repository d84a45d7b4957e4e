#!/usr/bin/env python3
"""cpython.py - CPython's own test suite with PYTHONMALLOC=malloc under HAKMEM: the same tests pass as without.

A selection that leans on memory by default; --full runs every module of the suite (half an hour).

ctest: first
"""
import re
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Skip, Suite, need

SELECTION = """
    test_list test_dict test_set test_tuple test_bytes test_unicode test_json test_re test_gc test_weakref
    test_array test_deque test_threading test_thread test_queue test_memoryview test_pickle test_struct
    test_zlib test_bz2 test_lzma test_sqlite3 test_fork1 test_itertools test_generators
    test_ordered_dict test_functools test_csv test_xml_etree test_ctypes test_mmap test_atexit
""".split()


def interpreter(suite):
    """A python3 that has its test suite; pyenv's shim is followed to the real program."""
    for name in ("python3", "/usr/bin/python3"):
        done = suite.run([name, "-c", "import sys, test.test_dict; print(sys.executable)"], preload=False)
        if done.status == 0:
            return done.out.decode().strip()
    raise Skip("no python3 with its test suite is installed (apt install libpython3-testsuite)")


def passed(run):
    """The sets of modules that ran well, failed and were skipped, by the verbose list of regrtest."""
    text = run.out.decode(errors="replace")
    failed = set(re.findall(r"^(test_\w+) (?:failed|crashed)", text, re.MULTILINE))
    failed |= set(re.findall(r"\] (test_\w+) (?:failed|crashed)", text))
    ran = set(re.findall(r"\] (test_\w+)", text))
    return ran - failed, failed


def main():
    suite = Suite("cpython", __doc__.split("\n")[0],
                  lambda parser: parser.add_argument("--full", action="store_true", help="every module of the suite"))
    full = suite.arguments.full
    modules = [] if full else SELECTION

    def the_suite():
        # Each module in its own process, so that a crash is one module's failure.
        argv = [interpreter(suite), "-m", "test", "-j2", "--timeout=300", *(["-u", "none"] if full else []), *modules]
        limit = 3600 if full else 300
        environment = {"PYTHONMALLOC": "malloc"}
        with_us = suite.run(argv, env=environment, seconds=limit)
        good, failed = passed(with_us)
        if not good:
            return with_us.brief()
        if failed:
            # Only what fails with us needs the other run.
            again = suite.run([*argv[:5], *sorted(failed)], preload=False, env=environment, seconds=limit)
            ours = failed - passed(again)[1]
            if ours:
                return f"{len(good)} modules passed; failed only with HAKMEM: {' '.join(sorted(ours))}"
        if with_us.status != 0 and not failed:
            return with_us.brief()
        print(f"     {len(good)} modules passed, {len(failed)} fail without HAKMEM too {' '.join(sorted(failed))}")
        return None

    suite.case("CPython's test suite, " + ("whole" if full else "a selection"), the_suite)
    suite.same("a program that breathes", lambda: [interpreter(suite), "-c", """
import gc, json, hashlib, random, threading
random.seed(7)
digest = hashlib.sha256()
for round in range(6):
    table = {str(i): [i, 'x' * random.randrange(200), {'k': i / 3}] for i in range(30000)}
    text = json.dumps(table)
    digest.update(text.encode())
    for key in random.sample(sorted(table), 25000):
        del table[key]
    gc.collect()
results = [0] * 4
def work(n):
    results[n] = sum(len(bytes(i % 5000)) for i in range(20000))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(digest.hexdigest(), results)
"""], env={"PYTHONMALLOC": "malloc"})
    suite.same("multiprocessing by fork", lambda: [interpreter(suite), "-c", """
import multiprocessing
def work(n):
    return sum(len([None] * (i % 3000)) for i in range(3000 + n))
if __name__ == '__main__':
    multiprocessing.set_start_method('fork')
    with multiprocessing.Pool(4) as pool:
        print(sum(pool.map(work, range(40))))
"""], env={"PYTHONMALLOC": "malloc"})
    suite.works("python3 with its own small-block allocator", lambda: [need("python3"), "-c", "import sqlite3, ssl, json; print('fine')"],
                says=b"fine")
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
