#!/usr/bin/env python3
"""control.py - another process reads the tables and writes the control word of one that was started without recording.

Start, another rate, dump, clear and stop while the program runs; its child after fork; dumps of their own accord; what the
tables say against what the program allocates.
"""
import argparse
import ctypes
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
build = os.path.abspath(parser.parse_args().build)
library = os.path.join(build, "libhakmem.so")
failures = 0
libc = ctypes.CDLL(None, use_errno=True)

PROGRAM = r"""
#include <pthread.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <time.h>
#include <sys/prctl.h>
static void *kept[1000];
__attribute__((noinline)) static void *leaks(size_t n) { void *p = malloc(n); __asm__ volatile("" : "+r"(p)); return p; }
__attribute__((noinline)) static void *comes_and_goes(size_t n) { void *p = malloc(n); __asm__ volatile("" : "+r"(p)); return p; }
static void *work(void *name)
{
    prctl(PR_SET_NAME, name);
    for (unsigned n = 0;; n++) {
        for (int i = 0; i < 1000; i++) {
            free(kept[i]);
            kept[i] = comes_and_goes(100 + i);
        }
        void *large = comes_and_goes(300000);
        large = realloc(large, 500000);
        memset(leaks(1000), 1, 1000);
        free(large);
        struct timespec t = { 0, 1000000 };
        nanosleep(&t, NULL);
    }
}
int main(int c, char **v)
{
    pthread_t t;
    (void)v;
    if (c > 1) { int child = fork(); if (child > 0) { printf("%d\n", child); fflush(stdout); } else prctl(PR_SET_PDEATHSIG, 9); }
    pthread_create(&t, NULL, work, "worker");
    printf("ready\n");
    fflush(stdout);
    alarm(60);
    pthread_join(t, NULL);
}
"""


def judge(what, good):
    global failures
    print(f"{'pass' if good else 'FAIL'}  {what}", flush=True)
    failures += not good


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


def memory(pid, address, count, write=None):
    buffer = ctypes.create_string_buffer(write if write is not None else bytes(count), count)
    here, there = Vector(ctypes.cast(buffer, ctypes.c_void_p), count), Vector(address, count)
    call = libc.process_vm_readv if write is None else libc.process_vm_writev
    got = call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if got != count:
        raise OSError(ctypes.get_errno(), f"{count} bytes at {address:#x}")
    return buffer.raw


def published_at(pid):
    symbol = re.search(r"^([0-9a-f]+) \w hakmem_published$", subprocess.run(["nm", "-D", library], capture_output=True, text=True,
                                                                    check=True).stdout, re.M)
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        base = next(int(line.split("-")[0], 16) for line in maps if "libhakmem" in line)
    return base + int(symbol.group(1), 16)


