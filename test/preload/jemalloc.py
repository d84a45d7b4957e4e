#!/usr/bin/env python3
"""jemalloc.py - programs that are linked with jemalloc take blocks by its own calls as well, and give them to malloc's."""
import glob
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, compile_c


def main():
    suite = Suite("jemalloc", __doc__)
    linked = compile_c(suite, "jemallocx", ("-fno-builtin", suite.library, "-Wl,-rpath," + os.path.dirname(suite.library)))
    suite.works("its calls, linked", lambda: [linked], says=b"fine", preload=False)
    for library in glob.glob("/usr/lib/*/libjemalloc.so.2"):
        program = os.path.join(suite.folder, "with_jemalloc")
        os.rename(compile_c(suite, "jemallocx", ("-fno-builtin", library)), program)
        suite.same("the same program with and without", lambda: [program])
        for name, options in (("recorded", {"HAKMEM_RECORD": "/dev/null", "HAKMEM_SAMPLE_BYTES": "1024"}), ("guarded", {"HAKMEM_GUARD": "3"})):
            suite.works(name, lambda: [program], says=b"fine", env=options)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
