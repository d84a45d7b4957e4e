"""fastpath.py - the fast paths of the shipped library, counted in its disassembly.

The hot path of a function is its longest way from the entry to a `ret` that stays inside the function: the
slow exits are tail jumps to other functions (or calls, in the function's cold part), so what never leaves is
what a block's allocation or free costs. Longest, so that no exit for an easy case can flatter the count.

fastpath.txt holds the counts, per compiler. Where the compiler is the table's they must be equal; with
another one the limits alone decide. `--update` writes the table: a commit of its own, with its measurement.
`--show NAME` prints a hot path.
"""
import os
import re
import sys

from _law import HERE, breach, finish, output

import argparse

TABLE = os.path.join(HERE, "fastpath.txt")
COLUMNS = ("instructions", "branches", "loads", "stores", "calls", "locks")
ALLOCATES = ["malloc", "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t"]
FREES = ["free", "_ZdlPv", "_ZdaPv", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t"]
FREES_SIZED = ["free_sized", "_ZdlPvm", "_ZdaPvm"]
ASKS = ["malloc_usable_size", "hak_usable_size", "realloc"]
# instructions, branches. A stated size is checked too: a load of the block's size, a compare, a branch. Who asks for the size, or has realloc leave
# a block where it is, waits for no store of ours: the way calls nothing.
LIMITS = {**{name: (18, 2) for name in ALLOCATES}, **{name: (30, 6) for name in FREES},
          **{name: (40, 8) for name in FREES_SIZED}, **{name: (44, 8) for name in ASKS}}


class Instruction:
    def __init__(self, address, text, after):
        self.address, self.text, self.after = address, text, after
        prefix = re.match(r"((?:lock|bnd|notrack|rep|repz|repnz|data16|cs|xacquire|xrelease)\s+)*", text).group(0)
        rest = text[len(prefix):]
        self.name = rest.split()[0]
        self.operands = rest[len(self.name):].split("#")[0].strip()
        self.locked = "lock" in prefix or (self.name.startswith("xchg") and "(" in self.operands)
        found = re.match(r"([0-9a-f]+)\s+<", self.operands)
        self.target = int(found.group(1), 16) if found else None
        self.is_return = self.name.startswith("ret")
        self.is_call = self.name.startswith("call")
        self.is_jump = self.name.startswith("jmp")
        self.is_branch = self.name.startswith("j") and not self.is_jump
        self.is_filler = self.name.startswith(("nop", "endbr"))

    def memory(self):
        """(loads, stores) of the instruction, AT&T syntax: the destination stands last."""
        if self.name.startswith(("lea", "nop", "prefetch")):
            return 0, 0
        if self.name.startswith("push"):
            return 0, 1
        if self.name.startswith("pop"):
            return 1, 0
        if self.is_jump or self.is_call or self.is_branch or self.is_return:
            return int("(" in self.operands), 0
        parts = re.split(r",(?![^(]*\))", self.operands)
        is_memory = [("(" in part or "%fs:" in part) for part in parts]
        if not any(is_memory):
            return 0, 0
        if not is_memory[-1]:
            return 1, 0
        if self.name.startswith(("cmp", "test", "mul", "imul", "div", "idiv")) or self.name in ("bt", "btq", "btl"):
            return 1, 0
        return (0, 1) if self.name.startswith(("mov", "set")) else (1, 1)


def disassemble(library):
    """All instructions by address, and each function's first and last address."""
    code, before = {}, None
    for line in output("objdump", "-d", "--no-show-raw-insn", library).splitlines():
        found = re.match(r"\s*([0-9a-f]+):\s+(\S.*)", line)
        if found:
            at = int(found.group(1), 16)
            code[at] = Instruction(at, found.group(2).strip(), None)
            if before is not None:
                code[before].after = at
            before = at
        elif line.startswith(("Disassembly", "0")):
            before = before if line.startswith("0") else None
    functions = {}
    for line in output("readelf", "-sW", library).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] == "FUNC" and fields[6] != "UND" and int(fields[2], 0) > 0:
            start = int(fields[1], 16)
            functions[fields[7]] = (start, start + int(fields[2], 0))
    return code, functions


