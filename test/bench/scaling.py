"""scaling.py - bench/scaling.py measures, writes a table and a picture of it, reads them back, and refuses what it cannot do in one line.

ctest: serial native timeout=300
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = sys.argv[sys.argv.index("--build") + 1] if "--build" in sys.argv else os.path.join(ROOT, "build", "release")
failures = 0


def check(condition, what):
    global failures
    if not condition:
        failures += 1
        print("FAILED", what)


def scaling(*arguments):
    return subprocess.run([sys.executable, os.path.join(ROOT, "bench", "scaling.py"), "--build", BUILD, *arguments], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)


with tempfile.TemporaryDirectory() as folder:
    paths = [os.path.join(folder, name) for name in ("a.json", "a.md", "a.svg")]
    library = os.path.join(BUILD, "libhakmem.so")
    done = scaling("--rows", "producers/one,mid_large_mt/32K", "--threads", "1,3", "--with", "glibc", "--rounds", "2", "--also", f"minimal={library},HAKMEM_MINIMAL=1",
                   "--json", paths[0], "--markdown", paths[1], "--svg", paths[2])
    check(done.returncode == 0, f"a run: {done.stderr}")
    with open(paths[0], encoding="utf-8") as file: record = json.load(file)
    check([(point["row"], point["threads"]) for point in record["points"]] ==
          [("mid_large_mt/32K", 1), ("mid_large_mt/32K", 3), ("producers/one", 3)], "rows by threads, those that need two left out with one")
    for point in record["points"]:
        check(list(point["cells"]) == ["hakmem", "glibc", "minimal"], f"allocators of {point['row']}")
        for name, cell in point["cells"].items():
            check(len(cell["rates"]) == 2 and min(cell["rates"]) > 1e4 and min(cell["peaks_kb"]) > 500, f"two values each: {point['row']}, {name}")
    with open(paths[1], encoding="utf-8") as file: table = file.read()
    check(table.count("| 3 |") == 2 and table.count("**") >= 2 * (2 + 3), "the table has both rows, and the fastest of each line")
    xml.dom.minidom.parse(paths[2])
    again = scaling("--from", paths[0], "--markdown", paths[1] + "2")
    with open(paths[1] + "2", encoding="utf-8") as file: check(again.returncode == 0 and file.read() == table, "the same table from the file")
    with open(paths[0], "w", encoding="utf-8") as file: file.write("{}")
    for wrong in (["--rows", "nothing"], ["--threads", "1,x"], ["--threads", "0"], ["--with", "nobody"], ["--also", "x=/nowhere.so"], ["--from", paths[0]],
                  ["--from", os.path.join(folder, "absent")], ["--build", folder]):
        done = scaling(*wrong)
        check(done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1 and done.stderr.startswith("scaling.py: "), f"{wrong}: {done.returncode} {done.stderr}")

print(f"scaling: {failures} failures")
sys.exit(failures != 0)
