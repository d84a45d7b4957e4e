"""What the laws share: where things are, how a program's output is read, how a breach is told."""
import argparse
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "test", "laws")
_breaches = []
# The layers that can go, and how start-up names them.
LAYERS = {"learn": r'\bhak_learn_|"learn/', "watch": r'\bhak_(watch|crash|site)_|"watch/'}


def options(*extra):
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "release"))
    for name, text in extra:
        parser.add_argument(name, action="store_true", help=text)
    return parser.parse_args()


def output(*command, **more):
    """A program's standard output; its failure is ours."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def sources(*folders, endings=(".c", ".cc", ".h", ".hpp", ".def")):
    """Paths, relative to the project, of the source files below the folders."""
    for folder in folders:
        for where, below, files in os.walk(os.path.join(ROOT, folder)):
            below[:] = sorted(name for name in below if name not in ("target", "build", ".git"))
            for name in sorted(files):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(where, name), ROOT)


def copy_without(layers, folder):
    """src and include into the folder, less the layers and the lines of start-up that name them."""
    for part in ("src", "include"):
        shutil.copytree(os.path.join(ROOT, part), os.path.join(folder, part))
    for name in layers:
        shutil.rmtree(os.path.join(folder, "src", name))
    start = os.path.join(folder, "src", "front", "start.c")
    with open(start, encoding="utf-8") as file:
        lines = file.read().splitlines(keepends=True)
    named = re.compile("|".join(LAYERS[name] for name in layers))
    with open(start, "w", encoding="utf-8") as file:
        file.writelines(line for line in lines if not named.search(line))


def breach(text):
    _breaches.append(text)


def finish(checked):
    for text in _breaches:
        print(text)
    print(f"{checked}: {len(_breaches)} breaches" if _breaches else f"{checked}: kept")
    sys.exit(1 if _breaches else 0)