def hot_path(code, start, end):
    """The longest way from start to a ret that never leaves [start, end) and runs no address twice."""
    best = []

    def walk(at, path, seen):
        nonlocal best
        while True:
            if at is None or not start <= at < end or at in seen or at not in code:
                return
            instruction = code[at]
            seen = seen | {at}
            path = path + [instruction]
            if instruction.is_return:
                if len(path) > len(best):
                    best = path
                return
            if instruction.is_call or instruction.name in ("ud2", "hlt", "int3"):
                return
            if instruction.is_jump:
                at = instruction.target
            else:
                if instruction.is_branch:
                    walk(instruction.target, path, seen)
                at = instruction.after

    walk(start, [], frozenset())
    return best


def count(path):
    path = [instruction for instruction in path if not instruction.is_filler]
    memory = [instruction.memory() for instruction in path]
    return (len(path), sum(i.is_branch for i in path), sum(m[0] for m in memory), sum(m[1] for m in memory),
            sum(i.is_call for i in path), sum(i.locked for i in path))


def compiler_of(library):
    text = output("readelf", "-p", ".comment", library)
    for name in ("clang", "GCC"):  # the start-up objects are GCC's in either case
        found = re.search(name + r"[^\d\n]*(?:\([^)]*\) )?(\d+\.\d+)", text)
        if found:
            return f"{name.lower()}-{found.group(1)}"
    return "unknown"


def read_table():
    """{(compiler, function): counts}"""
    rows = {}
    if os.path.exists(TABLE):
        with open(TABLE, encoding="utf-8") as file:
            for line in file:
                fields = line.split("#")[0].split()
                if fields:
                    rows[(fields[0], fields[1])] = tuple(int(field) for field in fields[2:])
    return rows


def write_table(rows):
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write("# The fast paths of libhakmem.so (release, x86-64): what stands between entry and ret.\n"
                   "# Written by `python3 test/laws/fastpath.py --update`; the limits are in that file.\n")
        file.write(f"# {'compiler':<10} {'function':<24} {' '.join(f'{name:>12}' for name in COLUMNS)}\n")
        for (compiler, name), row in sorted(rows.items()):
            file.write(f"{compiler:<12} {name:<24} {' '.join(f'{number:>12}' for number in row)}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--show", metavar="NAME")
    options = parser.parse_args()
    library = os.path.join(options.build, "libhakmem.so")
    if "x86-64" not in output("readelf", "-hW", library).lower():
        print("not an x86-64 library")
        sys.exit(77)
    code, functions = disassemble(library)
    if options.show:
        for instruction in hot_path(code, *functions[options.show]):
            print(f"{instruction.address:8x}  {instruction.text}")
        return

    compiler = compiler_of(library)
    rows, table = {}, read_table()
    for name in LIMITS:
        if name not in functions:
            breach(f"{name}: not in the library")
            continue
        path = hot_path(code, *functions[name])
        if not path:
            breach(f"{name}: no way from its entry to a ret without a call or a jump to another function")
            continue
        rows[name] = count(path)
        told = ", ".join(f"{number} {column}" for column, number in zip(COLUMNS, rows[name]))
        print(f"{name}: {told}")
        if rows[name][0] > LIMITS[name][0] or rows[name][1] > LIMITS[name][1]:
            breach(f"{name}: {rows[name][0]} instructions, {rows[name][1]} branches; the limits are "
                   f"{LIMITS[name][0]}, {LIMITS[name][1]}")
        if rows[name][5]:
            breach(f"{name}: an atomic read-modify-write on the fast path")
        before = table.get((compiler, name))
        if before is not None and before != rows[name] and not options.update:
            breach(f"{name}: {rows[name]} differs from fastpath.txt, {before} ({', '.join(COLUMNS)})")
    if options.update:
        table.update({(compiler, name): row for name, row in rows.items()})
        write_table(table)
    elif not any(key[0] == compiler for key in table):
        print(f"fastpath.txt has no rows for {compiler}: the limits alone were checked")
    finish(f"fast paths, {compiler}")


main()
