"""What the tests of a build for musl share: the compiler, and what scripts/setup has put beside it."""
import argparse
import glob
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = os.path.join(ROOT, "build", "musl-root", "usr", "src")
LINK = ["-Wl,--eh-frame-hdr"]
SKIPPED = 77


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    return parser.parse_args()


def compiler(build):
    for path in glob.glob(os.path.join(build, "CMakeFiles", "*", "CMakeCCompiler.cmake")):
        with open(path, encoding="utf-8") as file:
            return re.search(r'\(CMAKE_C_COMPILER "(.*)"\)', file.read()).group(1)
    raise SystemExit(f"{build} was not configured")


def run(*command, text="", **variables):
    """Output of a command that must end well; none of the library's variables but those given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=100, env={**environment, **variables}, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:300]}: exit {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.stdout
