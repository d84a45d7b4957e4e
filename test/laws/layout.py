"""layout.py - each function that packaging/hakmem.lds puts into the first three times 64 KiB is there under that name, and each ends there.

The linker takes a name that no longer exists for nothing: a function that was renamed would lie farther off, and only what is resident
would tell. Names are the sections of the objects as gcc 12 makes them; clang and later gccs inline others, and are not judged.
"""
import glob
import os
import re
import sys

from _law import ROOT, breach, finish, options, output

SCRIPT = os.path.join(ROOT, "packaging", "hakmem.lds")
PLACED = re.compile(r"\.text\.(near|next|steady|growing) : \{(.*?)\n    \}", re.S)
COMMENT = re.compile(r"/\*.*?\*/")
INPUT = re.compile(r"\*(src/\S+)\.\*\(([^)]*)\)")
SECTION = re.compile(r"^\s*\[\s*\d+\] (\.text\S*)", re.M)
EXTENT = re.compile(r"^\s*\[\s*\d+\] (\.text\S*)\s+PROGBITS\s+([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", re.M)
ENDS = {".text.near": 64 << 10, ".text.steady": 128 << 10, ".text": 192 << 10}  # the kernel maps 64 KiB around what is touched
OF_CLANG = {".text.find", ".text.take_from_new", ".text.data_map", ".text.heap_new"}  # gcc has them inline, or .text.unlikely


def main():
    build = options().build
    made_by = output("readelf", "-p", ".comment", os.path.join(build, "libhakmem.so"))
    if "clang" in made_by or not re.search(r"GCC: \([^)]*\) 12\.", made_by):
        print("not built by gcc 12: nothing to compare")
        sys.exit(77)
    with open(SCRIPT, encoding="utf-8") as file:
        placed = "".join(body for _, body in PLACED.findall(file.read()))
    count = 0
    for source, names in INPUT.findall(COMMENT.sub("", placed)):
        objects = [path for path in glob.glob(os.path.join(build, "**", source + ".c*.o"), recursive=True) if "checked" not in path]
        if len(objects) != 1:
            breach(f"{source} has {len(objects)} objects in {build}")
            continue
        there = set(SECTION.findall(output("readelf", "-SW", objects[0])))
        for name in names.split():
            count += 1
            if name not in there | OF_CLANG and not name.endswith(("*", ".text", ".unlikely")):
                breach(f"{source} has no {name} ({os.path.relpath(SCRIPT, ROOT)})")
    extents = EXTENT.findall(output("readelf", "-SW", os.path.join(build, "libhakmem.so")))
    for name, start, size in extents:
        end = int(start, 16) + int(size, 16)
        if end > ENDS.get(name, end):
            breach(f"{name} ends at {end:#x}; the limit is {ENDS[name]:#x} ({os.path.relpath(SCRIPT, ROOT)})")
    for name in ENDS:
        if name not in (found for found, _, _ in extents):
            breach(f"the library has no {name}")
    finish(f"layout: {count} functions")


main()
