#!/usr/bin/env python3
"""peers.py - the other allocators: find those that are installed, build the newest.

Owns:      the list of peers (name, shared object, version, where it comes from).
Never:     copies a peer's source into the project. Sources come from the crates registry by `cargo vendor`
           into a temporary folder; only the shared objects are kept, in build/peers.
Prove:     a peer that was named but is not mapped in the process under test is an error (runner.py).

Usage: peers.py [--build-newest] [--only NAME]   list the peers; with --build-newest build them first
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILT = os.path.join(ROOT, "build", "peers")
LIBRARY_FOLDERS = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]

# name, Debian package, shared object
INSTALLED = [
    ("jemalloc", "libjemalloc2", "libjemalloc.so.2"),
    ("mimalloc", "libmimalloc2.0", "libmimalloc.so.2.0"),
    ("tcmalloc", "libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
]

C_FLAGS = ["-O3", "-DNDEBUG", "-fPIC", "-shared", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-pthread", "-w"]


class Peer:
    """One allocator: `path` is None for the C library's own."""

    def __init__(self, name, path, version, source):
        self.name, self.path, self.version, self.source = name, path, version, source

    def describe(self):
        return {"name": self.name, "version": self.version, "source": self.source, "path": self.path}


def output_of(command, **options):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
                              **options).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def glibc_peer():
    version = output_of(["getconf", "GNU_LIBC_VERSION"]).replace("glibc ", "") or "unknown"
    return Peer("glibc", None, version, "the system's C library")


def installed_peers():
    found = []
    for name, package, file_name in INSTALLED:
        for folder in LIBRARY_FOLDERS:
            path = os.path.join(folder, file_name)
            if os.path.exists(path):
                version = output_of(["dpkg-query", "-W", "-f", "${Version}", package]) or "unknown"
                found.append(Peer(name, path, version, "Debian " + package))
                break
    return found


def built_peers():
    """Those that build_newest has left in build/peers, newest versions from the crates registry."""
    listing = os.path.join(BUILT, "peers.json")
    if not os.path.exists(listing):
        return []
    with open(listing, encoding="utf-8") as file:
        rows = json.load(file)
    return [Peer(row["name"], row["path"], row["version"], row["source"])
            for row in rows if os.path.exists(row["path"])]


def all_peers(with_built=True):
    """glibc first. A newest build stands beside Debian's of the same name under a name of its own."""
    return [glibc_peer()] + installed_peers() + (built_peers() if with_built else [])


# --- building -------------------------------------------------------------------------------------

