"""HAKMEM, a malloc for Linux, in Python programs.

The wheel carries the shared library and the command `hakmem`. A process has the library when it starts:

    hakmem run -- python app.py                         or python -m hakmem run -- python app.py
    LD_PRELOAD=$(python -c 'import hakmem; print(hakmem.library())') python app.py

or, where the command line is not yours, at the top of what the program reads first:

    import hakmem
    hakmem.preload()

CPython serves objects up to 512 bytes from arenas of its own, which come from the library whole; with PYTHONMALLOC=malloc in the
environment each object is the library's.
"""
import errno
import json
import os
import sys
from typing import Any, Dict, Mapping, Optional, Union

__all__ = ["Error", "NotLoaded", "OptionError", "collect", "library", "loaded", "option", "preload", "set_option", "stats"]

# Which process has executed itself for the library's sake. Its name does not begin with HAKMEM_: the library would call it unknown.
_MARK = "PYTHON_HAKMEM_PRELOAD"


class Error(Exception):
    """What this module raises."""


class NotLoaded(Error):
    """The process does not run under the library."""


class OptionError(Error, ValueError):
    """There is no such option, or it cannot have that value, or not now."""


def library() -> str:
    """The path of the shared library, for LD_PRELOAD."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libhakmem.so")
    if not os.path.exists(path):
        raise Error(f"{path} is not there: this copy of the module was not installed from a wheel")
    return path


def loaded() -> bool:
    """Whether the malloc of this process is the library's, however it came to be: preloaded, or linked."""
    from . import _native

    return _native.functions() is not None


def _functions() -> Any:
    from . import _native

    functions = _native.functions()
    if functions is None:
        raise NotLoaded("this process does not run under HAKMEM: start it with `hakmem run -- ..`, or call hakmem.preload() first")
    return functions


def stats() -> Dict[str, Any]:
    """The library's statistics: live, free and resident bytes, size classes, counters; as HAKMEM_REPORT writes them."""
    from . import _native

    found: Dict[str, Any] = json.loads(_native.text_of(_functions().hak_stats_json))
    return found


def collect() -> int:
    """Gives every page that holds no live block back to the kernel, and returns how many bytes that are.

    After gc.collect() it finds more."""
    return int(_functions().hak_collect())


def option(name: str) -> str:
    """The value of an option of docs/options.md, such as "purge_delay_ms"; HAKMEM_PURGE_DELAY_MS is the same. A path not set is ""."""
    from . import _native

    functions, encoded = _functions(), _encoded(name)
    # A path that is not set is an empty text, as is an option that there is not: that one has no value to be refused either.
    value = _native.text_of(lambda room, count: functions.hak_option_get(encoded, room, count))
    if not value and functions.hak_option_set(encoded, None) == errno.ENOENT:
        raise OptionError(f"there is no option {name}")
    return os.fsdecode(value)


def set_option(name: str, value: Union[str, int]) -> None:
    """Sets an option that may change while the program runs; True is 1."""
    text = str(int(value)) if isinstance(value, int) else str(value)
    failure = _functions().hak_option_set(_encoded(name), _encoded(text))
    bare = name.upper()[len("HAKMEM_"):] if name.upper().startswith("HAKMEM_") else name.upper()
    reasons = {
        errno.ENOENT: f"there is no option {name}",
        errno.EINVAL: f"{name}: {text!r} is not a number",
        errno.ERANGE: f"{name}: {text} is out of its range",
        errno.EPERM: f"{name} can only be set when the program starts, as HAKMEM_{bare} in its environment",
    }
    if failure:
        raise OptionError(reasons.get(failure, f"{name}: {os.strerror(failure)}"))


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise OptionError(f"{text!r} holds a zero byte")
    return os.fsencode(text)


def preload(environment: Optional[Mapping[str, str]] = None) -> None:
    """Sees to it that this process runs under the library: where it does not, it is executed once more, with the library preloaded.

    For the top of what a program reads first (gunicorn.conf.py, the module of a celery application, manage.py): what was done before
    is done twice, threads end, and nothing that is in buffers is written but standard output and error. The process keeps its number,
    its arguments and its files; children inherit the library. Under the library it returns at once.

    `environment` is set for the process where it does not have the variables already, for what is read when a process starts:
    preload({"PYTHONMALLOC": "malloc", "HAKMEM_POLICY": "/var/lib/app/app.policy"}).

    Raises NotLoaded where the loader did not take the library, and Error where the process cannot begin again.
    """
    mark = os.environ.pop(_MARK, None)
    if loaded():
        return
    if mark == str(os.getpid()):
        raise NotLoaded(f"the loader did not take {library()}, which is in LD_PRELOAD; `hakmem doctor {sys.executable}` may say why")
    if sys.argv[:1] in ([""], ["-"]) and not (sys.stdin and sys.stdin.isatty()):
        raise Error("the program comes from standard input, which cannot be read twice: start it with `hakmem run`")
    from ._process import arguments_given, become, environment_given

    variables = {**(environment or {}), **environment_given()}
    variables["LD_PRELOAD"] = _preload_value(library(), variables.get("LD_PRELOAD", ""))
    variables[_MARK] = str(os.getpid())
    try:
        # The same file under the same name: by its name an interpreter finds its virtual environment.
        become(os.readlink("/proc/self/exe"), arguments_given(), variables)
    except ValueError as error:  # of signal.signal()
        raise Error("preload() is for the main thread: only there signals can be set as the new program is to find them") from error
    except OSError as error:
        raise Error(f"this process cannot be executed again: {error}") from error


def _preload_value(path: str, before: str) -> str:
    """LD_PRELOAD with the library first, and everything that stood there after it."""
    if any(separator in path for separator in " :\t\n"):
        raise Error(f"{path!r} cannot be preloaded: its path has a blank or a colon")
    others = before.replace(":", " ").replace("\t", " ").split(" ")
    return ":".join([path, *(other for other in others if other and other != path)])
