#!/usr/bin/env python3
"""leaks.py - a leak of one allocation in a hundred is named in the first three lines of `hakmem leaks`, in a C++, a
Rust and a Python program that were attached to while they ran. ctest: timeout=900"""
import os
import subprocess
import sys

from seeing_lib import Bench, check

CXX = r"""
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unistd.h>
#include <poll.h>
#include <vector>
struct Session { char data[96]; Session *next; };
static Session *sessions;
__attribute__((noinline)) void session_open(int n) {  // nobody closes it
    Session *made = new Session();
    made->next = sessions; made->data[0] = (char)n; sessions = made;
}
__attribute__((noinline)) void cache_warm(std::map<int, std::string> &cache) {  // once, and kept
    for (int i = 0; i < 60000; i++) cache[i] = std::string(100 + i % 50, 'x');
}
__attribute__((noinline)) long request(int n) {  // 99 allocations that go again
    std::vector<std::unique_ptr<std::string>> parts;
    parts.reserve(48);
    for (int i = 0; i < 49; i++) parts.push_back(std::make_unique<std::string>(40 + (n + i) % 90, 'y'));
    return (long)parts.back()->size();
}
int main() {
    std::map<int, std::string> cache;
    cache_warm(cache);
    std::puts("ready"); std::fflush(stdout);
    long sum = 0;
    struct pollfd in = {0, POLLIN, 0};
    for (int n = 0; n % 256 || poll(&in, 1, 0) == 0; n++) { sum += request(n); session_open(n); }
    std::printf("%ld\n", sum > 0 ? 1L : 0L);
}
"""

RUST = r"""
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
static ENDED: AtomicBool = AtomicBool::new(false);
pub struct Order { pub lines: [u64; 12] }
#[inline(never)]
fn order_remember(n: u64) -> &'static Order { Box::leak(Box::new(Order { lines: [n; 12] })) }
#[inline(never)]
fn table_fill() -> HashMap<u64, Vec<u8>> { (0..50_000).map(|n| (n, vec![1; 120])).collect() }
#[inline(never)]
fn page_render(n: u64) -> usize {
    let parts: Vec<String> = (0..49).map(|i| format!("<p id={}>{}</p>", n + i, "text".repeat(12))).collect();
    parts.iter().map(String::len).sum()
}
fn main() {
    let table = table_fill();
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::thread::spawn(|| { let _ = std::io::stdin().read(&mut [0; 1]); ENDED.store(true, Ordering::Relaxed); });
    let (mut n, mut sum) = (0, 0);
    while !ENDED.load(Ordering::Relaxed) { sum += page_render(n); sum += order_remember(n).lines[0] as usize; n += 1; }
    println!("{}", table.len() + usize::from(sum > 0));
}
"""

PYTHON = r"""
import select, sys
kept = []
table = {str(i): bytearray(600) for i in range(20000)}  # once
def handle(n):
    work = [bytearray(520 + (n + i) % 400) for i in range(99)]  # gone at the end
    return len(work)
def audit(n):
    kept.append("audit entry %d " % n * 60)  # for ever: one str of a kilobyte in a hundred blocks
print("ready", flush=True)
n = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(20):
        n += 1
        handle(n)
        audit(n)
print(len(table))
"""


def leak_is_named(bench, language, child, names):
    file = bench.path(language + ".hakprof")
    bench.hakmem("record", "-p", str(child.pid), "--seconds", "8", "-o", file)
    check(child.poll() is None, f"{language}: it runs on after the command detached")
    report = bench.hakmem("leaks", file).stdout
    bench.finish(child)
    first = report.splitlines()[:3]
    print(report)
    check(any(name in line for line in first for name in names), f"{language}: the leak is in the first three lines")


def has_names(program):
    """Has the program, or the library that is its interpreter, a table of symbols?"""
    objects = [program] + [word for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout.splitlines()
                           for word in line.split() if "libpython" in word and word.startswith("/")]
    tables = subprocess.run(["readelf", "-SW", *objects], capture_output=True, text=True, check=True).stdout
    return ".symtab" in tables


def main():
    with Bench() as bench:
        program = bench.built("server", CXX, "g++", "-O2", "-g")
        leak_is_named(bench, "c++", bench.start(program), ["session_open(int) (server.cc:"])
        program = bench.built("shop", RUST, "rustc", "-O", "-g")
        if program:
            leak_is_named(bench, "rust", bench.start(program), ["shop::order_remember (shop.rs:"])
        script = bench.write("work.py", PYTHON)
        # The interpreter's own frames say how: a str made by repetition. Debian's is stripped, so that its frames have no names.
        names = ["PyUnicode_New", "unicode_repeat"] if has_names(sys.executable) else [os.path.basename(os.path.realpath(sys.executable)) + "+0x"]
        leak_is_named(bench, "python", bench.start(sys.executable, script), names)


main()
