"""_real.py - what the drivers of real programs share: inputs, one run, the proof of the allocator, one JSON line.

Owns:      the cache folder (inputs, expected answers), one scratch folder a run.
Interface: bench/real/NAME PIECE SCALE, started without a preload; HAKMEM_BENCH_PRELOAD=PATH (or empty) says what the
           program gets. One JSON line and 0; one line on standard error and 1 (a wrong answer, an allocator that was
           not there), 2 (a bad argument) or 77 (the program is not installed). NAME --version: the program's version.
Invariant: inputs are the same on every machine (fixed seeds, no clock, no locale) and are made once, in the cache. The
           answer must be the one that the program gives without any preload, asked for once and kept in the cache.
Measured:  wall and CPU time from just before exec to the end, children included (launch.c: a tiny process starts the
           program, wait4 tells). peak_kb is the largest of the processes' own high-water marks (VmHWM), not their sum.
           resident_kb, where a driver has it: after the work, everything given back.
No debris: all that is started dies with its starter (PR_SET_PDEATHSIG), and what is left of it is killed at the end.
"""
import atexit
import ctypes
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
ROOT = os.path.dirname(BENCH)
SEED = 12345
SKIP = 77
PASSED_ON = ("HAKMEM_", "MIMALLOC_", "MALLOC_", "JE_", "TCMALLOC_", "SCUDO_", "RPMALLOC_", "WASTE_", "GLIBC_TUNABLES",
             "TBB_MALLOC_")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STARTER = os.getpid()
libc = ctypes.CDLL(None)


class Stop(Exception):
    """Ends the driver: one line and a status."""

    def __init__(self, text, status=1):
        super().__init__(text)
        self.status = status


def skip(text):
    return Stop(text, SKIP)


# --- places ---------------------------------------------------------------------------------------

def cache_folder():
    """Never in the source tree but for its build folder."""
    told = os.environ.get("HAKMEM_BENCH_CACHE")
    if told:
        return told
    if os.path.exists(os.path.join(ROOT, "CMakeLists.txt")) and os.access(ROOT, os.W_OK):
        return os.path.join(ROOT, "build", "bench-real")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "hakmem-bench")


def program(name, package=None):
    """The system's own program: not a version manager's script, which would be what we measure."""
    for folder in ("/usr/bin", "/bin", "/usr/local/bin"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    path = shutil.which(name)
    if not path:
        raise skip(f"{name} is not installed (Debian: apt-get install {package or name})")
    return path


def version_of(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False)
    return (done.stdout.strip().splitlines() or ["unknown"])[0]


def built(name, source, command):
    """A small helper of ours, compiled into the cache when its source is newer or another."""
    with open(source, "rb") as file:
        tag = hashlib.sha256(file.read() + " ".join(command).encode()).hexdigest()[:12]
    path = os.path.join(cache_folder(), f"{name}-{tag}")
    if not os.path.exists(path):
        compiler = os.environ.get("CC") or shutil.which("cc")
        if not compiler:
            raise skip("no C compiler for bench/real/witness.c (Debian: apt-get install gcc libc6-dev)")
        os.makedirs(cache_folder(), exist_ok=True)
        part = f"{path}.{os.getpid()}"
        done = subprocess.run([compiler, *command, source, "-o", part], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        if done.returncode:
            raise Stop(f"{source} does not compile: {(done.stdout.splitlines() or ['nothing said'])[0]}")
        os.replace(part, path)
    return path


def launcher():
    return built("launch", os.path.join(BENCH, "launch.c"), ["-O2"])


def witness():
    return built("witness.so", os.path.join(HERE, "witness.c"), ["-O2", "-fPIC", "-shared"])


# --- inputs ---------------------------------------------------------------------------------------

class Words:
    """Random words and numbers, the same on every machine: only random() of a seeded generator is used."""

    def __init__(self, seed=SEED):
        self.random = random.Random(seed).random
        self.vocabulary = ["".join("etaoinshrdlucmfwypvbgkjqxz"[int(26 * self.random() ** 2)]
                                   for _ in range(2 + self.below(9))) for _ in range(4000)]

    def below(self, bound):
        return int(self.random() * bound)

    def word(self):
        return self.vocabulary[int(len(self.vocabulary) * self.random() ** 3)]

    def sentence(self, count):
        return " ".join(self.word() for _ in range(count))


def prepared(name, make, version=1):
    """Path of an input: `make(path)` writes the file (or fills the folder) once; the name is final when it is whole."""
    folder = os.path.join(cache_folder(), "inputs")
    path = os.path.join(folder, f"{name}.v{version}")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        part = f"{path}.{os.getpid()}.part"
        try:
            make(part)
            os.rename(part, path)
        except OSError:
            if not os.path.exists(path): # another run was first
                raise
        finally:
            if os.path.isdir(part):
                shutil.rmtree(part, ignore_errors=True)
            elif os.path.exists(part):
                os.unlink(part)
    return path


def written(name, text, version=1):
    """An input that is text; `text()` makes it."""
    def make(path):
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text())
    return prepared(name, make, version)


# --- one run --------------------------------------------------------------------------------------

def environment_clean(more=None):
    """The same small environment for every run, and what speaks to an allocator."""
    kept = {name: value for name, value in os.environ.items()
            if name.startswith(PASSED_ON) and not name.startswith("HAKMEM_BENCH_")}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC",
            **kept, **(more or {})}


