"""docs.py - docs/options.md and docs/counters.md say what the tables say."""
import os
import re
import subprocess
import sys

from _law import ROOT, breach, finish, options

options()
done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "gen_docs.py"), "--check"],
                      capture_output=True, text=True, stdin=subprocess.DEVNULL)
if done.returncode != 0:
    breach(done.stdout.strip() or done.stderr.strip())

# The generator reads the tables by pattern; every row must have made it onto its page.
for table, macro, page in (("options.def", r"^HAK_OPTION(?:_TEXT)?\((\w+)", "options.md"),
                           ("counters.def", r"^HAK_COUNTER\((\w+)", "counters.md")):
    with open(os.path.join(ROOT, "src", "rules", table), encoding="utf-8") as file:
        names = re.findall(macro, file.read(), flags=re.M)
    with open(os.path.join(ROOT, "docs", page), encoding="utf-8") as file:
        text = file.read()
    for name in names:
        if f"`{name}`" not in text and f"`HAKMEM_{name.upper()}`" not in text:
            breach(f"docs/{page}: has no row for {name}")
    if not names:
        breach(f"src/rules/{table}: no rows found")

version = re.search(r'^project\(hakmem VERSION', open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8").read(),
                    flags=re.M)
if version is None:
    breach("CMakeLists.txt: project(hakmem VERSION ...) not found")
header = open(os.path.join(ROOT, "include", "hakmem", "hakmem.h"), encoding="utf-8").read()
parts = re.findall(r"^#define HAKMEM_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header, flags=re.M)
whole = re.search(r'^#define HAKMEM_VERSION "([\d.]+)"', header, flags=re.M).group(1)
if ".".join(parts) != whole:
    breach(f"hakmem.h: HAKMEM_VERSION is {whole}, its parts are {'.'.join(parts)}")
crate = os.path.join(ROOT, "tools", "hakmem", "Cargo.toml")
if os.path.exists(crate):
    found = re.search(r'^version\s*=\s*"([\d.]+)"', open(crate, encoding="utf-8").read(), flags=re.M)
    if found is None or found.group(1) != whole:
        breach(f"tools/hakmem/Cargo.toml: its version is not {whole}")
finish("docs: options.md, counters.md, versions")
