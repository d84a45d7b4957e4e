"""seeing_lib.py - what the tests of the command share: the command and the library of a build, programs made on the
spot, a program that runs until it is told to end."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


class Bench:
    """A build's command and library, and a folder of its own."""

    def __init__(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--build", required=True)
        build = os.path.abspath(parser.parse_args().build)
        self.library = os.path.join(build, "libhakmem.so")
        self.command = os.environ.get("HAK_TEST_COMMAND") or os.path.join(build, "hakmem")
        if not os.path.exists(self.command):
            skip("the command is not built")
        self.folder = tempfile.mkdtemp(prefix="hakmem-seeing-")
        self.children = []
        child = self.start(sys.executable, "-c", "print('ready', flush=True); input()")
        if "publishes nothing" in (said := self.hakmem("metrics", "-p", str(child.pid), status=None).stderr) or \
                "does not record" in said:
            sys.exit(f"FAIL: the library does not publish: {said.strip()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def hakmem(self, *arguments, status=0, timeout=300, library=None):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM") and k != "LD_PRELOAD"}
        environment["HAKMEM_LIB"] = library or self.library
        done = subprocess.run([self.command, *arguments], capture_output=True, text=True, env=environment,
                              timeout=timeout, check=False)
        if status is not None and done.returncode != status:
            fail(f"hakmem {' '.join(arguments)}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
        return done

    def start(self, *command, **variables):
        """A program under the library; it writes a line when it is ready, and ends when its input does."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM")}
        environment.update(variables, LD_PRELOAD=self.library)
        child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        line = child.stdout.readline()
        if not line:
            fail(f"{command[0]} did not come up")
        return child

    def finish(self, child, timeout=120):
        """Its input ends; what it still says, and that it ended well."""
        rest, _ = child.communicate(timeout=timeout)
        if child.returncode != 0:
            fail(f"the program ended with {child.returncode}")
        return rest

    def built(self, name, source, compiler, *flags):
        tool = shutil.which(compiler)
        if not tool:
            return None
        suffix = {"g++": ".cc", "c++": ".cc", "rustc": ".rs"}.get(compiler, ".c")
        file = self.write(name + suffix, source)
        subprocess.run([tool, *flags, "-o", self.path(name), file], check=True)
        return self.path(name)


def fail(reason):
    print("FAILED: " + reason)
    raise SystemExit(1)


def check(holds, what):
    if not holds:
        fail(what)
    print("ok: " + what.splitlines()[0])


def eventually(holds, seconds=30):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