def run_quietly(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode:
        raise RuntimeError("\n".join(done.stdout.strip().splitlines()[-3:]))


def compile_to(target, command):
    run_quietly(command + ["-o", target])


def build_mimalloc(source, target, generation):
    folder = os.path.join(source, "c_src", "mimalloc", generation)
    compile_to(target, ["cc", *C_FLAGS, "-fvisibility=hidden", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB",
                        "-DMI_SHARED_LIB_EXPORT", "-I", os.path.join(folder, "include"),
                        os.path.join(folder, "src", "static.c")])
    with open(os.path.join(folder, "include", "mimalloc.h"), encoding="utf-8") as file:
        number = int(re.search(r"define MI_MALLOC_VERSION\s+(\d+)", file.read()).group(1))
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def build_snmalloc(source, target, _):
    upstream, folder = os.path.join(source, "upstream"), os.path.join(source, "hakmem-build")
    run_quietly(["cmake", "-S", upstream, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF"])
    run_quietly(["cmake", "--build", folder, "--parallel", "--target", "snmallocshim"])
    shutil.copy(os.path.join(folder, "libsnmallocshim.so"), target)
    return crate_version(source)


def build_rpmalloc(source, target, _):
    main = next(os.path.join(folder, "rpmalloc.c") for folder, _, files in os.walk(source) if "rpmalloc.c" in files)
    compile_to(target, ["cc", *C_FLAGS, "-D_GNU_SOURCE", "-DENABLE_OVERRIDE=1", "-DENABLE_PRELOAD=1", main, "-ldl"])
    return crate_version(source).split("+")[0]


def build_jemalloc(source, target, _):
    folder = os.path.join(source, "jemalloc")
    shutil.copy(os.path.join(source, "configure", "configure"), folder)
    os.chmod(os.path.join(folder, "configure"), 0o755)
    version = re.search(r"\+(\d+\.\d+\.\d+)", crate_version(source)).group(1)
    run_quietly(["./configure", f"--with-version={version}-0-g0", "--disable-cxx", "--disable-doc", "--disable-static"],
                cwd=folder)
    run_quietly(["make", f"-j{os.cpu_count()}", "build_lib_shared"], cwd=folder)
    shutil.copy(os.path.join(folder, "lib", "libjemalloc.so.2"), target)
    return version


def exports_check(path):
    """A shared object that exports malloc and not free runs, and leaks: its figures would be worthless."""
    names = set(re.findall(r" [TWi] (\w+)$", output_of(["nm", "-D", path]), re.M))
    missing = {"malloc", "free", "calloc", "realloc", "posix_memalign", "malloc_usable_size"} - names
    if missing:
        raise RuntimeError("it does not export " + ", ".join(sorted(missing)))


def crate_version(source):
    with open(os.path.join(source, "Cargo.toml"), encoding="utf-8") as file:
        return re.search(r'^version = "([^"]+)"', file.read(), re.M).group(1)


# name, crate, builder, what the builder is told
NEWEST = [
    ("mimalloc3", "libmimalloc-sys", build_mimalloc, "v3"),
    ("mimalloc2", "libmimalloc-sys", build_mimalloc, "v2"),
    ("jemalloc5", "tikv-jemalloc-sys", build_jemalloc, None),
    ("snmalloc", "snmalloc-sys", build_snmalloc, None),
    ("rpmalloc", "rpmalloc-sys", build_rpmalloc, None),
]


def build_newest(only=None, say=print):
    if not shutil.which("cargo"):
        raise SystemExit("peers.py: cargo is needed to fetch the newest peers (Debian: apt install cargo)")
    wanted = [row for row in NEWEST if not only or row[0] in only]
    os.makedirs(BUILT, exist_ok=True)
    kept = {peer.name: peer for peer in built_peers()}
    with tempfile.TemporaryDirectory(prefix="hakmem-peers-") as folder:
        crates = sorted({row[1] for row in wanted})
        with open(os.path.join(folder, "Cargo.toml"), "w", encoding="utf-8") as file:
            file.write('[package]\nname = "peers"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
                       "[dependencies]\n" + "".join(f'{crate} = "*"\n' for crate in crates))
        open(os.path.join(folder, "lib.rs"), "w", encoding="utf-8").close()
        done = subprocess.run(["cargo", "vendor", "sources"], cwd=folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit("peers.py: cargo vendor failed: " + done.stderr.strip().splitlines()[-1])
        for name, crate, build, detail in wanted:
            target = os.path.join(BUILT, f"lib{name}.so")
            say(f"building {name} ...", flush=True)
            try:
                version = build(os.path.join(folder, "sources", crate), target, detail)
                exports_check(target)
                kept[name] = Peer(name, target, version, f"crate {crate}, built here")
            except (RuntimeError, OSError, StopIteration, AttributeError) as error:
                say(f"  {name} was not built: {error}")
                kept.pop(name, None)
    with open(os.path.join(BUILT, "peers.json"), "w", encoding="utf-8") as file:
        json.dump([peer.describe() for peer in kept.values()], file, indent=1)


def main():
    parser = argparse.ArgumentParser(description="list the other allocators, or build the newest ones")
    parser.add_argument("--build-newest", action="store_true", help="build the newest ones into build/peers")
    parser.add_argument("--only", action="append", metavar="NAME", help="build only this one (may be repeated)")
    arguments = parser.parse_args()
    unknown = set(arguments.only or []) - {row[0] for row in NEWEST}
    if unknown:
        raise SystemExit(f"peers.py: no such peer: {', '.join(sorted(unknown))}; there are "
                         + ", ".join(row[0] for row in NEWEST))
    if arguments.build_newest:
        build_newest(arguments.only)
    for peer in all_peers():
        print(f"{peer.name:<10} {peer.version:<44} {peer.path or '-'}  ({peer.source})")


if __name__ == "__main__":
    sys.exit(main())
