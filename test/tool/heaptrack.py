#!/usr/bin/env python3
"""heaptrack.py - functions, inlined ones too, demangled, with file and line: as heaptrack has them for the same program.
ctest: timeout=300"""
import gzip
import json
import os
import re
import shutil
import subprocess

from seeing_lib import Bench, check, skip

SOURCE = r"""
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>
namespace shop {
template <class T> struct Shelf {
    std::vector<std::unique_ptr<T>> rows;
    inline __attribute__((always_inline)) void put(int n) {
        rows.push_back(std::make_unique<T>(40 + n % 90, 'y'));
    }
};
__attribute__((noinline)) void stock(Shelf<std::string> &shelf, int n) {
    for (int i = 0; i < n; i++)
        shelf.put(i);
}
}
static inline __attribute__((always_inline)) char *line_copy(const char *text, int n) {
    char *made = new char[200];
    std::snprintf(made, 200, "%s %d", text, n);
    return made;
}
__attribute__((noinline)) char *log_line(int n) {
    char *line = line_copy("line", n);
    return line;
}
int main() {
    shop::Shelf<std::string> shelf;
    std::map<int, char *> lines;
    shop::stock(shelf, 20000);
    for (int n = 0; n < 20000; n++)
        lines[n] = log_line(n);
    std::puts(lines[7]);
}
"""


def plain(name):
    """Without template arguments, which heaptrack leaves out, and without parameters."""
    while (shorter := re.sub(r"<[^<>]*>", "", name)) != name:
        name = shorter
    return name.split("(")[0].split(" ")[-1]


def main():
    if not shutil.which("heaptrack") or not shutil.which("heaptrack_print"):
        skip("heaptrack is not installed")
    with Bench() as bench:
        program = bench.built("shop", SOURCE, "g++", "-O2", "-g")
        file = bench.path("shop.hakprof")
        bench.hakmem("run", "--record", file, "--sample-bytes", "256", "--sample-most", "0", "--", program)
        with gzip.open(file, "rt", encoding="utf-8") as text:
            profile = json.load(text)
        ours = set()
        for location in profile["locations"]:
            for line in location["lines"]:
                function = profile["functions"][line["function"]]
                ours.add((plain(function["name"]), os.path.basename(function["file"]), line["line"]))
        subprocess.run(["heaptrack", "-o", bench.path("ht"), program], check=True, capture_output=True)
        data = [name for name in os.listdir(bench.folder) if name.startswith("ht.")][0]
        printed = subprocess.run(["heaptrack_print", "-f", bench.path(data)], check=True, capture_output=True, text=True)
        found = re.findall(r"^\s*(\S.*)\n\s+at (\S+):(\d+)$", printed.stdout, re.M)
        theirs = {(plain(name), os.path.basename(path), int(line)) for name, path, line in found if path.endswith("shop.cc")}
        print("heaptrack:", sorted(theirs))
        print("hakmem:   ", sorted(row for row in ours if row[1] == "shop.cc"))
        check(len(theirs) >= 4, "heaptrack names the program's own functions")
        missing = {row for row in theirs if row not in ours}
        check(not missing, f"hakmem names each of them, with the same line {missing or ''}")


main()
