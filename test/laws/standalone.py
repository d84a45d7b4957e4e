"""standalone.py - no file names a place or a document that only its writers have."""
import os
import re

from _law import ROOT, breach, finish, options, sources

options()
# In pieces, so that this file does not name them.
FORBIDDEN = [r"(?<![\w.])/wo" + r"rk/", r"\.\./sha" + r"red", "/tmp/" + r"hk\b"]
for name in ("DESIGN", "PROTOCOLS", "FEATURES", "STYLE", "BENCHMARKS", "LEARNING"):
    found = any(name + ".md" in files for _, _, files in os.walk(ROOT))
    if not found:
        FORBIDDEN.append(r"\b" + name + r"\.md\b")
PATTERN = re.compile("|".join(FORBIDDEN))
TEXT = (".c", ".cc", ".h", ".hpp", ".def", ".py", ".rs", ".toml", ".md", ".txt", ".cmake", ".json", ".in", ".map",
        ".sh", "Makefile", "run", "setup", "LAYERS", "LICENSE", ".syms")

count = 0
for path in sources(".", endings=TEXT):
    if os.path.getsize(os.path.join(ROOT, path)) > 4 << 20:
        continue
    count += 1
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            found = PATTERN.search(line)
            if found:
                breach(f"{path}:{number}: names {found.group(0)}")
finish(f"standalone: {count} files")
