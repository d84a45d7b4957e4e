#!/usr/bin/env python3
"""places.py - a profile that can be written before a program and not after it is not lost. ctest: timeout=300"""
import os
import re
import shutil
import sys

from seeing_lib import Bench, check


def main():
    with Bench() as bench:
        folder = bench.path("gone")
        os.mkdir(folder)
        script = f"import os, sys\nkept = [bytearray(5000) for _ in range(4000)]\nos.rmdir({folder!r})\nsys.exit(3)\n"
        ran = bench.hakmem("run", "--record", folder + "/a.hakprof", "--", sys.executable, "-c", script, status=3)
        said = re.search(r"a\.hakprof cannot be written: no such file.*; what was recorded stays in (\S+\.hakdump), of which", ran.stderr)
        check(said and ran.stderr.count("\n") == 1, "the status is the program's, and one line says where the dump is: " + ran.stderr)
        dump = said.group(1)
        try:
            made = bench.hakmem("dump", dump, "-o", bench.path("a.hakprof"))
            check("samples from python" in made.stderr, "a profile is made of it")
        finally:
            shutil.rmtree(os.path.dirname(dump))


main()
