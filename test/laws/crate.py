"""crate.py - crates/hakmem is the library: its build has the flags of the release, its package every source."""
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile

from _law import ROOT, breach, finish, options, sources

BUILD = os.path.abspath(options().build)
CRATE = os.path.join(ROOT, "crates", "hakmem")
with open(os.path.join(CRATE, "build.rs"), encoding="utf-8") as file:
    SCRIPT = file.read()


def named(constant):
    """The strings of a constant of build.rs."""
    text = re.search(rf"^const {constant}: [^=]*=\s*&?\[(.*?)\];", SCRIPT, re.S | re.M).group(1)
    return re.findall(r'"([^"]*)"', text)


def last_of_each(flags):
    """What the compiler makes of them: warnings say nothing of the code, and the last level of -g counts."""
    kept = [flag for flag in flags if re.match(r"-[Ofgm]|-std|-D", flag) and not flag.startswith("-gdwarf")
            and flag != "-ffunction-sections"]  # the order of functions is libhakmem.so's alone
    levels = [flag for flag in kept if re.fullmatch(r"-g\d?", flag)]
    return {flag for flag in kept if flag not in levels[:-1]}


def code_sections(path):
    """The sections of code that the crate's object of a source has."""
    source = os.path.join(ROOT, "src", path)
    command = next(shlex.split(command["command"]) for command in commands
                   if command["file"] == source and "hakmem_objects.dir" in command["command"])
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "object.o")
        command[command.index("-o") + 1] = made
        subprocess.run(command + named("FLAGS_AGAINST"), cwd=BUILD, check=True)
        listed = subprocess.run(["readelf", "-SW", made], check=True, capture_output=True, text=True).stdout
    return {match[1] for match in re.finditer(r"\] (\S+) +PROGBITS +\S+ \S+ (?!000000)\S+ \S+ +AX", listed)}


with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
    commands = json.load(file)
compiled = 0
for command in commands:
    path = os.path.relpath(command["file"], os.path.join(ROOT, "src"))
    if "hakmem_objects.dir" not in command["command"] or path.startswith(".."):
        continue
    compiled += 1
    flags = named("FLAGS") + named("FLAGS_CXX" if path.endswith(".cc") else "FLAGS_C")
    if path.startswith("front/") and path.endswith(".c"):
        flags += named("FLAGS_FRONT")
    ours, theirs = last_of_each(flags), last_of_each(command["command"].split())
    if ours != theirs:
        breach(f"crates/hakmem/build.rs: src/{path}: {' '.join(sorted(ours ^ theirs))} in one of the two builds only")
if compiled == 0:
    breach(f"{BUILD}: no source of the library is compiled")

with open(os.path.join(ROOT, "cmake", "library.cmake"), encoding="utf-8") as file:
    recipe = file.read()
for path in ("front/malloc.c", "front/start.c"):  # the first has cold parts, the second a constructor and a destructor
    for section in code_sections(path) - set(named("CODE_SECTIONS")):
        breach(f"crates/hakmem/build.rs: CODE_SECTIONS lack {section} of src/{path}")
shared = re.search(r"set\(hakmem_shared_source(.*?)\)", recipe, re.S).group(1)
if sorted(re.findall(r"/src/(\S+?\.c)", shared)) != sorted(named("SHARED_ONLY")):
    breach("crates/hakmem/build.rs: SHARED_ONLY is not hakmem_shared_source of cmake/library.cmake")

files = 0
if shutil.which("cargo"):
    listed = subprocess.run(["cargo", "package", "--list", "--allow-dirty", "--offline", "--quiet"], cwd=CRATE,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if listed.returncode != 0:
        breach(f"cargo package --list: {listed.stderr.strip()}")
    package = set(listed.stdout.split())
    for path in sources("src", "include"):
        files += 1
        if path.endswith(".hpp"):
            continue
        if f"c/{path}" not in package:
            breach(f"crates/hakmem: {path} is not in the package")
finish(f"crate: {compiled} compilations, {files} files in the package")
