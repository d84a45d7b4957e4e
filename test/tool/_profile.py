"""_profile.py - a made-up profile file for the browser's tests: a server with a cache that pins pages, a leak, a busy
parser, names that want to be markup, and as many other stacks as asked for.

    python3 _profile.py FILE [STACKS]
"""
import gzip
import json
import math
import random
import sys

HOSTILE = "evil<img src=x onerror=\"window.pwned=1\">'&amp;</script><script>window.pwned=2</script>"
MIB = 1 << 20


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.functions, self.locations, self.stacks, self.pins = [], [], [], []
        self.known = {}

    def location(self, name, module):
        if name not in self.known:
            self.known[name] = len(self.functions)
            has_file = module in (0, 3)
            self.functions.append({"name": name, "file": f"/build/src/{name[:4].strip('_:<') or 'x'}.cc" if has_file else "",
                                   "module": module})
            line = 10 + len(name) * 7 if has_file else 0
            self.locations.append({"module": module, "address": 0x550000000000 + 64 * len(self.functions),
                                   "lines": [{"function": self.known[name], "line": line}]})
        return self.known[name]

    def stack(self, names, live, turnover, bucket, pinned=0, growing=False):
        locations = [self.location(name, module) for name, module in names]
        allocated = int(live * turnover) + 4096
        freed = 0 if growing else allocated - live

        block_bytes = (48, 96, 200, 1024)[len(names) % 4]

        def amount(size):
            samples = max(size / (512 << 10), 1)
            spread = 1.96 * size / math.sqrt(samples)
            return {"count": size // block_bytes, "bytes": size, "bytes_low": max(0, int(size - spread)),
                    "bytes_high": int(size + spread), "samples": int(samples)}

        lifetimes = [0] * 29
        lifetimes[bucket], lifetimes[bucket + 1], lifetimes[min(bucket + 3, 28)] = freed // 200, freed // 300, freed // 900
        is_temporary = bucket < 7
        self.stacks.append({
            "locations": locations[::-1], "allocated": amount(allocated), "freed": amount(freed), "live": amount(live),
            "temporary": amount(freed * 9 // 10) if is_temporary else {}, "lifetimes": lifetimes, "ages": [],
            "threads": [{"thread": bucket % 4, "live_bytes": live}],
            "live_by_birth": [live // 16] * 16 if growing else [], "live_over_time": [{"at_ms": at * 1000, "bytes": live * at // 30, "count": at} for at in range(31)] if growing else [],
        })
        if pinned:
            self.pins.append({"stack": len(self.stacks) - 1, "pinned_bytes": pinned, "page_count": pinned // 3900,
                              "held_bytes": live // 2, "held_count": live // 200, "old_bytes": live // 3,
                              "age_us_median": 8_000_000, "classes": [0, 1]})


def profile(stacks=400, seed=1):
    make = Maker(seed)
    main = [("_start", 0), ("__libc_start_main", 1), ("main", 0), ("serve", 0)]
    make.stack(main + [("session_open", 0), ("operator new(unsigned long)", 2)], 7 * MIB, 1.4, 20, pinned=96 * MIB)
    make.stack(main + [("handle_put", 0), ("cache::insert(std::string const&)", 0), ("operator new(unsigned long)", 2)],
               62 * MIB, 1.8, 21, pinned=9 * MIB)
    make.stack(main + [("audit_log", 0), ("leak_a_little", 0), ("malloc", 1)], 21 * MIB, 1, 20, growing=True)
    make.stack(main + [("read_request", 0), ("parse_line", 0), ("std::string::append(char const*)", 2)], 20 << 10, 60000, 3)
    make.stack(main + [(HOSTILE, 0), ("calloc", 1)], 9 * MIB, 2, 9)
    make.stack(main + [("zip_open", 3), ("(anonymous namespace)::Window<std::string>::grow(int&&)", 3)], 16 * MIB, 3, 12)
    for index in range(max(stacks - 6, 0)):
        names = list(main)
        branch = int(make.random.paretovariate(1.1)) % 40
        for depth in range(make.random.randrange(2, 24)):
            names.append((f"ns{branch % 7}::layer{depth}::step{branch}(int, Context&)", 3 if branch % 5 == 4 else 0))
            if make.random.random() < 0.3:
                branch = branch * 3 + make.random.randrange(3)
        live = int(min(make.random.paretovariate(0.9), 900) * 9000)
        make.stack(names, live, 1 + make.random.random() * 9, make.random.randrange(2, 24),
                   pinned=live // 3 if index % 5 == 0 else 0)
    live = sum(stack["live"]["bytes"] for stack in make.stacks)
    total = {key: {part: sum(stack[key].get(part, 0) for stack in make.stacks)
                   for part in ("count", "bytes", "bytes_low", "bytes_high", "samples")}
             for key in ("allocated", "freed", "live", "temporary")}
    pinned = sum(pin["pinned_bytes"] for pin in make.pins)
    wave = [(math.sin(at / 40) + 1) / 2 for at in range(300)]
    return {
        "schema": 1, "tool": "0.1.0", "library": "0.1.0",
        "program": {"name": "served", "path": "/usr/bin/served", "command": ["served", "--motd=</title><script>window.pwned=3</script>"],
                    "pid": 4711, "host": "db-7", "kernel": "6.18.44", "machine": "x86_64", "processor_count": 16,
                    "memory_bytes": 64 << 30, "page_bytes": 4096, "started_unix_ms": 1795179000000},
        "recording": {"started_unix_ms": 1795179845000, "duration_ms": 30000, "rate_bytes": 512 << 10,
                      "sample_count": total["allocated"]["samples"], "reason": "record", "temporary_us_max": 128},
        "modules": [{"path": "/usr/bin/served", "has_symbols": True, "has_lines": True},
                    {"path": "/lib/x86_64-linux-gnu/libc.so.6", "has_symbols": True},
                    {"path": "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "has_symbols": True},
                    {"path": "/opt/<b>plug</b>in.so", "has_symbols": False}],
        "functions": make.functions, "locations": make.locations, "stacks": make.stacks,
        "threads": [{"id": 4711 + at, "name": name, "allocated_bytes": (900 >> at) * MIB, "live_bytes": (80 >> at) * MIB}
                    for at, name in enumerate(["main", "worker-1", "worker-2", "<b>io</b>"])],
        "bucket_ends_us": [1 << bit for bit in range(28)],
        "timeline": [{"at_ms": at * 100, "resident_bytes": int((live + pinned) * (0.8 + 0.4 * wave[at])),
                      "live_bytes": int(live * (0.6 + 0.4 * wave[at])), "free_bytes": int(pinned * (1.2 - wave[at] * 0.4)),
                      "allocated_bytes": at * 9000000 + (at % 17) * 400000, "fault_count": at * 40} for at in range(300)],
        "classes": [{"bytes": size, "slab_count": 900, "capacity_count": 500000, "live_count": 120000,
                     "resident_bytes": (90 - at * 15) * MIB, "sparse_page_count": 9000, "sparse_bytes": (40 - at * 9) * MIB,
                     "alloc_count": 4000000, "free_count": 3880000} for at, size in enumerate([48, 256, 4096, 0])],
        "pins": make.pins,
        "settings": [{"name": "purge_delay_ms", "value": "100", "is_default": False}],
        "totals": {"resident_bytes": live + pinned + 60 * MIB, "resident_peak_bytes": (live + pinned) * 3 // 2,
                   "live_bytes": live, "live_count": total["live"]["count"], "free_bytes": 20 * MIB,
                   "sparse_bytes": pinned, **total},
    }


def write(path, profile):
    with gzip.open(path, "wt", compresslevel=3, encoding="utf-8") as file:
        json.dump(profile, file)


if __name__ == "__main__":
    write(sys.argv[1], profile(int(sys.argv[2]) if len(sys.argv) > 2 else 400))
