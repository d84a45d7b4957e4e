"""platform_tag.py - which wheel tag ELF files deserve, by the rule of PEP 600: the oldest glibc that has every symbol they ask for.

A file that asks for anything else than glibc and libgcc, or that needs a newer processor than its architecture's first, has no tag.
"""
import os
import re
import subprocess

MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
LIBRARIES = re.compile(r"lib(c\.so\.6|m\.so\.6|dl\.so\.2|pthread\.so\.0|rt\.so\.1|util\.so\.1|gcc_s\.so\.1)|ld-linux-(x86-64\.so\.2|aarch64\.so\.1)")
GLIBC_OLDEST = (2, 17)  # of what has tags on both architectures
LIBGCC_NEWEST = (4, 8)  # which systems with that glibc have


class Untaggable(Exception):
    """Why there is no tag that would be true."""


def numbers(text):
    return tuple(int(number) for number in text.split(".")[:2])


def glibc_needed(version):
    """The glibc that a symbol version is of, or None: any that has a tag."""
    if version == "GLIBC_ABI_DT_RELR":
        return 2, 36
    family, _, number = version.partition("_")
    if family == "GLIBC" and re.fullmatch(r"[\d.]+", number):
        return numbers(number)
    if family == "GCC" and re.fullmatch(r"[\d.]+", number) and numbers(number) <= LIBGCC_NEWEST:
        return None
    raise Untaggable(f"the symbol version {version} is promised by no tag")


def file_needs(text):
    """(machine, glibc) of a file, from what `readelf -W -h -d -V -n` says of it."""
    machine = re.search(r"^ *Machine: +(.+)$", text, re.MULTILINE)
    if machine is None or machine.group(1) not in MACHINES:
        raise Untaggable(f"its machine is {machine.group(1) if machine else 'unknown'}")
    for library in re.findall(r"\(NEEDED\) +Shared library: \[(.*?)\]", text):
        if not LIBRARIES.fullmatch(library):
            raise Untaggable(f"it needs {library}, which no tag promises")
    processor = re.search(r"x86 ISA needed: .*?(x86-64-v\d)", text)
    if processor:
        raise Untaggable(f"it needs a processor of {processor.group(1)}")
    found = [glibc_needed(version) for version in re.findall(r"Name: (\S+) +Flags: ", text)]
    return MACHINES[machine.group(1)], max([GLIBC_OLDEST, *filter(None, found)])


def platform_tag(paths):
    """The tag of a wheel with these files."""
    machines, glibc = set(), GLIBC_OLDEST
    for path in paths:
        said = subprocess.run(["readelf", "-W", "-h", "-d", "-V", "-n", path], check=True, stdout=subprocess.PIPE, encoding="utf-8",
                              env=dict(os.environ, LC_ALL="C")).stdout
        try:
            machine, needed = file_needs(said)
        except Untaggable as reason:
            raise Untaggable(f"{path}: {reason}") from None
        machines.add(machine)
        glibc = max(glibc, needed)
    if len(machines) != 1:
        raise Untaggable(f"the files are for {' and '.join(sorted(machines)) or 'no machine'}")
    return f"manylinux_{glibc[0]}_{glibc[1]}_{machines.pop()}"
