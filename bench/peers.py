#!/usr/bin/env python3
"""peers.py - the other allocators: find those that are installed, build the newest.

Owns:      the list of peers (name, shared object, version, where it comes from, what it needs in its environment).
Never:     copies a peer's source into the project. Sources come from the crates registry by `cargo vendor`
           into a temporary folder; only the shared objects and peers.json are kept, in build/peers.
Prove:     a peer that was named but is not mapped in the process under test is an error (the runner's).
Failing:   a peer that cannot be built says so in one line; the others are built, its older build stays.

Usage: peers.py [--json]                         list the peers at hand, and how to get the missing ones
       peers.py --build-newest [--only NAME]...  build the newest ones first; installs what Debian has for it

peers.json is a list of {name, version, source, path, sha256, options, mode, environment}: `options` what it was
compiled with, `mode` how it runs here where that differs, `environment` what the runner has to set for it.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILT = os.path.join(ROOT, "build", "peers")
LIBRARY_FOLDERS = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"]

# name, Debian package, shared object; a second row is what Debian 13 has instead
INSTALLED = [
    ("jemalloc", "libjemalloc2", "libjemalloc.so.2"),
    ("mimalloc", "libmimalloc2.0", "libmimalloc.so.2.0"),
    ("mimalloc", "libmimalloc3", "libmimalloc.so.3"),
    ("gperftools", "libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    ("gperftools", "libtcmalloc-minimal4t64", "libtcmalloc_minimal.so.4"),
    ("tbbmalloc", "libtbbmalloc2", "libtbbmalloc_proxy.so.2"),
]
SCUDO = "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-*.so"

# What building takes: command, Debian package.
TOOLS = [("cargo", "cargo"), ("cc", "gcc"), ("c++", "g++"), ("make", "make"), ("cmake", "cmake"), ("nm", "binutils")]

C_FLAGS = ["-O3", "-DNDEBUG", "-fPIC", "-shared", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-pthread", "-w"]
CXX_FLAGS = ["-O2", "-DNDEBUG", "-fPIC", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-pthread", "-w"]
# libstdc++ inside: a C program under this peer should not load (and be charged for) a library of its own.
CXX_LINK = ["-shared", "-pthread", "-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections"]
EXPORTS = ("malloc calloc realloc free cfree memalign aligned_alloc posix_memalign valloc pvalloc malloc_usable_size "
           "malloc_size reallocarray mallinfo mallinfo2 malloc_stats malloc_info mallopt malloc_trim free_sized "
           "free_aligned_sized nallocx sdallocx _Zn* _Zd* tc_* MallocExtension_Internal_*")


class Peer:
    """One allocator: `path` is None for the C library's own."""

    def __init__(self, name, path, version, source, options="", mode="", environment=None):
        self.name, self.path, self.version, self.source = name, path, version, source
        self.options, self.mode, self.environment = options, mode, environment or {}

    def describe(self):
        kept = {"name": self.name, "version": self.version, "source": self.source, "path": self.path}
        if self.path:
            kept["sha256"] = file_sha256(self.path)
        for key in ("options", "mode", "environment"):
            if getattr(self, key):
                kept[key] = getattr(self, key)
        return kept


def file_sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def output_of(command, **options):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
                              **options).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def package_version(package):
    return output_of(["dpkg-query", "-W", "-f", "${Version}", package]) or "unknown"


def glibc_peer():
    version = output_of(["getconf", "GNU_LIBC_VERSION"]).replace("glibc ", "") or "unknown"
    return Peer("glibc", None, version, "the system's C library")


def scudo_peer():
    """LLVM's, the newest of those that came with a clang of this machine's architecture."""
    found = [path for path in glob.glob(SCUDO) if path.endswith(f"-{os.uname().machine}.so")]
    if not found:
        return None
    path = max(found, key=lambda one: [int(number) for number in re.findall(r"\d+", one.split("/clang/")[1])[:3]])
    version = path.split("/clang/")[1].split("/")[0]
    owner = output_of(["dpkg-query", "-S", path]).split(":")[0] or "LLVM"
    return Peer("scudo", path, version, "Debian " + owner)


