"""layers.py - every file of src/ includes its own layer and lower ones only (src/LAYERS)."""
import os
import re

from _law import ROOT, breach, finish, options, sources

options()
with open(os.path.join(ROOT, "src", "LAYERS"), encoding="utf-8") as file:
    LAYERS = [line.strip() for line in file if line.strip() and not line.startswith("#")]

for folder in sorted(os.listdir(os.path.join(ROOT, "src"))):
    if os.path.isdir(os.path.join(ROOT, "src", folder)) and folder not in LAYERS:
        breach(f"src/{folder}: this folder is not in src/LAYERS")

count = 0
for path in sources("src"):
    layer = path.split(os.sep)[1]
    if layer not in LAYERS:
        breach(f"{path}: stands in no layer")
        continue
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            found = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<(hakmem/[^>]+)>)', line)
            if not found:
                continue
            count += 1
            name = found.group(1) or found.group(2)
            if name.startswith("hakmem/"):
                continue  # the public header names nothing of src/
            to = name.split("/")[0] if "/" in name else layer
            if name.startswith(".") or to not in LAYERS:
                breach(f"{path}:{number}: includes {name}, which is no layer's")
            elif LAYERS.index(to) > LAYERS.index(layer):
                breach(f"{path}:{number}: {layer} includes {name}, which lies above it")
            elif not os.path.exists(os.path.join(ROOT, "src", to, os.path.basename(name))):
                breach(f"{path}:{number}: includes {name}, which does not exist")
finish(f"layers: {count} includes")
