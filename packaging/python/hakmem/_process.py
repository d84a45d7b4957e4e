"""_process.py - become another program, or the same once more, as if no interpreter had stood between."""
import os
import signal
import sys
from typing import Dict, List, NoReturn


def environment_given() -> Dict[str, str]:
    """os.environ, less what the interpreter put there: in the C locale CPython sets LC_CTYPE (PEP 538), for its children as well."""
    variables = dict(os.environ)
    if variables.get("LC_CTYPE") in ("C.UTF-8", "C.utf8", "UTF-8"):
        try:
            with open("/proc/self/environ", "rb") as file:
                is_given = any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0"))
        except OSError:
            is_given = True
        if not is_given:
            del variables["LC_CTYPE"]
    return variables


def arguments_given() -> List[str]:
    """The interpreter's own arguments with its name, options included."""
    given = list(getattr(sys, "orig_argv", ()))  # CPython 3.10
    if not given:
        with open("/proc/self/cmdline", "rb") as file:
            given = [os.fsdecode(argument) for argument in file.read().split(b"\0")[:-1]]
    return given


def become(program: str, arguments: List[str], environment: Dict[str, str]) -> NoReturn:
    """execve, after what is written is out. The signals that CPython ignores for itself are not ignored by what comes."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # there is none; it takes no more; it is closed
            pass
    ignored = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFZ", "SIGXFSZ") if hasattr(signal, name)]
    before = [(number, signal.signal(number, signal.SIG_DFL)) for number in ignored]
    try:
        os.execve(program, arguments, environment)
    finally:  # it failed
        for number, handler in before:
            signal.signal(number, handler)
