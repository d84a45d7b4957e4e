"""callgrind.py - instructions that malloc and free take, slow paths included, to the digit.

Method: `pairs` has its mallocs and its frees in two functions, phase_alloc and phase_free. Callgrind collects in one
        of them (--toggle-collect), and what the function itself executes, its loop, is subtracted: what is left was
        executed below it, that is in the allocator. The workload is built without PLT stubs and bound at start.
"""
import os
import re

from runner import BINARIES, BenchError, program_find

ROUNDS, BLOCKS = 400, 256


def costs_parse(path, function):
    """(instructions collected, those of `function` itself) of a callgrind.out file."""
    total = own = 0
    names, is_own, after_calls, seen = {}, False, False, False
    with open(path, encoding="utf-8") as file:
        for line in file:
            match = re.match(r"fn=\((\d+)\)(?: (.*))?", line)
            if match:
                if match.group(2):
                    names[match.group(1)] = match.group(2).strip()
                is_own = names.get(match.group(1), "").split("'")[0] == function
                seen = True
            elif line.startswith("cfn=("):
                match = re.match(r"cfn=\((\d+)\)(?: (.*))?", line)
                if match.group(2):
                    names[match.group(1)] = match.group(2).strip()
            elif line.startswith("calls="):
                after_calls = True
            elif seen and re.match(r"[+\-*\d]", line):
                if after_calls:
                    after_calls = False # the cost of the callee, counted where it was executed
                else:
                    cost = int(line.split()[1]) if len(line.split()) > 1 else 0
                    total += cost
                    own += cost if is_own else 0
    return total, own


def instructions(stand, preload, block_bytes, phase):
    """Instructions a call, for phase 'alloc' or 'free'."""
    out = os.path.join(stand.scratch, f"callgrind.{phase}")
    function = f"phase_{phase}"
    stand.run(preload, [program_find("valgrind"), "--tool=callgrind", f"--callgrind-out-file={out}",
                        "--collect-atstart=no", f"--toggle-collect={function}", os.path.join(BINARIES, "pairs"),
                        str(block_bytes), str(BLOCKS), str(ROUNDS)])
    total, own = costs_parse(out, function)
    os.unlink(out)
    if not own or total <= own:
        raise BenchError(f"callgrind collected nothing below {function}")
    return (total - own) / (ROUNDS * BLOCKS)
