#!/usr/bin/env python3
"""run.py - glibc's own malloc tests, run against HAKMEM by preloading it.

Nothing of glibc is kept in this project: Debian's glibc-source package is unpacked into a temporary folder,
its tests are built there against the system's glibc with a few lines of shim for what only exists inside
glibc's own build, and each runs twice: without HAKMEM (which proves the harness: a test that fails there
says nothing) and with it. docs/conformance.md explains the results that are not a plain pass.

    run.py --build DIR [--only TEXT] [--source TARBALL] [--keep DIR] [--verbose]

Exit status: 0 all that apply pass, 1 some fail, 77 the source or a compiler is missing.
ctest: first
"""
import argparse
import concurrent.futures
import glob
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

SKIPPED = 77
SECONDS_MAX = 180

# What applies to a replacement of malloc: (folder, name).
TESTS = [("malloc", name) for name in """
    tst-calloc tst-free-errno tst-mallinfo2 tst-malloc tst-malloc-backtrace tst-malloc-check
    tst-malloc-fork-deadlock tst-malloc-stats-cancellation tst-malloc-tcache-leak tst-malloc-thread-exit
    tst-malloc-thread-fail tst-malloc-too-large tst-malloc_info tst-mallocalign1
    tst-mallocfork tst-mallocfork2 tst-mallocfork3 tst-mallopt tst-memalign tst-obstack tst-posix_memalign
    tst-pvalloc tst-pvalloc-fortify tst-realloc tst-reallocarray tst-tcfree1 tst-tcfree2 tst-tcfree3
    tst-trim1 tst-valloc tst-aligned-alloc tst-dynarray mallocbug
""".split()] + [("nptl", "tst-tls3-malloc")]

# Tests of glibc's malloc itself, not of malloc as its users see it: they are built and run, and their
# result is shown, but it does not count.
INTERNAL = {
    "tst-malloc-backtrace": "overwrites the word before a freed block and expects glibc's heap check to abort; "
                            "HAKMEM keeps nothing there that could be corrupted",
}

# Not even built.
NOT_APPLICABLE = {
    "tst-mallocstate, tst-compathooks-*": "need libc_malloc_debug.so, which is a second malloc to preload",
    "tst-interpose-*": "bring a malloc of their own into the program; HAKMEM is not called",
    "tst-mxfast, tst-safe-linking, tst-*-tunables": "GLIBC_TUNABLES and the lists inside glibc's heap",
    "tst-malloc-usable": "needs MALLOC_CHECK_ of libc_malloc_debug.so",
    "tst-alloc_buffer, tst-scratch_buffer": "functions inside glibc that no program can call",
    "tst-mtrace": "reads the trace of glibc's debugging malloc",
}

SHIM_C = """
/* What glibc's build defines by macros that name its build folder. */
const char support_objdir_root[] = "/nonexistent", support_srcdir_root[] = "/nonexistent";
const char support_objdir_elf_ldso[] = "/nonexistent", support_install_prefix[] = "/usr";
const char support_libdir_prefix[] = "/usr/lib", support_bindir_prefix[] = "/usr/bin";
const char support_sbindir_prefix[] = "/usr/sbin", support_install_rootsbindir[] = "/sbin";
const char support_slibdir_prefix[] = "/lib", support_complocaledir_prefix[] = "/usr/lib/locale";
const char support_sysconfdir_prefix[] = "/etc", support_localedir_prefix[] = "/usr/share/locale";
"""

# Headers of glibc's own build: those that work outside are linked, the others replaced by what tests use.
SHIM_LINKS = {
    "support": "support", "malloc": "malloc", "test-skeleton.c": "test-skeleton.c",
    "array_length.h": "include/array_length.h", "libc-diag.h": "include/libc-diag.h",
    "intprops.h": "include/intprops.h", "verify.h": "include/verify.h",
    "malloc-size.h": "sysdeps/generic/malloc-size.h", "malloc-alignment.h": "sysdeps/generic/malloc-alignment.h",
}
SHIM_HEADERS = {
    "config.h": "",
    "pthreaddef.h": "#define TCB_ALIGNMENT 64\n",
    "descr.h": "#include <pthread.h>\n#include <stdint.h>\n#define TCB_ALIGNMENT 64\n",
}

