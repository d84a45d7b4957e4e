"""overview.py - the README's picture is what bench/picture.py makes of the newest full result of record."""
import glob
import json
import os
import sys

from _law import ROOT, breach, finish, options

sys.path.insert(0, os.path.join(ROOT, "bench"))
import picture  # noqa: E402  (after the path)

options()
# The newest by its own time: file names begin with the date, several of a day do not follow from it.
records = []
for path in glob.glob(os.path.join(ROOT, "bench", "results", "*-full.json")):
    with open(path, encoding="utf-8") as file:
        records.append(json.load(file))
if not records:
    breach("bench/results: no full result of record")
else:
    with open(os.path.join(ROOT, "docs", "img", "overview.svg"), encoding="utf-8") as file:
        shown = file.read()
    newest = max(records, key=lambda record: record["started"])
    if shown != picture.overview_svg(newest):
        breach("docs/img/overview.svg: not the picture of the newest full result in bench/results (bench/picture.py makes it)")
    # What is drawn is what was measured: every allocator of the run, and no row left out.
    for row in newest["summary"]:
        name = "HAKMEM" if row["allocator"] == "hakmem" else row["allocator"]
        if f">{name}  {row['time_over_best']:.2f}, {row['peak_over_best']:.2f}<" not in shown:
            breach(f"docs/img/overview.svg: {name} is missing")
    if f"over {len(newest['rows'])} programs" not in shown:
        breach("docs/img/overview.svg: does not say how many programs")
finish("overview: the picture of the newest full result")