def installed_peers():
    found = {}
    for name, package, file_name in INSTALLED:
        for folder in LIBRARY_FOLDERS:
            path = os.path.join(folder, file_name)
            if os.path.exists(path) and (name not in found or found[name].version == "unknown"):
                found[name] = Peer(name, path, package_version(package), "Debian " + package)
                break
    scudo = scudo_peer()
    return [*found.values()] + ([scudo] if scudo else [])


def packages_absent(here):
    """{name: package} of those that are not here: the package that this release has, as far as apt's lists say."""
    absent = {}
    for name, package, _ in INSTALLED:
        is_first = name not in here and name not in absent
        if is_first or name in absent and not output_of(["apt-cache", "show", absent[name]]) and output_of(["apt-cache", "show", package]):
            absent[name] = package
    return absent


def built_peers():
    """Those that build_newest has left in build/peers, newest versions from the crates registry."""
    listing = os.path.join(BUILT, "peers.json")
    if not os.path.exists(listing):
        return []
    with open(listing, encoding="utf-8") as file:
        rows = json.load(file)
    found = []
    for row in rows:
        path = os.path.join(BUILT, os.path.basename(row["path"])) # the folder may have been moved
        if os.path.exists(path):
            found.append(Peer(row["name"], path, row["version"], row["source"], row.get("options", ""),
                              row.get("mode", ""), row.get("environment")))
    return found


def all_peers(with_built=True):
    """glibc first. A newest build stands beside Debian's of the same name under a name of its own."""
    return [glibc_peer()] + installed_peers() + (built_peers() if with_built else [])


def missing_peers():
    """[(name, how to get it)]"""
    here = {peer.name for peer in all_peers()}
    missing = [(name, "apt-get install " + package) for name, package in packages_absent(here).items()]
    missing += [("scudo", "apt-get install libclang-rt-dev")] if "scudo" not in here else []
    return missing + [(row[0], f"bench/peers.py --build-newest --only {row[0]}") for row in NEWEST
                      if row[0] not in here]


# --- building: tools ------------------------------------------------------------------------------

class BuildError(Exception):
    """A peer that cannot be built; its text says why in one line."""


