"""rooms.py - a file is one room: at most 600 lines of 160 columns, with a door comment and no debt."""
import os
import re

from _law import ROOT, breach, finish, options, sources

LINES_MAX = 600
COLUMNS_MAX = 160
DEBT = re.compile(r"\b(TODO" + r"|FIXME|XXX|HACK)\b")

options()
count = 0
for path in sources("src", "include"):
    count += 1
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        lines = file.read().splitlines()
    if len(lines) > LINES_MAX:
        breach(f"{path}: {len(lines)} lines; past {LINES_MAX} it wants two rooms")
    if not path.endswith(".def") and not (lines and lines[0].startswith(f"/* {os.path.basename(path)} - ")):
        breach(f"{path}:1: no door comment, '/* {os.path.basename(path)} - what it is for'")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and not path.endswith(".def"):  # rows stay rows
            breach(f"{path}:{number}: {len(line)} columns; the limit is {COLUMNS_MAX}")
        if "\t" in line:
            breach(f"{path}:{number}: a tab")
        if DEBT.search(line):
            breach(f"{path}:{number}: {DEBT.search(line).group(0)}")
finish(f"rooms: {count} files")