# Test programs that glibc links with more than the test itself, or with other flags.
EXTRA_FLAGS = {"tst-pvalloc-fortify": ["-Wno-cpp"]}


def text_tail(data, line_count=4):
    lines = data.decode(errors="replace").strip().splitlines()
    return " | ".join(lines[-line_count:])[-300:]


class Builder:
    """Unpacks glibc and builds its test support and tests, all in one folder."""

    def __init__(self, folder, tarball):
        self.folder = folder
        with tarfile.open(tarball) as archive:
            members = [member for member in archive
                       if any(f"/{part}/" in member.name for part in ("support", "malloc", "nptl", "include"))
                       or "/sysdeps/generic/" in member.name or member.name.count("/") == 1]
            archive.extractall(folder, members=members)
        self.source = glob.glob(os.path.join(folder, "glibc-*", "malloc"))[0][:-len("/malloc")]
        self.shim = os.path.join(folder, "shim")
        os.mkdir(self.shim)
        for name, target in SHIM_LINKS.items():
            os.symlink(os.path.join(self.source, target), os.path.join(self.shim, name))
        for name, content in SHIM_HEADERS.items():
            with open(os.path.join(self.shim, name), "w") as file:
                file.write(content)
        with open(os.path.join(folder, "shim.c"), "w") as file:
            file.write(SHIM_C)
        self.flags = ["-w", "-O2", "-g", "-std=gnu11", "-D_GNU_SOURCE", "-D_ISOMAC", "-DTIMEOUTFACTOR=1",
                      "-include", "limits.h", "-I" + self.shim, "-idirafter", os.path.join(self.source, "support")]

    def compile(self, *arguments):
        return subprocess.run(["gcc", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder)

    def support_build(self):
        """Builds every file of support/ that builds here; a test that needs another one fails to link."""
        def one(path):
            target = os.path.join(self.folder, "support-" + os.path.basename(path)[:-2] + ".o")
            return target if self.compile(*self.flags, "-c", path, "-o", target).returncode == 0 else None
        skip = ("tst-", "test-", "shell-container", "true-container", "echo-container", "links-dso", "support_paths")
        paths = [path for path in sorted(glob.glob(os.path.join(self.source, "support", "*.c")))
                 if not os.path.basename(path).startswith(skip)] + [os.path.join(self.folder, "shim.c")]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = [target for target in pool.map(one, paths) if target]
        subprocess.run(["ar", "rcs", os.path.join(self.folder, "libsupport.a"), *objects], check=True)

    def test_build(self, folder, name):
        """Builds one test; None, or the compiler's first complaint."""
        path = os.path.join(self.source, folder, name + ".c")
        extra = EXTRA_FLAGS.get(name, [])
        if name == "tst-tls3-malloc":
            # glibc's version brings a malloc into the program, to test it with TLS. Here the malloc comes
            # by preloading, so the test proper (tst-tls3) is built, with the larger stacks.
            path = os.path.join(self.folder, name + ".c")
            with open(path, "w") as file:
                file.write(f"#define STACK_SIZE_MB 10\n#include \"{self.source}/nptl/tst-tls3.c\"\n"
                           "static __attribute__((constructor)) void large_stacks(void) { stack_size_in_mb = 10; }\n")
            module = self.compile(*self.flags, "-I" + self.source + "/nptl", "-fPIC", "-shared",
                                  os.path.join(self.source, "nptl", "tst-tls3mod.c"), "-o", "tst-tls3mod.so")
            if module.returncode != 0:
                return "module: " + text_tail(module.stdout)
            extra = ["-rdynamic", "-I" + self.source + "/nptl", "-Wl,-rpath," + self.folder]
        if not os.path.exists(path):
            return "not in this glibc"
        done = self.compile(*self.flags, *extra, path, "libsupport.a", "-lpthread", "-ldl", "-o", name)
        if done.returncode == 0:
            return None
        complaint = [line for line in done.stdout.decode(errors="replace").splitlines() if "error" in line or "undefined" in line]
        return complaint[0][-200:] if complaint else text_tail(done.stdout)


def test_run(folder, name, library):
    """(status, seconds, tail): status 0 passed, 77 unsupported, others failed; negative: a signal."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("HAKMEM_", "LD_", "MALLOC_", "GLIBC_"))}
    environment["TIMEOUTFACTOR"] = "6"
    if library is not None:
        environment["LD_PRELOAD"] = library
    begin = time.monotonic()
    child = subprocess.Popen([os.path.join(folder, name)], cwd=folder, env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        output, _ = child.communicate(timeout=SECONDS_MAX)
        status = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL) # our own session, started above
        output, _ = child.communicate()
        status = "timeout"
    return status, time.monotonic() - begin, text_tail(output)


def judge(name, complaint, without, with_us):
    """The word in the table, and whether it counts as passed (True), failed (False) or not (None)."""
    if complaint is not None:
        return "not built", None
    if without[0] == SKIPPED:
        return "unsupported here", None
    if without[0] != 0:
        return "fails without HAKMEM too", None
    if with_us[0] == 0:
        return "pass", True
    if name in INTERNAL:
        return "does not apply", None
    return "FAIL", False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True, help="build directory with libhakmem.so")
    parser.add_argument("--only", default="", help="run only tests whose name contains this")
    parser.add_argument("--source", default="", help="glibc source archive (default: /usr/src/glibc/glibc-*.tar.xz)")
    parser.add_argument("--keep", default="", help="build in this new directory and leave it")
    parser.add_argument("--verbose", action="store_true", help="show why tests were not built")
    arguments = parser.parse_args()
    library = os.path.join(os.path.abspath(arguments.build), "libhakmem.so")
    if not os.path.exists(library):
        print(f"conformance: {library} does not exist; run make first", file=sys.stderr)
        return 1
    archives = [arguments.source] if arguments.source else sorted(glob.glob("/usr/src/glibc/glibc-*.tar.xz"))
    if not archives or not os.path.exists(archives[-1]) or shutil.which("gcc") is None:
        print("conformance: skipped: needs gcc and Debian's glibc-source package (apt install glibc-source)")
        return SKIPPED

    folder = arguments.keep or tempfile.mkdtemp(prefix="hakmem-conformance-")
    os.makedirs(folder, exist_ok=True)
    folder = os.path.abspath(folder)
    try:
        print(f"conformance: {os.path.basename(archives[-1])}, built in {folder}")
        builder = Builder(folder, archives[-1])
        builder.support_build()
        tests = [(part, name) for part, name in TESTS if arguments.only in name]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            complaints = dict(zip([name for _, name in tests], pool.map(lambda test: builder.test_build(*test), tests)))
        counts = {True: 0, False: 0, None: 0}
        print(f"{'test':32} {'without':>9} {'with':>9} {'seconds':>8}  result")
        for _, name in tests:
            complaint = complaints[name]
            if complaint == "not in this glibc":
                continue
            without = with_us = ("-", 0.0, "")
            if complaint is None:
                without = test_run(folder, name, None)
                with_us = test_run(folder, name, library)
            word, counted = judge(name, complaint, without, with_us)
            counts[counted] += 1
            print(f"{name:32} {without[0]!s:>9} {with_us[0]!s:>9} {with_us[1]:8.1f}  {word}", flush=True)
            if counted is False:
                print(f"    {with_us[2]}")
            elif complaint is not None and arguments.verbose:
                print(f"    {complaint}")
            elif word == "does not apply":
                print(f"    {INTERNAL[name]}")
        if arguments.verbose:
            for names, reason in NOT_APPLICABLE.items():
                print(f"not tried: {names}: {reason}")
        print(f"conformance: {counts[True]} passed, {counts[False]} failed, {counts[None]} do not count")
        return 1 if counts[False] or not counts[True] else 0
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
