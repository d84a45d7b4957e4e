"""layout.py - each function that packaging/hakmem.lds puts into the first 64 KiB is there under that name.

The linker takes a name that no longer exists for nothing: a function that was renamed would lie farther off, and only what is resident
would tell. Names are the sections of the objects as gcc makes them; clang inlines others.
"""
import glob
import os
import re
import sys

from _law import ROOT, breach, finish, options, output

SCRIPT = os.path.join(ROOT, "packaging", "hakmem.lds")
NEAR = re.compile(r"\.text\.near : \{(.*?)\n    \}", re.S)
INPUT = re.compile(r"\*(src/\S+)\.\*\(([^)]*)\)")
SECTION = re.compile(r"^\s*\[\s*\d+\] (\.text\S*)", re.M)


def main():
    build = options().build
    if "clang" in output("readelf", "-p", ".comment", os.path.join(build, "libhakmem.so")):
        print("built by clang: nothing to compare")
        sys.exit(77)
    with open(SCRIPT, encoding="utf-8") as file:
        near = NEAR.search(file.read())[1]
    count = 0
    for source, names in INPUT.findall(near):
        objects = [path for path in glob.glob(os.path.join(build, "**", source + ".c.o"), recursive=True) if "checked" not in path]
        if len(objects) != 1:
            breach(f"{source}.c has {len(objects)} objects in {build}")
            continue
        there = set(SECTION.findall(output("readelf", "-SW", objects[0])))
        for name in names.split():
            count += 1
            if name not in there:
                breach(f"{source}.c has no {name} ({os.path.relpath(SCRIPT, ROOT)})")
    finish(f"layout: {count} functions")


main()
