#!/usr/bin/env python3
"""near.py - which parts of the library's file a program touches beyond the first 64 KiB, and which function was the first there.

    scripts/near.py build/release/libhakmem.so bash -c :

The kernel maps a file's 64 KiB around each page of it that is touched, so the first function in each part is what made it
resident: packaging/hakmem.lds says what lies where. Needs perf (Debian: linux-perf) and the right to count page faults.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

PART = 64 << 10
MAPPED = re.compile(r"PERF_RECORD_MMAP2? -?\d+/\d+: \[0x([0-9a-f]+)\(0x[0-9a-f]+\) @ 0 .*\]: r-xp (\S+)")
FAULT = re.compile(r"\s*\S+\s+([0-9a-f]+)\s+(\S+) \(\S+\)\s+[0-9a-f]+\s+(\S+)")


def code_bytes(library):
    """How long the mapping of code and constants is: the first segment."""
    listed = subprocess.run(["readelf", "-lW", library], check=True, capture_output=True, text=True).stdout
    return int(re.search(r"LOAD\s+\S+ \S+ \S+ 0x\S+ 0x([0-9a-f]+) R E", listed)[1], 16)


def first_touches(library, command):
    """Of each part that is touched: its number, the address in the file, what lies there, which function touched it."""
    bytes_ = code_bytes(library)
    with tempfile.TemporaryDirectory() as folder:
        record = os.path.join(folder, "faults")
        subprocess.run(["perf", "record", "-q", "-e", "page-faults", "-c", "1", "-d", "-o", record, "env", f"LD_PRELOAD={library}", *command],
                       check=True, stdout=subprocess.DEVNULL)
        script = subprocess.run(["perf", "script", "-i", record, "-F", "comm,ip,sym,addr,dso", "--show-mmap-events"],
                                check=True, capture_output=True, text=True).stdout
    base, seen = None, {}
    for line in script.splitlines():
        if (mapped := MAPPED.search(line)) and mapped[2] == library:
            base, seen = int(mapped[1], 16), {}  # the last program that was started
        elif base is not None and (fault := FAULT.match(line)):
            address = int(fault[1], 16) - base
            if 0 <= address < bytes_:
                seen.setdefault(address // PART, (address, fault[2], fault[3]))
    if base is None:
        sys.exit(f"near.py: {library} was not mapped by {command[0]}")
    return sorted(seen.items())


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-"):
        sys.exit("usage: near.py LIBRARY PROGRAM [ARGUMENT...]")
    if not shutil.which("perf"):
        sys.exit("near.py: perf is missing (Debian: apt install linux-perf)")
    library = os.path.realpath(sys.argv[1])
    if not os.path.isfile(library):
        sys.exit(f"near.py: {sys.argv[1]} is no file")
    try:
        for part, (address, there, by) in first_touches(library, sys.argv[2:]):
            print(f"{part * PART >> 10:4} KiB: {address:#x} {there}, first touched by {by}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"near.py: {error.cmd[0]} ended with {error.returncode}")


main()
