"""runner.py - run one program under one allocator after another, fairly, and prove which one it was.

Owns:      build/bench (compiled workloads), the variants, one run, interleaved rounds, medians.
Invariant: a result whose allocator was not mapped in the process is an error, never a number.
Method:    A B C A B C; medians with the smallest and largest; ratios pair by pair within a round.
"""
import atexit
import contextlib
import glob
import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import peers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = os.path.join(ROOT, "bench")
BINARIES = os.path.join(ROOT, "build", "bench")
CC_FLAGS = ["-O2", "-g", "-std=gnu11", "-fno-builtin", "-fno-plt", "-Wl,-z,now", "-pthread"]


class BenchError(Exception):
    """A measurement that could not be made; its text says why."""


def median(values):
    return statistics.median(values)


def median_and_spread(values, digits=1):
    """'12.3 (11.9-13.0)', or the number alone when it did not vary."""
    middle, low, high = (f"{value:,.{digits}f}" for value in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low}-{high})"


def pair_ratio(ours, theirs):
    return median([a / b for a, b in zip(ours, theirs)])


def file_sha(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def workloads_build():
    """Compiles what is older than its source. The compiler's line is the same for every workload."""
    try:
        os.makedirs(BINARIES, exist_ok=True)
    except OSError as error:
        raise BenchError(f"the workloads cannot be built: {error}") from None
    header = os.path.join(BENCH, "workloads", "work.h")
    sources = sorted(glob.glob(os.path.join(BENCH, "workloads", "*.c"))) + [os.path.join(BENCH, "launch.c")]
    for source in sources:
        target = os.path.join(BINARIES, os.path.basename(source)[:-2])
        newest = max(os.path.getmtime(source), os.path.getmtime(header))
        if os.path.exists(target) and os.path.getmtime(target) > newest:
            continue
        try:
            done = subprocess.run([*shlex.split(os.environ.get("CC", "cc")), *CC_FLAGS, source, "-o", target], stderr=subprocess.PIPE,
                                  text=True, check=False)
        except OSError as error:
            raise BenchError(f"the compiler does not run: {error}") from None
        if done.returncode:
            said = done.stderr.strip() or f"status {done.returncode}"
            raise BenchError(f"{source} does not compile: {said.splitlines()[0]}")


def environment_clean():
    """The same small environment for every run: nothing that speaks to an allocator or a loader."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}


def program_find(name):
    """The system's own program: not a version manager's shell script, which would be what we measure."""
    for folder in ("/usr/bin", "/bin", "/usr/local/bin"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    path = shutil.which(name)
    if not path:
        raise BenchError(f"{name} is not installed")
    return path


class Stand:
    """What is measured: HAKMEM and its peers, each a preloaded shared object or none."""

    def __init__(self, library, with_peers=True, say=print):
        self.original = os.path.abspath(library)
        self.say = say
        self.may_set_overcommit = False
        found = peers.all_peers() if with_peers else [peers.glibc_peer()]
        self.peers = {peer.name: peer for peer in found}
        self.environments = {peer.path: peer.environment for peer in found}
        self.scratch = tempfile.mkdtemp(prefix="hakmem-bench-")
        atexit.register(self.close)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was changed is put back
        self.library = os.path.join(self.scratch, "libhakmem.so") # a copy: a build may go on while we measure
        if os.path.exists(self.original):
            shutil.copyfile(self.original, self.library)
        workloads_build()

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def has_library(self):
        return os.path.exists(self.library)

    def variants(self, names=None):
        """Name -> preload path, HAKMEM first; `names` restricts the peers."""
        chosen = {"hakmem": self.library} if self.has_library() else {}
        chosen.update({name: peer.path for name, peer in self.peers.items() if names is None or name in names})
        return chosen

    def library_sha(self):
        return file_sha(self.library)

    def library_changed(self):
        return not os.path.exists(self.original) or file_sha(self.original) != self.library_sha()

    # --- one run ---------------------------------------------------------------------------------

    def start(self, preload, argv, env=None, launch_flags=(), cwd=None, stdin=None):
        """Starts a program under `preload`; finish() has its result. The preload reaches only the program."""
        result = tempfile.NamedTemporaryFile(dir=self.scratch, delete=False).name
        command = [os.path.join(BINARIES, "launch"), result]
        wanted = self.environments.get(preload, {}) # what the peer itself needs
        for name, value in {**wanted, **(env or {}), **({"LD_PRELOAD": preload} if preload else {})}.items():
            command += ["-e", f"{name}={value}"]
        process = subprocess.Popen(command + list(launch_flags) + list(argv), env=environment_clean(), cwd=cwd,
                                   stdin=stdin or subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return process, result, preload, argv

    def finish(self, started, timeout_s=600, status=0):
        process, result, preload, argv = started
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a child of it may hold the pipes
                process.communicate(timeout=5)
            raise BenchError(f"{argv[0]} was not done after {timeout_s} s") from None
        out, err = out.decode(errors="replace"), err.decode(errors="replace")
        if process.returncode:
            raise BenchError(f"{argv[0]} could not be started: {err.strip()}")
        with open(result, encoding="utf-8") as file:
            cost = json.loads(file.read())
        os.unlink(result)
        if preload and "cannot be preloaded" in err:
            raise BenchError(f"{os.path.basename(preload)} was not loaded: {err.strip().splitlines()[0]}")
        if cost["status"] != status:
            last = (err.strip() or "nothing said").splitlines()[-1]
            raise BenchError(f"{os.path.basename(argv[0])} ended with status {cost['status']}: {last}")
        return {**cost, "out": out, "err": err}

    def run(self, preload, argv, timeout_s=600, status=0, **options):
        return self.finish(self.start(preload, argv, **options), timeout_s, status)

    def work_start(self, preload, name, *arguments, **options):
        return self.start(preload, [os.path.join(BINARIES, name), *map(str, arguments)], **options)

    def work_finish(self, started, timeout_s=600):
        done, preload = self.finish(started, timeout_s), started[2]
        line = json.loads(done["out"])
        objects = line.pop("objects")
        if preload and os.path.realpath(preload) not in [os.path.realpath(path) for path in objects]:
            raise BenchError(f"{os.path.basename(preload)} is not mapped in the process")
        return {**line, "all_wall_ns": done["wall_ns"], "all_peak_kb": done["peak_kb"]}

    def work(self, preload, name, *arguments, timeout_s=600, **options):
        """One run of a workload: its JSON line, proof of the allocator checked."""
        return self.work_finish(self.work_start(preload, name, *arguments, **options), timeout_s)

    # --- many runs -------------------------------------------------------------------------------

    def interleaved(self, variants, rounds, one):
        """{variant: [one(preload), ...]}, A B C A B C. A peer that fails is left out, and said; we are not."""
        results = {name: [] for name in variants}
        for _ in range(rounds):
            for name, preload in variants.items():
                if results[name] is None:
                    continue
                try:
                    results[name].append(one(preload))
                except (BenchError, ValueError) as error:
                    if name == "hakmem":
                        raise
                    self.say(f"    {name} is left out: {error}")
                    results[name] = None
        return {name: values for name, values in results.items() if values}

    def side_by_side(self, variants, at_once, name, *arguments):
        """One run each, `at_once` of them at a time: for rows that mostly sleep and where only memory counts."""
        results, waiting, running = {}, list(variants.items()), []
        while waiting or running:
            while waiting and len(running) < at_once:
                variant, preload = waiting.pop(0)
                running.append((variant, self.work_start(preload, name, *arguments)))
            variant, started = running.pop(0)
            try:
                results[variant] = self.work_finish(started)
            except (BenchError, ValueError) as error:
                if variant == "hakmem":
                    raise
                self.say(f"    {variant} is left out: {error}")
        return results


# --- the machine ------------------------------------------------------------------------------------

def machine():
    """What a reader needs to know of this machine."""
    def field(path, key):
        try:
            with open(path, encoding="utf-8") as file:
                return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "unknown")
        except OSError:
            return "unknown"
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="utf-8") as file:
            huge = file.read().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        huge = "unknown"
    system = "unknown"
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            system = next(line.split("=", 1)[1].strip().strip('"') for line in file if line.startswith("PRETTY_NAME"))
    except (OSError, StopIteration):
        pass
    return {"processor": field("/proc/cpuinfo", "model name"), "processors": os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
            "kernel": platform.release(), "system": system, "architecture": platform.machine(),
            "huge_pages": huge}