# struct hak_published, as far as it is needed here: offsets are found by gcc from the header itself
def offsets():
    names = ["magic", "is_on", "rate_bytes", "stacks", "live", "threads", "timeline", "control.request", "control.seen",
             "control.command", "control.result", "control.rate_bytes", "control.path", "samples", "alloc_bytes", "free_bytes",
             "pid", "start_ns", "geometry_ready", "counters", "dumps"]
    header = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src", "watch", "published.h")
    rows = [("stack_key", "struct hak_stack_row", "alloc_bytes"), ("thread_name", "struct hak_thread_row", "name"),
            ("live_state", "struct hak_live_row", "state"), ("live_sequence", "struct hak_live_row", "sequence"),
            ("live_requested", "struct hak_live_row", "requested_bytes"), ("live_weight", "struct hak_live_row", "weight")]
    code = f'#include "{header}"\n#include <stdio.h>\n#include <stddef.h>\nint main(void) {{\n'
    code += "".join(f'printf("{n} %zu\\n", offsetof(struct hak_published, {n}));\n' for n in names)
    code += "".join(f'printf("{n} %zu\\n", offsetof({s}, {f}));\n' for n, s, f in rows) + "}\n"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cc", "-xc", "-", "-o", folder + "/o"], input=code, text=True, check=True)
        text = subprocess.run([folder + "/o"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}


class Process:
    def __init__(self, pid):
        self.pid, self.at = pid, published_at(pid)

    def number(self, name, size=8):
        return int.from_bytes(memory(self.pid, self.at + OFFSET[name], size), "little")

    def table(self, name):
        address, row_bytes, capacity, used = struct.unpack("<4Q", memory(self.pid, self.at + OFFSET[name], 32))
        raw = memory(self.pid, address, row_bytes * used) if used else b""
        return [raw[i * row_bytes:(i + 1) * row_bytes] for i in range(used)]

    def command(self, command, rate=0, path=""):
        request = self.number("control.request", 4) + 1
        write = lambda name, data: memory(self.pid, self.at + OFFSET[name], len(data), data)
        write("control.command", struct.pack("<I", command))
        write("control.rate_bytes", struct.pack("<Q", rate))
        write("control.path", path.encode().ljust(256, b"\0"))
        write("control.request", struct.pack("<I", request))
        until = time.time() + 10
        while self.number("control.seen", 4) != request:
            if time.time() > until:
                raise TimeoutError("nobody saw the request")
            time.sleep(0.005)
        return struct.unpack("<i", memory(self.pid, self.at + OFFSET["control.result"], 4))[0]

    def live(self):
        sums = 0.0
        for row in self.table("live"):
            if struct.unpack_from("<I", row, OFFSET["live_state"])[0] == 1:
                sums += struct.unpack_from("<Q", row, OFFSET["live_requested"])[0] * struct.unpack_from("<d", row, OFFSET["live_weight"])[0]
        return sums


def sections(path):
    with open(path, "rb") as file:
        raw = file.read()
    if raw[:16] != b"HAKMEM DUMP 1\n\n\0":
        return {}
    at, found = 16, {}
    while at < len(raw):
        name = raw[at:at + 16].rstrip(b"\0").decode()
        _, _, size = struct.unpack_from("<3Q", raw, at + 16)
        found[name] = found.get(name, b"") + raw[at + 40:at + 40 + size]
        at += 40 + size
    return found if at == len(raw) else {}


OFFSET = offsets()
START, STOP, RATE, DUMP, CLEAR = 1, 2, 3, 4, 5
clean = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
clean["HAKMEM_SAMPLE_MOST"] = "0"
with tempfile.TemporaryDirectory() as folder:
    program = os.path.join(folder, "worker")
    subprocess.run(["cc", "-O1", "-fno-builtin", "-pthread", "-xc", "-", "-o", program], input=PROGRAM, text=True, check=True)
    running = subprocess.Popen([program], stdout=subprocess.PIPE, text=True, env={**clean, "LD_PRELOAD": library})
    try:
        running.stdout.readline()
        time.sleep(0.3)
        process = Process(running.pid)
        judge("published before recording", process.number("geometry_ready", 4) == 1 and process.number("is_on", 4) == 0 and
              process.number("samples") == 0)
        judge("start", process.command(START, 8192) == 0 and process.number("rate_bytes") == 8192)
        time.sleep(1)
        judge("samples come", process.number("samples") > 1000)
        judge("the thread is named", any(b"worker" in row for row in process.table("threads")))
        judge("a timeline", len(process.table("timeline")) >= 5)
        estimate = process.live()
        judge(f"live bytes are near what lives (estimate {estimate:.0f})", 300e3 < estimate < 4e6)
        judge("another rate", process.command(RATE, 65536) == 0 and process.number("rate_bytes") == 65536)
        dump = os.path.join(folder, "asked.dump")
        judge("dump", process.command(DUMP, path=dump) == 0)
        parts = sections(dump)
        judge("the dump is whole", "end" in parts and all(parts.get(name) for name in ("about", "maps", "published", "stacks", "frames",
              "live", "threads", "timeline", "classes", "counters", "slabs", "file")) and b"reason request" in parts["about"])
        judge("a folder that is not there", process.command(DUMP, path=folder + "/no/such/file") == -2)
        before = process.number("start_ns")
        judge("clear", process.command(CLEAR) == 0 and process.number("start_ns") > before)
        judge("a rate that is none", process.command(RATE, 3) == -22)
        judge("stop", process.command(STOP) == 0 and process.number("rate_bytes") == 0)
        time.sleep(0.1)
        samples = process.number("samples")
        time.sleep(0.3)
        judge("no samples after it", process.number("samples") == samples)
        judge("start again", process.command(START, 4096) == 0)
        time.sleep(0.3)
        judge("samples again", process.number("samples") > 200)
        judge("it runs", running.poll() is None)
    finally:
        running.kill()
        running.wait()

    # a process and its child, both recorded from the start
    running = subprocess.Popen([program, "fork"], stdout=subprocess.PIPE, text=True,
                               env={**clean, "LD_PRELOAD": library, "HAKMEM_RECORD": folder + "/", "HAKMEM_SAMPLE_BYTES": "8192",
                                    "HAKMEM_RECORD_OVER_MB": "1"})
    child = next(int(line) for line in running.stdout if line.strip().isdigit() and int(line) > 1)
    try:
        time.sleep(1.5)
        process = Process(child)
        judge("the child records", process.number("samples") > 500 and process.number("pid", 4) == child)
        judge("the child's control word", process.command(RATE, 16384) == 0 and Process(running.pid).number("rate_bytes") == 8192)
        names = os.listdir(folder)
        judge("dumps over a resident size, of both", {f"worker.{pid}.resident.hakdump" for pid in (child, running.pid)} <= set(names))
    finally:
        os.kill(child, 9)
        running.kill()
        running.wait()

    # at the end, and when memory is short
    code = r"""
#include <stdlib.h>
#include <sys/resource.h>
int main(void) { struct rlimit l = { 512 << 20, 512 << 20 }; setrlimit(RLIMIT_AS, &l);
for (int i = 0; i < 1000000; i++) if (!malloc(20000)) return 0; return 1; }
"""
    greedy = os.path.join(folder, "greedy")
    subprocess.run(["cc", "-O1", "-fno-builtin", "-xc", "-", "-o", greedy], input=code, text=True, check=True)
    done = subprocess.run([greedy], env={**clean, "LD_PRELOAD": library, "HAKMEM_RECORD": folder + "/"}, check=False)
    reasons = sorted(name.split(".")[2] for name in os.listdir(folder) if name.startswith("greedy."))
    judge(f"dumps on shortage and at exit ({reasons})", done.returncode == 0 and reasons == ["exit", "shortage"])
    for name in os.listdir(folder):
        if name.startswith("greedy.") and not sections(os.path.join(folder, name)).get("live"):
            judge(name + " is whole", False)
    done = subprocess.run([greedy], env={**clean, "LD_PRELOAD": library, "HAKMEM_RECORD": folder + "/one"}, check=False)
    judge("to a file", bool(sections(folder + "/one").get("live")) and bool(sections(folder + "/one.shortage").get("live")))
print(f"control: {failures} failures")
sys.exit(1 if failures else 0)
