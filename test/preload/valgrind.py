#!/usr/bin/env python3
"""valgrind.py - preloaded programs run under valgrind's memcheck and callgrind."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, compile_c, need


def main():
    suite = Suite("valgrind", __doc__)
    breathe = compile_c(suite, "breathe")
    sql = "CREATE TABLE t(a); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2000) INSERT INTO t SELECT i FROM n; SELECT sum(a) FROM t;"
    # memcheck replaces malloc by its own in every object, unless told that none has one; both ways must run.
    for replaced, flags in (("its malloc", []), ("our malloc", ["--soname-synonyms=somalloc=nouserintercepts"])):
        def memcheck(*argv, flags=flags):
            return lambda: [need("valgrind"), "-q", "--error-exitcode=0", *flags, *argv]
        suite.works(f"memcheck, {replaced}: true", memcheck("/bin/true"))
        suite.works(f"memcheck, {replaced}: sqlite3", memcheck("sqlite3", ":memory:", sql), says=b"2001000")
        suite.works(f"memcheck, {replaced}: threads", memcheck(breathe, "2", "2", "2"), says=b"breathed")

    def callgrind(*argv):
        return lambda: [need("valgrind"), "--tool=callgrind", "-q", "--callgrind-out-file=/dev/null", *argv]
    suite.works("callgrind: true", callgrind("/bin/true"))
    suite.works("callgrind: sqlite3", callgrind("sqlite3", ":memory:", sql), says=b"2001000")
    suite.works("callgrind: threads", callgrind(breathe, "2", "2", "2"), says=b"breathed")
    suite.works("strace", lambda: [need("strace"), "-f", "-c", "-o", "/dev/null", breathe, "2", "2", "2"], says=b"breathed")
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
