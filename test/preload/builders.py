#!/usr/bin/env python3
"""builders.py - gcc, g++, clang, git, cargo, cmake and make do the same work under HAKMEM."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper"))

from preloaded import Suite, need

GIT = r"""
set -e
rm -rf repo; git init -q -b main repo; cd repo
git config user.name A; git config user.email a@example.org; git config gc.auto 0
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
  mkdir -p d$i; for k in 1 2 3 4 5 6 7 8 9 10; do seq $i $k 3000 > d$i/f$k; done
  seq 1 $((i * 2000)) > growing
  git add -A; git commit -q -m "commit $i"
done
git checkout -q -b side HEAD~5; echo x > side; git add side; git commit -q -m side; git checkout -q main; git merge -q -m merge side
git gc -q --aggressive --prune=now; git fsck --full --strict 2>&1 | sort
git log --stat --oneline | sha256sum; git blame growing | sha256sum; git diff HEAD~6 | sha256sum; git rev-parse HEAD
git clone -q . ../clone 2>/dev/null && git -C ../clone rev-parse HEAD; rm -rf ../clone
git grep -c 777 | wc -l
"""

CXX = """
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <thread>
#include <vector>
template <int N> struct table { std::map<std::string, std::vector<int>> rows; int fill() { for (int i = 0; i < N; i++)
    rows[std::to_string(i * 31 % 977)].push_back(i); return (int)rows.size() + table<N - 1>().fill(); } };
template <> struct table<0> { int fill() { return 0; } };
int main() { std::regex number("([0-9]+)-([a-z]*)"); std::smatch match; std::string text = "17-abc";
    std::vector<std::thread> threads; for (int i = 0; i < 3; i++) threads.emplace_back([] { table<9>().fill(); });
    for (auto &thread : threads) thread.join();
    std::cout << table<25>().fill() << std::regex_match(text, match, number) << std::endl; }
"""

CARGO = """
use std::collections::{BTreeMap, HashMap};
fn main() {
    let mut map: HashMap<String, Vec<u64>> = HashMap::new();
    for i in 0..200_000u64 { map.entry(format!("k{}", i * 7919 % 10_007)).or_default().push(i); }
    let sorted: BTreeMap<_, _> = map.iter().collect();
    let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(move || (0..50_000).map(|i| vec![n; i % 300].len()).sum::<usize>())).collect();
    let total: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    println!("{} {}", sorted.len(), total);
}
"""


def main():
    suite = Suite("builders", __doc__)
    suite.same("git", lambda: [need("bash"), "-c", "command -v " + need("git") + " >/dev/null;" + GIT])

    def compiled(compiler):
        # The object must be the same byte for byte, and the program must run, both under the library.
        source = suite.write("one.cc", CXX)
        return [need("bash"), "-c", f"set -e; {need(compiler)} -std=c++17 -O2 -w -c {source} -o one.o; sha256sum < one.o; "
                f"{compiler} one.o -o one -lpthread; ./one"]
    suite.same("g++", lambda: compiled("g++"))
    suite.same("clang++", lambda: compiled("clang++"))

    def gcc_amalgamation():
        # A real C file: this machine's largest system header set, all at once.
        source = suite.write("many.c", "#define _GNU_SOURCE\n" + "".join(
            f"#include <{name}.h>\n" for name in ("stdio", "stdlib", "string", "pthread", "math", "signal", "unistd", "netdb",
                                                    "sys/socket", "sys/stat", "regex", "wchar", "locale", "time", "dlfcn")) +
            "".join(f"static int f{i}(int x) {{ return x * {i} + (x >> {i % 7}); }}\n" for i in range(1500)) +
            "int (*all[])(int) = {" + ",".join(f"f{i}" for i in range(1500)) + "};\n")
        return [need("bash"), "-c", f"{need('gcc')} -O2 -g -w -c {source} -o many.o && sha256sum < many.o"]
    suite.same("gcc of a long file", gcc_amalgamation)

    def cargo():
        need("rustc")
        suite.write("crate/Cargo.toml", '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n')
        suite.write("crate/src/main.rs", CARGO)
        return [need("bash"), "-c", f"cd crate && rm -rf target && {need('cargo')} build -q --offline 2>&1 && ./target/debug/small"]
    suite.same("cargo", cargo, seconds=240)

    def make():
        suite.write("tree/Makefile", "all: " + " ".join(f"o{i}" for i in range(60)) + "\n" +
                    "".join(f"o{i}:\n\t@echo {i} | sed s/{i}/x{i}/ > o{i}\n" for i in range(60)))
        return [need("bash"), "-c", f"cd tree && rm -f o*; {need('make')} -j4 && cat o* | sort | sha256sum"]
    suite.same("make -j4", make)
    return suite.finish()


if __name__ == "__main__":
    sys.exit(main())