def run_quietly(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", check=False, **options)
    if done.returncode:
        lines = [line.strip() for line in done.stdout.strip().splitlines() if line.strip()] or ["nothing said"]
        told = next((line for line in lines if re.search(r"\berror\b", line)), lines[-1])
        raise BuildError(f"{os.path.basename(command[0])}: {told[:200]}")


def packages_install(packages, say):
    """True when they are there afterwards. Asks no question; otherwise says the one command to run."""
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if not shutil.which("apt-get"):
        say("not here: " + " ".join(packages) + " (and there is no apt-get to install them)", flush=True)
        return False
    if os.geteuid():
        if subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode if shutil.which("sudo") else True:
            say("not here; run: sudo apt-get install --no-install-recommends " + " ".join(packages), flush=True)
            return False
        command = ["sudo", "-n", *command]
    say("installing " + " ".join(packages) + " ...", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for one in (command[:command.index("install")] + ["update", "-qq"], command):
        done = subprocess.run(one, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, env=environment, check=False)
    if done.returncode:
        say("  apt-get failed: " + (done.stderr.strip().splitlines() or ["nothing said"])[-1], flush=True)
    return done.returncode == 0


def tools_find(say):
    missing = [package for command, package in TOOLS if not shutil.which(command)]
    if not os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
        missing.append("ca-certificates")
    here = {peer.name for peer in installed_peers()}
    wanted = [*packages_absent(here).values()]
    if missing and not packages_install(missing, say):
        return False
    if wanted:
        packages_install(wanted, say) # Debian's peers: good to have, no reason to stop
    return True


class Sources:
    """The crates' sources, each fetched once into the temporary folder."""

    def __init__(self, folder):
        self.folder, self.fetched = folder, {}

    def get(self, crate):
        if crate not in self.fetched:
            folder = os.path.join(self.folder, crate)
            os.makedirs(folder)
            with open(os.path.join(folder, "Cargo.toml"), "w", encoding="utf-8") as file:
                file.write('[package]\nname = "peers"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n'
                           f'[dependencies]\n{crate} = "*"\n')
            open(os.path.join(folder, "lib.rs"), "w", encoding="utf-8").close()
            run_quietly(["cargo", "vendor", "sources"], cwd=folder)
            self.fetched[crate] = os.path.join(folder, "sources", crate)
        return self.fetched[crate]


def crate_version(source):
    with open(os.path.join(source, "Cargo.toml"), encoding="utf-8") as file:
        return re.search(r'^version = "([^"]+)"', file.read(), re.M).group(1)


def compile_to(target, command):
    run_quietly(command + ["-o", target])


def compile_objects(folder, jobs, say):
    """jobs: [(object name, command without -o)]. All processors; the first error ends it."""
    os.makedirs(folder, exist_ok=True)
    objects, done, said = [os.path.join(folder, name) for name, _ in jobs], 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        waiting = [pool.submit(compile_to, path, command) for path, (_, command) in zip(objects, jobs)]
        try:
            for one in concurrent.futures.as_completed(waiting):
                one.result()
                done += 1
                if done * 4 // len(jobs) > said:
                    said = done * 4 // len(jobs)
                    say(f"  {done} of {len(jobs)} files", flush=True)
        except BaseException:
            for one in waiting:
                one.cancel()
            raise
    return objects


def export_map(folder):
    path = os.path.join(folder, "exports.map")
    with open(path, "w", encoding="utf-8") as file:
        file.write("{ global: " + " ".join(name + ";" for name in EXPORTS.split()) + " local: *; };\n")
    return "-Wl,--version-script=" + path


# --- building: one function a peer. Each gets (source folder, target, what NEWEST says, say), returns a Peer's fields

def build_mimalloc(source, target, generation, say):
    folder = os.path.join(source, "c_src", "mimalloc", generation)
    flags = [*C_FLAGS, "-fvisibility=hidden", "-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT"]
    compile_to(target, ["cc", *flags, "-I", os.path.join(folder, "include"), os.path.join(folder, "src", "static.c")])
    with open(os.path.join(folder, "include", "mimalloc.h"), encoding="utf-8") as file:
        number = int(re.search(r"define MI_MALLOC_VERSION\s+(\d+)", file.read()).group(1))
    return {"version": f"{number // 10000}.{number // 100 % 100}.{number % 100}", "options": " ".join(flags)}


def build_snmalloc(source, target, _, say):
    upstream, folder = os.path.join(source, "upstream"), os.path.join(source, "hakmem-build")
    flags = ["-DCMAKE_BUILD_TYPE=Release", "-DSNMALLOC_BUILD_TESTING=OFF"]
    run_quietly(["cmake", "-S", upstream, "-B", folder, *flags])
    run_quietly(["cmake", "--build", folder, "--parallel", str(os.cpu_count()), "--target", "snmallocshim"])
    shutil.copy(os.path.join(folder, "libsnmallocshim.so"), target)
    return {"version": crate_version(source), "options": "cmake " + " ".join(flags) + ", target snmallocshim"}


def build_rpmalloc(source, target, _, say):
    main = next(os.path.join(folder, "rpmalloc.c") for folder, _, files in os.walk(source) if "rpmalloc.c" in files)
    flags = [*C_FLAGS, "-D_GNU_SOURCE", "-DENABLE_OVERRIDE=1", "-DENABLE_PRELOAD=1"]
    compile_to(target, ["cc", *flags, main, "-ldl"])
    version, changes = crate_version(source), os.path.join(os.path.dirname(os.path.dirname(main)), "CHANGELOG")
    if os.path.exists(changes): # the crate numbers itself; its sources say which rpmalloc they are
        with open(changes, encoding="utf-8", errors="replace") as file:
            first = file.readline().strip()
        version = f"{first} (crate {version})" if re.fullmatch(r"\d+(\.\d+)+", first) else version
    return {"version": version, "options": " ".join(flags)}


def build_jemalloc(source, target, _, say):
    folder = os.path.join(source, "jemalloc")
    shutil.copy(os.path.join(source, "configure", "configure"), folder)
    os.chmod(os.path.join(folder, "configure"), 0o755)
    version = re.search(r"\+(\d+\.\d+\.\d+)", crate_version(source)).group(1)
    flags = ["--disable-cxx", "--disable-doc", "--disable-static"]
    run_quietly(["./configure", f"--with-version={version}-0-g0", *flags], cwd=folder)
    run_quietly(["make", f"-j{os.cpu_count()}", "build_lib_shared"], cwd=folder)
    shutil.copy(os.path.join(folder, "lib", "libjemalloc.so.2"), target)
    return {"version": version, "options": "configure " + " ".join(flags)}


def build_tcmalloc(source, target, _, say):
    """Google's. The crate compiles it for Rust, without the malloc family: the same files, with the family."""
    with open(os.path.join(source, "build.rs"), encoding="utf-8") as file:
        names = re.findall(r'"(c_src/[^"]+\.(?:cc|S))"', file.read())
    names = [name for name in names if "_bridge.cc" not in name] + ["c_src/tcmalloc/tcmalloc/tcmalloc.cc"]
    if len(names) < 50:
        raise BuildError("the crate's build.rs does not list the sources as it did")
    flags = ["-std=c++17", *CXX_FLAGS, "-ffunction-sections", "-fdata-sections", "-DTCMALLOC_INTERNAL_8K_PAGES"]
    include = ["-I" + os.path.join(source, "c_src", name) for name in ("abseil-cpp", "tcmalloc")]
    objects = compile_objects(os.path.join(source, "hakmem-build"), [
        (name.replace("/", "_") + ".o", ["c++", *flags, *include, "-c", os.path.join(source, name)]) for name in names
    ], say)
    compile_to(target, ["c++", *CXX_LINK, export_map(source), *objects])
    fields = {"version": "crate " + crate_version(source), "options": " ".join(flags)}
    return {**fields, **tcmalloc_mode(target)}


TCMALLOC_PROBE = """
import ctypes
active = ctypes.CDLL(None).MallocExtension_Internal_GetPerCpuCachesActive
active.restype = ctypes.c_bool
print(active())
"""


def tcmalloc_mode(library):
    """Per-CPU caches need a restartable sequence of their own; glibc registers its one first, unless told not to."""
    for environment in ({}, {"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}):
        if output_of([sys.executable, "-c", TCMALLOC_PROBE],
                     env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": library, **environment}) == "True":
            return {"mode": "per-CPU caches (rseq)", "environment": environment}
    return {"mode": "per-thread caches: this system has no restartable sequences for it"}


def build_hardened(source, target, config, say):
    """GrapheneOS's, with its own util.c instead of the crate's, and its C++ operators."""
    folder = os.path.join(source, "vendor", "hardened-malloc")
    with open(os.path.join(source, f"config-{config}.conf"), encoding="utf-8") as file:
        settings = [line.strip() for line in file if re.match(r"\w+=", line)]
    flags = ["-O3", "-fPIC", "-fvisibility=hidden", "-fno-plt", "-pthread", "-w", "-D_GNU_SOURCE",
             *("-D" + setting for setting in settings)]
    include = ["-I" + folder, "-I" + os.path.join(folder, "include"), "-I" + os.path.join(folder, "third_party")]
    objects = compile_objects(os.path.join(source, "hakmem-build"), [
        (name + ".o", [*(["c++", "-std=c++17"] if name.endswith(".cc") else ["cc", "-std=c2x", "-include", "stdalign.h"]),
                       *flags, *include, "-c", os.path.join(folder, name)])
        for name in ("chacha.c", "h_malloc.c", "memory.c", "pages.c", "random.c", "util.c", "new.cc")], say)
    compile_to(target, ["c++", *CXX_LINK, *objects])
    return {"version": crate_version(source), "options": " ".join(flags)}


def exports_check(path):
    """A shared object that exports malloc and not free runs, and leaks: its figures would be worthless."""
    names = {name.split("@")[0] for name in re.findall(r" [TWi] (\S+)$", output_of(["nm", "-D", path]), re.M)}
    missing = {"malloc", "free", "calloc", "realloc", "posix_memalign", "malloc_usable_size"} - names
    if missing:
        raise BuildError("it does not export " + ", ".join(sorted(missing)))


def runs_check(path, environment):
    """It has to carry a small program before anybody times it."""
    done = subprocess.run(["/bin/sh", "-c", "exec sort </etc/passwd >/dev/null"], stdin=subprocess.DEVNULL, timeout=60,
                          env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": path, **environment}, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode or "cannot be preloaded" in done.stderr:
        raise BuildError(f"built, but sort ends with status {done.returncode} under it: "
                         + (done.stderr.strip().splitlines() or ["nothing said"])[-1])


# name, crate, builder, what the builder is told
NEWEST = [
    ("mimalloc3", "libmimalloc-sys", build_mimalloc, "v3"),
    ("mimalloc2", "libmimalloc-sys", build_mimalloc, "v2"),
    ("jemalloc5", "tikv-jemalloc-sys", build_jemalloc, None),
    ("snmalloc", "snmalloc-sys", build_snmalloc, None),
    ("rpmalloc", "rpmalloc-sys", build_rpmalloc, None),
    ("tcmalloc-google", "libtcmalloc-sys", build_tcmalloc, None),
    ("hardened-light", "hardened-malloc-sys", build_hardened, "light"),
    ("hardened", "hardened-malloc-sys", build_hardened, "default"),
]


def listing_write(kept):
    order = [row[0] for row in NEWEST]
    rows = [kept[name].describe() for name in sorted(kept, key=lambda name: order.index(name) if name in order else 99)]
    part = os.path.join(BUILT, "peers.json.part")
    with open(part, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
    os.replace(part, os.path.join(BUILT, "peers.json"))


def build_one(sources, name, crate, build, detail, say):
    source, target = sources.get(crate), os.path.join(BUILT, f"lib{name}.so")
    part = target + ".part" # a run may be using the older one
    try:
        fields = build(source, part, detail, say)
        exports_check(part)
        runs_check(part, fields.get("environment", {}))
        os.replace(part, target)
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return Peer(name, target, source=f"crate {crate}, built here", **fields)


def build_newest(only=None, say=print):
    """True when all that were asked for are there."""
    if not tools_find(say):
        return False
    wanted = [row for row in NEWEST if not only or row[0] in only]
    os.makedirs(BUILT, exist_ok=True)
    kept, failed = {peer.name: peer for peer in built_peers()}, 0
    with tempfile.TemporaryDirectory(prefix="hakmem-peers-") as folder:
        sources = Sources(folder)
        for number, (name, crate, build, detail) in enumerate(wanted, 1):
            say(f"building {name} ({number} of {len(wanted)}) ...", flush=True)
            began = time.monotonic()
            try:
                kept[name] = build_one(sources, name, crate, build, detail, say)
                listing_write(kept)
                say(f"  {kept[name].version}, {time.monotonic() - began:.0f} s", flush=True)
            except (BuildError, OSError, StopIteration, AttributeError, subprocess.SubprocessError) as error:
                failed += 1
                say(f"  {name} was not built: {error or type(error).__name__}", flush=True)
    listing_write(kept)
    return not failed


def main():
    parser = argparse.ArgumentParser(description="list the other allocators, or build the newest ones")
    parser.add_argument("--build-newest", action="store_true", help="build the newest ones into build/peers")
    parser.add_argument("--only", action="append", metavar="NAME", help="build only this one (may be repeated)")
    parser.add_argument("--json", action="store_true", help="the list as JSON")
    arguments = parser.parse_args()
    unknown = set(arguments.only or []) - {row[0] for row in NEWEST}
    if unknown:
        raise SystemExit(f"peers.py: no such peer: {', '.join(sorted(unknown))}; there are "
                         + ", ".join(row[0] for row in NEWEST))
    fine = True
    if arguments.build_newest:
        say = (lambda text, **options: print(text, file=sys.stderr, **options)) if arguments.json else print
        fine = build_newest(arguments.only, say)
    if arguments.json:
        print(json.dumps({"peers": [peer.describe() for peer in all_peers()],
                          "missing": [{"name": name, "how": how} for name, how in missing_peers()]}, indent=1))
        return 0 if fine else 1
    for peer in all_peers():
        mode = f"; {peer.mode}" if peer.mode else ""
        print(f"{peer.name:<15} {peer.version:<30} {peer.path or '-'}  ({peer.source}{mode})")
    for name, how in missing_peers():
        print(f"{name:<15} {'not here':<30} {how}")
    return 0 if fine else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        raise SystemExit("\npeers.py: interrupted") from None
