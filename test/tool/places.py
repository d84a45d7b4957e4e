#!/usr/bin/env python3
"""places.py - a profile that can be written before a program and not after it is not lost; a dump that is named is there;
what would see more is said by the command that was used; who changes its user is recorded; who ends without
a dump leaves what was last seen of it. ctest: timeout=300"""
import gzip
import json
import os
import re
import shutil
import sys
import tempfile
import time

from seeing_lib import Bench, check

SOURCE = r"""
#include <stdlib.h>
int main(void) {
    for (int i = 0; i < 100000; i++) {
        volatile char *p = malloc(64);
        p[64] = 1;
        free((void *)p);
    }
    return 0;
}
"""

ENDS = r"""
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept_here(void) { return memset(malloc(5000), 1, 5000); }
int main(int argc, char **argv) {
    static void *kept[20000];
    int signal = atoi(argv[argc - 1]);
    for (int i = 0; i < 20000; i++) kept[i] = kept_here();
    sleep(2);
    if (signal) kill(getpid(), signal);
    _exit(3);
}
"""


def main():
    with Bench() as bench:
        few = bench.hakmem("run", "--record", bench.path("few.hakprof"), "--sample-bytes", "1073741824", "--", "/bin/true")
        check("no sample: it allocated little; a smaller --sample-bytes sees more\n" in few.stderr, "the flag is run's own: " + few.stderr)
        program = bench.built("over", SOURCE, "gcc", "-O0", "-g")
        found = bench.hakmem("run", "--guard", "1", "--sample-bytes", "4096", "--", program, status=None).stderr
        named = re.search(r"`hakmem guard (\S+)`", found)
        # The block lies at either end of its place, by chance: at the high end line 6 is caught, at the low end line 7.
        check(named and "over.c:5" in found, "an overflow is found, and where its block is from\n" + found)
        check("over.c:6" in found or "over.c:7" in found, "and which line it was found at")
        said = re.findall(r"heap buffer overflow(?:, found by free: 0x\w+ was written to|: write to 0x\w+), byte 64 of a block of 64 bytes at", found)
        check(len(said) == 2, "the library and the command say the same of it\n" + found)
        try:
            again = bench.hakmem("guard", named.group(1), status=1).stdout
            check("over.c:5" in again, "the dump that is named is there: " + named.group(1))
            check(os.listdir(os.path.dirname(named.group(1))) == [os.path.basename(named.group(1))], "and it alone")
        finally:
            shutil.rmtree(os.path.dirname(named.group(1)), ignore_errors=True)

        if os.geteuid() == 0 and shutil.which("setpriv"):
            script = "import os\nos.setuid(65534)\nkept = [bytearray(5000) for _ in range(4000)]\n"
            ran = bench.hakmem("run", "--record", bench.path("user.hakprof"), "--", sys.executable, "-c", script)
            check("samples from python" in ran.stderr and ran.stderr.count("\n") == 1, "a program that changes its user: " + ran.stderr)
            with tempfile.TemporaryDirectory(prefix="hakmem-other-") as place: # below /root the other user could not read the library
                os.chmod(place, 0o755)
                library = os.path.join(place, os.path.basename(bench.library))
                shutil.copyfile(bench.library, library)
                ran = bench.hakmem("run", "--record", bench.path("%p.other"), "--", "setpriv", "--reuid", "65534", "--clear-groups",
                                   sys.executable, "-c", "kept = [bytearray(5000) for _ in range(4000)]", library=library)
            check("samples from python" in ran.stderr and ran.stderr.count("\n") == 1, "one that another user runs: " + ran.stderr)

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

        # No dump comes of its end: what was last seen of it is the profile.
        program = bench.built("ends", ENDS, "gcc", "-O0", "-g")
        for how, status, said in [("15", -15, "SIGTERM"), ("9", -9, "SIGKILL"), ("0", 3, "_exit")]:
            file = bench.path(f"ends{how}.hakprof")
            ran = bench.hakmem("run", "--record", file, "--", program, how, status=status)
            check(said in ran.stderr and "the profile is of a moment shortly before\n" in ran.stderr, "ends by " + said + ": " + ran.stderr)
            with gzip.open(file, "rt", encoding="utf-8") as text:
                profile = json.load(text)
            live = profile["totals"]["live"]["bytes"]
            check(50_000_000 < live < 200_000_000, f"what lived before is in it: {live}")
            check(any(function["name"] == "kept_here" for function in profile["functions"]), "with its names")

        # What it started goes on: said, and where it is to be recorded.
        ran = bench.hakmem("run", "--record", bench.path("on.hakprof"), "--", sys.executable, "-c",
                           "import subprocess, time\n"
                           "for _ in range(2): subprocess.Popen(['sleep', '5'], stdout=-3, stderr=-3)\ntime.sleep(0.5)\n")
        check("hakmem: 2 processes that it started go on, and their ends are not seen here; `hakmem record -p PID` records them\n"
              in ran.stderr, "processes that outlive it are said: " + ran.stderr)
        said = bench.path("said")
        bench.hakmem("run", "--record", bench.path("left.hakprof"), "--report", "--", sys.executable, "-c",
                     "import subprocess, sys\n"
                     f"subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read(); print(1)'], stdin=subprocess.PIPE, "
                     f"stdout=open('{said}', 'w'), stderr=-2)\n")
        for _ in range(100):
            if os.path.getsize(said):
                break
            time.sleep(0.1)
        time.sleep(1)
        with open(said, encoding="utf-8") as text:
            check(text.read() == "1\n", "and they are silent about the folder that is gone")


main()