def die_with_parent():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != STARTER: # killed before we asked
        os._exit(1)


def end_by_signal(number, frame):
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def children():
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
                found += [int(number) for number in file.read().split()]
        except OSError:
            pass
    return found


def children_end():
    """What is left of what we started: it has come to us, being their reaper."""
    for _ in range(1000):
        left = children()
        if not left:
            return
        for number in left:
            try:
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
            except OSError:
                pass


class Run:
    """What one run of the program came to."""

    def __init__(self, cost, out, witnesses):
        self.wall_ns, self.cpu_ns = cost["wall_ns"], (cost["user_us"] + cost["sys_us"]) * 1000
        self.faults, self.out, self.witnesses = cost["faults"], out, witnesses
        self.peak_kb, self.objects = 0, []


def witnesses_read(folder):
    """[(program, peak_kb, shared objects)] of the processes that ended."""
    found = []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        if len(lines) < 2 or not lines[1].startswith("VmHWM:"):
            continue
        paths = [line.split(None, 5)[5] for line in lines[2:] if line.count("/")]
        objects = list(dict.fromkeys(path for path in paths if ".so" in path and path.startswith("/")))
        found.append((lines[0].replace(" (deleted)", ""), int(lines[1].split()[1]), objects))
    return found


class Driver:
    """One driver: its pieces are functions (driver, scale) -> the numbers of the JSON line."""

    def __init__(self, name, version):
        self.name, self.version, self.pieces = name, version, {}
        self.preload = os.environ.get("HAKMEM_BENCH_PRELOAD", "")
        self.scratch = None

    def preloads(self, value=None):
        return [path for path in (self.preload if value is None else value).split(":") if path]

    def piece(self, function):
        self.pieces[function.__name__] = function
        return function

    # --- starting ---------------------------------------------------------------------------------

    def start(self, argv, env=None, stdin=None, cwd=None, preload=None, out="out"):
        """Starts a program under the allocator; finish() has its result."""
        preload = self.preload if preload is None else preload
        folder = tempfile.mkdtemp(dir=self.scratch)
        seen = os.path.join(folder, "witnesses")
        os.mkdir(seen)
        libraries = ":".join(path for path in (preload, witness()) if path)
        command = [launcher(), os.path.join(folder, "cost"), "-e", "LD_PRELOAD=" + libraries,
                   "-e", "HAKMEM_BENCH_WITNESS=" + seen, *argv]
        with open(os.path.join(folder, "out"), "wb") as output, open(os.path.join(folder, "err"), "wb") as errors, \
                open(stdin or os.devnull, "rb") as given:
            process = subprocess.Popen(command, env=environment_clean(env), cwd=cwd or self.scratch, stdin=given,
                                       stdout=output, stderr=errors, preexec_fn=die_with_parent)
        return process, folder, argv, preload

    def finish(self, started, main=None, status=0):
        """`main` is the program that matters (cc1plus): its peak counts, and it must be among the witnesses."""
        process, folder, argv, preload = started
        name = os.path.basename(argv[0])
        with open(os.path.join(folder, "err"), "rb") as file:
            done = process.wait()
            errors = file.read().decode(errors="replace").strip()
        if done:
            raise Stop(f"{name} could not be started: {errors or done}")
        with open(os.path.join(folder, "cost"), encoding="utf-8") as file:
            cost = json.load(file)
        if "cannot be preloaded" in errors:
            raise Stop("not loaded: " + errors.splitlines()[0])
        if cost["status"] != status:
            ended = f"signal {cost['status'] - 128}" if cost["status"] > 128 else f"status {cost['status']}"
            raise Stop(f"{name} ended with {ended}: {(errors or 'nothing said').splitlines()[-1][:300]}")
        result = Run(cost, os.path.join(folder, "out"), witnesses_read(os.path.join(folder, "witnesses")))
        wanted = os.path.basename(os.path.realpath(main or argv[0]))
        those = [one for one in result.witnesses if os.path.basename(one[0]) == wanted]
        if not those:
            raise Stop(f"no {wanted} ended in good order: nothing proves which allocator it had")
        for path, _, objects in result.witnesses:
            for library in self.preloads(preload):
                if os.path.realpath(library) not in objects:
                    raise Stop(f"{os.path.basename(library)} is not mapped in {os.path.basename(path)}")
        result.peak_kb = max(one[1] for one in result.witnesses)
        result.objects = those[0][2]
        return result

    def run(self, argv, main=None, status=0, **options):
        return self.finish(self.start(argv, **options), main, status)

    # --- answers ----------------------------------------------------------------------------------

    def expected(self, key, ask):
        """The digest that the program gives without a preload, asked for once for this version of it."""
        tag = hashlib.sha256(json.dumps([self.version(), key]).encode()).hexdigest()[:16]
        path = os.path.join(cache_folder(), "answers", f"{self.name}-{tag}")
        if not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            answer = ask()
            with open(f"{path}.{os.getpid()}", "w", encoding="ascii") as file:
                file.write(answer)
            os.rename(f"{path}.{os.getpid()}", path)
        with open(path, encoding="ascii") as file:
            return file.read()

    def measure(self, argv, ops, digest=None, main=None, more=None, **options):
        """The usual driver: one program, its output's digest, checked. `digest(path)` where a part is left out."""
        digest = digest or file_digest
        key = [argv, options.get("stdin"), options.get("env"), "v1"]

        def ask():
            out = self.run(argv, main=main, preload="", **options).out
            if not os.path.getsize(out):
                raise Stop(f"{os.path.basename(argv[0])} printed nothing")
            return digest(out)
        wanted = self.expected(json.dumps(key).replace(str(self.scratch), ""), ask)
        done = self.run(argv, main=main, **options)
        return self.numbers(done, ops, digest(done.out), wanted, **(more(done) if more else {}))

    def numbers(self, done, ops, check, wanted, **more):
        if check != wanted:
            raise Stop(f"another result than without the allocator: {check}, not {wanted}")
        peak_kb = max(done.peak_kb, more.get("resident_kb", 0)) # VmHWM is the kernel's estimate, smaps_rollup is exact
        return {"ops": ops, "wall_ns": done.wall_ns, "cpu_ns": done.cpu_ns, "peak_kb": peak_kb, "faults": done.faults,
                "check": check, **more, "objects": done.objects}

    # --- main -------------------------------------------------------------------------------------

    def close(self):
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN) # it is ending
        children_end()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def main(self):
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        for number in ENDING:
            signal.signal(number, end_by_signal)
        atexit.register(self.close)
        try:
            if sys.argv[1:] == ["--version"]:
                print(self.version())
                return 0
            if len(sys.argv) != 3 or sys.argv[1] not in self.pieces or not sys.argv[2].isdigit() or sys.argv[2] == "0":
                raise Stop(f"usage: {self.name} {'|'.join(self.pieces)} SCALE (a number from 1 on)", 2)
            for path in self.preloads():
                if not os.path.exists(path):
                    raise Stop(f"{path} is not there")
            version = self.version()
            self.scratch = tempfile.mkdtemp(prefix="hakmem-real-")
            numbers = self.pieces[sys.argv[1]](self, int(sys.argv[2]))
        except Stop as error:
            print(f"{self.name}: {error}", file=sys.stderr)
            return error.status
        except OSError as error: # a cache that cannot be written, a full disk
            print(f"{self.name}: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
            return 1
        print(json.dumps({"workload": self.name, "args": [sys.argv[1], int(sys.argv[2])], "seed": SEED,
                          "version": version, **numbers}))
        return 0


def file_digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]


def rollup_kb(text):
    """The resident memory that a program read of itself (smaps_rollup), from its output; and the output without it."""
    kept, resident = [], None
    for line in text.splitlines():
        fields = line.split()
        if fields and (fields[0].endswith(":") and fields[-1] == "kB" or fields[-1] == "[rollup]"):
            resident = int(fields[1]) if fields[0] == "Rss:" else resident
        else:
            kept.append(line)
    if resident is None:
        raise Stop("the program did not say how much memory it holds at the end")
    return resident, "\n".join(kept)


def rollup_digest(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return hashlib.sha256(rollup_kb(file.read())[1].encode()).hexdigest()[:16]


def rollup_more(done):
    with open(done.out, encoding="utf-8", errors="replace") as file:
        return {"resident_kb": rollup_kb(file.read())[0]}
